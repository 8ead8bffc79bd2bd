"""What the options select: a trace by name or file, its part, its speed, and the schedule planned from it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from loadtest import fetch
from loadtest.errors import UsageError
from workloads import catalog, model, shape
from workloads.formats import NO_ARRIVALS, read_trace
from workloads.formats.columns import Columns
from workloads.formats.rows import ZeroTokens
from workloads.lint import Finding, lint
from workloads.recipe import Arrivals, step
from workloads.schedule import Schedule, Think, plan
from workloads.synth import BUILTIN, generate
from workloads.trace import Trace

RECORDED = "recorded"

_FEW_REQUESTS, _FEW_SHARE = 10, 0.05
# Each use of chance has a stream of its own, so that one option never changes what another draws.
_STEPS, _ARRIVALS, _THINK = 1, 2, 3


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
    format: str | None = None
    columns: str | None = None
    zero_tokens: ZeroTokens = "drop"
    time_unit: str | None = None
    block_tokens: int | None = None
    shape: tuple[str, ...] = ()
    arrivals: str = RECORDED
    think: str | None = None  # `recorded` or a mean in seconds: later turns of a session wait for the answer before
    tokenizer: str = ""

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
        for text in self.shape:
            step(text)  # a misspelt one is found before a large file is read
        return self.shaped(self.source(), max_tokens)

    def shaped(self, trace: Trace, max_tokens: int | None = None) -> Trace:
        """What --shape, --arrivals, --rate and the others make of a trace."""
        process = Arrivals.parse(self.arrivals)
        steps, rng = [step(text) for text in self.shape], self._rng(_STEPS)
        for one in steps:
            trace = one(trace, rng)
        if max_tokens is not None:
            trace = shape.fit_context(trace, max_tokens)
        if process is not None:
            return self._arranged(trace, process)
        if any(word.startswith(NO_ARRIVALS) for word in trace.warnings):
            raise UsageError(
                f"{self.trace} says how long requests are, not when they come",
                hint="say how: --arrivals poisson --rate 5",
                code=NO_ARRIVALS,
            )
        return self._timed(trace)

    def findings(self, trace: Trace, max_tokens: int | None = None) -> list[Finding]:
        """What to know about the selected requests before one of them is sent."""
        return [found for found in lint(trace, max_tokens=max_tokens) if found.level != "note"]

    def facts(self, trace: Trace) -> dict[str, Any]:
        """What run.json says of a trace: how it was read, what was left out, and what to know about it."""
        return {
            "trace_reading": {} if trace.reading is None else msgspec.to_builtins(trace.reading),
            "rejected": rejections(trace),
            "warnings": list(dict.fromkeys([*trace.warnings, *map(str, self.findings(trace))])),
        }

    def schedule(self, trace: Trace, template_tokens: int = 0) -> Schedule:
        """The plan that replays `trace`; `template_tokens` is what the server adds to a text."""
        if 0 < trace.span_s <= self.warmup_s:
            raise UsageError(
                f"the warm-up of {self.warmup_s:g} s leaves nothing of a schedule of {trace.span_s:g} s to measure",
                hint="shorten --warmup or lengthen the run",
                code="all_warmup",
            )
        return plan(
            trace,
            seed=self.seed,
            salt=self.salt or fresh_salt(),
            warmup_s=self.warmup_s,
            think=self._thinking(),
            tokenizer=self.tokenizer,
            template_tokens=template_tokens if self.tokenizer else 0,
        )

    def _rng(self, use: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, use])

    def _thinking(self) -> Think | None:
        if self.think is None:
            return None
        return Think(None if self.think == RECORDED else float(self.think), self._rng(_THINK))

    def source(self) -> Trace:
        """The trace before anything is done to it: generated, or read."""
        if self.trace in BUILTIN:
            return self._generated(self.trace)
        path = _path_of(self.trace)
        if _holds_model(path):
            return self._generated(model.load(path))
        columns = Columns.parse(self.columns) if self.columns else None
        return read_trace(
            path,
            format=self.format,
            columns=columns,
            zero_tokens=self.zero_tokens,
            time_unit=self.time_unit,
            block_tokens=self.block_tokens,
        )

    def _generated(self, workload: str | model.Model) -> Trace:
        whole = self.shape or self.arrivals != RECORDED  # steps may need more rows than are sent in the end
        return generate(
            workload,
            requests=None if whole else self.requests,
            duration_s=None if self.duration_s is None else self.duration_s * (self.speed or 1.0),
            rate_per_s=self.rate_per_s,
            rng=np.random.default_rng(self.seed),
        )

    def _timed(self, trace: Trace) -> Trace:
        """The rows that --requests and --duration leave, at the asked rate or speed."""
        if self.rate_per_s is not None:
            return shape.to_rate(self._first(trace, self.rate_per_s), self.rate_per_s)
        trace = shape.speed(trace, self.speed) if self.speed else trace
        if self.duration_s is not None:
            trace = _hardly_any(shape.window(trace, 0.0, self.duration_s), len(trace), self.duration_s)
        return trace if self.requests is None else shape.head(trace, self.requests)

    def _first(self, trace: Trace, rate_per_s: float) -> Trace:
        """The rows that are due in --duration at this rate, not more than --requests."""
        wanted = len(trace) if self.duration_s is None else max(1, round(rate_per_s * self.duration_s))
        if wanted > len(trace) and self.requests is None:
            last_s = len(trace) / rate_per_s
            trace = shape.warned(
                trace,
                f"short_trace: {len(trace)} requests last {last_s:.0f} s at this rate; --shape repeat=N makes more",
            )
        return shape.head(trace, min(wanted, self.requests or wanted))

    def _arranged(self, trace: Trace, process: Arrivals) -> Trace:
        """The rows at made-up times; at exactly --rate where the process has none of its own."""
        if self.speed is not None:
            raise UsageError("--speed is for recorded arrivals", hint="give --rate", code="arrivals_and_speed")
        rate = self.rate_per_s or trace.mean_rate_per_s
        if not process.own_rate and rate is not None:
            trace = self._first(trace, rate)
        elif self.requests is not None:
            trace = shape.head(trace, self.requests)
        trace = process.applied(trace, self.rate_per_s, self._rng(_ARRIVALS))
        if process.own_rate:
            return trace if self.duration_s is None else shape.window(trace, 0.0, self.duration_s)
        return shape.to_rate(trace, rate) if rate is not None else trace


def _hardly_any(kept: Trace, rows: int, duration_s: float) -> Trace:
    """With a word when --duration leaves next to nothing of a trace: its times may be in another unit, or far apart."""
    if len(kept) >= _FEW_REQUESTS or len(kept) >= _FEW_SHARE * rows:
        return kept
    return shape.warned(kept, f"few_requests: the first {duration_s:g} s of the trace hold {len(kept)} of {rows} rows")


def rejections(trace: Trace) -> dict[str, int]:
    """How many rows of the source were left out, by reason."""
    return dict(Counter(row.reason for row in trace.rejected))


def fresh_salt() -> str:
    """A salt nobody used before, so that no server has this run's prompts in its prefix cache."""
    entropy = np.random.SeedSequence().entropy
    assert isinstance(entropy, int)
    return f"{entropy:032x}"[:16]


def _path_of(name: str) -> Path:
    """The file of a trace: as named, or a catalogue trace that has been fetched."""
    path = Path(name)
    if path.exists():
        return path
    fetched = fetch.cached(name)
    if fetched is not None:
        return fetched
    if name in catalog.names():
        raise UsageError(
            f"the trace {name!r} has not been fetched yet", hint=f"goodput trace fetch {name}", code="not_fetched"
        )
    raise UsageError(
        f"there is no trace {name!r}: not a file, and not one of {', '.join((*BUILTIN, *catalog.names()))}",
        hint="check the spelling and the current directory",
        code="unknown_trace",
    )


def _holds_model(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            return model.is_model(file.read(400).decode("utf-8", "replace"))
    except OSError:
        return False  # read_trace says what is wrong
