"""Attention of all decodes of a batch in one Triton kernel, over the pages where their KV lies.

Each program takes the query heads of one KV head of one request, and a share of its pages (split-KV: a long context
alone still fills the machine); the shares are merged by their log-sum-exp. Checked on a CPU through Triton's
interpreter, in the tests, and on the GPU at start (`probe`), before it is used there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]
from torch import Tensor

from loadtest.backends.engine.kvcache import Blocks

SPLITS = 8
_TOLERANCE = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 5e-2}


class Pages(NamedTuple):
    """The decodes of a batch: `[request, page]` of block numbers, and how much of each context there is."""

    table: Tensor
    lengths: Tensor


def pages_of(decodes: Sequence[tuple[Blocks, int]], device: torch.device) -> Pages:
    """Of requests with so many tokens in the cache, the new one included."""
    widest = max(len(blocks.ids) for blocks, _ in decodes)
    rows = [blocks.ids + [0] * (widest - len(blocks.ids)) for blocks, _ in decodes]
    lengths = [tokens for _, tokens in decodes]
    return Pages(*(torch.tensor(values, dtype=torch.int32, device=device) for values in (rows, lengths)))


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _decode(
    queries: Any,
    kv: Any,
    table: Any,
    lengths: Any,
    parts: Any,
    sums: Any,
    query_stride: Any,
    slot_stride: Any,
    table_stride: Any,
    scale: Any,
    group: tl.constexpr,
    padded_group: tl.constexpr,
    dim: tl.constexpr,
    page: tl.constexpr,
) -> None:
    request, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    kv_heads, splits = tl.num_programs(1), tl.num_programs(2)
    length = tl.load(lengths + request)
    pages = tl.cdiv(length, page)
    share = tl.cdiv(pages, splits)
    first = split * share
    members, columns, slots = tl.arange(0, padded_group), tl.arange(0, dim), tl.arange(0, page)
    heads = head * group + members
    ours = (members < group)[:, None]
    place = queries + request * query_stride + heads[:, None] * dim + columns[None, :]
    query = tl.load(place, mask=ours, other=0.0).to(tl.float32) * scale
    top = tl.full([padded_group], float("-inf"), tl.float32)
    total = tl.zeros([padded_group], tl.float32)
    gathered = tl.zeros([padded_group, dim], tl.float32)
    for number in range(first, tl.minimum(first + share, pages)):
        block = tl.load(table + request * table_stride + number).to(tl.int64)
        seen = number * page + slots < length
        at = kv + (block * page + slots)[:, None] * slot_stride + head * dim + columns[None, :]
        keys = tl.load(at, mask=seen[:, None], other=0.0).to(tl.float32)
        values = tl.load(at + kv_heads * dim, mask=seen[:, None], other=0.0).to(tl.float32)
        scores = tl.sum(query[:, None, :] * keys[None, :, :], 2)
        scores = tl.where(seen[None, :], scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        shrink, shares = tl.exp(top - higher), tl.exp(scores - higher[:, None])
        total = total * shrink + tl.sum(shares, 1)
        gathered = gathered * shrink[:, None] + tl.sum(shares[:, :, None] * values[None, :, :], 1)
        top = higher
    some = total > 0  # a short context has no page for the last splits
    whole = tl.where(some, total, 1.0)
    out = (request * kv_heads * group + heads) * splits + split
    tl.store(parts + out[:, None] * dim + columns[None, :], gathered / whole[:, None], mask=ours)
    tl.store(sums + out, tl.where(some, top + tl.log(whole), float("-inf")), mask=members < group)


def decode(queries: Tensor, rows: Tensor, pages: Pages, page_size: int) -> Tensor:
    """`[request, head, dim]` of queries over one layer's `[slot, K or V, kv head, dim]`; the same shape back."""
    requests, heads, dim = queries.shape
    kv_heads = rows.shape[2]
    group = heads // kv_heads
    parts = torch.empty(requests, heads, SPLITS, dim, dtype=torch.float32, device=queries.device)
    sums = torch.empty(requests, heads, SPLITS, dtype=torch.float32, device=queries.device)
    _decode[(requests, kv_heads, SPLITS)](
        queries,
        rows,
        pages.table,
        pages.lengths,
        parts,
        sums,
        queries.stride(0),
        rows.stride(0),
        pages.table.stride(0),
        dim**-0.5,
        group=group,
        padded_group=triton.next_power_of_2(group),
        dim=dim,
        page=page_size,
    )
    return (parts * sums.softmax(-1)[..., None]).sum(2).to(queries.dtype)


def probe(dtype: torch.dtype, device: torch.device, heads: int, kv_heads: int, dim: int, page_size: int) -> bool:
    """Does it compile here, and agree with torch's own attention?"""
    if dim & (dim - 1) or page_size & (page_size - 1):
        return False  # tiles are powers of two
    generator = torch.Generator(device).manual_seed(0)
    lengths = [1, page_size, page_size + 1, 5 * page_size + 3]
    rows = torch.randn(16 * page_size, 2, kv_heads, dim, generator=generator, device=device).to(dtype)
    queries = torch.randn(len(lengths), heads, dim, generator=generator, device=device).to(dtype)
    blocks = [Blocks([(5 * n + 3 * row) % 16 for n in range(6)], page_size) for row in range(len(lengths))]
    try:
        found = decode(queries, rows, pages_of(list(zip(blocks, lengths, strict=True)), device), page_size)
    except Exception:  # a compiler's errors are of every kind, and torch's attention is always there
        return False
    expected = torch.stack(
        [plain(q, rows[b.slots[:n].to(device)]) for q, b, n in zip(queries, blocks, lengths, strict=True)]
    )
    return float((found - expected).abs().max()) < _TOLERANCE[dtype]


def plain(query: Tensor, kv: Tensor) -> Tensor:
    """One request's `[head, dim]` over its `[token, K or V, kv head, dim]` by torch's own attention."""
    keys, values = kv.permute(1, 2, 0, 3)[:, None].unbind(0)
    grouped = query.reshape(1, kv.shape[2], -1, query.shape[-1])
    return torch.nn.functional.scaled_dot_product_attention(grouped, keys, values).reshape(query.shape)
