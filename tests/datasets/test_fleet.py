import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from fedgem.datasets import Fleet, make_fleet
from fedgem.datasets.fleet import (
    BPFI,
    BPFO,
    FEATURE_NAMES,
    MODE_NAMES,
    N_SAMPLES,
    SAMPLING_RATE,
    _envelope,
    _features,
    _power_spectrum,
    _signals,
)

BIN = SAMPLING_RATE / N_SAMPLES


@pytest.fixture(scope="module")
def plants() -> Fleet:
    return make_fleet(random_state=0)


def test_the_same_seed_gives_the_same_fleet():
    first, second, other = (make_fleet(3, random_state=seed) for seed in (1, 1, 2))
    for plant in first.clients:
        np.testing.assert_array_equal(first.clients[plant], second.clients[plant])
        np.testing.assert_array_equal(first.modes[plant], second.modes[plant])
    assert not np.array_equal(first.clients["plant-01"][0], other.clients["plant-01"][0])


def test_rows_columns_and_names_agree(plants):
    assert plants.feature_names == FEATURE_NAMES
    assert plants.mode_names == MODE_NAMES
    assert list(plants.clients) == list(plants.modes) == [f"plant-{g:02d}" for g in range(1, 13)]
    for plant, X in plants.clients.items():
        assert X.shape == (len(plants.modes[plant]), len(FEATURE_NAMES))
        assert np.isfinite(X).all()


@pytest.mark.parametrize(("n_plants", "seed"), [(3, 0), (3, 1), (3, 2), (5, 0), (12, 1)])
def test_plants_hold_some_faults_and_every_fault_is_at_two_plants(n_plants, seed):
    modes = make_fleet(n_plants, random_state=seed).modes.values()
    counts = np.array([np.bincount(y, minlength=len(MODE_NAMES)) for y in modes])
    held = counts > 0
    assert held[:, 0].all()
    assert (held.sum(axis=1) >= 2).all()
    assert (held.sum(axis=1) <= 5).all()
    assert (held.sum(axis=0) >= 2).all()
    assert (counts[held] >= 10).all()
    assert (counts.sum(axis=1) >= 100).all()
    assert (counts.sum(axis=1) <= 400).all()
    assert len(set(counts.sum(axis=1))) > 1


def test_kinematics_of_the_6205_bearing():
    assert pytest.approx(3.585, abs=1e-3) == BPFO
    assert pytest.approx(5.415, abs=1e-3) == BPFI


@pytest.mark.parametrize(("race", "order"), [("outer", BPFO), ("inner", BPFI)])
def test_envelope_spectrum_peaks_at_the_bearing_frequency(race, order):
    x, speed = _signals(f"bearing {race} race", 200, np.random.default_rng(0))
    spectrum = _power_spectrum(_envelope(x))
    # Between 2x and 6x: beside the shaft's modulation, below the second harmonics.
    low, high = np.rint(np.array([2, 6]) * speed.mean() / BIN).astype(int)
    peak = (low + np.argmax(spectrum[:, low:high], axis=1)) * BIN
    assert np.mean(np.abs(peak - order * speed) <= BIN) > 0.98


def test_inner_race_impacts_are_modulated_by_the_shaft():
    levels = {}
    for race in ("outer", "inner"):
        x, speed = _signals(f"bearing {race} race", 100, np.random.default_rng(0))
        turn = np.rint(speed / BIN).astype(int)[:, None]
        levels[race] = np.take_along_axis(_power_spectrum(_envelope(x)), turn, axis=1).mean()
    assert levels["inner"] > 10 * levels["outer"]


@pytest.mark.parametrize(
    ("mode", "raised"),
    [
        ("imbalance", {"order_1x_db"}),
        ("misalignment", {"order_2x_db", "order_3x_db"}),
        ("bearing outer race", {"envelope_bpfo_db"}),
        ("bearing inner race", {"envelope_bpfi_db"}),
        ("gear tooth", {"gear_mesh_db", "gear_sidebands_db"}),
    ],
)
def test_each_fault_raises_its_own_levels_most(mode, raised):
    rng = np.random.default_rng(0)
    rise = np.mean(_features(*_signals(mode, 200, rng)), axis=0)
    rise -= np.mean(_features(*_signals("healthy", 200, rng)), axis=0)
    assert {FEATURE_NAMES[j] for j in np.argsort(rise)[-len(raised) :]} == raised


def test_levels_of_a_pure_tone():
    speed = np.array([25.0, 25.4])  # on a bin, and between two
    t = np.arange(N_SAMPLES) / SAMPLING_RATE
    features = _features(0.5 * np.sin(2 * np.pi * speed[:, None] * t), speed)
    level = dict(zip(FEATURE_NAMES, features.T, strict=True))
    np.testing.assert_allclose(level["rms_db"], 20 * np.log10(0.5 / np.sqrt(2)), atol=0.1)
    np.testing.assert_allclose(level["order_1x_db"], level["rms_db"], atol=0.1)
    np.testing.assert_allclose(level["crest_factor_db"], 20 * np.log10(np.sqrt(2)), atol=0.1)
    assert (level["order_2x_db"] < level["order_1x_db"] - 30).all()


def test_envelope_follows_the_modulation():
    t = np.arange(N_SAMPLES) / SAMPLING_RATE
    modulation = 1 + 0.5 * np.cos(2 * np.pi * 100 * t)
    envelope = _envelope((modulation * np.sin(2 * np.pi * 3500 * t))[None])
    np.testing.assert_allclose(envelope[0], modulation[::4], atol=1e-9)


@pytest.mark.parametrize("covariance_type", ["full", "spherical"])
def test_a_mixture_finds_the_modes_though_not_perfectly(plants, covariance_type):
    X = np.vstack(list(plants.clients.values()))
    y = np.concatenate(list(plants.modes.values()))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    mixture = GaussianMixture(6, covariance_type=covariance_type, n_init=5, random_state=0)
    assert 0.9 < adjusted_rand_score(y, mixture.fit_predict(X)) < 0.995


def test_too_few_plants():
    with pytest.raises(ValueError, match=r"n_plants must be at least 3, got 2\."):
        make_fleet(2)
