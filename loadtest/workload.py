"""What the options select: a trace by name or file, its part, its speed, and the schedule planned from it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import numpy as np

from loadtest.errors import UsageError
from workloads import shape
from workloads.formats import read_trace
from workloads.schedule import Schedule, plan
from workloads.synth import BUILTIN, generate
from workloads.trace import Trace


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A workload as a user asks for it; durations in seconds, rates in requests per second.

    With a file, `duration_s` is the first so many seconds of it. With a rate too, it is how long the run lasts:
    the first rate x duration rows, scaled in time to exactly that rate.
    """

    trace: str
    rate_per_s: float | None = None
    speed: float | None = None
    duration_s: float | None = None
    requests: int | None = None
    warmup_s: float = 0.0
    seed: int = 0
    salt: str = ""

    def __post_init__(self) -> None:
        if self.rate_per_s is not None and self.speed is not None:
            raise UsageError("--rate and --speed both scale time", hint="give one of them", code="rate_and_speed")
        for name, value in (("--rate", self.rate_per_s), ("--speed", self.speed), ("--duration", self.duration_s)):
            if value is not None and not 0 < value < float("inf"):
                raise UsageError(f"{name} must be above 0, not {value:g}", code="not_positive")
        if self.requests is not None and self.requests < 1:
            raise UsageError(f"--requests must be at least 1, not {self.requests}", code="not_positive")

    def read(self, max_tokens: int | None = None) -> Trace:
        """The selected requests at their final times; rows over `max_tokens` (the model's context) are left out.

        Raises UsageError or WorkloadError when the trace cannot be used as asked.
        """
        if self.trace in BUILTIN:
            return self._generated(max_tokens)
        return self._from_file(max_tokens)

    def schedule(self, trace: Trace) -> Schedule:
        """The plan that replays `trace`."""
        if 0 < trace.span_s <= self.warmup_s:
            raise UsageError(
                f"the warm-up of {self.warmup_s:g} s leaves nothing of a schedule of {trace.span_s:g} s to measure",
                hint="shorten --warmup or lengthen the run",
                code="all_warmup",
            )
        return plan(trace, seed=self.seed, salt=self.salt or fresh_salt(), warmup_s=self.warmup_s)

    def _generated(self, max_tokens: int | None) -> Trace:
        speed = self.speed or 1.0
        trace = generate(
            self.trace,
            requests=self.requests,
            duration_s=None if self.duration_s is None else self.duration_s * speed,
            rate_per_s=self.rate_per_s,
            rng=np.random.default_rng(self.seed),
        )
        trace = _fitted(trace, max_tokens)
        return shape.to_rate(trace, self.rate_per_s) if self.rate_per_s else shape.speed(trace, speed)

    def _from_file(self, max_tokens: int | None) -> Trace:
        trace = _fitted(_read_file(self.trace), max_tokens)
        if self.rate_per_s is not None:
            wanted = len(trace) if self.duration_s is None else max(1, round(self.rate_per_s * self.duration_s))
            rows = min(wanted, self.requests or wanted)
            return shape.to_rate(shape.head(trace, rows), self.rate_per_s)
        trace = shape.speed(trace, self.speed or 1.0)
        if self.duration_s is not None:
            trace = shape.window(trace, 0.0, self.duration_s)
        return trace if self.requests is None else shape.head(trace, self.requests)


def rejections(trace: Trace) -> dict[str, int]:
    """How many rows of the source were left out, by reason."""
    return dict(Counter(row.reason for row in trace.rejected))


def fresh_salt() -> str:
    """A salt nobody used before, so that no server has this run's prompts in its prefix cache."""
    entropy = np.random.SeedSequence().entropy
    assert isinstance(entropy, int)
    return f"{entropy:032x}"[:16]


def _fitted(trace: Trace, max_tokens: int | None) -> Trace:
    return trace if max_tokens is None else shape.fit_context(trace, max_tokens)


def _read_file(name: str) -> Trace:
    path = Path(name)
    if not path.exists():
        raise UsageError(
            f"there is no trace {name!r}: not a file, and not one of {', '.join(BUILTIN)}",
            hint="check the spelling and the current directory",
            code="unknown_trace",
        )
    return read_trace(path)
