"""Llama, Qwen2 and Qwen3 as one forward pass over a flat batch of tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from loadtest.backends.engine.attention import PagedDecode, Span, attend
from loadtest.backends.engine.kvcache import KvCache
from loadtest.backends.engine.shapes import Llama3Rope, Shape
from loadtest.backends.engine.weights import Layer, Weights


@dataclass(frozen=True)
class FlatBatch:
    """The new tokens of all requests, one behind the other; `wanted` are the rows whose logits are asked for."""

    ids: Tensor
    positions: Tensor
    slots: Tensor
    spans: Sequence[Span]
    wanted: Tensor
    paged: tuple[int, PagedDecode] | None = None  # so many decodes at the front in one kernel


class Model:
    """Computes logits and writes KV."""

    def __init__(self, shape: Shape, weights: Weights, max_model_len: int) -> None:
        self.shape = shape
        self.weights = weights
        self._cos, self._sin = _rotations(shape, max_model_len, weights.embedding)

    @torch.inference_mode()
    def forward(self, batch: FlatBatch, cache: KvCache, on_layer: Callable[[int], None] | None = None) -> Tensor:
        """Logits `[wanted, vocab]`; `on_layer(i)` is called when layer i's KV of the batch is in the cache."""
        weights = self.weights
        hidden = functional.embedding(batch.ids, weights.embedding)
        cos, sin = self._cos[batch.positions], self._sin[batch.positions]
        for number, layer in enumerate(weights.layers):
            qkv = self._qkv(layer, hidden, cos, sin)
            cache.write(number, batch.slots, qkv[:, self.shape.heads :].unflatten(1, (2, self.shape.kv_heads)))
            if on_layer is not None:
                on_layer(number)
            attended = attend(number, qkv, self.shape.kv_heads, cache, batch.spans, batch.paged)
            hidden = hidden + functional.linear(attended, layer.out)
            hidden = hidden + self._mlp(layer, hidden)
        return functional.linear(self._norm(hidden[batch.wanted], weights.norm), weights.head)

    def _qkv(self, layer: Layer, hidden: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """`[token, query heads + 2 kv heads, head dim]`, queries and keys rotated."""
        shape = self.shape
        flat = functional.linear(self._norm(hidden, layer.norm), layer.qkv, layer.qkv_bias)
        qkv: Tensor = flat.unflatten(1, (-1, shape.head_dim))
        if layer.q_norm is not None and layer.k_norm is not None:
            queries, keys = qkv[:, : shape.heads], qkv[:, shape.heads : -shape.kv_heads]
            queries.copy_(self._norm(queries, layer.q_norm))
            keys.copy_(self._norm(keys, layer.k_norm))
        _rotate(qkv[:, : -shape.kv_heads], cos, sin)
        return qkv

    def _mlp(self, layer: Layer, hidden: Tensor) -> Tensor:
        gate, up = functional.linear(self._norm(hidden, layer.mlp_norm), layer.gate_up).chunk(2, 1)
        return functional.linear(functional.silu(gate).mul_(up), layer.down)

    def _norm(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(hidden, weight.shape, weight, self.shape.norm_eps)


def _rotate(heads: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Rotary embedding in place; the two halves of a head are the two coordinates."""
    first, second = heads.chunk(2, -1)
    rotated = torch.addcmul(first * cos, second, sin, value=-1)
    second.mul_(cos).addcmul_(first, sin)
    first.copy_(rotated)


def _rotations(shape: Shape, positions: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine, `[position, 1, head dim / 2]`."""
    exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim
    frequencies = shape.rope_theta**-exponents
    if shape.rope_scaling is not None:
        frequencies = _stretched(frequencies, shape.rope_scaling)
    angles = torch.outer(torch.arange(positions, dtype=torch.float64), frequencies)[:, None]
    return angles.cos().to(like), angles.sin().to(like)


def _stretched(frequencies: Tensor, rope: Llama3Rope) -> Tensor:
    """Llama 3.1: long wavelengths are stretched by `factor`, short ones stay, between the two a blend."""
    turns = rope.original_max_position_embeddings * frequencies / (2 * math.pi)
    share = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    share = share.clamp(0.0, 1.0)
    return frequencies * (share + (1 - share) / rope.factor)
