"""The partitions by class, by size, by column and by Dirichlet shares; and what all have alike."""

from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedgem import InputError
from fedgem.datasets import (
    partition,
    partition_by_class,
    partition_by_column,
    partition_by_size,
    partition_dirichlet,
)
from strategies import seeds

N_ROWS = np.array([40, 31, 25, 60, 17, 33])  # of each class
Y = np.random.default_rng(0).permutation(np.repeat(np.arange(6), N_ROWS))
X = np.arange(len(Y))[:, None]  # a row is its own number


def rows_of(split):
    """Return each client's rows, those to train on and those to test on."""
    return {name: np.append(split.train[name], split.test[name]) for name in split.train}


def labels_of(split):
    return {
        name: np.append(split.train_labels[name], split.test_labels[name]) for name in split.train
    }


@st.composite
def ways(draw):
    """A way to spread rows, with what it is to spread."""
    n_classes, n_clients = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(seeds))
    y = np.append(np.arange(n_classes), rng.integers(n_classes, size=draw(st.integers(40, 90))))
    X = np.arange(len(y))[:, None]
    way = draw(st.sampled_from(["classes", "whole classes", "dirichlet", "size", "column"]))
    if way == "classes":
        fewest = draw(st.integers(1, n_classes))
        most = draw(st.integers(fewest, n_classes))
        assume(n_clients * most >= n_classes)
        assume(np.bincount(y).min() >= n_clients)
        shuffle = draw(st.booleans())
        return partial(partition, X, y, n_clients, fewest=fewest, most=most, shuffle=shuffle), X, y
    if way == "whole classes":
        return partial(partition_by_class, X, y, min(n_clients, n_classes)), X, y
    if way == "dirichlet":
        alpha = draw(st.sampled_from([0.5, 1.0, 100.0]))
        return partial(partition_dirichlet, X, y, n_clients, alpha=alpha), X, y
    if way == "size":
        sizes = rng.uniform(0.2, 1, size=n_clients)
        return partial(partition_by_size, X, y, sizes), X, y
    return partial(partition_by_column, X, y, rng.integers(n_clients, size=len(y))), X, y


@given(ways(), st.sampled_from([0.3, 0.7, 1.0]), seeds)
def test_every_row_is_at_one_client_with_its_class(way, train_share, seed):
    spread, X, y = way
    split = spread(train_share=train_share, random_state=seed)
    rows, labels = rows_of(split), labels_of(split)
    np.testing.assert_array_equal(np.sort(np.concatenate([*rows.values()])), X[:, 0])
    for g, name in enumerate(rows):
        np.testing.assert_array_equal(labels[name], y[rows[name]])
        held = np.bincount(labels[name], minlength=y.max() + 1) > 0
        np.testing.assert_array_equal(split.memberships[g], held)
        n_train = max(1, round(train_share * len(rows[name])))
        assert split.train[name].shape == (n_train, 1)
        assert split.test[name].shape == (len(rows[name]) - n_train, 1)
    assert split.memberships.any(axis=0).all()

    again = spread(train_share=train_share, random_state=seed)
    for name, own in rows_of(again).items():
        np.testing.assert_array_equal(own, rows[name])


