"""`Columns`: where somebody's own log keeps what a trace needs, as names or dotted paths.

`time=request.start,unit=ms,prompt=usage.prompt_tokens,output=usage.completion_tokens,session=user.id,class=tier`
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from workloads.errors import WorkloadError
from workloads.formats.delimited import Table
from workloads.formats.rows import whole, whole_value
from workloads.formats.times import UNITS_NS, Times
from workloads.reading import Decided

AUTO = "auto"

# What logs of gateways and clients commonly call them; the first that a row has is taken.
USUAL = {
    "time": ("timestamp", "start_time", "startTime", "request_time", "time", "ts", "created_at", "created"),
    "prompt": (
        "usage.prompt_tokens",
        "usage.input_tokens",
        "response.usage.prompt_tokens",
        "response.usage.input_tokens",
        "prompt_tokens",
        "input_tokens",
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.prompt_tokens",
    ),
    "output": (
        "usage.completion_tokens",
        "usage.output_tokens",
        "response.usage.completion_tokens",
        "response.usage.output_tokens",
        "completion_tokens",
        "output_tokens",
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
    ),
    "session": ("session_id", "conversation_id", "gen_ai.conversation.id", "session.id"),
}
# What names of columns end in: `start_ms`, `startTimeUnixNano`, `arrival (s)`.
_NAMED_UNITS = {
    "s": ("s", "sec", "secs", "second", "seconds"),
    "ms": ("ms", "msec", "msecs", "milli", "millis", "millisecond", "milliseconds"),
    "us": ("us", "usec", "usecs", "micro", "micros", "microsecond", "microseconds"),
    "ns": ("ns", "nsec", "nsecs", "nano", "nanos", "nanosecond", "nanoseconds"),
}
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Names or dotted paths; `unit` of numeric times is `s`, `ms`, `us`, `ns` or what name and values say (`auto`).

    Without `block_tokens` the blocks' size is what ids and prompt lengths say.
    """

    time: str | None = None
    prompt: str
    output: str
    unit: str = AUTO
    session: str | None = None
    turn: str | None = None
    slo_class: str | None = None
    blocks: str | None = None
    block_tokens: int | None = None

    @staticmethod
    def parse(text: str) -> Columns:
        """Read `KEY=NAME,...`; `prompt` and `output` are required; WorkloadError `columns`."""
        given: dict[str, Any] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            key, equals, value = (piece.strip() for piece in part.partition("="))
            field = _FIELDS.get(key)
            if not equals or not value or field is None:
                raise _bad(f"{part!r} is not KEY=NAME with a known key", key)
            given[field] = value
        missing = [key for key in ("prompt", "output") if key not in given]
        if missing:
            raise _bad(f"the column map {text!r} does not say where {' and '.join(missing)} stand")
        if given.get("unit", AUTO) not in (AUTO, *UNITS_NS):
            raise _bad(f"{given['unit']!r} is no unit of time; use {', '.join((AUTO, *UNITS_NS))}")
        if "block_tokens" in given:
            given["block_tokens"] = _positive(given["block_tokens"])
        return Columns(**given)

    @staticmethod
    def guess(has: Callable[[str], bool]) -> Columns | None:
        """The usual names that a header or a first object has; None when it lacks a count or a time."""
        found = {kind: next(filter(has, names), None) for kind, names in USUAL.items()}
        if not found["prompt"] or not found["output"] or not found["time"]:
            return None
        return Columns(time=found["time"], prompt=found["prompt"], output=found["output"], session=found["session"])

    def __str__(self) -> str:
        named = {key: getattr(self, field) for key, field in _FIELDS.items()}
        usual = {"unit": AUTO}
        return ",".join(f"{key}={value}" for key, value in named.items() if value not in (None, usual.get(key)))

    def times(self) -> Times:
        """What reads the times: in the stated unit, in the one that the column's name ends in, or by their size."""
        if self.unit != AUTO:
            return Times(self.unit, "stated")
        unit = None if self.time is None else _named_unit(self.time)
        return Times(unit, "evidence" if unit is None else "column name")

    def blocks_by(self) -> Decided:
        """Who says how long a block is."""
        return "evidence" if self.block_tokens is None else "stated"

    def table(self, times: Times) -> Table:
        """The same as a table of delimited text."""
        return Table(
            name="csv",
            time=self.time,
            prompt=self.prompt,
            output=self.output,
            unit=times.unit,
            nanoseconds=times.nanoseconds,
            form="seconds" if times.unit == "s" else None,
            session=self.session,
            turn=self.turn,
            slo_class=self.slo_class,
            blocks=self.blocks,
            block_tokens=self.block_tokens or 0,
        )


_FIELDS = {
    "time": "time",
    "unit": "unit",
    "prompt": "prompt",
    "output": "output",
    "session": "session",
    "turn": "turn",
    "class": "slo_class",
    "blocks": "blocks",
    "block": "block_tokens",
}


def found_at(row: Any, path: str) -> Any:
    """The value at a dotted path: a key that holds the dots itself goes first, list items go by number; else None."""
    if isinstance(row, dict) and path in row:
        return row[path]
    head, dot, rest = path.partition(".")
    while dot:
        inner = _item(row, head)
        if inner is not None:
            value = found_at(inner, rest)
            if value is not None:
                return value
        more, dot, rest = rest.partition(".")
        head = f"{head}.{more}"
    return _item(row, head)


def count(value: Any) -> int:
    """A token count as JSON writers put it: a whole number, or the same as text."""
    return whole(value) if isinstance(value, str) else whole_value(value)


def _item(row: Any, key: str) -> Any:
    if isinstance(row, dict):
        return row.get(key)
    if isinstance(row, list) and key.isdecimal() and len(key) < 10 and int(key) < len(row):
        return row[int(key)]
    return None


def _named_unit(name: str) -> str | None:
    words = _WORDS.findall(name)
    last = words[-1].lower() if words else ""
    return next((unit for unit, names in _NAMED_UNITS.items() if last in names), None)


def _positive(text: str) -> int:
    if not text.isdecimal() or len(text) > 9 or int(text) < 1:
        raise _bad(f"block={text} is no number of tokens")
    return int(text)


def _bad(what: str, key: str = "") -> WorkloadError:
    near: Sequence[str] = difflib.get_close_matches(key, _FIELDS, n=1)
    hint = f"Did you mean {near[0]}?" if near and key not in _FIELDS else f"Keys are {', '.join(_FIELDS)}."
    return WorkloadError(f"In --columns, {what}.", code="columns", hint=hint)
