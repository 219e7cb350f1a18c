"""A fleet of plants whose machines vibrate: a federated data set with known fault modes.

Every row is one accelerometer record of a gear motor, simulated and then reduced to levels that a
vibration analyst reads. The features come from the signals, never from a distribution, so that
their scatter and their correlations are those of the physics.
"""

from dataclasses import dataclass

import numpy as np

from fedgem.typing import Array, IntArray

__all__ = ["Fleet", "make_fleet"]

SAMPLING_RATE = 12_800.0  # Hz
N_SAMPLES = 4096  # 0.32 s: eight turns of the shaft, 3.125 Hz per bin
SHAFT_SPEED = 25.0  # Hz: 1500 rpm
N_TEETH = 22  # of the pinion on the shaft
RESONANCE = 3_500.0  # Hz: the housing rings at this frequency when it is struck
DAMPING = 0.04
HIGH_BAND = slice(640, 1664)  # bins: 2.0 to 5.2 kHz, around the resonance

# Impacts per turn of the shaft when n balls of diameter d, on a pitch diameter D with contact angle
# phi, roll over a defect of the outer (-) or inner (+) race: n/2 (1 -/+ d/D cos phi). The bearing
# is a 6205, lengths in mm, phi = 0.
N_BALLS, BALL_DIAMETER, PITCH_DIAMETER = 9, 7.94, 39.04
BPFO = N_BALLS / 2 * (1 - BALL_DIAMETER / PITCH_DIAMETER)
BPFI = N_BALLS / 2 * (1 + BALL_DIAMETER / PITCH_DIAMETER)

# Amplitudes in g: what every machine shows, and what each mode adds to it at severity 1.
BASELINE = {"1x": 0.12, "2x": 0.06, "3x": 0.04, "mesh": 0.15, "sidebands": 0.02, "noise": 0.10}
MODES: dict[str, dict[str, float]] = {
    "healthy": {},
    "imbalance": {"1x": 0.36},
    "misalignment": {"2x": 0.19, "3x": 0.12},
    "bearing outer race": {"outer race": 0.7},
    "bearing inner race": {"inner race": 1.2},
    "gear tooth": {"mesh": 0.36, "sidebands": 0.10, "tooth": 1.0},
}
MODE_NAMES = tuple(MODES)
FEATURE_NAMES = (
    "rms_db",
    "crest_factor_db",
    "order_1x_db",
    "order_2x_db",
    "order_3x_db",
    "gear_mesh_db",
    "gear_sidebands_db",
    "high_frequency_db",
    "envelope_bpfo_db",
    "envelope_bpfi_db",
)


@dataclass(frozen=True, eq=False)
class Fleet:
    """The measurements of a fleet and the truth about them.

    Attributes
    ----------
    clients : dict of str to ndarray of shape (n_measurements, n_features)
        The features of every measurement, by plant: RMS levels in decibels relative to 1 g, and
        the crest factor in decibels.
    modes : dict of str to ndarray of shape (n_measurements,)
        The mode of every measurement, as an index into `mode_names`, by plant.
    feature_names : tuple of str
        The names of the columns.
    mode_names : tuple of str
        The names of the modes.
    """

    clients: dict[str, Array]
    modes: dict[str, IntArray]
    feature_names: tuple[str, ...]
    mode_names: tuple[str, ...]


def make_fleet(n_plants: int = 12, *, random_state: int | None = None) -> Fleet:
    """Simulate the vibration of a fleet of gear motors at several plants.

    Each plant holds 100 to 400 measurements, of healthy machines and of one to four of the five
    faults, in unequal shares. Each fault occurs at two plants or more.

    Parameters
    ----------
    n_plants : int, default=12
        Number of plants, at least 3.
    random_state : int or None, default=None
        Seed; the same seed gives the same fleet.

    Returns
    -------
    Fleet
        The plants' features, their true modes, and the names of both.

    Raises
    ------
    ValueError
        If `n_plants` is less than 3.

    Examples
    --------
    >>> from fedgem.datasets import make_fleet
    >>> fleet = make_fleet(3, random_state=0)
    >>> list(fleet.clients)
    ['plant-01', 'plant-02', 'plant-03']
    >>> fleet.feature_names[:3]
    ('rms_db', 'crest_factor_db', 'order_1x_db')
    >>> fleet.mode_names[fleet.modes["plant-01"].min()]
    'healthy'
    """
    if n_plants < 3:
        raise ValueError(f"n_plants must be at least 3, got {n_plants}.")
    rng = np.random.default_rng(random_state)
    clients, modes = {}, {}
    for plant, faults in enumerate(_draw_faults(n_plants, rng), start=1):
        present = np.append(0, faults)
        # Unequal shares, yet no mode of a plant too rare to be found.
        shares = rng.dirichlet(np.full(len(present), 6.0))
        counts = 10 + rng.multinomial(rng.integers(100, 401) - 10 * len(present), shares)
        y = np.repeat(present, counts)
        X = np.vstack(
            [
                _features(*_signals(MODE_NAMES[mode], count, rng))
                for mode, count in zip(present, counts, strict=True)
            ]
        )
        order = rng.permutation(len(X))
        clients[f"plant-{plant:02d}"] = X[order]
        modes[f"plant-{plant:02d}"] = y[order]
    return Fleet(clients, modes, FEATURE_NAMES, MODE_NAMES)


