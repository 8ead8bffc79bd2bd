"""A run of decode iterations as one event.

As long as the same B requests decode, each iteration reads B more tokens of context than the one before, so its time
grows by the same step: k iterations take k first + step k (k - 1) / 2.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple


class Stretch(NamedTuple):
    """Iterations one after the other from `start` on; the first takes `first_s`, each later one `step_s` more."""

    start: float
    first_s: float
    step_s: float
    iterations: int

    def lasts(self, iterations: int) -> float:
        """Seconds that so many of them take."""
        return iterations * (self.first_s + self.step_s * (iterations - 1) / 2)

    def end(self, iterations: int) -> float:
        """When so many of them are over."""
        return self.start + iterations * (self.first_s + self.step_s * (iterations - 1) / 2)

    def over(self, now: float) -> int:
        """How many have ended by `now`."""
        return iterations_over(now, *self)


def iterations_over(now: float, start: float, first_s: float, step_s: float, iterations: int) -> int:
    """How many of a stretch's iterations have ended by `now`; a function, because quick.py makes no stretches."""
    if now < start + first_s:
        return 0
    elapsed, half = now - start, step_s / 2
    linear = first_s - half
    count = int(2 * elapsed / (linear + sqrt(linear * linear + 2 * step_s * elapsed)))
    count = min(count, iterations)
    while count < iterations and start + (count + 1) * (first_s + half * count) <= now:  # rounding, no more
        count += 1
    while count and start + count * (first_s + half * (count - 1)) > now:
        count -= 1
    return count
