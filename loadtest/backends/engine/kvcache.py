"""KV memory: `[layer, block, slot, K or V, kv head, head dim]`, and who holds which block.

One layer of one block is one contiguous piece, the unit of a transfer. Tokens lie at one stride across blocks, so the
KV of a request in neighbouring blocks is a view; only when memory is fragmented is it gathered.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor


class Blocks:
    """The blocks of one request, in the order of its tokens."""

    def __init__(self, ids: Sequence[int], block_size: int) -> None:
        self.ids = list(ids)
        self.block_size = block_size

    @cached_property
    def start(self) -> int | None:
        """The first slot when the blocks are neighbours, else None."""
        first = self.ids[0]
        return first * self.block_size if self.ids == list(range(first, first + len(self.ids))) else None

    @cached_property
    def slots(self) -> Tensor:
        """The slot of every token that fits."""
        offsets = torch.arange(self.block_size)
        return (torch.tensor(self.ids)[:, None] * self.block_size + offsets).reshape(-1)

    def slots_of(self, first: int, count: int) -> list[int]:
        """Slots of the tokens [first, first + count)."""
        if self.start is not None:
            return list(range(self.start + first, self.start + first + count))
        size = self.block_size
        return [self.ids[token // size] * size + token % size for token in range(first, first + count)]


class BlockPool:
    """Hands out blocks; neighbours when a long enough run is free."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self._free = bytearray(b"\1" * num_blocks)

    @property
    def free(self) -> int:
        """Blocks that nobody holds."""
        return self._free.count(1)

    def take(self, count: int) -> Blocks:
        """`count` blocks; MemoryError when fewer are free."""
        start = self._free.find(b"\1" * count)
        ids = list(range(start, start + count)) if start >= 0 else self._scattered(count)
        for block in ids:
            self._free[block] = 0
        return Blocks(ids, self.block_size)

    def give_back(self, blocks: Blocks) -> None:
        """Free them; ValueError when one is free already."""
        for block in blocks.ids:
            if self._free[block]:
                raise ValueError(f"block {block} is free already")
            self._free[block] = 1

    def _scattered(self, count: int) -> list[int]:
        ids = [block for block, free in enumerate(self._free) if free][:count]
        if len(ids) < count:
            raise MemoryError(f"{count} KV blocks wanted, {len(ids)} free")
        return ids


class KvCache:
    """The tensor, and its layers as flat rows of slots."""

    def __init__(self, tensor: Tensor) -> None:
        """`tensor` has the shape of `kv_shape`."""
        self.tensor = tensor
        self._rows = [layer.flatten(0, 1) for layer in tensor]  # [block * slot, 2, kv head, head dim]

    def write(self, layer: int, slots: Tensor, kv: Tensor) -> None:
        """Store `[token, 2, kv head, head dim]` of one layer."""
        self._rows[layer].index_copy_(0, slots, kv)

    def slots(self, layer: int) -> Tensor:
        """A layer's `[slot, K or V, kv head, head dim]`."""
        rows: Tensor = self._rows[layer]
        return rows

    def read(self, layer: int, blocks: Blocks, tokens: int) -> Tensor:
        """The first `tokens` of a request: a view where its blocks are neighbours."""
        rows = self.slots(layer)
        if blocks.start is not None:
            return rows[blocks.start : blocks.start + tokens]
        return rows.index_select(0, blocks.slots[:tokens].to(rows.device))


def kv_shape(layers: int, num_blocks: int, block_size: int, kv_heads: int, head_dim: int) -> tuple[int, ...]:
    """The shape of a KV tensor."""
    return (layers, num_blocks, block_size, 2, kv_heads, head_dim)
