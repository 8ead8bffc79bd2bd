"""Attainment by workload: good requests in cells of prompt length x asked output length."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from metrics.judge import Judgement
from metrics.latency import select
from metrics.records import Rows

Ints = NDArray[np.int64]

MOST_CELLS = 6  # on each side
FEW = 20  # a cell of fewer requests says little


class LengthGrid(msgspec.Struct, frozen=True):
    """Requests by length; cell (i, j) has prompts in [prompt_edge[i], prompt_edge[i+1]) and outputs likewise."""

    prompt_edge: list[int]
    output_edge: list[int]
    good: list[list[int]]
    total: list[list[int]]


def length_grid(rows: Rows, judged: Judgement) -> LengthGrid:
    """The decided ones of judged rows, by their planned lengths."""
    good, rows = judged.good[judged.decided], select(rows, judged.decided)
    prompt_edge, output_edge = _edges(rows["prompt_tokens"]), _edges(rows["max_tokens"])
    shape = len(prompt_edge) - 1, len(output_edge) - 1
    cell = _cell(rows["prompt_tokens"], prompt_edge) * shape[1] + _cell(rows["max_tokens"], output_edge)
    total = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)
    met = np.bincount(cell, weights=good, minlength=shape[0] * shape[1]).reshape(shape)
    return LengthGrid(prompt_edge, output_edge, met.astype(int).tolist(), total.tolist())


def _edges(lengths: NDArray[np.int32]) -> list[int]:
    """Powers of two from the 2nd to the 98th percentile, at most `MOST_CELLS`; the ends hold what lies beyond."""
    low, high = np.quantile(lengths, [0.02, 0.98])
    first, last = int(np.floor(np.log2(max(low, 1.0)))), int(np.floor(np.log2(max(high, 1.0))))
    step = -(-(last - first + 1) // MOST_CELLS)
    inner = [2**power for power in range(first + step, last + 1, step)]
    return [min(int(lengths.min()), *inner, 2**first), *inner, max(int(lengths.max()) + 1, *inner, 2 ** (first + 1))]


def _cell(lengths: NDArray[np.int32], edges: list[int]) -> Ints:
    return np.clip(np.searchsorted(edges, lengths, side="right") - 1, 0, len(edges) - 2).astype(np.int64)
