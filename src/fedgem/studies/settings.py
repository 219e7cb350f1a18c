"""How the paper's benchmark is set up, data set by data set (its section 5 and appendix D)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

__all__ = ["SETTINGS", "Setting"]


@dataclass(frozen=True)
class Setting:
    """What the paper chose for a data set.

    It uses all rows; the program published with it uses a part of them, and the paper does not say
    how many.

    Attributes
    ----------
    upsilons : tuple of float
        The values of upsilon among which a silhouette chooses; one, where the paper names one.
    n_clients : int
        Number of clients, G.
    spared : int
        Clients have 2 to K - `spared` of the K classes. The paper says 2 <= K_g < K; these are the
        program's.
    train_share : float
        The share of rows to train on.

    Examples
    --------
    >>> SETTINGS["waveform"]
    Setting(upsilons=(1.0, 5.0, 10.0), n_clients=5, spared=0, train_share=0.7)
    """

    upsilons: tuple[float, ...]
    n_clients: int = 5
    spared: int = 0
    train_share: float = 0.7


_images = partial(Setting, n_clients=100, spared=2)
SETTINGS = {
    "mnist": _images((2.0,)),
    "fashion-mnist": _images((300.0,)),
    "emnist": _images((2.0,), n_clients=25, train_share=0.5),
    "cifar-10": _images((20.0,)),
    "abalone": Setting((5e3, 7e3, 9e3)),
    "frog-a": Setting((1e4, 1e5, 1e6)),
    "frog-b": Setting((1e4, 1e5, 1e6)),
    "waveform": Setting((1.0, 5.0, 10.0)),
}
