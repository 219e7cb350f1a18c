from functools import cache

import numpy as np
import pytest

from fedgem import FedGEM, InputError
from fedgem.datasets import make_federated_blobs, make_fleet
from fedgem.enrolment import unfolded

COVARIANCE_TYPES = ("full", "tied", "diag", "spherical", "identity")


def blobs(seed):
    found = make_federated_blobs(6, 8, n_rows=600, min_distance=6.0, random_state=seed)
    return found.clients, found.labels


def fleet(seed):
    found = make_fleet(12, random_state=seed)
    return found.clients, found.modes


def pick(labels, classes, n, rng):
    """Choose rows of classes, as many of each."""
    each = n // len(classes)
    return np.concatenate(
        [rng.permutation(np.flatnonzero(labels == c))[:each] for c in sorted(classes)]
    )


def without(source, seed, hidden):
    """Train on the first half of each client's rows without some classes; keep the second half."""
    clients, labels = source(seed)
    train, spare, of_spare = {}, [], []
    for name, X in clients.items():
        half = len(X) // 2
        train[name] = X[:half][~np.isin(labels[name][:half], hidden)]
        spare.append(X[half:])
        of_spare.append(labels[name][half:])
    train = {name: X for name, X in train.items() if len(X) > 20}
    return train, np.concatenate(spare), np.concatenate(of_spare)


@cache
def trained_without(source, seed, hidden, covariance_type="full"):
    train, X, y = without(source, seed, hidden)
    return FedGEM(random_state=0, covariance_type=covariance_type).fit(train), X, y


def enrolled(source, seed, hidden, classes, n, covariance_type="full"):
    model, X, y = trained_without(source, seed, hidden, covariance_type)
    chosen = pick(y, classes, n, np.random.default_rng(seed))
    newcomer = FedGEM()
    newcomer.__dict__.update(model.__dict__)
    return model, newcomer.enroll(X[chosen], "newcomer"), y[chosen]


@pytest.mark.parametrize("n", [20, 200])
@pytest.mark.parametrize("source", [blobs, fleet])
def test_known_clusters_are_recognised_and_none_is_invented(source, n):
    invented = wrong = 0
    for seed in range(4):
        before, after, y = enrolled(source, seed, (), [0, 2, 3], n)
        invented += after.n_clusters_ > before.n_clusters_
        labels = after.labels_[-1]
        has = np.unique([np.bincount(labels[y == c]).argmax() for c in (0, 2, 3)])
        wrong += not np.array_equal(np.flatnonzero(after.memberships_[-1]), has)
    assert invented == 0
    assert wrong <= 1


@pytest.mark.parametrize("n", [20, 200])
@pytest.mark.parametrize("classes", [[0, 1, 3], [1]])
@pytest.mark.parametrize("source", [blobs, fleet])
def test_a_cluster_that_nobody_had_is_new(source, classes, n):
    for seed in range(2):
        before, after, y = enrolled(source, seed, (1,), classes, n)
        assert after.n_clusters_ == before.n_clusters_ + 1
        assert after.memberships_[-1].sum() == len(classes)
        assert ((after.labels_[-1] == before.n_clusters_) == (y == 1)).mean() > 0.9


@pytest.mark.parametrize("classes", [[0, 1, 2, 3], [1, 2]])
def test_two_clusters_that_nobody_had_are_new(classes):
    for seed in range(2):
        before, after, y = enrolled(blobs, seed, (1, 2), classes, 200)
        assert after.n_clusters_ == before.n_clusters_ + 2
        labels = after.labels_[-1]
        a, b = (np.bincount(labels[y == c]).argmax() for c in (1, 2))
        assert {int(a), int(b)} == {before.n_clusters_, before.n_clusters_ + 1}


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_every_covariance_type_enrolls(covariance_type):
    before, after, _ = enrolled(blobs, 0, (1,), [0, 1, 3], 150, covariance_type)
    assert after.n_clusters_ == before.n_clusters_ + 1
    assert after.covariances_.shape == (after.n_clusters_, 4, 4)


def test_what_was_known_stays_as_it_was():
    before, after, _ = enrolled(fleet, 0, (1,), [0, 1], 100)
    known = slice(before.n_clusters_)
    np.testing.assert_array_equal(after.means_[known], before.means_)
    np.testing.assert_array_equal(after.covariances_[known], before.covariances_)
    np.testing.assert_array_equal(after.weights_[:-1, known], before.weights_)
    assert not after.memberships_[:-1, before.n_clusters_ :].any()
    assert after.clients_ == (*before.clients_, "newcomer")
    assert after.calibration_.sum() == before.calibration_.sum() + 100
    for old, new in zip(before.labels_, after.labels_[:-1], strict=True):
        np.testing.assert_array_equal(old, new)
    parts = after.components_
    assert len(parts.owners) == len(parts.means) == len(parts.weights) == len(parts.counts)
    assert len(parts.covariances) == len(after.component_labels_) == len(parts.owners)
    assert parts.means.shape[1:] == parts.covariances.shape[1:2]


