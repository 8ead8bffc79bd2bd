"""The instants at which rows leave: one timer on absolute deadlines, never summed gaps, never early."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import numpy as np

from loadtest import clock
from loadtest.replay.reactor import Reactor
from workloads.schedule import Schedule

FAR_FUTURE_NS = 2**62


class Timetable:
    """Calls `launch(row, late_ns)` for each row of a shard at its instant, in order, and `after()` once per wake-up."""

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
        instants = np.ceil(shard.scheduled_s * 1e9).astype(np.int64) + t0_ns
        self._due = array("q", instants.tobytes())
        self._spin_ns = spin_us * 1000
        self._launch, self._after = launch, after
        self._ahead = 0
        self.next_row = 0
        self.next_due_ns = FAR_FUTURE_NS
        self.end_ns = int(instants[-1]) if len(instants) else t0_ns
        self._deadline = reactor.deadline(self._fired)
        self._arm()

    def due_ns(self, row: int) -> int:
        """The instant of a row on the monotonic clock; FAR_FUTURE_NS behind the last row."""
        return self._due[row] if row < len(self._due) else FAR_FUTURE_NS

    @property
    def over(self) -> bool:
        """Every row has been launched, or the rest was given up."""
        return self.next_row >= len(self._due)

    def give_up(self) -> None:
        """Launch nothing more."""
        self.next_row = len(self._due)
        self._arm()

    def close(self) -> None:
        self._deadline.close()

    def due_before(self, instant_ns: int) -> int:
        """How many rows that have not left yet are due before `instant_ns`; ask for growing instants only."""
        self._ahead = max(self._ahead, self.next_row)
        while self._ahead < len(self._due) and self._due[self._ahead] < instant_ns:
            self._ahead += 1
        return self._ahead - self.next_row

    def _arm(self) -> None:
        self.next_due_ns = self.due_ns(self.next_row)
        if self.next_due_ns != FAR_FUTURE_NS:
            self._deadline.arm(self.next_due_ns - self._spin_ns)

    def _fired(self) -> None:
        due, count = self._due, len(self._due)
        now = clock.monotonic_ns()
        if self._spin_ns:
            while now < self.next_due_ns:
                now = clock.monotonic_ns()
        while self.next_row < count and due[self.next_row] <= now:
            row = self.next_row
            self.next_row += 1
            self._launch(row, now - due[row])
            now = clock.monotonic_ns()
        self._arm()
        self._after()
