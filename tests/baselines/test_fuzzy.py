import numpy as np
from hypothesis import given
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist

from fedgem.baselines.fuzzy import fuzzy_step
from fedgem.rows import Rows
from strategies import rows_and_means


def by_definition(X, means):
    """One step, from the formulas with m = 2; rows may not be centres."""
    d = cdist(X, means)
    u = 1 / np.sum((d[:, :, None] / d[:, None, :]) ** 2, axis=2)
    return u.sum(axis=0), (u**2).T @ X / (u**2).sum(axis=0)[:, None], np.sum(u**2 * d**2)


def test_a_step_by_hand():
    """Squared distances 1 and 9: memberships 0.9 and 0.1, weights 0.81 and 0.01."""
    supports, statistics, objective = fuzzy_step(
        Rows.from_array(np.array([[0.0], [4.0]])), np.array([[1.0], [3.0]]), 2.0
    )
    assert_allclose(supports, [1.0, 1.0])
    assert_allclose(statistics.means.ravel(), [0.04 / 0.82, 4 - 0.04 / 0.82])
    assert_allclose(objective, 2 * (0.81 * 1 + 0.01 * 9))


def test_a_step_is_what_its_definition_says():
    rng = np.random.default_rng(0)
    X, means = rng.normal(size=(60, 3)), rng.normal(size=(4, 3))
    supports, statistics, objective = fuzzy_step(Rows.from_array(X), means, 2.0)
    expected_supports, centres, expected = by_definition(X, means)
    assert_allclose(supports, expected_supports)
    assert_allclose(statistics.means, centres)
    assert_allclose(objective, expected)


@given(rows_and_means())
def test_a_step_shares_every_row_and_lowers_the_objective(drawn):
    X, means = drawn
    rows = Rows.from_array(X)
    supports, statistics, objective = fuzzy_step(rows, means, 2.0)
    assert_allclose(supports.sum(), len(X))
    rounding = 1e-9 * np.square(np.abs(X).max()) * np.finfo(float).eps * len(X)
    assert fuzzy_step(rows, statistics.means, 2.0)[2] <= objective * (1 + 1e-9) + rounding


def test_a_row_that_is_a_centre_is_all_its():
    supports, statistics, objective = fuzzy_step(
        Rows.from_array(np.array([[1.0]])), np.array([[1.0], [3.0]]), 2.0
    )
    assert_allclose(supports, [1.0, 0.0])
    assert_allclose(statistics.means.ravel(), [1.0, 3.0])
    assert objective == 0
