import numpy as np
from numpy.testing import assert_array_equal

from fedgem.gaussian import initialisation
from fedgem.gaussian.initialisation import start
from fedgem.rows import Rows

QUARTERS = np.full(4, 0.25)


def blobs():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0]])
    return centres, centres[rng.integers(4, size=400)] + rng.normal(size=(400, 2))


def test_seeds_of_a_single_start_are_rows():
    _, X = blobs()
    means = start(Rows.from_array(X), QUARTERS, 1, [0])[0].means
    assert all((mean == X).all(axis=1).any() for mean in means)


def test_several_starts_find_what_one_misses():
    centres, X = blobs()

    def far_off(n_init, seed):
        means = start(Rows.from_array(X), QUARTERS, n_init, [seed])[0].means
        return np.linalg.norm(centres[:, None] - means, axis=2).min(axis=1).max() > 4

    one = sum(far_off(1, seed) for seed in range(40))
    five = sum(far_off(5, seed) for seed in range(40))
    assert five < one


def test_same_seed_same_start():
    _, X = blobs()
    rows = Rows.from_array(X)
    assert_array_equal(
        start(rows, QUARTERS, 3, [5, 1])[0].means, start(rows, QUARTERS, 3, [5, 1])[0].means
    )
    assert not np.array_equal(
        start(rows, QUARTERS, 1, [5, 1])[0].means, start(rows, QUARTERS, 1, [5, 2])[0].means
    )


def test_many_rows_start_from_a_sample(monkeypatch):
    monkeypatch.setattr(initialisation, "SAMPLE", 50)
    _, X = blobs()
    means = start(Rows.from_array(X), QUARTERS, 1, [0])[0].means
    assert all((mean == X).all(axis=1).any() for mean in means)


def test_fewer_distinct_rows_than_components():
    X = np.ones((6, 2))
    assert_array_equal(start(Rows.from_array(X), QUARTERS, 2, [0])[0].means, np.ones((4, 2)))