def test_a_new_cluster_is_known_from_then_on():
    before, after, _ = enrolled(fleet, 0, (1,), [0, 1], 100)
    _, X, labels = trained_without(fleet, 0, (1,))
    of_new = X[labels == 1]
    assert (before.novelty(of_new) < 0.01).mean() > 0.9
    assert (after.novelty(of_new) < 0.01).mean() < 0.1
    assert (after.predict(of_new) == before.n_clusters_).mean() > 0.95
    np.testing.assert_array_equal(
        after.predict(X[pick(labels, [0, 1], 100, np.random.default_rng(0))], client="newcomer"),
        after.labels_[-1],
    )
    second = after.enroll(of_new, "second")
    assert second.n_clusters_ == before.n_clusters_ + 1
    assert second.memberships_[-1].nonzero()[0].tolist() == [before.n_clusters_]


def test_a_cluster_apart_in_a_direction_that_was_left_out_is_new():
    rng = np.random.default_rng(0)
    spread = np.array([5.0, 5.0, 0.05])
    model = FedGEM(random_state=0).fit([rng.normal(size=(300, 3)) * spread for _ in range(3)])
    assert model.mixture_.subspace.rest.shape[1] == 1
    X = rng.normal(size=(200, 3)) * spread
    X[100:, 2] += 1.0
    n_before, densities = model.n_clusters_, model.mixture_.log_densities(X)
    np.testing.assert_allclose(unfolded(model.mixture_).log_densities(X), densities)
    model.enroll(X, "newcomer")
    assert model.n_clusters_ == n_before + 1
    np.testing.assert_allclose(model.means_[-1, 2], 1.0, atol=0.05)
    np.testing.assert_allclose(model.mixture_.log_densities(X)[:, :n_before], densities)
    assert ((model.labels_[-1] == n_before) == (np.arange(200) >= 100)).all()


def test_scaled_models_report_new_clusters_in_the_features_units():
    train, X, y = without(fleet, 0, (1,))
    model = FedGEM(random_state=0, scale=True).fit(train)
    model.enroll(X[y == 1], "newcomer")
    np.testing.assert_allclose(model.means_[-1], X[y == 1].mean(axis=0), rtol=0.02, atol=0.2)
    assert (model.predict(X[y == 1], client="newcomer") == model.n_clusters_ - 1).mean() > 0.9


def test_one_row_that_is_far_away_is_no_cluster():
    train, X, _ = without(blobs, 0, ())
    model = FedGEM(random_state=0).fit(train)
    n_before = model.n_clusters_
    model.enroll(np.vstack([X[:100], X[:1] + 1000.0]), "newcomer")
    assert model.n_clusters_ == n_before
    model.enroll(X[:1], "one row")
    assert model.memberships_[-1].sum() == 1


def test_enrolled_twice_saved_and_loaded(tmp_path):
    train, X, y = without(fleet, 1, (1, 2))
    model = FedGEM(random_state=0).fit(train)
    model.enroll(X[y == 1], "first").enroll(X[np.isin(y, [0, 2])], "second")
    model.save(tmp_path / "model.npz")
    loaded = FedGEM.load(tmp_path / "model.npz")
    for client in (None, "first", "second"):
        np.testing.assert_array_equal(loaded.predict(X, client), model.predict(X, client))
    np.testing.assert_array_equal(loaded.novelty(X), model.novelty(X))
    loaded.enroll(X[y == 1], "third")
    assert loaded.clients_[-3:] == ("first", "second", "third")


def test_labels_of_one_array_are_appended():
    train, X, _ = without(fleet, 0, ())
    ids = np.repeat(list(train), [len(rows) for rows in train.values()])
    model = FedGEM(random_state=0).fit(np.concatenate(list(train.values())), clients=ids)
    model.enroll(X[:50], "newcomer")
    assert model.labels_.shape == (len(ids) + 50,)


def test_what_cannot_be_enrolled():
    train, X, _ = without(fleet, 0, ())
    model = FedGEM(random_state=0).fit(train)
    with pytest.raises(InputError, match="a client called 'plant-01' already"):
        model.enroll(X, "plant-01")
    with pytest.raises(InputError, match="X has 3 features"):
        model.enroll(X[:, :3], "newcomer")
    with pytest.raises(ValueError, match="minimum of 1"):
        model.enroll(X[:0], "newcomer")
    paper = FedGEM.paper().fit(train)
    with pytest.raises(InputError, match="enroll needs a mixture that all clients share"):
        paper.enroll(X, "newcomer")
    assert model.clients_ == tuple(train)
