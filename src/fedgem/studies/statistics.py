"""Whether methods differ: paired tests over seeds, and ranks over many cases.

After Demšar, "Statistical comparisons of classifiers over multiple data sets" (JMLR 7, 2006). A
case is a data set and a seed. The seeds of one data set are no independent data sets: what follows
tells of the data sets that were measured, and not of others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import friedmanchisquare, rankdata, studentized_range, wilcoxon

from fedgem.typing import Array


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number by Holm's step-down procedure.

    Examples
    --------
    >>> [round(p, 2) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p)
    corrected = np.empty(len(p))
    steps = p[order] * np.arange(len(p), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return [float(value) for value in corrected]


def paired_p_values(scores: Mapping[str, Array], reference: str) -> dict[str, float]:
    """Compare each method with one of them by Wilcoxon's signed-rank test, Holm-corrected.

    Parameters
    ----------
    scores : dict of str to array
        Each method's score in the same cases.
    reference : str
        The method that the others are compared with.

    Examples
    --------
    Eight wins of eight happen by chance in 2 of 256 cases:

    >>> ours, theirs = np.arange(8.0) + 1, np.zeros(8)
    >>> paired_p_values({"ours": ours, "theirs": theirs, "copy": ours}, "ours")
    {'theirs': 0.015625, 'copy': 1.0}
    """
    others = [name for name in scores if name != reference]
    differences = [scores[reference] - scores[name] for name in others]
    # Without any difference there is no test.
    p_values = [float(wilcoxon(d).pvalue) if np.any(d) else 1.0 for d in differences]
    return dict(zip(others, holm(p_values), strict=True))


def ranks(scores: Array) -> Array:
    """Return the ranks in each case, 1 for the highest score; nan counts as the lowest.

    Parameters
    ----------
    scores : array of shape (cases, methods)
        Scores, the higher the better.

    Examples
    --------
    >>> ranks(np.array([[0.9, 0.5, 0.5, np.nan]]))
    array([[1. , 2.5, 2.5, 4. ]])
    """
    return np.asarray(rankdata(np.where(np.isnan(scores), np.inf, -scores), axis=1))


def friedman_p_value(scores: Array) -> float:
    """Return the p-value of Friedman's test that all of three methods or more are alike.

    Parameters
    ----------
    scores : array of shape (cases, methods)
        Scores.
    """
    ranked = ranks(scores)
    if np.ptp(ranked) == 0:  # without any difference there is no test
        return 1.0
    return float(friedmanchisquare(*ranked.T).pvalue)


def critical_difference(n_methods: int, n_cases: int, alpha: float = 0.05) -> float:
    """Return by how much average ranks have to differ to matter: Nemenyi's test.

    Examples
    --------
    Demšar's example of four classifiers on 14 data sets:

    >>> round(critical_difference(4, 14), 2)
    1.25
    """
    quantile = studentized_range.ppf(1 - alpha, n_methods, np.inf) / np.sqrt(2)
    return float(quantile * np.sqrt(n_methods * (n_methods + 1) / (6 * n_cases)))


def cliques(average_ranks: Sequence[float], difference: float) -> list[tuple[int, int]]:
    """Return the largest groups of two methods and more that do not differ.

    Parameters
    ----------
    average_ranks : sequence of float
        In ascending order.
    difference : float
        By how much ranks have to differ to matter.

    Returns
    -------
    list of (int, int)
        The first and the last method of each group.

    Examples
    --------
    >>> cliques([1.0, 1.5, 2.2, 4.0], 0.8)
    [(0, 1), (1, 2)]
    """
    values = np.asarray(average_ranks)
    lasts = np.searchsorted(values, values + difference, side="right") - 1
    groups = [(i, int(last)) for i, last in enumerate(lasts) if last > i]
    return [g for n, g in enumerate(groups) if n == 0 or g[1] > groups[n - 1][1]]
