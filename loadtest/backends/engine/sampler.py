"""The next token: greedy, or drawn with one random number that depends on seed and position alone.

So the same request gets the same tokens in every arrangement, batch and retry, up to the rounding of the logits.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from loadtest.backends.engine.messages import Sampling

_MASK = (1 << 64) - 1


def sample(logits: Tensor, wishes: Sequence[tuple[Sampling, int]]) -> list[int]:
    """A token for each row of `[row, vocab]`; `wishes` are the rows' sampling and the token's position."""
    tokens: list[int] = logits.argmax(-1).tolist()
    for row, (sampling, position) in enumerate(wishes):
        if sampling.temperature > 0:
            tokens[row] = _draw(logits[row].float() / sampling.temperature, sampling, position)
    return tokens


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that looks random: SplitMix64 of seed and position."""
    state = (seed * 0x9E3779B97F4A7C15 + (position + 1) * 0xD1342543DE82EF95) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return float((state ^ (state >> 31)) >> 11) * 2.0**-53


def _draw(logits: Tensor, sampling: Sampling, position: int) -> int:
    """Invert the distribution over the most likely tokens, in order of likelihood."""
    order = torch.argsort(logits, descending=True, stable=True)
    if sampling.top_k > 0:
        order = order[: sampling.top_k]
    cumulative = logits[order].softmax(-1).cumsum(-1, dtype=torch.float64)
    if sampling.top_p < 1:
        kept = int((cumulative < sampling.top_p).sum()) + 1
        cumulative = cumulative[:kept]
    point = uniform(sampling.seed, position) * float(cumulative[-1])
    place = min(int((cumulative <= point).sum()), len(cumulative) - 1)
    return int(order[place])