def _draw_faults(n_plants: int, rng: np.random.Generator) -> list[IntArray]:
    """Draw one to four faults for each plant, again until every fault occurs at two plants."""
    faults = np.arange(1, len(MODES))
    while True:
        drawn = [rng.choice(faults, rng.integers(1, 5), replace=False) for _ in range(n_plants)]
        if np.bincount(np.concatenate(drawn), minlength=len(MODES))[1:].min() >= 2:
            return drawn


def _signals(mode: str, n_signals: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Simulate records of shape (n_signals, N_SAMPLES), in g, and their shaft speeds in Hz."""

    def varied(spread: float) -> Array:
        return rng.lognormal(sigma=spread, size=(n_signals, 1))

    def sine(order: float) -> Array:
        return np.sin(2 * np.pi * (order * turns + rng.random((n_signals, 1))))

    def impacts(order: float | Array) -> Array:
        # One ring-down has died away before the next impact, so that only the last one is heard.
        elapsed = (order * turns) % 1 / (order * speed)
        phase = 2 * np.pi * RESONANCE * elapsed
        return np.exp(-DAMPING * phase) * np.sin(phase)

    speed = SHAFT_SPEED * varied(0.01)
    turns = speed * np.arange(N_SAMPLES) / SAMPLING_RATE + rng.random((n_signals, 1))
    slip = varied(0.002)  # the balls do not quite roll
    severity = varied(0.4)
    g = {part: level * varied(0.2) for part, level in BASELINE.items()}
    for part, level in MODES[mode].items():
        g[part] = g.get(part, 0.0) + level * severity * varied(0.1)

    x = g["noise"] * rng.standard_normal((n_signals, N_SAMPLES))
    for order in (1, 2, 3):
        x += g[f"{order}x"] * sine(order)
    x += g["mesh"] * sine(N_TEETH)
    for order in (N_TEETH - 1, N_TEETH + 1):
        x += g["sidebands"] * sine(order)
    if "outer race" in g:
        x += g["outer race"] * impacts(slip * BPFO)
    if "inner race" in g:
        # The defect turns with the shaft, in and out of the loaded zone.
        load = (1 + np.cos(2 * np.pi * turns)) / 2
        x += g["inner race"] * load * impacts(slip * BPFI)
    if "tooth" in g:
        x += g["tooth"] * impacts(1)
    return x, speed[:, 0]


def _power_spectrum(x: Array) -> Array:
    """Return each record's mean square by frequency, through a Hann window."""
    window = np.hanning(x.shape[1])
    spectrum = np.fft.rfft((x - x.mean(axis=1, keepdims=True)) * window)
    power: Array = 2 * np.abs(spectrum) ** 2 / (window**2).sum() / x.shape[1]
    return power


def _envelope(x: Array) -> Array:
    """Return the envelope of each record's high band, at a quarter of the sampling rate.

    The inverse transform of a band of positive frequencies is the band's analytic signal moved
    down to 0 Hz, and the modulus of that is the envelope.
    """
    band = np.fft.rfft(x)[:, HIGH_BAND]
    envelope: Array = 2 * np.abs(np.fft.ifft(band)) * band.shape[1] / x.shape[1]
    return envelope


def _features(signals: Array, speed: Array) -> Array:
    """Reduce each record to the FEATURE_NAMES, given its shaft speed as a tachometer would."""

    def at(power: Array, *orders: float) -> Array:
        bins = np.rint(np.outer(speed, orders) * N_SAMPLES / SAMPLING_RATE).astype(np.intp)
        # A tone between two bins spreads over two bins either side through a Hann window.
        lobes = (bins[:, :, None] + np.arange(-2, 3)).reshape(len(power), -1)
        level: Array = np.take_along_axis(power, lobes, axis=1).sum(axis=1)
        return level

    power = _power_spectrum(signals)
    envelope = _power_spectrum(_envelope(signals))
    mean_square = np.mean(signals**2, axis=1)
    powers = [
        mean_square,
        np.max(signals**2, axis=1) / mean_square,
        at(power, 1),
        at(power, 2),
        at(power, 3),
        at(power, N_TEETH),
        at(power, N_TEETH - 1, N_TEETH + 1),
        power[:, HIGH_BAND].sum(axis=1),
        at(envelope, BPFO),
        at(envelope, BPFI),
    ]
    decibels: Array = 10 * np.log10(np.column_stack(powers))
    return decibels
