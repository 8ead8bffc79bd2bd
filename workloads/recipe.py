"""What `--shape` and `--arrivals` say, as functions on a trace: one step per word, in the order given."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from workloads import arrivals, combine, shape, sharing
from workloads.errors import WorkloadError
from workloads.trace import Trace

Step = Callable[[Trace, np.random.Generator], Trace]
Rate = float | None

_UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(ms|s|m|h)")

# name: (what stands behind the =, what it does)
STEPS: dict[str, tuple[str, str]] = {
    "window": ("START+LENGTH", "the rows from START on for LENGTH, e.g. window=5m+10m"),
    "head": ("N", "the first N rows"),
    "sample": ("N", "N rows at random"),
    "speed": ("X", "X times as fast"),
    "scale": ("R", "time scaled to R requests per second: keeps relative burstiness"),
    "thin": ("R", "rows left out at random until R per second: keeps the time constants"),
    "superpose": ("R", "copies on top of each other until R per second: keeps each copy's bursts"),
    "repeat": ("N", "N times over, lengths reshuffled"),
    "spread": ("", "rows of one clock tick spread evenly within it"),
    "drop": ("N", "without the rows whose prompt and output exceed N tokens"),
    "clip": ("N", "such rows cut to N tokens"),
    "share": ("RATIO", "prompts that begin alike, for this prefix-cache hit ratio"),
    "conversations": ("", "each turn's prompt begins with the one before it"),
}
PROCESSES = {
    "recorded": "as in the trace",
    "constant": "evenly spaced",
    "poisson": "independent, exponential gaps",
    "gamma:cv=X": "gaps with coefficient of variation X",
    "on-off:on=T,off=T": "Poisson bursts of mean length on, pauses of mean length off",
    "ramp:A..B": "rate from A to B per second",
    "steps:R@T,R@T,...": "rate R for time T, one after the other",
    "profile:FILE": "rates from a file with lines SECONDS,RATE",
}


def step(text: str) -> Step:
    """The step that a word names, e.g. `clip=8192`; WorkloadError `shape`."""
    name, equals, value = (piece.strip() for piece in text.partition("="))
    if name not in STEPS:
        near = difflib.get_close_matches(name, STEPS, n=1)
        raise _bad(f"there is no step {name!r}", f"Did you mean {near[0]}?" if near else f"Steps: {', '.join(STEPS)}.")
    if bool(equals and value) != bool(STEPS[name][0]):
        raise _bad(f"the step {name} is written {_written(name)}", STEPS[name][1])
    return _built(name, value)


def _built(name: str, value: str) -> Step:
    if name == "window":
        start, _, length = value.partition("+")
        from_s, for_s = duration_s(start), duration_s(length) if length else None
        return lambda trace, _: shape.window(trace, from_s, for_s)
    if name in _ALONE:
        return _ALONE[name]
    if name in _BY_NUMBER:
        number, by_number = _number(name, value), _BY_NUMBER[name]
        return lambda trace, rng: by_number(trace, number, rng)
    whole, by_whole = _whole(name, value), _BY_WHOLE[name]
    return lambda trace, rng: by_whole(trace, whole, rng)


_ALONE: dict[str, Step] = {
    "spread": shape.spread_ticks,
    "conversations": lambda trace, _: sharing.share_in_sessions(trace),
}
_BY_NUMBER: dict[str, Callable[[Trace, float, np.random.Generator], Trace]] = {
    "speed": lambda trace, x, _: shape.speed(trace, x),
    "scale": lambda trace, rate, _: shape.to_rate(trace, rate),
    "thin": shape.thin,
    "superpose": combine.superpose,
    "share": sharing.share_prefix,
}
_BY_WHOLE: dict[str, Callable[[Trace, int, np.random.Generator], Trace]] = {
    "head": lambda trace, n, _: shape.head(trace, n),
    "sample": shape.sample,
    "repeat": combine.repeat,
    "drop": lambda trace, n, _: shape.fit_context(trace, n),
    "clip": lambda trace, n, _: shape.clip_context(trace, n),
}


@dataclass(frozen=True)
class Arrivals:
    """An arrival process by name; `own_rate` when it says its rate itself."""

    text: str
    own_rate: bool
    times: Callable[[int, float, np.random.Generator], NDArray[np.float64]]

    @staticmethod
    def parse(text: str) -> Arrivals | None:
        """Read `poisson`, `gamma:cv=2`, `ramp:1..10`, ...; None for `recorded`; WorkloadError `arrivals`."""
        name, _, rest = text.strip().partition(":")
        if name == "recorded" and not rest:
            return None
        maker = _MAKERS.get(name)
        if maker is None:
            raise _bad_process(text, f"there is no such process; known are {', '.join(PROCESSES)}")
        return maker(text, rest)

    def applied(self, trace: Trace, rate_per_s: Rate, rng: np.random.Generator) -> Trace:
        """The trace's requests at this process's times."""
        if self.own_rate and rate_per_s is not None:
            raise _bad_process(self.text, "it says its rates itself, so leave the rate out")
        rate = rate_per_s or trace.mean_rate_per_s or 0.0
        if not self.own_rate and rate == 0:
            raise _bad_process(self.text, f"{trace.name} has no rate of its own: say one")
        return shape.with_arrivals(trace, self.times(len(trace), rate, rng), self.text)


def _constant(text: str, rest: str) -> Arrivals:
    _nothing(text, rest)
    return Arrivals(text, False, lambda n, rate, _: arrivals.constant(n, rate))


def _poisson(text: str, rest: str) -> Arrivals:
    _nothing(text, rest)
    return Arrivals(text, False, arrivals.poisson)


def _gamma(text: str, rest: str) -> Arrivals:
    cv = _float(text, _keys(text, rest, ("cv",))["cv"])
    return Arrivals(text, False, lambda n, rate, rng: arrivals.gamma(n, rate, cv, rng))


def _on_off(text: str, rest: str) -> Arrivals:
    given = _keys(text, rest, ("on", "off"))
    on_s, off_s = duration_s(given["on"]), duration_s(given["off"])
    return Arrivals(text, False, lambda n, rate, rng: arrivals.on_off(n, rate, on_s, off_s, rng))


def _ramp(text: str, rest: str) -> Arrivals:
    first, dots, last = rest.partition("..")
    if not dots:
        raise _bad_process(text, "write ramp:FROM..TO")
    ends = _float(text, first), _float(text, last)
    return Arrivals(text, True, lambda n, _, rng: arrivals.ramp(n, *ends, rng))


def _steps(text: str, rest: str) -> Arrivals:
    parts = [part.partition("@") for part in rest.split(",")]
    if not all(at for _, at, _ in parts):
        raise _bad_process(text, "write steps:RATE@TIME,RATE@TIME")
    rates, lasting = [_float(text, rate) for rate, _, _ in parts], [duration_s(time) for _, _, time in parts]
    return Arrivals(text, True, lambda n, _, rng: arrivals.steps(n, rates, lasting, rng))


def _profile(text: str, rest: str) -> Arrivals:
    """Lines of `seconds,rate`: the rate holds until the next line's second, the last as long as the one before it."""
    try:
        lines = [line.split(",") for line in Path(rest).read_text(encoding="utf-8").split() if line[:1].isdigit()]
        at, rates = [float(line[0]) for line in lines], [float(line[1]) for line in lines]
    except (OSError, ValueError, IndexError) as error:
        raise _bad_process(text, f"the file cannot be read as lines of SECONDS,RATE ({error})") from error
    lasting = [b - a for a, b in pairwise(at)]
    if not lasting:
        raise _bad_process(text, "the file needs at least two lines of SECONDS,RATE")
    lasting.append(lasting[-1])
    return Arrivals(text, True, lambda n, _, rng: arrivals.steps(n, rates, lasting, rng))


