import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fedgem import rows as rows_module
from fedgem.rows import Rows, block_length, map_in_order
from strategies import seeds


@st.composite
def selections(draw):
    """An array, a block size, and some scaling and selection of its rows."""
    rng = np.random.default_rng(draw(seeds))
    n, d = draw(st.integers(1, 40)), draw(st.integers(1, 4))
    order, dtype = draw(st.sampled_from("CF")), draw(st.sampled_from([np.float64, np.float32]))
    X = np.asarray(rng.normal(3, 2, size=(n, d)), dtype, order)
    scaling = (rng.normal(size=d), rng.uniform(0.5, 2, size=d)) if draw(st.booleans()) else None
    keep = rng.random(n) < draw(st.floats(0, 1)) if draw(st.booleans()) else None
    return X, draw(st.integers(1, 500)), scaling, keep


def select(X, scaling, keep):
    rows = Rows.from_array(X)
    if scaling is not None:
        rows = rows.scaled(*scaling)
    return rows if keep is None else replace(rows, keep=keep)


@given(selections())
def test_blocks_are_the_selected_rows_scaled(selection):
    X, block_bytes, scaling, keep = selection
    with patch.object(rows_module, "BLOCK_BYTES", block_bytes):
        rows = select(X, scaling, keep)
        blocks = list(rows.blocks())
        assert rows.fit_one_block == (len(blocks) == 1)
        longest = block_length(X.shape[1])
    expected = X if scaling is None else ((X - scaling[0]) / scaling[1]).astype(X.dtype)
    expected = expected if keep is None else expected[keep]
    assert_array_equal(np.concatenate(blocks), expected)
    assert {block.dtype for block in blocks} == {X.dtype}
    assert all(block.flags.c_contiguous for block in blocks)
    assert rows.n_kept == len(expected)
    lengths = [len(block) for block in blocks]
    assert max(lengths) <= longest
    if keep is None:
        assert set(lengths[:-1]) <= {longest}
    assert_array_equal(np.concatenate(list(rows.blocks())), expected)  # again from the start


def test_a_block_has_a_row_at_least_and_bounded_bytes():
    assert block_length(10**9) == 1
    assert 8 * 16 * block_length(16) <= rows_module.BLOCK_BYTES


@given(selections(), st.integers(1, 50), seeds)
def test_a_sample_is_a_subset_without_repeats(selection, size, seed):
    X, block_bytes, _, keep = selection
    X[:, 0] = np.arange(len(X))  # names every row
    keep = None if keep is None or not keep.any() else keep
    whole = select(X, None, keep).sample(size, np.random.default_rng(seed))
    names = whole[:, 0].astype(int)
    assert len(whole) == min(size, len(X) if keep is None else keep.sum())
    assert (np.diff(names) > 0).all()
    assert keep is None or keep[names].all()
    assert_array_equal(whole, X[names])
    with patch.object(rows_module, "BLOCK_BYTES", block_bytes):
        in_blocks = select(X, None, keep).sample(size, np.random.default_rng(seed))
    assert_array_equal(in_blocks, whole)


def test_every_row_may_be_sampled():
    rows = Rows.from_array(np.arange(10.0)[:, None])
    rng = np.random.default_rng(0)
    seen = np.concatenate([rows.sample(3, rng) for _ in range(50)])
    assert set(seen.ravel()) == set(range(10))


@pytest.fixture
def pool():
    with ThreadPoolExecutor(3) as threads:
        yield threads


@pytest.mark.parametrize("ahead", [1, 2, 4, 50])
def test_map_in_order_keeps_order_and_reads_no_further_than_ahead(pool, ahead):
    taken, started = [], threading.Barrier(3)

    def items():
        for i in range(20):
            taken.append(i)
            yield i

    def work(i):
        if ahead >= 3 and i < 3:
            started.wait(5)  # three run at once, or this breaks
        return i * i

    for consumed, result in enumerate(map_in_order(work, items(), pool, ahead)):
        assert result == consumed**2
        assert len(taken) <= consumed + ahead
    assert consumed == 19


def test_map_in_order_without_a_pool_takes_one_item_at_a_time():
    items = iter(range(5))
    assert next(map_in_order(lambda i: -i, items, None)) == 0
    assert next(items) == 1


def test_map_in_order_passes_exceptions_on_in_their_place(pool):
    results = map_in_order(lambda i: 1 / (3 - i), range(10), pool)
    assert [next(results) for _ in range(3)] == [1 / 3, 1 / 2, 1]
    with pytest.raises(ZeroDivisionError):
        next(results)
    with pytest.raises(KeyError):
        list(map_in_order(str, ({}[i] for i in range(3)), pool))


def test_map_in_order_abandoned_starts_nothing_more():
    done, go = [], threading.Event()

    def work(i):
        if i:
            go.wait(5)
        done.append(i)

    with ThreadPoolExecutor(1) as pool:
        results = map_in_order(work, range(10), pool)
        next(results)
        results.close()
        go.set()
    assert set(done) <= {0, 1}
