"""Which instance of a pool takes a request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from math import inf
from typing import Final

import numpy as np

from loadtest.backends.instance import Instance

Router = Callable[[float], Instance]


def shortest_queue(pool: Sequence[Instance]) -> Router:
    """Fewest prompt tokens still to compute; among equals fewest tokens resident or on their way.

    In a decode pool no prompt is pending, which leaves the second rule.
    """
    if len(pool) == 1:
        return lambda _: pool[0]

    def choose(now: float) -> Instance:
        shortest = min([instance.pending_tokens for instance in pool])
        return least_resident([instance for instance in pool if instance.pending_tokens == shortest], now)

    return choose


def least_resident(pool: Sequence[Instance], now: float) -> Instance:
    """Fewest tokens resident or on their way; the first of several."""
    best, fewest = pool[0], inf
    for instance in pool:
        if instance.resident_tokens < fewest and (tokens := instance.resident(now)) < fewest:
            best, fewest = instance, tokens
    return best


def round_robin(pool: Sequence[Instance]) -> Router:
    """Each in turn."""
    turn = count()
    return lambda _: pool[next(turn) % len(pool)]


def at_random(pool: Sequence[Instance]) -> Router:
    """Any, from a generator of its own with a fixed seed: the same run gives the same choices."""
    rng = np.random.default_rng(0)
    return lambda _: pool[int(rng.integers(len(pool)))]


ROUTERS: Final[dict[str, Callable[[Sequence[Instance]], Router]]] = {
    "jsq": shortest_queue,
    "round_robin": round_robin,
    "random": at_random,
}


def borrowing(own: Router, others: Sequence[Instance], most_tokens: int) -> Router:
    """The router of prompts that takes an instance of the decode pool when its own shortest queue is too long.

    An instance of the decode pool with prompts is in the mixed pool; without, it is back in its own. Those in it are
    asked first, then the one with the fewest tokens joins them (Splitwise, ISCA 2024, section 4.5).
    """

    def choose(now: float) -> Instance:
        nearest = own(now)
        if nearest.pending_tokens <= most_tokens:
            return nearest
        mixed = [instance for instance in others if 0 < instance.pending_tokens <= most_tokens]
        borrowed = mixed or [instance for instance in others if not instance.pending_tokens]
        return least_resident(borrowed, now) if borrowed else nearest

    return choose