_MAKERS = {
    "constant": _constant,
    "poisson": _poisson,
    "gamma": _gamma,
    "on-off": _on_off,
    "ramp": _ramp,
    "steps": _steps,
    "profile": _profile,
}


def duration_s(text: str) -> float:
    """`90s`, `1.5m`, `200ms` in seconds."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise _bad(f"{text!r} is not a duration", "Write 60s, 200ms or 2m.")
    return float(match[1]) * _UNITS_S[match[2]]


def _keys(text: str, rest: str, names: tuple[str, ...]) -> dict[str, str]:
    given = dict(part.strip().partition("=")[::2] for part in rest.split(",") if part)
    if set(given) != set(names):
        raise _bad_process(text, f"it needs {' and '.join(f'{name}=...' for name in names)}")
    return given


def _nothing(text: str, rest: str) -> None:
    if rest:
        raise _bad_process(text, "it takes no settings")


def _float(text: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise _bad_process(text, f"{value!r} is no number") from None


def _number(name: str, value: str) -> float:
    try:
        return float(value.removesuffix("%")) / (100 if value.endswith("%") else 1)
    except ValueError:
        raise _bad(f"the step {name} is written {_written(name)}", STEPS[name][1]) from None


def _whole(name: str, value: str) -> int:
    if not value.isascii() or not value.isdigit():
        raise _bad(f"the step {name} is written {_written(name)} with a whole number", STEPS[name][1])
    return int(value)


def _written(name: str) -> str:
    value = STEPS[name][0]
    return f"{name}={value}" if value else name


def _bad(what: str, hint: str) -> WorkloadError:
    return WorkloadError(f"In --shape, {what}.", code="shape", hint=hint)


def _bad_process(text: str, what: str) -> WorkloadError:
    return WorkloadError(f"The arrivals {text!r} cannot be made: {what}.", code="arrivals", hint="See docs/traces.md.")
