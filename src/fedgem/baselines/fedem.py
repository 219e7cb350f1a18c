r"""Federated EM for a Gaussian mixture that all clients share, each with weights of its own.

Marfoq, Neglia, Bellet, Kameni and Vidal (2021), *Federated Multi-Task Learning under a Mixture of
Distributions*: the rows of client t come from :math:`\sum_k \pi_{tk} p_k`, with components
:math:`p_k` that all clients share. Their Algorithm 1 (FedEM) repeats, at every client,

.. math::

    q(z_n = k) \propto \pi_{tk} \, p_k(x_n), \qquad \pi_{tk} = \frac{1}{n_t} \sum_n q(z_n = k),

and the components are fitted to the rows of all clients, weighted by q. In their experiments the
components are classifiers and are fitted by gradient steps; those of a Gaussian mixture have a
closed form in sums over the clients' rows.

Dieuleveut, Fort, Moulines and Robin (2021), *Federated-EM with heterogeneity mitigation and
variance reduction*, send those sums, the statistics of the complete data, instead of parameters,
and allow for clients that miss a round. Here such a client counts with what it said last, as in
incremental EM (Neal and Hinton, 1998).

What was checked: the authors' program of the former; of the latter only the abstract could be
read, so that neither their control variates nor their compression is here. What is ours:

- The start is that of `fedgem.baselines.start`, with covariances.
- Covariances shrink towards those within the clusters of the start, pooled, with the weight of d
  rows, and weights by one row a component, as in `fedgem.gaussian.mstep`: without that, components
  of a few rows in many features have no density. The objective is penalised accordingly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np

from fedgem.baselines.method import Federation, Method, method
from fedgem.baselines.start import federated_start
from fedgem.engines.engine import Engine
from fedgem.gaussian.covariances import Gaussians
from fedgem.gaussian.density import log_joint
from fedgem.gaussian.mixture import SMALL_GAIN, regularised, weights_of
from fedgem.gaussian.mstep import Model, m_step, penalty
from fedgem.gaussian.statistics import Statistics
from fedgem.messages import SharedPart, ShareRequest
from fedgem.shared import pooled
from fedgem.sharing import REG_COVAR
from fedgem.typing import Array, IntArray


@method("FedEM")
class FedEM(Method):
    """A Gaussian mixture fitted by federated EM, with weights for each client.

    Parameters
    ----------
    n_clusters : int
        The number of components.
    max_iter : int
        The most rounds, of which Marfoq et al. run 200. Where all clients answer, a round that
        gains next to nothing is the last.
    engine : engine, optional
        What carries the messages.
    random_state : int, RandomState or None
        Decides every random choice.

    Attributes
    ----------
    means_, covariances_ : arrays of shape (K, d) and (K, d, d)
        The components.
    weights_ : array of shape (G, K)
        Each client's weights; those of all clients together for a client that never answered.
    pooled_weights_ : array of shape (K,)
        The weights over all clients.
    objectives_ : list of float
        For each round, the penalised log-likelihood that it began with, of the clients in it.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> clients = {"a": rng.normal(size=(50, 1)), "b": rng.normal([[0.0], [9.0]] * 30)}
    >>> model = FedEM(n_clusters=2, random_state=0).fit(clients)
    >>> model.weights_[:, model.means_.argmin()].round(1)
    array([1. , 0.5])
    """

    def __init__(
        self,
        n_clusters: int = 8,
        max_iter: int = 200,
        engine: Engine | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.max_iter = max_iter
        self.engine = engine
        self.random_state = random_state

    def _find(self, federation: Federation) -> Array:
        start, names = federated_start(federation, self.n_clusters, "full")
        model = Model("full", learn_weights=True, prior=_within(start.statistics))
        counts = dict(zip(names, start.local_counts, strict=True))
        components, everyone = m_step(start.statistics, model, weights_of(start.statistics.counts))
        clients = {n: replace(c, covariance_type="full") for n, c in federation.clients.items()}
        federation = replace(federation, clients=clients)
        said: dict[str, Statistics] = {}
        self.objectives_: list[float] = []
        for round_number in range(self.max_iter):
            weights = _weights(clients, counts, everyone)
            parts = {
                name: SharedPart(components.means, own, components.covariances)
                for name, own in weights.items()
            }
            replies = federation.ask(
                {name: ShareRequest(round_number, False, (part,)) for name, part in parts.items()}
            )
            likelihood = sum(float(reply.log_likelihoods[0]) for reply in replies.values())
            theirs = np.stack([weights[name] for name in replies])
            self.objectives_.append(likelihood + penalty(components, theirs, model))
            said |= {name: reply.statistics[0] for name, reply in replies.items()}
            counts |= {name: statistics.counts for name, statistics in said.items()}
            total = reduce(add, said.values())
            components, everyone = m_step(total, model, everyone)
            gain = np.diff(self.objectives_[-2:]).sum() if round_number else np.inf
            if len(replies) == len(clients) and gain < SMALL_GAIN * total.counts.sum():
                break
        self.n_iter_ = len(self.objectives_)
        self.covariances_ = components.covariances
        self.pooled_weights_ = everyone
        self.weights_ = np.stack(list(_weights(clients, counts, everyone).values()))
        return components.means

    def _labels_of(self, block: Array, client: str | None) -> IntArray:
        """Return the likeliest component, by the client's weights."""
        weights = self.pooled_weights_
        if client is not None:
            weights = self.weights_[self.clients_.index(str(client))]
        components = Gaussians(self.means_.astype(np.float64), self.covariances_, "full")
        return np.asarray(log_joint(block, components, np.log(weights)).argmax(axis=1))


def _weights(
    names: Iterable[str], counts: Mapping[str, Array], everyone: Array
) -> dict[str, Array]:
    """Return each client's weights, or everyone's where nothing is known."""
    return {n: weights_of(counts[n]) if n in counts else everyone for n in names}


def _within(clusters: Statistics) -> Array:
    """Return the covariance within the clusters, positive definite whatever the rows."""
    nobody = np.zeros((0, len(clusters.counts)))
    together = pooled(clusters, np.zeros(len(clusters.counts), np.intp), nobody, "full").statistics
    assert together.covariances is not None
    variances = np.diagonal(together.covariances[0])
    floor = np.maximum(REG_COVAR * variances, REG_COVAR**2 * (variances.max() or 1.0))
    covariances = regularised(clusters, "full", floor, tied=1.0).covariances
    assert covariances is not None
    return np.asarray(covariances[0])
