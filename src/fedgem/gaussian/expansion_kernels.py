"""The compiled pass over rows of components that have covariances; see `expansion`."""

import math

import numpy as np
from numba import njit

from fedgem.gaussian.kernels import FASTMATH, LANES, _exp

# Terms up to this size may cancel in a logit, which leaves it an absolute error of about 1e-10.
LIMIT = 1e6

# Which products of features the covariances of a type need, beside the features and 1.
NONE, PAIRS, SQUARES, NORM = range(4)


@njit(nogil=True, fastmath=FASTMATH, cache=True)
def factorise(covariances, factors, inverses):  # type: ignore[no-untyped-def]
    """Fill in lower Cholesky factors and their inverses.

    Returns the first covariance that is not positive definite, -1 if all are.
    """
    n_components, n_features, _ = covariances.shape
    for k in range(n_components):
        factor, inverse = factors[k], inverses[k]
        for i in range(n_features):
            for j in range(i + 1):
                value = covariances[k, i, j]
                for m in range(j):
                    value -= factor[i, m] * factor[j, m]
                if j < i:
                    factor[i, j] = value / factor[j, j]
                elif value > 0:
                    factor[i, i] = math.sqrt(value)
                else:
                    return k
            for m in range(n_features):
                inverse[i, m] = 0.0
            for j in range(i):
                weight = factor[i, j]
                for m in range(j + 1):
                    inverse[i, m] -= weight * inverse[j, m]
            for m in range(i):
                inverse[i, m] /= factor[i, i]
            inverse[i, i] = 1.0 / factor[i, i]
    return -1


@njit(nogil=True, fastmath=FASTMATH, cache=True)
def expand_pairs(inverses, factor, means, theta, reach):  # type: ignore[no-untyped-def]
    """Fill in the coefficients of full covariances, and the row sums of their precisions.

    `inverses` are the components' inverse Cholesky factors, `factor` takes y to x - c, `means`
    are in y. The constants are left without the determinant and the weight.
    """
    n_components, n_features = means.shape
    n_pairs = n_features * (n_features + 1) // 2
    root = np.empty((n_features, n_features))
    precision = np.empty((n_features, n_features))
    for k in range(n_components):
        root[:] = 0.0
        precision[:] = 0.0
        for i in range(n_features):
            for j in range(i + 1):
                weight = inverses[k, i, j]
                for m in range(j + 1):
                    root[i, m] += weight * factor[j, m]
            for a in range(i + 1):
                weight = root[i, a]
                for m in range(a + 1):
                    precision[a, m] += weight * root[i, m]
        for a in range(n_features):
            for m in range(a):
                precision[m, a] = precision[a, m]
        constant = 0.0
        largest = 0.0
        for i in range(n_features):
            linear = 0.0
            row_sum = 0.0
            for j in range(n_features):
                linear += precision[i, j] * means[k, j]
                row_sum += abs(precision[i, j])
            pairs = i * (i + 1) // 2
            for j in range(i):
                theta[k, pairs + j] = -precision[i, j]
            theta[k, pairs + i] = -0.5 * precision[i, i]
            theta[k, n_pairs + i] = linear
            constant -= 0.5 * linear * means[k, i]
            largest = max(largest, row_sum)
        theta[k, n_pairs + n_features] = constant
        reach[k] = largest


@njit(nogil=True, fastmath=FASTMATH, cache=True)
def collect_pairs(products, inverse, y, factor, covariances, cancelled):  # type: ignore[no-untyped-def]
    """Fill in covariances about the means y, and what their diagonals are the difference of.

    `products` are the sums of the pairs in y, of shape (F, K) and more; `inverse` the counts'
    inverses; `factor` takes y to x.
    """
    n_components, n_features = y.shape
    within = np.empty((n_features, n_features))
    left = np.empty((n_features, n_features))
    for k in range(n_components):
        f = 0
        for i in range(n_features):
            for j in range(i + 1):
                value = products[f, k] * inverse[k, 0] - y[k, i] * y[k, j]
                within[i, j] = value
                within[j, i] = value
                f += 1
        left[:] = 0.0
        for i in range(n_features):
            uncentred = 0.0
            for j in range(i + 1):
                weight = factor[i, j]
                uncentred += weight * weight * (within[j, j] + y[k, j] * y[k, j])
                for m in range(n_features):
                    left[i, m] += weight * within[j, m]
            cancelled[k, i] = uncentred
            for m in range(i + 1):
                total = 0.0
                for j in range(m + 1):
                    total += left[i, j] * factor[m, j]
                covariances[k, i, m] = total
                covariances[k, m, i] = total


