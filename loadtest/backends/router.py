"""Which instance of a pool takes a request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Final

import numpy as np

from loadtest.backends.instance import Instance

Router = Callable[[], Instance]


def shortest_queue(pool: Sequence[Instance]) -> Router:
    """Fewest prompt tokens still to compute; among equals fewest tokens resident or on their way.

    In a decode pool no prompt is pending, which leaves the second rule.
    """
    return lambda: min(pool, key=lambda instance: (instance.pending_tokens, instance.resident_tokens))


def round_robin(pool: Sequence[Instance]) -> Router:
    """Each in turn."""
    turn = count()
    return lambda: pool[next(turn) % len(pool)]


def at_random(pool: Sequence[Instance]) -> Router:
    """Any, from a generator of its own with a fixed seed: the same run gives the same choices."""
    rng = np.random.default_rng(0)
    return lambda: pool[int(rng.integers(len(pool)))]


ROUTERS: Final[dict[str, Callable[[Sequence[Instance]], Router]]] = {
    "jsq": shortest_queue,
    "round_robin": round_robin,
    "random": at_random,
}