@pytest.mark.parametrize(
    "spread",
    [
        partial(partition, n_clients=4),
        partial(partition_by_class, n_clients=4),
        partial(partition_dirichlet, n_clients=4, alpha=1.0),
        partial(partition_by_size, sizes=[3, 2, 1]),
        partial(partition_by_column, column=Y),
    ],
)
def test_another_seed_gives_another_split(spread):
    first, second = (rows_of(spread(X, Y, random_state=seed)) for seed in (1, 2))
    assert any(not np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("seed", range(5))
def test_without_shuffling_clients_get_rows_that_follow_each_other(seed):
    split = partition(X, Y, 4, shuffle=False, random_state=seed)
    for name, rows in rows_of(split).items():
        for c in np.unique(Y[rows]):
            of_class = np.flatnonzero(c == Y)
            places = np.searchsorted(of_class, np.sort(rows[Y[rows] == c]))
            np.testing.assert_array_equal(np.diff(places), 1, err_msg=name)
    shuffled = partition(X, Y, 4, random_state=seed)
    np.testing.assert_array_equal(split.memberships, shuffled.memberships)


@pytest.mark.parametrize("n_clients", [1, 4, 6])
def test_a_class_is_at_one_client_and_clients_have_as_many(n_clients):
    split = partition_by_class(X, Y, n_clients, random_state=0)
    np.testing.assert_array_equal(split.memberships.sum(axis=0), 1)
    assert np.ptp(split.memberships.sum(axis=1)) <= 1


def test_alpha_says_how_even_the_shares_are():
    def unevenness(alpha):
        split = partition_dirichlet(X, Y, 4, alpha=alpha, random_state=0)
        counts = np.array([np.bincount(own, minlength=6) for own in labels_of(split).values()])
        return (counts / N_ROWS).std()

    spreads = [unevenness(alpha) for alpha in (0.2, 2.0, 20.0, 2e6)]
    assert spreads == sorted(spreads, reverse=True)
    assert spreads[-1] < 0.02


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), seeds)
def test_sizes_are_as_asked_and_classes_are_mixed_alike(sizes, seed):
    y = np.random.default_rng(seed).integers(3, size=sum(sizes))
    y = np.unique(y, return_inverse=True)[1]
    split = partition_by_size(np.zeros((len(y), 1)), y, sizes, random_state=seed)
    shares = np.bincount(y) / len(y)
    for n, own in zip(sizes, labels_of(split).values(), strict=True):
        assert len(own) == n
        # Clients take turns: within a class, each is off by at most one row for each client.
        assert np.abs(np.bincount(own, minlength=len(shares)) - n * shares).max() <= len(sizes) + 1


def test_sizes_in_other_units_are_scaled_to_all_rows():
    sizes = 1 / np.arange(1, 6)  # a power law
    split = partition_by_size(X, Y, sizes, random_state=0)
    n_rows = [len(rows) for rows in rows_of(split).values()]
    assert sum(n_rows) == len(Y)
    np.testing.assert_allclose(n_rows, sizes / sizes.sum() * len(Y), atol=1)


def test_clients_of_a_column_are_named_by_it():
    column = np.array(["b", "a", "c"])[np.arange(len(Y)) % 3]
    split = partition_by_column(X, Y, column, random_state=0)
    assert list(split.train) == ["a", "b", "c"]
    for name, rows in rows_of(split).items():
        np.testing.assert_array_equal(np.sort(rows), np.flatnonzero(column == name))


@pytest.mark.parametrize(
    ("spread", "message"),
    [
        (
            partial(partition_by_class, X, Y, 7),
            "n_clients must be at most the 6 classes, so that each client has a class of its own, "
            "got 7.",
        ),
        (partial(partition_by_class, X, Y, 0), "n_clients must be at least 1, got 0."),
        (partial(partition_by_class, X[:0], Y[:0], 1), "X must have at least one row, got none."),
        (
            partial(partition_dirichlet, X, Y, 3, alpha=0),
            "alpha must be above 0 and finite, got 0.",
        ),
        (
            partial(partition_dirichlet, X, Y, 150, alpha=0.01, random_state=0),
            "alpha must be large enough that each of the 150 clients gets a row, got 0.01, which "
            "left one without in each of 1000 draws.",
        ),
        (
            partial(partition_by_size, X, Y, [3, 0]),
            "sizes must be one number above 0 per client, got [3, 0].",
        ),
        (
            partial(partition_by_size, X, Y, [1e6, 1]),
            "sizes must leave each client a row out of 206, got [1000000.0, 1], which leave client "
            "2 without.",
        ),
        (
            partial(partition_by_column, X, Y, Y[1:]),
            "column must have one value per row of X, 206, got an array of shape (205,).",
        ),
    ],
)
def test_arguments_out_of_range(spread, message):
    with pytest.raises(InputError) as error:
        spread()
    assert str(error.value) == message