@njit(nogil=True, fastmath=FASTMATH, cache=True, forceinline=True)
def _fill(kind, y, norms, products):  # type: ignore[no-untyped-def]
    """Write the products of a tile's features, one row for each."""
    n_features, tile = y.shape
    f = 0
    if kind == PAIRS:
        for i in range(n_features):
            for j in range(i + 1):
                for t in range(tile):
                    products[f, t] = y[i, t] * y[j, t]
                f += 1
    elif kind == SQUARES:
        for i in range(n_features):
            for t in range(tile):
                products[f, t] = y[i, t] * y[i, t]
            f += 1
    elif kind == NORM:
        for t in range(tile):
            products[f, t] = norms[t]
        f += 1
    for i in range(n_features):
        for t in range(tile):
            products[f, t] = y[i, t]
        f += 1
    for t in range(tile):
        products[f, t] = 1.0
    return f + 1


@njit(nogil=True, fastmath=FASTMATH, cache=True, forceinline=True)
def _offsets(x, centre, out):  # type: ignore[no-untyped-def]
    """Write x - centre."""
    n_features, tile = x.shape
    for j in range(n_features):
        c = centre[j]
        for t in range(tile):
            out[j, t] = x[j, t] - c


@njit(nogil=True, fastmath=FASTMATH, cache=True, forceinline=True)
def _whitened(matrix, offsets, out):  # type: ignore[no-untyped-def]
    """Write matrix @ offsets, for a matrix or for what stands on its diagonal."""
    n_features, tile = offsets.shape
    if matrix.shape[0] == n_features:
        np.dot(matrix, offsets, out)
        return
    for j in range(n_features):
        scale = matrix[0, j]
        for t in range(tile):
            out[j, t] = scale * offsets[j, t]


@njit(nogil=True, fastmath=FASTMATH, cache=True, forceinline=True)
def _norms(y, out):  # type: ignore[no-untyped-def]
    """Write the squared norm of every row; return the largest."""
    n_features, tile = y.shape
    for t in range(tile):
        out[t] = 0.0
    for j in range(n_features):
        for t in range(tile):
            out[t] += y[j, t] * y[j, t]
    largest = 0.0
    for t in range(tile):
        largest = max(largest, out[t])
    return largest


@njit(nogil=True, fastmath=FASTMATH, cache=True, forceinline=True)
def _softmax(logits, common, gamma, n_tile):  # type: ignore[no-untyped-def]
    """Write the responsibilities, transposed; return the log-likelihood.

    `common` is what the logits of all components lack; rows from `n_tile` on count for nothing.
    """
    n_components, tile = logits.shape
    top = np.full(tile, -np.inf)
    total = np.zeros(tile)
    for k in range(n_components):
        for t in range(tile):
            top[t] = max(top[t], logits[k, t])
    for k in range(n_components):
        for t in range(tile):
            value = _exp(logits[k, t] - top[t])
            logits[k, t] = value
            total[t] += value
    log_likelihood = 0.0
    product = 1.0  # of at most LANES numbers between 1 and K: one logarithm serves them all
    for t in range(n_tile):
        log_likelihood += top[t] + common[t]
        product *= total[t]
        if t % LANES == LANES - 1:
            log_likelihood += math.log(product)
            product = 1.0
    log_likelihood += math.log(product)
    for t in range(tile):
        total[t] = 1.0 / total[t] if t < n_tile else 0.0
    for k in range(n_components):
        for t in range(tile):
            gamma[t, k] = logits[k, t] * total[t]
    return log_likelihood


@njit(nogil=True, fastmath=FASTMATH, cache=True, forceinline=True)
def _scatter(x, anchor, gamma, k, offsets, weighted, sums, scatter, part):  # type: ignore[no-untyped-def]
    """Add one component's offsets from its anchor and their products, in a tile."""
    n_features, tile = x.shape
    answers = 0.0
    for t in range(tile):
        answers += gamma[t, k]
    if answers == 0.0:
        return
    _offsets(x, anchor, offsets)
    for j in range(n_features):
        total = 0.0
        for t in range(tile):
            value = gamma[t, k] * offsets[j, t]
            weighted[j, t] = value
            total += value
        sums[j] += total
    if scatter.shape[0] == n_features:
        np.dot(weighted, offsets.T, part)
        for i in range(n_features):
            for j in range(n_features):
                scatter[i, j] += part[i, j]
    else:
        for j in range(n_features):
            total = 0.0
            for t in range(tile):
                total += weighted[j, t] * offsets[j, t]
            scatter[0, j] += total


