import io
import json
import zipfile
from dataclasses import fields

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedgem import FederatedScaler, FedGEM, InputError, LocalEngine, StoredFileError
from fedgem import rows as rows_module
from fedgem.server import Round
from models import collaborative
from strategies import COVARIANCE_TYPES

NAMES = ["rms", "kurtosis"]
CENTRES = 10.0 * np.array([[0, 0], [1, 0], [0, 1], [1, 1], [2, 0], [2, 1]])


def federation(**own):
    """Rows of some clients, each around centres of its own."""
    rng = np.random.default_rng(0)
    return {
        name: CENTRES[np.resize(centres, 40)] + rng.normal(size=(40, 2))
        for name, centres in own.items()
    }


PLANTS = federation(east=[3, 0], north=[0, 1], south=[1, 2], west=[2, 3])
POOLED = np.concatenate(list(PLANTS.values()))
IDS = np.repeat(list(PLANTS), 40)
STRETCHED = {name: X * [1, 1000] + [0, 5e4] for name, X in PLANTS.items()}


def join(X=PLANTS, *, clients=None, checkpoint=None, callbacks=(), random_state=0, **params):
    """Fit as in the paper: components join when their uncertainty sets meet."""
    model = collaborative(random_state=random_state, **params)
    return model.fit(X, clients=clients, checkpoint=checkpoint, callbacks=callbacks)


def share(X=PLANTS, *, clients=None, checkpoint=None, callbacks=(), random_state=0, **params):
    """Fit a mixture that all clients share, as by default."""
    model = FedGEM(random_state=random_state, **params)
    return model.fit(X, clients=clients, checkpoint=checkpoint, callbacks=callbacks)


@pytest.fixture(scope="module", params=[join, share], ids=lambda fit: fit.__name__)
def fit(request):
    """Both ways to fit."""
    return request.param


@pytest.fixture(scope="module")
def model(fit):
    return fit()


@pytest.fixture(scope="module")
def joined():
    return join()


@pytest.fixture(params=[rows_module.BLOCK_BYTES, 256], ids=["one block", "many blocks"])
def any_block_size(request, monkeypatch):
    monkeypatch.setattr(rows_module, "BLOCK_BYTES", request.param)


def assert_same(one, other):
    """Compare what two models found, bit by bit."""
    assert vars(one).get("upsilon_") == vars(other).get("upsilon_")
    assert one.scale_.dtype == other.scale_.dtype
    for name in ("means_", "covariances_", "weights_", "memberships_", "component_labels_"):
        assert_array_equal(getattr(one, name), getattr(other, name), strict=True)
    assert [row.objective for row in one.history_] == [row.objective for row in other.history_]
    assert_array_equal(np.hstack(one.labels_), np.hstack(other.labels_))


# A scikit-learn estimator


