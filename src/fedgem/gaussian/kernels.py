"""The compiled inner loops of the E-step.

One pass over a block of rows gives the responsibilities and, in the same breath, what they add
up to; responsibilities are never stored. Rows are taken `TILE` at a time so that the loops over
components run in vector registers.
"""

import math

import numpy as np
from numba import njit

from fedgem.typing import Array

TILE = 8
STEP = 4  # features per inner step; `padded` fills up the last one
LANES = 8  # components per vector register; `padded` fills up the last one

# Sums may be reordered and contracted; infinities and NaNs keep their meaning. How, depends on what
# a function is compiled with. One that is called from a compiled function is there in two copies,
# its own and the caller's, and a process uses its own or not depending on what it has compiled
# itself: so such a function is always inlined.
FASTMATH = {"reassoc", "contract", "arcp", "nsz"}


def padded(means: Array, log_weights: Array) -> tuple[Array, Array]:
    """Transpose the means and fill up features and components to whole vector registers.

    A padding feature is zero in rows and means alike; a padding component weighs nothing.
    """
    n_components, n_features = means.shape
    n_lanes = -(-n_components // LANES) * LANES
    transposed = np.zeros((-(-n_features // STEP) * STEP, n_lanes))
    transposed[:n_features, :n_components] = means.T
    weights = np.full(n_lanes, -np.inf)
    weights[:n_components] = log_weights
    return transposed, weights


# Reassociation would undo the rounding trick below.
@njit(fastmath={"contract"}, cache=True, forceinline=True)
def _exp(x):  # type: ignore[no-untyped-def]
    """Exponential of a number that is not positive, in a form that compilers vectorise.

    Relative error below 1e-14; zero below exp(-708), where the exact value is under 4e-308.
    """
    shifted = max(x, -708.0) * 1.4426950408889634 + 6755399441055744.0
    n = shifted - 6755399441055744.0  # round(x / log 2)
    r = (max(x, -708.0) - n * 0.693145751953125) - n * 1.42860682030941723212e-6
    p = 1.0 / 39916800
    p = p * r + 1.0 / 3628800
    p = p * r + 1.0 / 362880
    p = p * r + 1.0 / 40320
    p = p * r + 1.0 / 5040
    p = p * r + 1.0 / 720
    p = p * r + 1.0 / 120
    p = p * r + 1.0 / 24
    p = p * r + 1.0 / 6
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    two_to_n = np.int64((np.float64(shifted).view(np.int64) + 1023) << 52).view(np.float64)
    return p * two_to_n if x > -708.0 else 0.0


@njit(nogil=True, fastmath=FASTMATH, cache=True)
def identity_block(X, means, log_weights, counts, sums):  # type: ignore[no-untyped-def]
    """Add one block's statistics to `counts` and `sums`; return its log-likelihood.

    `means` and `log_weights` come from `padded`. `sums[j, k]` gathers gamma_k (x_j - mean_jk):
    differences from the current mean, so that the step from it keeps full precision wherever
    the data lies. The constant -d/2 log(2 pi) per row is left to the caller.
    """
    n_rows, n_features = X.shape
    n_padded, n_lanes = means.shape
    x = np.zeros((TILE, n_padded))
    gamma = np.empty((TILE, n_lanes))
    top = np.empty(TILE)
    total = np.empty(TILE)
    log_likelihood = 0.0
    for start in range(0, n_rows, TILE):
        n_tile = min(TILE, n_rows - start)
        for i in range(n_tile):
            for j in range(n_features):
                x[i, j] = X[start + i, j]
        # eq. (estep), in log space: log pi_k - |x - mean_k|^2 / 2
        for i in range(TILE):
            for k in range(n_lanes):
                gamma[i, k] = 0.0
            for j in range(0, n_padded, STEP):
                for k in range(n_lanes):
                    distance = gamma[i, k]
                    for step in range(STEP):
                        difference = x[i, j + step] - means[j + step, k]
                        distance += difference * difference
                    gamma[i, k] = distance
        for i in range(TILE):
            largest = -np.inf
            for k in range(n_lanes):
                logit = log_weights[k] - 0.5 * gamma[i, k]
                gamma[i, k] = logit
                largest = max(largest, logit)
            top[i] = largest
        for i in range(TILE):
            for k in range(n_lanes):
                gamma[i, k] = _exp(gamma[i, k] - top[i])
        for i in range(TILE):
            total[i] = 0.0
            for k in range(n_lanes):
                total[i] += gamma[i, k]
        product = 1.0  # of at most TILE numbers between 1 and K: one logarithm serves them all
        for i in range(n_tile):
            log_likelihood += top[i]
            product *= total[i]
        log_likelihood += math.log(product)
        for i in range(TILE):
            inverse = 1.0 / total[i] if i < n_tile else 0.0
            for k in range(n_lanes):
                gamma[i, k] *= inverse
        # eq. (gmm_m_step), numerator and denominator
        for k in range(n_lanes):
            for i in range(TILE):
                counts[k] += gamma[i, k]
        for j in range(n_features):
            for k in range(n_lanes):
                total_k = sums[j, k]
                for i in range(TILE):
                    total_k += gamma[i, k] * (x[i, j] - means[j, k])
                sums[j, k] = total_k
    return log_likelihood