@njit(nogil=True, fastmath=FASTMATH, cache=True)
def expanded_block(  # type: ignore[no-untyped-def]
    X,
    tile,
    bounds,
    kind,
    centre,
    whiten,
    theta,
    reach,
    narrow,
    means,
    inverses,
    constants,
    anchors,
    moments,
    sums,
    scatter,
    overlap,
    log_likelihoods,
):
    """Add one block's statistics to the last five arguments.

    Components from `bounds[m]` to `bounds[m + 1]` are those of mixture m. `moments[c, f, k]`
    gathers gamma_k times product f of chunk c. For the components that are `narrow`, `sums` and
    `scatter` gather gamma_k (x - anchor_k) and its products with itself; for tied covariances that
    are not, `scatter` gathers the products of y. `overlap` may be empty.
    """
    n_rows, n_features = X.shape
    n_chunks, n_components, chunk = theta.shape
    n_lanes = moments.shape[2]
    x = np.empty((n_features, tile))
    offsets = np.empty((n_features, tile))
    y = np.empty((n_features, tile))
    norms = np.empty(tile)
    common = np.empty(tile)
    products = np.zeros((n_chunks, chunk, tile))
    flat = products.reshape(n_chunks * chunk, tile)
    logits = np.empty((n_components, tile))
    logits_part = np.empty((n_components, tile))
    gamma = np.zeros((tile, n_lanes))
    moments_part = np.empty((chunk, n_lanes))
    square = np.empty((n_features, n_features))
    for start in range(0, n_rows, tile):
        n_tile = min(tile, n_rows - start)
        for t in range(n_tile):
            for j in range(n_features):
                x[j, t] = X[start + t, j]
        for t in range(n_tile, tile):
            for j in range(n_features):
                x[j, t] = centre[j]
        _offsets(x, centre, offsets)
        _whitened(whiten, offsets, y)
        radius = _norms(y, norms)
        _fill(kind, y, norms, flat)
        # eq. (estep), in log space: log pi_k + log phi(x | mean_k, covariance_k)
        np.dot(theta[0], products[0], logits)
        for c in range(1, n_chunks):
            np.dot(theta[c], products[c], logits_part)
            for k in range(n_components):
                for t in range(tile):
                    logits[k, t] += logits_part[k, t]
        expanded = False
        for k in range(n_components):
            if narrow[k] or reach[k] * radius > LIMIT:
                _offsets(x, means[k], offsets)
                _whitened(inverses[min(k, len(inverses) - 1)], offsets, y)
                _norms(y, common)
                for t in range(tile):
                    logits[k, t] = constants[k] - 0.5 * common[t]
            else:
                expanded = True
        # Without products, what all components share is missing; they are expanded together.
        for t in range(tile):
            common[t] = -0.5 * norms[t] if kind == NONE and expanded else 0.0
        for m in range(len(bounds) - 1):
            first, end = bounds[m], bounds[m + 1]
            log_likelihoods[m] += _softmax(logits[first:end], common, gamma[:, first:end], n_tile)
        # eq. (gmm_m_step), numerators and denominators
        for c in range(n_chunks):
            np.dot(products[c], gamma, moments_part)
            for f in range(chunk):
                for k in range(n_lanes):
                    moments[c, f, k] += moments_part[f, k]
        if kind == NONE and not narrow[0]:
            _offsets(x, centre, offsets)
            _whitened(whiten, offsets, y)
            np.dot(y, y.T, square)
            for i in range(n_features):
                for j in range(n_features):
                    scatter[0, i, j] += square[i, j]
        for k in range(n_components):
            if narrow[k]:
                into = scatter[min(k, len(scatter) - 1)]
                _scatter(x, anchors[k], gamma, k, offsets, y, sums[k], into, square)
        if overlap.size:
            for m in range(len(bounds) - 1):
                first, end = bounds[m], bounds[m + 1]
                own = np.ascontiguousarray(gamma[:, first:end])
                overlap[first:end, first:end] += np.dot(own.T, own)
