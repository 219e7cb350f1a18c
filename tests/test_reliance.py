import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgem.gaussian.covariances import Gaussians
from fedgem.gaussian.estep import e_step
from fedgem.gaussian.mixture import regularised
from fedgem.messages import SharedPart
from fedgem.reliance import RELIANCES, best_reliance, discounted, without
from fedgem.rows import Rows

TYPES = ("full", "tied", "diag", "spherical", "identity")


def statistics_of(X, covariance_type, k=2):
    """The statistics of rows under some components."""
    means = np.linspace(-1, 1, k)[:, None] * np.ones(X.shape[1])
    start = Gaussians(means)
    if covariance_type != "identity":
        d = X.shape[1]
        shape = {"full": (k, d, d), "tied": (d, d), "diag": (k, d), "spherical": (k,)}
        covariances = np.ones(shape[covariance_type])
        if covariance_type in ("full", "tied"):
            covariances = np.broadcast_to(np.eye(d), shape[covariance_type]).copy()
        start = Gaussians(means, covariances, covariance_type)
    return e_step(Rows.from_array(X), start, np.full(k, -np.log(k)))[0]


@pytest.mark.parametrize("covariance_type", TYPES)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_all_less_ones_own_is_the_others(covariance_type, seed):
    rng = np.random.default_rng(seed)
    own = statistics_of(rng.normal(size=(60, 3)), covariance_type)
    others = statistics_of(rng.normal(1, 2, size=(200, 3)), covariance_type)
    found = without(own + others, own, covariance_type)
    np.testing.assert_allclose(found.counts, others.counts)
    np.testing.assert_allclose(found.means, others.means, atol=1e-9)
    if covariance_type != "identity":
        np.testing.assert_allclose(found.covariances, others.covariances, atol=1e-9)


def test_components_that_only_one_client_has_leave_nothing_to_others():
    own = statistics_of(np.random.default_rng(0).normal(size=(60, 3)), "full")
    assert without(own, own, "full").counts.max() == 0
    assert discounted(own, without(own, own, "full"), 1.0).means == pytest.approx(own.means)


def reliance_of(own, others, covariance_type="full"):
    """What a client that has `own` should have others count."""
    floor = np.full(own.shape[1], 1e-6)
    theirs = statistics_of(others, covariance_type)
    components = regularised(theirs, covariance_type, floor)
    part = SharedPart(components.means, np.full(2, 0.5), components.covariances)
    return best_reliance(Rows.from_array(own), part, theirs, floor, covariance_type, [0])


@pytest.mark.parametrize("covariance_type", TYPES)
def test_a_client_like_the_others_relies_on_them(covariance_type):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-3, 1, (2000, 3)), rng.normal(3, 1, (2000, 3))])
    rng.shuffle(X)
    assert reliance_of(X[:100], X[100:], covariance_type) == RELIANCES[0]


@pytest.mark.parametrize("covariance_type", TYPES)
def test_a_client_unlike_the_others_goes_its_own_way(covariance_type):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(-3, 1, (2000, 3)), rng.normal(3, 1, (2000, 3))])
    rng.shuffle(X)
    assert reliance_of(X[:400] + 1.5, X[400:], covariance_type) < 0.1


def test_a_client_of_one_row_relies_on_the_others():
    X = np.random.default_rng(0).normal(size=(500, 3))
    assert reliance_of(X[:1], X[1:]) == RELIANCES[0]
