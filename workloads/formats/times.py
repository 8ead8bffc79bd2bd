"""`Times`: reads the times of one file, and holds their unit against what the times themselves say.

A number is a time since 1970 when it lies between the years 2000 and 2116 in one of the units, and then in no other.
Any other number counts from some start, and nothing in it tells a second from a millisecond: the unit is the format's,
or the user's, or only one fits the rate at which requests can come; between two that fit nobody guesses.
"""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workloads.errors import WorkloadError
from workloads.formats.timestamp import LIMIT_NS, Unreadable, calendar_ns, decimal_ns, number
from workloads.reading import Decided
from workloads.trace import Trace

UNITS_NS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
DATES = "date and time"
_NO_UNIT = "No unit gives a rate that requests can have (spreadsheets count days): write date and time, or --time-unit."
ELSEWHERE = "A command without this option takes the file that `goodput trace convert` writes with it."
YEAR_2000_NS = 946_684_800_000_000_000

_FROM_START = "from a start"
_SINCE_1970 = tuple((unit, YEAR_2000_NS // ns, LIMIT_NS // ns) for unit, ns in UNITS_NS.items())
_NEARLY_ALL = 0.9
_ENOUGH_ROWS = 20  # before that a rate says little
_FASTEST_PER_S, _SLOWEST_PER_S = 10_000.0, 0.01  # the mean rates that a trace of requests can have
_ODD_PER_S = 1_000.0
_FRACTIONS_PER_S = 100.0  # times below a unit's whole numbers that would come faster belong to a larger unit
_LONGEST_S = 10 * 365 * 86_400.0
_HOUR_NS = 3_600 * 10**9
_MOST_SET_BACK = 100
_FEW_STEPS = 10
_JUMBLED = (0.25, 0.75)  # share of steps back in time; a log has next to none, or (newest first) next to only such


class Decision(NamedTuple):
    """The unit of a file's times (None when they are all one instant), who decided it, and what to know about it."""

    unit: str | None
    by: Decided | None
    warnings: tuple[str, ...] = ()


class Times:
    """The times of one file in this `unit`; without one each number since 1970 says its own."""

    def __init__(self, unit: str | None, by: Decided = "evidence") -> None:
        self.unit, self.by = unit, by
        self._kinds: Counter[str] = Counter()

    def nanoseconds(self, value: Any) -> int:
        """A time as a number, the same as text, or date and time; Unreadable when it is none of them."""
        if isinstance(value, str):
            text = value.strip()
            if not text or (text[0].isdigit() and any(mark in text for mark in ":TZ")):
                ns = calendar_ns(text)
                self._kinds[DATES] += 1
                return ns
            value = number(text)
        if type(value) not in (int, Decimal):  # not a bool either
            raise Unreadable(str(value))
        unit = self.unit or since_1970(value)
        ns = decimal_ns(value, UNITS_NS[unit or "s"])
        self._kinds[unit or _FROM_START] += 1
        return ns

    def decided(self, path: Path, trace: Trace) -> Decision:
        """The unit of the trace's times; such as contradict it, or fit several, raise WorkloadError `time_unit`."""
        if self.unit == DATES or self._kinds.keys() == {DATES}:
            return Decision(DATES, self.by)
        if self.unit is not None:
            return self._checked(path, self.unit, trace)
        units = [unit for unit, _ in self._kinds.most_common() if unit in UNITS_NS or unit == DATES]
        if not units:
            return _from_a_start(path, trace)
        if len(self._kinds) == 1:
            return Decision(units[0], "evidence")
        counts = ", ".join(f"{count} {_said(kind)}" for kind, count in self._kinds.most_common())
        return Decision(units[0], "evidence", (f"mixed_times: the rows write their times in several ways: {counts}",))

    def _checked(self, path: Path, unit: str, trace: Trace) -> Decision:
        other = _contradiction(unit, trace)
        if other is not None:
            larger, why = other
            middle = _written(_at(trace, len(trace) // 2), unit)
            sentence = f"times like {middle} are hardly {unit}: {why}"
            if self.by != "stated":
                raise WorkloadError(
                    f"{path} is read in {unit} ({self.by}), but {sentence}.",
                    code="time_unit",
                    hint=f"Say which unit it is: --time-unit {larger}, or --time-unit {unit}. {ELSEWHERE}",
                )
            return Decision(unit, self.by, (f"time_unit: read in {unit} as stated, but {sentence}",))
        return Decision(unit, self.by, tuple(_odd_rate(unit, trace)) if self.by == "format" else ())


def since_1970(value: Decimal | int) -> str | None:
    """The unit in which a number is a time since 1970, from the year 2000 on; None when it is none."""
    return next((unit for unit, low, high in _SINCE_1970 if low <= value < high), None)


def hint_for(text: str) -> str:
    """What to do about times that nobody could read, of which this is one."""
    try:
        unit = since_1970(number(text))
    except Unreadable:
        return "docs/traces.md shows how times may be written."
    if unit is None:
        return "Say in which unit they are: --time-unit s, ms, us or ns."
    return f"It looks like {unit} since 1970: --time-unit {unit}."


def shown(ns: int) -> str:
    """An instant as date and time, to the second."""
    return str(np.datetime64(ns // 10**9, "s")).replace("T", " ")


def set_back(trace: Trace) -> tuple[str, ...]:
    """A word about local clocks: set back once by an hour, or without am and pm."""
    steps = _steps(trace)
    back = -steps[steps < 0]
    if not 0 < len(back) <= _MOST_SET_BACK:
        return ()
    hours, what = float(np.median(back)) / _HOUR_NS, ""
    if len(back) == 1 and 0.8 < hours <= 1:
        what = "as a local clock that leaves daylight saving time"
    if 10.5 < hours <= 12 and (back > 10 * _HOUR_NS).all():
        what = "as a clock of twelve hours without am and pm"
    if not what:
        return ()
    times = "once" if len(back) == 1 else f"{len(back)} times"
    return (f"clock_set_back: the times go back {times} by {hours:.3g} h, {what}: rows are replayed in wrong hours",)


def _steps(trace: Trace) -> NDArray[np.int64]:
    """From each row of the file to the next."""
    assert trace.line is not None
    if not (trace.line[1:] < trace.line[:-1]).any():
        return np.diff(trace.arrival_ns)
    return np.diff(trace.arrival_ns[np.argsort(trace.line, kind="stable")])


def _contradiction(unit: str, trace: Trace) -> tuple[str, str] | None:
    """The larger unit that the times point to, and why."""
    if unit == "s":
        return None
    instants = trace.arrival_ns + (trace.origin_ns or 0)
    for other, other_ns in UNITS_NS.items():
        factor = other_ns // UNITS_NS[unit]
        if factor > 1:
            low, high = np.searchsorted(instants, (YEAR_2000_NS // factor, LIMIT_NS // factor)).tolist()
            if high - low >= _NEARLY_ALL * len(instants):
                return other, f"in {other} since 1970 they are {shown(int(instants[(low + high) // 2]) * factor)}"
    rate = trace.mean_rate_per_s
    if len(instants) > 2 and rate is not None and (instants % UNITS_NS[unit]).any():
        factor = UNITS_NS["s"] // UNITS_NS[unit]
        if rate >= _FRACTIONS_PER_S >= rate / factor:
            why = f"they have fractions, and {len(instants)} rows would come at {rate:,.0f} per second"
            return "s", f"{why} (in s at {rate / factor:.3g})"
    return None


def _odd_rate(unit: str, trace: Trace) -> list[str]:
    """A mean rate that no service has, of times from a start: a word, because the format's unit holds."""
    rate = trace.mean_rate_per_s
    if len(trace) < _ENOUGH_ROWS or (trace.origin_ns or 0) >= YEAR_2000_NS or rate is None:
        return []
    if _SLOWEST_PER_S <= rate <= _ODD_PER_S:
        return []
    return [f"odd_rate: in {unit} (format) {_pace(trace, 1)}; if they are in another unit, --time-unit says so"]


def _from_a_start(path: Path, trace: Trace) -> Decision:
    """Numbers that were read as seconds from some start: the one unit that fits, if it is one."""
    if trace.mean_rate_per_s is None:
        return Decision(None, None)
    first, last = _written(_at(trace, 0), "s"), _written(_at(trace, -1), "s")
    rows, back = f"The times of {path} are numbers from {first} to {last}", _steps(trace) < 0
    if len(back) >= _FEW_STEPS and _JUMBLED[0] <= back.mean() <= _JUMBLED[1]:
        raise WorkloadError(
            f"{rows} that go up and down from row to row, as durations do and arrivals do not.",
            code="time_unit",
            hint="--columns time=... names the column of arrivals; --time-unit says that this is it.",
        )
    fitting = [unit for unit in UNITS_NS if _fits(unit, trace, trace.mean_rate_per_s)]
    if fitting == ["s"]:
        return Decision("s", "evidence")
    paces = "; ".join(f"in {unit} {_pace(trace, UNITS_NS['s'] // UNITS_NS[unit])}" for unit in fitting or UNITS_NS)
    raise WorkloadError(
        f"{rows}, and nothing says in which unit: {paces}.",
        code="time_unit",
        hint=f"Say which: --time-unit {' or '.join(fitting)}. {ELSEWHERE}" if fitting else _NO_UNIT,
    )


def _fits(unit: str, trace: Trace, rate_in_s: float) -> bool:
    """Whether times read as seconds may be in this unit: the rate and the span that they would have."""
    if len(trace) < _ENOUGH_ROWS:
        rate_in_s = min(max(rate_in_s, _SLOWEST_PER_S), 1.0)
    factor = UNITS_NS["s"] // UNITS_NS[unit]
    if rate_in_s * factor > _FASTEST_PER_S or trace.span_s / factor > _LONGEST_S:
        return False
    # Clocks of less than a second count in whole numbers, unless they would be too slow for anything else.
    whole = not ((trace.arrival_ns + (trace.origin_ns or 0)) % UNITS_NS["s"]).any()
    return unit == "s" or rate_in_s < _SLOWEST_PER_S or whole


def _pace(trace: Trace, factor: int) -> str:
    rate = (trace.mean_rate_per_s or 0.0) * factor
    return f"{len(trace)} rows span {trace.span_s / factor:.4g} s, {rate:.3g} per second"


def _at(trace: Trace, row: int) -> int:
    return int(trace.arrival_ns[row]) + (trace.origin_ns or 0)


def _written(ns: int, unit: str) -> str:
    """An instant as the file has it."""
    text = f"{Decimal(ns) / UNITS_NS[unit]:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _said(kind: str) -> str:
    return {DATES: "as date and time", _FROM_START: "as small numbers"}.get(kind, f"in {kind} since 1970")
