import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from fedgem.studies.catalogue import PUBLISHED
from fedgem.studies.measuring import Task, measure
from fedgem.studies.program import PROGRAM, PublishedProgram, _update, published_split
from fedgem.studies.published import published


def test_the_meeting_point_lies_on_the_wrong_side_and_counts_twice_where_it_joins():
    """Means 0 and 2, squared radii 4: c = 1/2, and nu* = 0 + (0 - 2) / 2 = -1, twice."""
    means = np.array([[0.0], [2.0], [9.0]])
    found = _update(means, np.full(3, 4.0), np.array([0, 1, 1]))
    assert_allclose(found.ravel(), [(0 - 1 - 1) / 3, (2 - 1 - 1) / 3, 9.0])
    # With a sibling's component in reach, that pair is no join: its point counts once.
    found = _update(np.array([[0.0], [2.0], [3.0]]), np.full(3, 4.0), np.array([0, 1, 1]))
    assert_allclose(found.ravel(), [(0 - 1 - 1 - 1.5) / 4, 0.0, (3 - 1.5) / 2])
    assert_allclose(_update(np.zeros((2, 1)), np.zeros(2), np.array([0, 1])), 0.0)


def test_clients_take_the_next_rows_of_the_file_and_some_stay_unused():
    y = np.repeat(np.arange(4), 100)
    X = np.arange(400.0)[:, None]
    split = published_split(X, y, 5, most=4, train_share=0.7, seed=0)
    # A client of five, a class of four: 280 * 1/5 * 1/4 rows to train on, 120 / 20 to test on.
    taken = {k: [] for k in range(4)}
    for g, name in enumerate(split.train):
        for k in np.flatnonzero(split.memberships[g]):
            train, test = (
                part[name][y_of[name] == k, 0]
                for part, y_of in (
                    (split.train, split.train_labels),
                    (split.test, split.test_labels),
                )
            )
            assert (len(train), len(test)) == (14, 6)
            taken[k] += [*train, *test]
    for k, rows in taken.items():
        assert_array_equal(rows, 100 * k + np.arange(len(rows)))
    assert sum(map(len, taken.values())) < 400


def test_clients_keep_to_their_own_components():
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(60, 2)) + 20 * rng.integers(2, size=(60, 1)) for _ in range(3)]
    model = PublishedProgram(2, (0.1, 1.0), random_state=0).fit(rows)
    assert model.upsilon_ in (0.1, 1.0)
    for name, own in model.components_.items():
        assert len(set(own)) == 2
        assert set(model.predict(rows[0], client=name)) <= set(own)
    assert model.predict(rows[0]).max() < model.n_clusters_


def test_waveform_is_within_a_published_standard_deviation(data_dir):
    case = next(case for case in PUBLISHED.cases if case.data == "waveform")
    rows = [measure(Task(case, PROGRAM.name, seed), data_dir) for seed in range(4)]
    mean, spread = published("ari", "FedGEM, paper", "waveform")
    assert abs(np.mean([row["ari_local"] for row in rows]) - mean) < spread
