"""What prompts have in common: how often a prefix cache could hit, and how to make it as often as wanted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from workloads.errors import WorkloadError
from workloads.shape import units, warned
from workloads.trace import Prefix, Trace

BLOCK_TOKENS = 16  # vLLM's block
GROUPS = 8
_SOLVE_STEPS = 40


def hit_ratio(trace: Trace) -> float | None:
    """Share of prompt blocks that came before, in an unlimited cache; None when the trace names no blocks.

    A block's id stands for everything up to its end (as in Mooncake and Qwen-Bailian traces).
    """
    if trace.prefix is None or not len(trace.prefix.ids):
        return None
    ids = trace.prefix.ids
    return 1 - len(np.unique(ids)) / len(ids)


def token_hit_ratio(trace: Trace) -> float:
    """Share of all prompt tokens that a whole shared block before them covers, in an unlimited cache."""
    if trace.prefix is None:
        return 0.0
    prefix, total = trace.prefix, int(trace.prompt_tokens.sum(dtype=np.int64))
    row = np.repeat(np.arange(len(trace)), np.diff(prefix.start))
    place = np.arange(len(prefix.ids)) - prefix.start[row]
    inside = (place + 1) * prefix.block_tokens <= trace.prompt_tokens[row]
    _, first = np.unique(prefix.ids, return_index=True)
    seen = np.ones(len(prefix.ids), dtype=bool)
    seen[first] = False
    return float((seen & inside).sum() * prefix.block_tokens / total)


def share_prefix(trace: Trace, ratio: float, rng: np.random.Generator, *, groups: int = GROUPS) -> Trace:
    """Prompts that begin alike so that `ratio` of all prompt tokens would hit an unlimited prefix cache.

    Rows fall at random into `groups` (system prompts, say); a row shares the same part of its prompt, in whole blocks
    of 16 tokens, with its group. A ratio that cannot be reached raises WorkloadError `hit_ratio`.
    """
    if not 0 <= ratio < 1:
        raise WorkloadError(f"A hit ratio of {ratio:g} cannot be had.", code="hit_ratio", hint="Give 0 to below 1.")
    group = rng.integers(groups, size=len(trace))
    low, high = 0.0, 1.0
    if _hits(trace, group, high) < ratio:
        raise WorkloadError(
            f"The {len(trace)} prompts of {trace.name} reach a hit ratio of {_hits(trace, group, high):.3f}, "
            f"not {ratio:g}.",
            code="hit_ratio",
            hint="Ask for less, or take more requests.",
        )
    for _ in range(_SOLVE_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if _hits(trace, group, middle) >= ratio else (middle, high)
    blocks = _blocks(trace, high)
    start = np.concatenate(([0], np.cumsum(blocks)))
    place = np.arange(start[-1]) - np.repeat(start[:-1], blocks)
    shared = replace(trace, prefix=Prefix(start, np.repeat(group, blocks) + groups * place, BLOCK_TOKENS))
    return warned(shared, f"shared_prefix: {token_hit_ratio(shared):.3f} of the prompt tokens could hit a cache")


def share_in_sessions(trace: Trace) -> Trace:
    """Each turn's prompt begins with the whole prompt of the turn before it, as a conversation's does."""
    if trace.session is None:
        raise WorkloadError(f"{trace.name} has no sessions.", code="no_sessions", hint="Map a session column.")
    unit = units(trace)
    blocks = np.where(trace.session >= 0, -(-trace.prompt_tokens.astype(np.int64) // BLOCK_TOKENS), 0)
    start = np.concatenate(([0], np.cumsum(blocks)))
    place = np.arange(start[-1]) - np.repeat(start[:-1], blocks)
    ids = np.repeat(unit, blocks) + (int(unit.max()) + 1) * place
    return replace(trace, prefix=Prefix(start, ids, BLOCK_TOKENS))


def _blocks(trace: Trace, part: float) -> NDArray[np.int64]:
    """Whole shared blocks of each row when `part` of its prompt is shared."""
    return np.floor(trace.prompt_tokens * part / BLOCK_TOKENS).astype(np.int64)


def _hits(trace: Trace, group: NDArray[np.int64], part: float) -> float:
    """Share of the prompt tokens that hit: in each group, what no row before was as long as is new."""
    blocks = _blocks(trace, part)
    order = np.argsort(group, kind="stable")
    known = 0
    for rows in np.split(blocks[order], np.flatnonzero(np.diff(group[order])) + 1):
        before = np.maximum.accumulate(np.concatenate(([0], rows[:-1])))
        known += int(np.minimum(rows, before).sum())
    return known * BLOCK_TOKENS / int(trace.prompt_tokens.sum(dtype=np.int64))
