import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import wilcoxon

from fedgem.studies.statistics import (
    cliques,
    critical_difference,
    friedman_p_value,
    holm,
    paired_p_values,
    ranks,
)

# Demšar (2006), table 6: AUC of C4.5, with -m, with -cf and with both, on 14 data sets.
AUC = np.array(
    [
        [0.763, 0.768, 0.771, 0.798],
        [0.599, 0.591, 0.590, 0.569],
        [0.954, 0.971, 0.968, 0.967],
        [0.628, 0.661, 0.654, 0.657],
        [0.882, 0.888, 0.886, 0.898],
        [0.936, 0.931, 0.916, 0.931],
        [0.661, 0.668, 0.609, 0.685],
        [0.583, 0.583, 0.563, 0.625],
        [0.775, 0.838, 0.866, 0.875],
        [1.000, 1.000, 1.000, 1.000],
        [0.940, 0.962, 0.965, 0.962],
        [0.619, 0.666, 0.614, 0.669],
        [0.972, 0.981, 0.9751, 0.975],  # 0.975 twice as printed, but ranked 2 and 3
        [0.957, 0.978, 0.946, 0.970],
    ]
)


def test_demsars_example():
    average = ranks(AUC).mean(axis=0)
    assert_allclose(average, [3.143, 2.000, 2.893, 1.964], atol=5e-4)
    # He prints 9.28 for Friedman's statistic, without the correction for ties, and rejects at 5%.
    assert 0.01 < friedman_p_value(AUC) < 0.05
    assert_allclose(critical_difference(4, 14), 1.25, atol=5e-3)
    assert_allclose(critical_difference(4, 14, alpha=0.10), 1.12, atol=5e-3)
    # At 10% his figure joins C4.5 with -cf, and -cf with the other two.
    assert cliques(np.sort(average), 1.12) == [(0, 2), (2, 3)]


@pytest.mark.parametrize(("n_methods", "quantile"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_nemenyis_quantiles(n_methods, quantile):
    """Demšar's table 5."""
    n_cases = n_methods * (n_methods + 1) / 6
    assert_allclose(critical_difference(n_methods, n_cases), quantile, atol=1.5e-3)


def test_friedman_by_hand():
    """Ranks 1, 2, 3 in each of four cases: chi-squared = 12 * 4 / 12 * (1 + 4 + 9) - 48 = 8."""
    scores = np.tile([3.0, 2.0, 1.0], (4, 1))
    assert_allclose(friedman_p_value(scores), np.exp(-8 / 2))  # two degrees of freedom


def test_holm_by_hand():
    """Smallest times 3, next times 2, last times 1, never falling, at most 1."""
    assert_allclose(holm([0.04, 0.01, 0.03]), [0.06, 0.03, 0.06])
    assert_allclose(holm([0.6, 0.5]), [1.0, 1.0])
    assert holm([]) == []


def test_paired_p_values_are_those_of_scipy_corrected():
    rng = np.random.default_rng(0)
    scores = {name: rng.normal(shift, size=20) for name, shift in (("a", 1), ("b", 0), ("c", 0.9))}
    expected = holm([wilcoxon(scores["a"] - scores[name]).pvalue for name in "bc"])
    assert list(paired_p_values(scores, "a").values()) == expected


def test_a_failure_ranks_last():
    assert ranks(np.array([[-5.0, np.nan, 3.0], [np.nan, np.nan, 0.1]])).tolist() == [
        [2.0, 3.0, 1.0],
        [2.5, 2.5, 1.0],
    ]


def test_cliques_are_the_largest_groups():
    assert cliques([1, 2, 3], 2) == [(0, 2)]
    assert cliques([1, 3, 5], 1) == []
    assert cliques([1, 1.5, 2.5, 3], 1) == [(0, 1), (1, 2), (2, 3)]
