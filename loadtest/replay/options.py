"""How a sender behaves, and what it says of its progress: plain data that travels to workers and back."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from loadtest.errors import UsageError
from loadtest.replay.tally import Seen


class SenderOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to behave towards a server; times in seconds."""

    idle_timeout_s: float = 60.0  # between tokens, once the first has come
    drain_limit_s: float = 60.0  # after the last instant of the schedule, for what makes no progress
    drain_total_s: float | None = None  # and for everything, where the user sets an end
    max_lateness_s: float = 2.0
    max_in_flight: int | None = None
    spin_us: int = 0
    abort_on: str = ""  # a rule of `abort`
    slo: str = ""  # what the live view judges by
    keep_text: bool = False

    def __post_init__(self) -> None:
        if self.idle_timeout_s <= 0:
            raise UsageError("--timeout must be above 0: no stream could keep it", code="not_positive")


class Progress(NamedTuple):
    """Counts of a worker's requests; `aborted` says why the worker ended the run early, `aborted_ns` when.

    `disk` says why rows wait in memory: empty, as a rule.
    """

    planned: int
    sent: int
    in_flight: int
    finished: int
    failed: int
    aborted: str = ""
    aborted_ns: int = 0
    seen: Seen | None = None  # the latencies so far
    disk: str = ""
