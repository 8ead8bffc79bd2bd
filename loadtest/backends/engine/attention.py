"""Attention of a flat batch over the paged KV cache, request by request: nothing is padded.

A query head only needs the KV head of its group, so a decode is attention of `group` queries over each KV head, and the
fused kernel reads every key once. It takes the cache's strided views as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as attention

from loadtest.backends.engine.kvcache import Blocks, KvCache


class Span(NamedTuple):
    """A request's rows in the flat batch: `rows` new tokens behind `done` that are in the cache."""

    rows: int
    done: int
    blocks: Blocks


PagedDecode = Callable[[Tensor, Tensor], Tensor]  # the first rows' queries, and a layer's slots -> what they attend to


def attend(
    layer: int,
    qkv: Tensor,
    kv_heads: int,
    cache: KvCache,
    spans: Sequence[Span],
    paged: tuple[int, PagedDecode] | None = None,
) -> Tensor:
    """Attention output `[token, heads * head dim]`; the new tokens' KV is in the cache already.

    `qkv` is `[token, query heads + 2 kv heads, head dim]`. With `paged` so many decodes, which are first, are one call.
    """
    outputs, first = [], 0
    if paged is not None:
        first, decode = paged
        queries = qkv[:first, : qkv.shape[1] - 2 * kv_heads]
        outputs.append(decode(queries, cache.slots(layer)).flatten(1))
    for span in spans[first:]:
        rows = qkv[first : first + span.rows]
        first += span.rows
        if span.rows == 1:
            outputs.append(_decode(rows, kv_heads, cache.read(layer, span.blocks, span.done + 1)))
        elif span.done == 0:
            outputs.append(_whole(rows, kv_heads))
        else:
            outputs.append(_piece(rows, kv_heads, cache.read(layer, span.blocks, span.done + span.rows)))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _decode(row: Tensor, kv_heads: int, kv: Tensor) -> Tensor:
    _, heads, dim = row.shape
    queries = row[:, : heads - 2 * kv_heads].reshape(1, kv_heads, -1, dim)
    return attention(queries, *_keys_values(kv)).reshape(1, -1)


def _whole(rows: Tensor, kv_heads: int) -> Tensor:
    """A prompt with nothing before it needs no cache."""
    queries, keys, values = rows.transpose(0, 1)[None].split([rows.shape[1] - 2 * kv_heads, kv_heads, kv_heads], 1)
    return _flat(attention(queries, keys, values, is_causal=True, enable_gqa=True))


def _piece(rows: Tensor, kv_heads: int, kv: Tensor) -> Tensor:
    """A piece of a prompt sees all before it, and itself up to each token."""
    new, total = len(rows), len(kv)
    mask = torch.ones(new, total, dtype=torch.bool, device=rows.device).tril(total - new)
    queries = rows[:, : rows.shape[1] - 2 * kv_heads].transpose(0, 1)[None]
    return _flat(attention(queries, *_keys_values(kv), attn_mask=mask, enable_gqa=True))


def _keys_values(kv: Tensor) -> tuple[Tensor, Tensor]:
    keys, values = kv.permute(1, 2, 0, 3)[:, None].unbind(0)
    return keys, values


def _flat(output: Tensor) -> Tensor:
    return output[0].transpose(0, 1).flatten(1)