@parametrize_with_checks([FedGEM(), collaborative(), FederatedScaler()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_parameters_survive_clone_and_set_params():
    model = FedGEM([2, 3], engine=LocalEngine(2), weights=[[1.0], [0.5, 0.5]], upsilon=3.0)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert copy.set_params(upsilon="auto").get_params() != model.get_params()


def test_a_pipeline_passes_clients_on():
    pipeline = make_pipeline(FederatedScaler(), FedGEM(random_state=0))
    pipeline.fit(POOLED, fedgem__clients=IDS)
    assert pipeline["fedgem"].clients_ == tuple(PLANTS)
    by_hand = share(FederatedScaler().fit_transform(POOLED), clients=IDS)
    assert_same(pipeline["fedgem"], by_hand)


@pytest.mark.parametrize(("library", "frame"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame)])
def test_set_output_of_the_scaler(library, frame):
    scaler = FederatedScaler().set_output(transform=library)
    scaled = scaler.fit_transform(pd.DataFrame(POOLED, columns=NAMES))
    assert isinstance(scaled, frame)
    assert list(scaled.columns) == list(scaler.get_feature_names_out()) == NAMES


def test_fit_predict():
    model = FedGEM(random_state=0)
    assert_array_equal(model.fit_predict(POOLED, clients=IDS), model.labels_)


def test_the_papers_preset():
    model = FedGEM.paper(upsilon=5.0, random_state=0).fit(PLANTS)
    spelled_out = collaborative(
        n_init=1, tol=0.0, upsilon=5.0, cannot_link=False, random_state=0
    ).set_params(max_iter=10, n_local_steps=1)
    assert model.get_params() == spelled_out.get_params()
    assert model.n_iter_ == 11
    assert FedGEM.paper(cannot_link=True).upsilon == 2.0


# What goes in


def test_a_list_a_dict_and_one_array_give_the_same_model(fit, model):
    assert_same(model, fit(POOLED, clients=IDS))
    assert_same(fit(list(PLANTS.values())), fit(POOLED, clients=np.repeat([0, 1, 2, 3], 40)))


def test_rows_of_one_array_may_be_in_any_order(fit, model):
    ids = np.random.default_rng(0).permutation(IDS)
    X = np.empty_like(POOLED)
    for name, own in PLANTS.items():
        X[ids == name] = own
    mixed = fit(X, clients=ids)
    assert_array_equal(mixed.means_, model.means_)
    for name, labels in zip(PLANTS, model.labels_, strict=True):
        assert_array_equal(mixed.labels_[ids == name], labels)


FRAMES = {
    "pandas": lambda X: pd.DataFrame(X, columns=NAMES),
    "polars": lambda X: pl.DataFrame(X, schema=NAMES),
    "PyArrow": lambda X: pa.table(dict(zip(NAMES, X.T, strict=True))),
    "NumPy, by columns": np.asfortranarray,
    "lists": np.ndarray.tolist,
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
@pytest.mark.usefixtures("any_block_size")
def test_every_kind_of_array_gives_the_same_model(fit, frame):
    expected = fit(STRETCHED, scale=True, max_iter=2)
    found = fit({name: frame(X) for name, X in STRETCHED.items()}, scale=True, max_iter=2)
    assert_same(found, expected)
    new = STRETCHED["south"]
    assert_array_equal(found.predict(frame(new)), expected.predict(new))
    assert_array_equal(found.score_samples(frame(new)), expected.score_samples(new))
    scaler = FederatedScaler().fit(frame(new))
    assert_array_equal(scaler.transform(frame(new)), FederatedScaler().fit_transform(new))


@pytest.mark.parametrize("suffix", [".npy", ".parquet", ".npz", ".feather"])
@pytest.mark.usefixtures("any_block_size")
def test_files_give_the_same_model_as_memory(fit, tmp_path, suffix):
    paths = {}
    for name, X in STRETCHED.items():
        path = paths[name] = tmp_path / f"{name}{suffix}"
        frame = pd.DataFrame(X, columns=NAMES)
        if suffix == ".npy":
            np.save(path, X)
        elif suffix == ".npz":
            np.savez(path, X)
        elif suffix == ".parquet":
            frame.to_parquet(path, row_group_size=7)
        else:
            frame.to_feather(path)
    expected = fit(STRETCHED, scale=True, max_iter=2)
    assert_same(fit(paths, scale=True, max_iter=2), expected)
    from_list = fit([str(path) for path in paths.values()], scale=True, max_iter=2)
    assert_same(from_list, expected)
    assert from_list.clients_ == tuple(PLANTS)
    assert_array_equal(expected.predict(paths["west"], client="west"), expected.labels_[3])


def test_a_memory_mapped_array_is_used_as_it_is(fit, tmp_path, model):
    for name, X in PLANTS.items():
        np.save(tmp_path / f"{name}.npy", X)
    mapped = {name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in PLANTS}
    assert_same(fit(mapped), model)


@pytest.mark.parametrize("scale", [False, True])
def test_float32_stays_float32(fit, scale):
    large = fit(scale=scale)
    small = fit({name: X.astype(np.float32) for name, X in PLANTS.items()}, scale=scale)
    assert {small.means_.dtype, small.scale_.dtype} == {np.dtype(np.float32)}
    assert_allclose(small.means_, large.means_, atol=1e-3)
    assert fit(PLANTS | {"west": PLANTS["west"].astype(np.float32)}).means_.dtype == "float64"


def test_feature_names_are_kept_and_forgotten(fit):
    model = fit({name: pd.DataFrame(X, columns=NAMES) for name, X in PLANTS.items()})
    assert_array_equal(model.feature_names_in_, np.array(NAMES, object), strict=True)
    assert not hasattr(model.fit(PLANTS), "feature_names_in_")
    assert not hasattr(fit(pd.DataFrame(POOLED)), "feature_names_in_")


def test_clients_may_be_called_by_numbers(fit):
    numbered = dict(enumerate(PLANTS.values(), start=1))
    model = fit(numbered, n_local_components={1: 2, 2: 2, 3: 3, 4: 2})
    assert model.clients_ == ("1", "2", "3", "4")
    assert_array_equal(model.predict(numbered[3], client=3), model.labels_[2])


# What comes out


def test_finds_what_the_clients_share(model):
    assert model.n_clusters_ == 4
    of_centres = np.square(CENTRES[:4, None] - model.means_).sum(axis=2).argmin(axis=1)
    assert_allclose(model.means_[of_centres], CENTRES[:4], atol=0.5)
    expected = [[1, 0, 0, 1], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    assert_array_equal(model.memberships_[:, of_centres], expected)
    assert_array_equal(model.memberships_, model.weights_ > 0)
    assert_allclose(model.weights_.sum(axis=1), 1)
    assert_allclose(model.covariances_, [np.eye(2)] * 4, atol=0.5)
    n_rows = np.bincount(np.hstack(model.labels_))
    assert (np.diff(n_rows) <= 0).all()  # the largest cluster comes first
    assert model.n_features_in_ == 2


def test_identity_covariances_are_identities(joined):
    assert_array_equal(joined.covariances_, [np.eye(2)] * 4)


@pytest.mark.parametrize("several", [PLANTS, list(PLANTS.values())])
def test_several_clients_have_an_array_of_labels_each(fit, several):
    labels = fit(several).labels_
    assert [(type(own), own.shape, own.dtype) for own in labels] == [(np.ndarray, (40,), int)] * 4


@pytest.mark.parametrize("ids", [None, IDS])
def test_one_array_has_one_array_of_labels(fit, ids):
    model = fit(POOLED, clients=ids)
    assert model.labels_.shape == (160,)
    assert model.weights_.shape[0] == len(model.clients_) == (1 if ids is None else 4)


@pytest.mark.parametrize("scale", [False, True])
def test_predictions_follow_the_mixtures_density(fit, scale):
    rows = STRETCHED if scale else PLANTS
    rows = rows | {"north": rows["north"][:10]}
    model = fit(rows, scale=scale)
    X = np.concatenate(list(rows.values()))
    mixtures = dict(zip(rows, model.weights_, strict=True))
    mixtures[None] = np.average(model.weights_, axis=0, weights=[40, 10, 40, 40])
    for client, weights in mixtures.items():
        joint = np.array(
            [
                weight * multivariate_normal(mean, covariance).pdf(X)
                for weight, mean, covariance in zip(
                    weights, model.means_, model.covariances_, strict=True
                )
            ]
        ).T
        # Rows so far from all of a client's clusters that their density is no number.
        seen = joint.sum(axis=1) > 1e-250
        assert seen.any()
        density = joint[seen].sum(axis=1)
        proba = model.predict_proba(X, client)
        assert_allclose(proba.sum(axis=1), 1)
        assert_allclose(proba[seen], joint[seen] / density[:, None], rtol=1e-7, atol=1e-12)
        assert_array_equal(model.predict(X, client), proba.argmax(axis=1))
        scores = model.score_samples(X, client)
        assert_allclose(scores[seen], np.log(density), rtol=1e-9)
        assert model.score(X, client=client) == pytest.approx(scores.mean())


def test_a_clients_rows_go_to_its_own_clusters(model):
    for g, name in enumerate(PLANTS):
        assert_array_equal(model.predict(PLANTS[name], client=name), model.labels_[g])
        assert model.memberships_[g, model.predict(POOLED, client=name)].all()
    assert set(model.predict(POOLED)) == {0, 1, 2, 3}


def test_scaling_inside_is_scaling_before(fit):
    inside = fit(STRETCHED, scale=True)
    mean, scale = FederatedScaler().fit(STRETCHED).mean_, inside.scale_
    scaled = {name: (X - mean) / scale for name, X in STRETCHED.items()}
    before = fit(scaled)
    assert inside.n_clusters_ == before.n_clusters_ == 4
    assert_allclose(inside.weights_, before.weights_)
    assert_array_equal(inside.labels_, before.labels_)
    assert_allclose(inside.means_, before.means_ * scale + mean)
    assert_allclose(inside.covariances_, before.covariances_ * np.outer(scale, scale))
    new, new_scaled = STRETCHED["south"], scaled["south"]
    assert_array_equal(inside.predict(new), before.predict(new_scaled))
    assert_allclose(
        inside.score_samples(new), before.score_samples(new_scaled) - np.log(scale).sum()
    )


def test_units_do_not_matter_to_a_scaled_model(fit):
    labels = fit(scale=True).labels_
    for units in (STRETCHED, {name: 1e-3 * X for name, X in PLANTS.items()}):
        assert_array_equal(fit(units, scale=True).labels_, labels)


def test_the_scale_is_that_within_clusters_where_identities_take_it_to_be_one():
    assert_allclose(join(STRETCHED, scale=True).scale_, [1, 1000], rtol=0.2)
    everywhere = FederatedScaler().fit(STRETCHED).scale_
    assert_allclose(share(STRETCHED, scale=True).scale_, everywhere)


# How many components, with what weights, how far apart


@pytest.mark.parametrize(
    "twos", [[2, 2, 2, 2], (2, 2, 2, 2), np.array([2, 2, 2, 2]), dict.fromkeys(PLANTS, 2)]
)
def test_numbers_of_components_for_each_client(fit, twos):
    assert_same(fit(n_local_components=twos), fit(n_local_components=2))


def test_different_numbers_of_components(fit):
    components = fit(n_local_components={"west": 4, "south": 3, "east": 1, "north": 2}).components_
    assert components.names == tuple(PLANTS)
    assert_array_equal(np.bincount(components.owners), [1, 2, 3, 4])


def test_given_weights_are_used(joined):
    weights = {"north": [0.2, 0.8], "south": [1.0, 0.0], "west": [0.5, 0.5]}
    weights = {"east": np.array([0.25, 0.75])} | weights
    weighted = join(weights=weights)
    assert_array_equal(weighted.components_.weights, np.concatenate(list(weights.values())))
    assert_allclose(weighted.weights_.sum(axis=1), 1)
    assert_array_equal(weighted.memberships_.sum(axis=1), [2, 2, 1, 2])
    assert_same(join(weights=[[0.5, 0.5]] * 4), joined)


@pytest.mark.parametrize(
    ("radii", "n_clusters"), [([4, 5.9], 2), ([4, 6.1], 1), (4.9, 2), (5.1, 1)]
)
def test_clusters_join_when_their_final_balls_meet(radii, n_clusters):
    apart = [np.zeros((5, 2)), np.tile([6.0, 8.0], (5, 1))]
    model = join(apart, n_local_components=1, final_radius=radii)
    assert model.n_clusters_ == n_clusters
    assert model.upsilon_ == 1


@pytest.mark.parametrize(
    "radii",
    [[1] * 4, dict.fromkeys(PLANTS, 1.0), [[1, 1], 1, 1, [1, 1]], np.ones(4), np.ones((4, 2))],
    ids=str,
)
def test_final_radii_for_each_client_or_component(radii):
    assert_same(join(final_radius=radii), join(final_radius=1))


def test_upsilon_cuts_the_merge_tree(joined):
    tree = joined.merge_tree_
    numbers = []
    for upsilon in [0, *np.sqrt(tree.costs[1:] * tree.costs[:-1]), 2 * tree.costs[-1]]:
        cut = join(upsilon=upsilon)
        assert cut.upsilon_ == upsilon
        together = tree.cut(upsilon)[:, None] == tree.cut(upsilon)
        assert_array_equal(cut.component_labels_[:, None] == cut.component_labels_, together)
        numbers.append(cut.n_clusters_)
    assert numbers == list(range(8, 1, -1))


def test_auto_keeps_its_curve_until_the_next_fit():
    model = join()
    curve = model.upsilon_scores_
    assert {len(values) for values in curve.values()} == {len(curve["upsilon"])}
    assert model.upsilon_ in curve["upsilon"]
    assert len(curve["upsilon"]) > 1
    for upsilon, n_clusters in zip(curve["upsilon"], curve["n_clusters"], strict=True):
        assert join(upsilon=upsilon).n_clusters_ == n_clusters
    assert np.all(np.abs(curve["silhouette"]) <= 1)
    model.set_params(upsilon=1.0).fit(PLANTS)
    assert not hasattr(model, "upsilon_scores_")


@pytest.mark.parametrize(("cannot_link", "n_clusters"), [(True, 2), (False, 1)])
def test_components_of_one_client_may_be_kept_apart(cannot_link, n_clusters):
    model = join(upsilon=1e6, cannot_link=cannot_link)
    assert model.n_clusters_ == n_clusters
    assert_array_equal(model.memberships_.sum(axis=1), [n_clusters] * 4)


def test_one_component_at_each_client():
    model = join(n_local_components=1, final_radius=1.0)
    assert_array_equal(model.component_labels_, [0, 1, 0, 2])  # east and south have one mean
    assert_allclose(model.components_.means, [X.mean(axis=0) for X in PLANTS.values()])
    assert_array_equal(np.hstack(model.labels_), model.component_labels_.repeat(40))


def test_a_single_client_keeps_its_components(fit):
    model = fit(PLANTS["north"])
    assert model.n_clusters_ == 2
    assert_allclose(model.weights_, [[0.5, 0.5]])
    assert_array_equal(np.sort(model.means_.round(), axis=0), CENTRES[:2])


CHOICES_OF_UPSILON = pytest.mark.parametrize(
    ("fit", "params"),
    [(join, {}), (join, {"upsilon": 1.0}), (share, {})],
    ids=["auto", "1.0", "share"],
)


@CHOICES_OF_UPSILON
def test_identical_clients_share_everything(fit, params):
    model = fit(dict.fromkeys(PLANTS, PLANTS["north"]), **params)
    assert model.n_clusters_ == 2
    assert model.memberships_.all()
    assert_array_equal(model.labels_[0], model.labels_[1])


@pytest.mark.parametrize(("fit", "params"), [(join, {"upsilon": 1.0}), (share, {})])
def test_clients_that_share_nothing(fit, params):
    model = fit(federation(a=[0, 1], b=[2, 3], c=[4, 5]), **params)
    assert model.n_clusters_ == 6
    assert_array_equal(model.memberships_.sum(axis=0), np.ones(6))


def test_duplicated_rows_change_nothing(fit, model):
    twice = {name: np.repeat(X, 2, axis=0) for name, X in PLANTS.items()}
    doubled = fit(twice, n_local_components=2)
    assert_allclose(doubled.means_, model.means_, atol=1e-6)
    assert_array_equal(np.hstack(doubled.labels_), np.hstack(model.labels_).repeat(2))


@CHOICES_OF_UPSILON
def test_a_client_with_one_row_again_and_again(fit, params):
    model = fit(PLANTS | {"stuck": np.full((9, 2), 0.1)}, **params)
    assert np.isfinite(model.means_).all()
    assert len(set(model.labels_[-1])) == 1


# Engines and chance


@pytest.mark.parametrize("n_jobs", [2, 4])
@pytest.mark.usefixtures("any_block_size")
def test_threads_do_not_change_a_bit(fit, n_jobs):
    one = fit(STRETCHED, scale=True, max_iter=2, engine=LocalEngine(n_jobs=1))
    assert_same(fit(STRETCHED, scale=True, max_iter=2, engine=LocalEngine(n_jobs=n_jobs)), one)


@pytest.mark.parametrize("n_jobs", [1, 4])
def test_partial_participation(fit, n_jobs):
    engine = LocalEngine(n_jobs=n_jobs, participation=0.3)
    model = fit(engine=engine)
    assert {len(row.objectives) for row in model.history_} == {2}
    assert set(model.clients_) <= set(PLANTS)
    assert [len(labels) for labels in model.labels_] == [40] * 4
    assert_same(fit(engine=LocalEngine(participation=0.3)), model)


class Without(LocalEngine):
    """Nothing ever comes from the client north."""

    def _present(self, names, seeds):
        return [name for name in names if name != "north"]


class LateFor(LocalEngine):
    """The client north misses the first round."""

    def _present(self, names, seeds):
        return [name for name in names if name != "north" or seeds[1] > 0]


def test_a_shared_mixture_does_without_a_client(tmp_path):
    model = share(engine=Without())
    assert model.clients_ == ("east", "south", "west")
    assert len(model.weights_) == len(model.components_.n_rows) == 3
    assert_array_equal(model.labels_[1], model.predict(PLANTS["north"]))
    with pytest.raises(InputError, match="Found no client 'north', expected one of east"):
        model.predict(PLANTS["north"], client="north")
    model.save(tmp_path / "model")
    assert FedGEM.load(tmp_path / "model").clients_ == model.clients_


def test_a_client_that_comes_late_has_weights_in_a_shared_mixture():
    model = share(engine=LateFor())
    assert model.clients_ == tuple(PLANTS)
    assert model.n_clusters_ == 4
    assert set(model.components_.owners) == {0, 2, 3}
    assert_array_equal(model.labels_[1], model.predict(PLANTS["north"], client="north"))
    assert len(set(model.labels_[1])) == 2


def test_a_client_that_never_answered_is_predicted_with_pooled_weights():
    model = join(engine=LocalEngine(participation=0.7), max_iter=0, final_radius=[1, 2, 3, 4])
    assert len(model.clients_) == len(model.weights_) == 3
    (absent,) = set(PLANTS) - set(model.clients_)
    g = list(PLANTS).index(absent)
    assert_array_equal(model.labels_[g], model.predict(PLANTS[absent]))
    with pytest.raises(InputError, match=f"Found no client '{absent}', expected one of"):
        model.predict(PLANTS[absent], client=absent)


@pytest.mark.parametrize("state", [0, 7, np.int64(7)])
def test_the_same_seed_gives_the_same_model(fit, state):
    assert_same(fit(random_state=state), fit(random_state=state))


def test_random_states_of_other_kinds(fit, model):
    assert_same(fit(random_state=np.random.RandomState(0)), model)
    assert fit(random_state=None).n_clusters_ == 4


def test_seeds_make_a_difference(fit):
    noise = {"plant": np.random.default_rng(0).normal(size=(60, 2))}
    models = [fit(noise, n_local_components=4, n_init=1, random_state=s) for s in range(2)]
    assert not np.array_equal(models[0].means_, models[1].means_)


def test_the_order_of_clients_does_not_matter(fit, model):
    backwards = fit({name: PLANTS[name] for name in reversed(PLANTS)})
    assert backwards.clients_ == model.clients_[::-1]
    assert backwards.n_clusters_ == 4
    to_ours = np.square(backwards.means_[:, None] - model.means_).sum(axis=2).argmin(axis=1)
    assert_allclose(backwards.means_, model.means_[to_ours], atol=1e-9)
    assert_allclose(backwards.weights_[::-1], model.weights_[:, to_ours])


# What is told on the way


def test_callbacks_get_every_round_and_history_makes_a_table(fit):
    seen = []
    model = fit(callbacks=[seen.append, seen.append])
    assert tuple(seen[::2]) == tuple(seen[1::2]) == model.history_
    assert all(isinstance(row, Round) for row in seen)
    table = pd.DataFrame(model.history_)
    assert list(table.columns) == [field.name for field in fields(Round)]
    assert_array_equal(table["round"], np.arange(model.n_iter_))
    assert set(table["bytes_up"].iloc[0]) == set(PLANTS)


def test_training_together_raises_the_objective(joined):
    objectives = [row.objective for row in joined.history_]
    assert (np.diff(objectives) > -1e-9).all()


@pytest.mark.parametrize("model", [FedGEM(), collaborative()])
def test_an_exception_in_a_callback_ends_the_run(model):
    def stop(row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(PLANTS, callbacks=[stop])
    assert not hasattr(model, "means_")


def test_verbose_prints_a_line_for_each_round(fit, capsys):
    model = fit(verbose=1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == model.n_iter_
    for i, line in enumerate(lines):
        assert line.startswith(f"round {i}: objective -")
    fit()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(("max_iter", "n_iter", "converged"), [(0, 1, False), (1, 2, False)])
def test_rounds_end_at_max_iter(max_iter, n_iter, converged):
    model = join(max_iter=max_iter, tol=0.0)
    assert (model.n_iter_, model.converged_) == (n_iter, converged)


def test_rounds_end_when_nothing_moves():
    model = join(max_iter=100, tol=1e-2)
    assert model.converged_
    assert model.n_iter_ < 20


def test_too_many_components_for_cannot_link_are_refused_before_training():
    rounds = []
    with pytest.raises(InputError, match="found 4097 components in all, expected at most 4096"):
        collaborative(4097).fit(np.zeros((4097, 1)), callbacks=[rounds.append])
    assert not rounds


# What is refused once fitted


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (np.ones((3, 3)), "X has 3 features, but FedGEM is expecting 2 features"),
        (np.array([[0, 1], [2, np.nan]]), "column 1, row 1: found NaN"),
        (np.array([[0, np.inf]]), "column 1, row 0: found inf"),
        (np.empty((0, 2)), "0 sample"),
        (np.ones(2), "Reshape your data"),
        ("nowhere.csv", "nowhere.csv: found no such file"),
    ],
)
@pytest.mark.parametrize("method", ["predict", "predict_proba", "score_samples", "score"])
def test_bad_rows_are_refused(model, method, X, words):
    with pytest.raises(ValueError, match=words):
        getattr(model, method)(X)


def test_an_empty_file_cannot_be_predicted(model, tmp_path):
    (tmp_path / "new.csv").write_text("rms,kurtosis\n")
    with pytest.raises(InputError, match="found no rows"):
        model.predict(tmp_path / "new.csv")


def test_other_columns_are_refused(fit):
    frame = pd.DataFrame(POOLED, columns=NAMES)
    model = fit(frame)
    with pytest.raises(InputError, match="found kurtosis, rms, expected rms, kurtosis"):
        model.predict(frame[NAMES[::-1]])
    assert_array_equal(model.predict(POOLED), model.predict(frame))


@pytest.mark.parametrize("method", ["predict", "predict_proba", "score_samples"])
def test_an_unknown_client_is_refused(model, method):
    with pytest.raises(InputError, match="Found no client 'moon', expected one of east, north"):
        getattr(model, method)(POOLED, client="moon")


def test_nothing_before_fit(tmp_path):
    for call in (lambda: FedGEM().predict(POOLED), lambda: FedGEM().save(tmp_path / "model")):
        with pytest.raises(NotFittedError):
            call()
    assert not list(tmp_path.iterdir())


# Files


@pytest.mark.parametrize(
    ("fit", "params"),
    [
        (join, {}),
        (join, {"scale": True, "upsilon": 2.0}),
        (join, {"n_local_components": [2, 2, 1, 3]}),
        (join, {"n_local_components": dict.fromkeys(PLANTS, np.int64(2))}),
        (join, {"weights": np.full((4, 2), 0.5), "final_radius": (1.0, [1.0, 2.0], 1.0, 1.0)}),
        (join, {"random_state": np.random.RandomState(0), "engine": LocalEngine(2)}),
        *((share, {"covariance_type": one}) for one in COVARIANCE_TYPES),
        (share, {"scale": True, "n_local_components": [2, 2, 1, 3]}),
        (share, {"random_state": np.random.RandomState(0), "engine": LocalEngine(2)}),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, dict) else value.__name__,
)
def test_save_and_load(tmp_path, fit, params):
    frames = {name: pd.DataFrame(X, columns=NAMES) for name, X in STRETCHED.items()}
    model = fit(frames, **params)
    model.save(tmp_path / "model.npz")
    loaded = FedGEM.load(tmp_path / "model.npz")
    assert not hasattr(loaded, "labels_")
    assert (loaded.random_state, loaded.engine) == (None if "engine" in params else 0, None)
    loaded.labels_ = model.labels_
    assert_same(loaded, model)
    assert loaded.history_ == model.history_
    assert vars(loaded).keys() == vars(model).keys()
    assert_array_equal(loaded.feature_names_in_, model.feature_names_in_, strict=True)
    for client in (None, "south"):
        for method in ("predict", "predict_proba", "score_samples"):
            new = frames["south"]
            assert_array_equal(
                getattr(loaded, method)(new, client), getattr(model, method)(new, client)
            )
    if "engine" not in params:
        assert_same(clone(loaded).fit(frames), model)


def test_a_saved_model_is_json_and_plain_arrays(model, tmp_path):
    model.save(tmp_path / "model.npz")
    with zipfile.ZipFile(tmp_path / "model.npz") as archive:
        header, *arrays = archive.namelist()
        assert json.loads(archive.read(header))["format"] == "fedgem model"
        for name in arrays:
            np.load(io.BytesIO(archive.read(name)), allow_pickle=False)


def test_no_value_of_the_data_is_in_a_saved_file(fit, tmp_path):
    contents = []
    checkpoint = tmp_path / "checkpoint"
    model = fit(
        checkpoint=checkpoint,
        callbacks=[lambda row: contents.append(checkpoint.read_bytes())],
    )
    model.save(tmp_path / "model.npz")
    contents.append((tmp_path / "model.npz").read_bytes())
    assert len(contents) == model.n_iter_ + 1
    assert model.components_.means[0].tobytes() in contents[-1]  # this is how it would look
    for content in contents:
        assert not [value for value in POOLED.ravel() if value.tobytes() in content]
        assert not [value for value in POOLED.ravel() if repr(float(value)).encode() in content]


DAMAGES = {
    "cut short": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "flipped": lambda content: content[:900] + bytes(b ^ 0xFF for b in content[900:]),
    "one byte": lambda content: content[:300] + bytes([content[300] ^ 1]) + content[301:],
    "not ours": lambda content: b"rms,kurtosis\n1,2\n",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_model_is_refused(model, tmp_path, damage):
    path = tmp_path / "model.npz"
    model.save(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StoredFileError, match=r"model\.npz is damaged or was not written by fedg"):
        FedGEM.load(path)


def test_a_model_of_a_newer_version_is_refused(model, tmp_path, monkeypatch):
    monkeypatch.setattr("fedgem.storage.VERSION", 99)
    model.save(tmp_path / "model.npz")
    monkeypatch.undo()
    with pytest.raises(StoredFileError, match=r"written by a newer fedgem \(format version 99; "):
        FedGEM.load(tmp_path / "model.npz")


def test_a_model_is_no_checkpoint_and_a_checkpoint_is_no_model(fit, model, tmp_path):
    model.save(tmp_path / "model")
    with pytest.raises(StoredFileError, match="holds a fedgem model, expected a fedgem checkpoint"):
        fit(checkpoint=tmp_path / "model")
    fit(checkpoint=tmp_path / "checkpoint")
    with pytest.raises(StoredFileError, match="holds a fedgem checkpoint, expected a fedgem model"):
        FedGEM.load(tmp_path / "checkpoint")
    with pytest.raises(StoredFileError, match="does not exist"):
        FedGEM.load(tmp_path / "nowhere")


LONG = {
    name: np.random.default_rng(g).normal(size=(120, 2)) * [400.0, 0.02]
    + np.array([[0.0, 0.0], [0.0, 0.3], [0.0, 0.6]])[[g, (g + 1) % 3] * 60]
    for g, name in enumerate("abc")
}


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize(
    ("fit", "params"),
    [(join, {}), (join, {"learn_weights": True}), (share, {"n_local_components": 2})],
    ids=["fixed weights", "learned weights", "share"],
)
def test_every_covariance_type_predicts_what_its_covariances_say(
    tmp_path, covariance_type, fit, params
):
    model = fit(covariance_type=covariance_type, **params)
    K, d = model.means_.shape
    assert model.covariances_.shape == (K, d, d)
    if covariance_type in ("diag", "spherical", "identity"):
        diagonals = np.einsum("kii->ki", model.covariances_)
        assert_array_equal(model.covariances_, diagonals[:, :, None] * np.eye(d))
    weights = model.components_.n_rows @ model.weights_ / model.components_.n_rows.sum()
    some = PLANTS["east"]
    expected = np.stack([
        np.log(w) + multivariate_normal(mean, covariance).logpdf(some)
        for w, mean, covariance in zip(weights, model.means_, model.covariances_, strict=True)
    ], axis=1)  # fmt: skip
    assert_allclose(model.score_samples(some), np.logaddexp.reduce(expected, axis=1))
    assert_array_equal(model.predict(some), expected.argmax(axis=1))
    model.save(tmp_path / "model")
    again = FedGEM.load(tmp_path / "model")
    assert_array_equal(again.score_samples(some), model.score_samples(some))


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag"])
def test_covariances_need_no_scaling(fit, covariance_type):
    model = fit(LONG, covariance_type=covariance_type, n_local_components=2)
    assert model.n_clusters_ == 3
    assert_allclose(np.sort(model.means_[:, 1]), [0.0, 0.3, 0.6], atol=0.02)
    scaled = fit(LONG, covariance_type=covariance_type, n_local_components=2, scale=True)
    assert_allclose(np.sort(scaled.means_[:, 1]), [0.0, 0.3, 0.6], atol=0.02)
    row = LONG["a"]
    assert_allclose(scaled.score(row), model.score(row), rtol=0.02)


@pytest.mark.parametrize("cannot_link", [False, True])
def test_upsilon_is_chosen_for_covariances_too(cannot_link):
    model = join(LONG, covariance_type="full", cannot_link=cannot_link, learn_weights=True)
    assert model.n_clusters_ == 3
    assert_allclose(model.weights_.sum(axis=1), 1)


@pytest.mark.parametrize(("params", "said"), [
    ({"covariance_type": "round"}, "covariance_type: found 'round', expected one of full, tied"),
    ({"learn_weights": True, "weights": [[1.0, 0.0]] * 3}, "expected none of zero to learn from"),
])  # fmt: skip
def test_what_covariances_and_weights_cannot_be(params, said):
    with pytest.raises(InputError, match=said):
        join(LONG, **params)
