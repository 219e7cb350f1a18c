import numpy as np
import pytest

from fedgem.datasets import partition

N_ROWS = np.array([40, 31, 25, 60, 17, 33])  # of each class
Y = np.random.default_rng(0).permutation(np.repeat(np.arange(6), N_ROWS))
X = np.arange(len(Y))[:, None]  # a row is its own number


def test_each_row_is_used_once_with_its_class():
    split = partition(X, Y, 4, random_state=0)
    rows = np.concatenate([*split.train.values(), *split.test.values()])[:, 0]
    labels = np.concatenate([*split.train_labels.values(), *split.test_labels.values()])
    np.testing.assert_array_equal(np.sort(rows), np.arange(len(Y)))
    np.testing.assert_array_equal(labels, Y[rows])


def test_the_same_seed_gives_the_same_split():
    first, second, other = (partition(X, Y, 4, random_state=seed) for seed in (1, 1, 2))
    for name in first.train:
        np.testing.assert_array_equal(first.train[name], second.train[name])
        np.testing.assert_array_equal(first.test[name], second.test[name])
    assert not np.array_equal(first.train["client-1"], other.train["client-1"])


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("n_clients", "fewest", "most"), [(2, 2, 4), (3, 6, 6), (9, 1, 2)])
def test_every_class_is_at_some_client(n_clients, fewest, most, seed):
    split = partition(X, Y, n_clients, fewest=fewest, most=most, random_state=seed)
    n_held = split.memberships.sum(axis=1)
    assert split.memberships.shape == (n_clients, 6)
    assert split.memberships.any(axis=0).all()
    assert n_held.min() >= fewest
    assert n_held.max() <= most


def test_by_default_a_client_has_two_classes_at_least_and_may_have_all():
    n_held = partition(X, Y, 15, random_state=0).memberships.sum(axis=1)
    assert n_held.min() == 2
    assert n_held.max() == 6


def test_clients_that_have_a_class_share_it_evenly():
    split = partition(X, Y, 4, random_state=0)
    counts = np.array(
        [
            np.bincount(np.append(split.train_labels[name], split.test_labels[name]), minlength=6)
            for name in split.train
        ]
    )
    np.testing.assert_array_equal(counts > 0, split.memberships)
    for shares in counts.T:
        assert np.ptp(shares[shares > 0]) <= 1


@pytest.mark.parametrize("train_share", [0.5, 0.7, 1.0])
def test_the_share_to_train_on_is_that_of_every_client(train_share):
    split = partition(X, Y, 4, train_share=train_share, random_state=0)
    for name, rows in split.train.items():
        assert len(rows) == round(train_share * (len(rows) + len(split.test[name])))


def test_names_sort_in_the_order_of_the_clients():
    assert list(partition(X, Y, 10, random_state=0).train) == [
        f"client-{g:02d}" for g in range(1, 11)
    ]


@pytest.mark.parametrize(
    ("y", "arguments", "message"),
    [
        (Y[1:], {}, "y must have one class per row of X, 206, got 205."),
        (
            np.where(Y == 1, 7, Y),
            {},
            "y must number the classes 0, 1, 2, ... without a gap, got [0, 2, 3, 4, 5, 7].",
        ),
        (Y, {"n_clients": 0}, "n_clients must be at least 1, got 0."),
        (Y, {"fewest": 0}, "fewest must be from 1 to the 6 classes, got 0."),
        (Y, {"fewest": 7}, "fewest must be from 1 to the 6 classes, got 7."),
        (Y, {"most": 7}, "most must be from fewest, 2, to the 6 classes, got 7."),
        (Y, {"most": 1}, "most must be from fewest, 2, to the 6 classes, got 1."),
        (
            Y,
            {"n_clients": 2, "most": 2},
            "n_clients * most must be at least the 6 classes, got 2 * 2.",
        ),
        (Y, {"train_share": 0.0}, "train_share must be above 0 and at most 1, got 0.0."),
        (
            Y,
            {"n_clients": 50, "fewest": 6},
            "class 0 must have a row for each of the 50 clients that have it, got 40.",
        ),
    ],
)
def test_arguments_out_of_range(y, arguments, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared below
        partition(X, y, **{"n_clients": 4} | arguments)
    assert str(error.value) == message
