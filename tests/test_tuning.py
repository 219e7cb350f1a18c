import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedgem.client import N_FOLDS, Client
from fedgem.engines.local import LocalEngine
from fedgem.rows import Rows
from fedgem.server import Components
from fedgem.superclusters import merge_tree
from fedgem.tuning import SIGNIFICANTLY, Scoring, candidate_costs
from models import collaborative
from strategies import federations


def blobs(centres, n_rows=60, seed=0):
    rng = np.random.default_rng(seed)
    return np.concatenate([np.asarray(c) + rng.normal(size=(n_rows, 2)) for c in centres])


A, B, C, D = [0, 0], [12, 0], [0, 12], [12, 12]


@pytest.mark.parametrize("cannot_link", [True, False])
def test_finds_the_clusters_of_separated_blobs(cannot_link):
    clients = [blobs(own, seed=g) for g, own in enumerate([[A, B], [B, C], [C, D, A], [D, B]])]
    model = collaborative([2, 2, 3, 2], cannot_link=cannot_link, random_state=0).fit(clients)
    assert model.n_clusters_ == 4
    assert_array_equal(model.memberships_.sum(axis=1), [2, 2, 3, 2])


def test_curve_is_kept_on_the_model():
    clients = [blobs(own, seed=g) for g, own in enumerate([[A, B], [B, C], [C, A]])]
    model = collaborative(2, cannot_link=False, random_state=0).fit(clients)
    scores = model.upsilon_scores_
    assert set(scores) == {"upsilon", "n_clusters", "silhouette"}
    for upsilon, n_clusters in zip(scores["upsilon"], scores["n_clusters"], strict=True):
        assert model.merge_tree_.cut(upsilon).max() + 1 == n_clusters
    assert model.upsilon_ in scores["upsilon"]
    assert model.merge_tree_.n_clusters[0] == 6


def test_candidates_follow_the_guide():
    rng = np.random.default_rng(0)
    owners = np.repeat(np.arange(20), 5)
    tree = merge_tree(rng.normal(size=(100, 2)), np.ones(100), owners)
    sizes = np.full(20, 5)
    costs, widths = candidate_costs(tree, sizes)
    found = [tree.cut(cost).max() + 1 for cost in costs]
    assert found == list(range(int(SIGNIFICANTLY * np.sqrt(100)), 4, -1))
    assert np.all(widths >= 1)


def test_candidates_of_a_tree_that_ends_early():
    """Clients whose components never meet leave one candidate: no merge at all."""
    tree = merge_tree(np.zeros((4, 1)), np.ones(4), np.zeros(4, dtype=int))
    costs, _ = candidate_costs(tree, np.array([4]))
    assert [tree.cut(cost).max() + 1 for cost in costs] == [4]


@given(federations(), st.booleans())
def test_candidates_cut_the_tree_at_different_numbers_of_clusters(federation, cannot_link):
    """Also where the merge that cannot_link forbids at the end is cheaper than those before it."""
    means, squared_radii, owners = federation
    tree = merge_tree(means, squared_radii, owners, cannot_link=cannot_link)
    costs, _ = candidate_costs(tree, np.bincount(owners))
    found = [tree.cut(cost).max() + 1 for cost in costs]
    assert found == sorted(set(found), reverse=True)
    assert len(costs) < 2 or found[-1] >= np.bincount(owners).max()


def test_merges_at_one_cost_are_one_step():
    """Four equal gaps: the numbers between four clusters and one never occur."""
    means, owners = np.arange(4.0)[:, None], np.arange(4)
    costs, _ = candidate_costs(merge_tree(means, np.ones(4), owners), np.ones(4, int))
    tree = merge_tree(means, np.ones(4), owners)
    assert [tree.cut(cost).max() + 1 for cost in costs] == [1]


def test_score_is_the_mean_over_clients_weighted_by_rows():
    from sklearn.metrics import silhouette_score

    means = np.array([A, B, A, C], dtype=float)
    data = [blobs([A, B]), blobs([A, C], n_rows=20, seed=1)]
    clients = {
        str(g): Client(str(g), Rows.from_array(X), np.full(2, 0.5), seed=0)
        for g, X in enumerate(data)
    }
    components = Components(
        ("0", "1"), np.array([0, 0, 1, 1]), means, np.full(4, 0.5), np.ones(4), np.array([120, 40])
    )
    candidates = np.array([[0, 1, 0, 2], [0, 0, 0, 0]])
    scores = LocalEngine().run(Scoring(components, candidates), clients).answer
    labels = [np.repeat([0, 1], len(X) // 2) for X in data]
    expected = np.average(
        [silhouette_score(X, own) for X, own in zip(data, labels, strict=True)], weights=[120, 40]
    )
    assert_allclose(scores, [expected, 0.0], rtol=1e-6)


def test_folds_hold_every_row_out_once():
    client = Client("a", Rows.from_array(np.arange(50.0)[:, None]), np.full(2, 0.5), seed=0)
    held_out = []
    for fold in range(N_FOLDS):
        part = client.seeing(fold=fold)
        assert part.rows.n_kept + part.held_out.n_kept == 50
        held_out += np.concatenate(list(part.held_out.blocks())).ravel().tolist()
    assert sorted(held_out) == list(range(50))


def test_a_client_too_small_to_split_trains_on_all_its_rows():
    client = Client("a", Rows.from_array(np.zeros((8, 1))), np.full(2, 0.5), seed=0)
    part = client.seeing(fold=0)
    assert part.rows.n_kept == part.held_out.n_kept == 8


def test_finds_the_clusters_that_one_client_has_all_of():
    """Then the path under cannot_link ends where it should, and that end must be eligible."""
    clients = [blobs(own, seed=g) for g, own in enumerate([[A, B], [B, C], [A, B, C]])]
    assert collaborative([2, 2, 3], random_state=0).fit(clients).n_clusters_ == 3


def test_one_component_for_each_client():
    """No client has two components to take a scale from: nothing but equal means can merge."""
    rng = np.random.default_rng(0)
    model = collaborative(1, random_state=0).fit(
        [rng.normal(size=(30, 2)) + 9 * g for g in range(4)]
    )
    assert model.n_clusters_ == 4
