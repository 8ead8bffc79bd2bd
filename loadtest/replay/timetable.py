"""The instants at which rows leave: one timer on absolute deadlines, never summed gaps, never early."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Callable

import numpy as np

from loadtest import clock
from loadtest.replay.reactor import Reactor
from loadtest.replay.timerfd import FAR_FUTURE_NS
from workloads.schedule import Schedule


class Timetable:
    """Calls `launch(row, late_ns)` for each row of a shard at its instant, in order, and `after()` once per wake-up.

    A row that waits for another (its instant is NaN) has none until `wait` gives it one.
    """

    def __init__(
        self,
        reactor: Reactor,
        shard: Schedule,
        *,
        t0_ns: int,
        spin_us: int,
        launch: Callable[[int, int], None],
        after: Callable[[], None],
    ) -> None:
        rows = np.flatnonzero(~shard.waits)
        instants = np.full(len(shard), FAR_FUTURE_NS, dtype=np.int64)
        instants[rows] = np.ceil(shard.scheduled_s[rows] * 1e9).astype(np.int64) + t0_ns
        self._due = array("q", instants.tobytes())
        self._rows = array("q", rows.astype(np.int64).tobytes())  # those with an instant, in order of it
        self._instants = array("q", np.sort(instants[rows]).tobytes())
        self._waited: list[tuple[int, int]] = []  # (minus the instant, row): the next one stands last
        self._spin_ns = spin_us * 1000
        self._launch, self._after = launch, after
        self._next = 0
        self.next_due_ns = FAR_FUTURE_NS
        self.end_ns = int(instants[rows[-1]]) if len(rows) else t0_ns
        self._deadline = reactor.deadline(self._fired)
        self._arm()

    def due_ns(self, row: int) -> int:
        """The instant of a row on the monotonic clock; FAR_FUTURE_NS behind the last row and while it is not known."""
        return self._due[row] if row < len(self._due) else FAR_FUTURE_NS

    def wait(self, row: int, due_ns: int) -> None:
        """Launch a row that waited at `due_ns`."""
        self._due[row] = due_ns
        self.end_ns = max(self.end_ns, due_ns)
        insort(self._waited, (-due_ns, row))
        self._arm()

    @property
    def over(self) -> bool:
        """Every row with an instant has been launched, or the rest was given up."""
        return self._next >= len(self._rows) and not self._waited

    def give_up(self) -> None:
        """Launch nothing more."""
        self._next = len(self._rows)
        self._waited.clear()
        self._arm()

    def close(self) -> None:
        self._deadline.close()

    def due_before(self, instant_ns: int) -> int:
        """How many rows that have not left yet are due before `instant_ns`."""
        planned = bisect_left(self._instants, instant_ns, self._next) - self._next
        return planned + len(self._waited) - bisect_left(self._waited, (1 - instant_ns, 0))

    def nth_due_ns(self, count: int) -> int:
        """The instant of the row that leaves after `count` others; FAR_FUTURE_NS when there are not so many."""
        planned, waited = len(self._instants) - self._next, len(self._waited)
        if count >= planned + waited:
            return FAR_FUTURE_NS
        low, high = (
            max(0, count + 1 - planned),
            min(count + 1, waited),
        )  # how many of the first are of those that waited
        while low < high:
            middle = (low + high) // 2
            if -self._waited[-1 - middle][0] < self._instants[self._next + count - middle]:
                low = middle + 1
            else:
                high = middle
        last_waited = -self._waited[-low][0] if low else 0
        return max(last_waited, self._instants[self._next + count - low] if count >= low else 0)

    def _arm(self) -> None:
        self.next_due_ns = self._first_due_ns()
        if self.next_due_ns != FAR_FUTURE_NS:
            self._deadline.arm(self.next_due_ns - self._spin_ns)

    def _fired(self) -> None:
        now = clock.monotonic_ns()
        if self._spin_ns:
            while now < self.next_due_ns:
                now = clock.monotonic_ns()
        while self.next_due_ns <= now:
            row = self._take()
            self._launch(row, now - self._due[row])
            now = clock.monotonic_ns()
            self.next_due_ns = self._first_due_ns()
        self._arm()
        self._after()

    def _first_due_ns(self) -> int:
        return min(self._planned_ns(), -self._waited[-1][0]) if self._waited else self._planned_ns()

    def _planned_ns(self) -> int:
        return self._due[self._rows[self._next]] if self._next < len(self._rows) else FAR_FUTURE_NS

    def _take(self) -> int:
        """The row that is due next."""
        if self._waited and -self._waited[-1][0] < self._planned_ns():
            return self._waited.pop()[1]
        self._next += 1
        return self._rows[self._next - 1]
