"""Blocks: neighbours when possible, never twice, none lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.stage import PICO, cache_of, torch

# isort: split
from loadtest.backends.engine.kvcache import BlockPool, Blocks


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 9)), max_size=60))
def test_no_block_is_held_twice_or_lost(moves: list[tuple[bool, int]]) -> None:
    """Any order of taking and giving back."""
    pool = BlockPool(32, 16)
    held: list[Blocks] = []
    for take, number in moves:
        if take and pool.free >= number:
            held.append(pool.take(number))
        elif held and not take:
            pool.give_back(held.pop(number % len(held)))
        ids = [block for blocks in held for block in blocks.ids]
        assert len(ids) == len(set(ids))
        assert 32 == pool.free + len(ids)


def test_neighbours_first() -> None:
    """A run where there is one, else what is free in order; too many is an error, and so is freeing twice."""
    pool = BlockPool(8, 16)
    first, second, third = pool.take(2), pool.take(2), pool.take(3)
    assert ([0, 1], 0) == (first.ids, first.start)
    assert ([4, 5, 6], 64) == (third.ids, third.start)
    pool.give_back(first)
    pool.give_back(third)
    assert [4, 5, 6] == pool.take(3).ids
    scattered = pool.take(3)
    assert ([0, 1, 7], None) == (scattered.ids, scattered.start)
    assert [15, 16, 112 + 0] == [*scattered.slots_of(15, 2), *scattered.slots_of(32, 1)]
    pool.give_back(second)
    with pytest.raises(ValueError, match="free already"):
        pool.give_back(second)
    with pytest.raises(MemoryError, match="3 KV blocks wanted, 2 free"):
        pool.take(3)


def test_reading_is_a_view_of_neighbours_and_a_copy_of_others() -> None:
    """Both give the same tokens."""
    cache = cache_of(PICO, 8, 4)
    rows = torch.randn(10, 2, PICO.kv_heads, PICO.head_dim)
    for ids, shares in (([2, 3, 4], True), ([6, 1, 5], False)):
        blocks = Blocks(ids, 4)
        cache.write(1, torch.tensor(blocks.slots_of(0, 10)), rows)
        found = cache.read(1, blocks, 10)
        assert bool(torch.equal(rows, found))
        assert shares == (cache.tensor.data_ptr() <= found.data_ptr() < cache.tensor.data_ptr() + cache.tensor.nbytes)
