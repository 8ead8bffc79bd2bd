"""`RowSink`: takes the rows of a file in any order, keeps the good ones, remembers why the others are not replayed."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from workloads.errors import WorkloadError
from workloads.formats import outliers
from workloads.formats.times import hint_for
from workloads.formats.timestamp import Unreadable
from workloads.trace import Prefix, Rejected, Trace

ZeroTokens = Literal["drop", "clamp"]

MAX_TOKENS = 2**31 - 1
_ABSENT = {"session": -1, "turn": -1, "slo_class": 0}
UNSORTED = "unsorted: rows were out of order and have been sorted by time"
_LARGEST = {"session": 2**63 - 1, "turn": MAX_TOKENS}  # that their columns hold
_WHOLE = re.compile(r"([+-]?[0-9]{1,40})(?:\.0*)?")  # no more digits than are read in no time


class Reject(Exception):
    """This row cannot be replayed; the argument is the reason, a stable word."""


def whole(text: str) -> int:
    """A token count as CSV writers print it: `1500`, ` 20 `, `1500.0`; anything else is rejected as `number`."""
    if text.isascii() and text.isdigit() and len(text) <= 40:
        return int(text)
    match = _WHOLE.fullmatch(text.strip())
    if match is None:
        raise Reject("number")
    return int(match[1])


def whole_value(value: Any) -> int:
    """A count of a JSON document, whose decimals were read as Decimal; anything but a whole number is rejected."""
    if type(value) is Decimal:
        # As written, before any arithmetic: 1e99999999 has no value that could be computed.
        small = value.is_finite() and value.adjusted() < 20
        value = int(value) if small and value == value.to_integral_value() else None
    if type(value) is not int:  # not a bool either
        raise Reject("number")
    return value


def _ordered(values: NDArray[Any], order: NDArray[np.int64] | None) -> NDArray[Any]:
    return values if order is None else values[order]


class RowSink:
    """Collects rows and turns them into a Trace: sorted by time, restarted at the earliest kept row.

    Columns grow in place and optional ones only where they are used: a plain row costs 24 bytes, also at the peak.
    """

    def __init__(self, path: Path, zero_tokens: ZeroTokens) -> None:
        self.path = path
        self._least = {"drop": 1, "clamp": 0}[zero_tokens]
        self._clamped = 0
        self._ns, self._prompt, self._output, self._line = array("q"), array("i"), array("i"), array("q")
        self._optional = {"session": array("q"), "turn": array("i"), "slo_class": array("h")}
        self._block_start, self._block_ids = array("q", [0]), array("q")
        self.rejected: list[Rejected] = []
        self._unreadable = ""  # the first time that could not be read
        self.warnings: list[str] = []

    def add(
        self,
        line: int,
        ns: int,
        prompt: int,
        output: int,
        *,
        session: int = -1,
        turn: int = -1,
        slo_class: int = 0,
        blocks: Sequence[int] = (),
    ) -> None:
        """Keep a row, unless its counts cannot be sent (raises Reject)."""
        if abs(prompt) > MAX_TOKENS or abs(output) > MAX_TOKENS:
            raise Reject("number")
        if abs(session) > _LARGEST["session"] or abs(turn) > _LARGEST["turn"]:
            raise Reject("number")
        if prompt < self._least:
            raise Reject("prompt_tokens<1")
        if output < self._least:
            raise Reject("output_tokens<1")
        self._clamped += prompt == 0 or output == 0
        for name, value in (("session", session), ("turn", turn), ("slo_class", slo_class)):
            if value != _ABSENT[name]:
                self._pad(name).append(value)
        if blocks:
            self._pad_blocks()
            self._block_ids.extend(blocks)
            self._block_start.append(len(self._block_ids))
        self._ns.append(ns)
        self._prompt.append(prompt or 1)
        self._output.append(output or 1)
        self._line.append(line)

    def extend(
        self,
        line: NDArray[np.int64],
        ns: NDArray[np.int64],
        prompt: NDArray[np.int32],
        output: NDArray[np.int32],
    ) -> None:
        """Keep many rows whose counts are known to be at least 1."""
        for column, values in ((self._line, line), (self._ns, ns), (self._prompt, prompt), (self._output, output)):
            column.frombytes(values.tobytes())

    def __len__(self) -> int:
        return len(self._ns)

    def reject(self, line: int, reason: str) -> None:
        """Remember a row that is not replayed."""
        self.rejected.append(Rejected(line, reason))

    def untimed(self, line: int, error: Unreadable) -> None:
        """Remember a row whose time cannot be read."""
        self._unreadable = self._unreadable or str(error)
        self.reject(line, "timestamp")

    def trace(self, name: str, *, block_tokens: int) -> Trace:
        """The rows as a Trace, its origin the first of them; none at all raises WorkloadError `empty_trace`.

        Rows that stand years from all others are rejected: one of them would set the scale for the rest.
        """
        if not self._ns:
            raise self._empty()
        ns = np.frombuffer(self._ns, dtype=np.int64)
        line = np.frombuffer(self._line, dtype=np.int64)
        order = self._together(ns, line, self._order(ns, line))
        if self._clamped:
            self.warnings.append(f"clamped: {self._clamped} rows with 0 tokens are replayed with 1")
        origin = int(ns[0] if order is None else ns[order[0]])
        return Trace(
            name=name,
            arrival_ns=_ordered(ns, order) - origin,
            prompt_tokens=_ordered(np.frombuffer(self._prompt, dtype=np.int32), order),
            output_tokens=_ordered(np.frombuffer(self._output, dtype=np.int32), order),
            **{column: self._column(column, order) for column in self._optional},
            prefix=self._prefix(block_tokens, order),
            rejected=tuple(self.rejected),
            warnings=tuple(self.warnings),
            origin_ns=origin,
            line=_ordered(line, order),
        )

    def _order(self, ns: NDArray[np.int64], line: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """The rows by time, then by line; None when they are so already."""
        if not (line[1:] < line[:-1]).any():
            if not (ns[1:] < ns[:-1]).any():
                return None
            self.warnings.append(UNSORTED)
            return np.argsort(ns, kind="stable")
        by_line = ns[np.argsort(line)]
        if (by_line[1:] < by_line[:-1]).any():
            self.warnings.append(UNSORTED)
        return np.lexsort((line, ns))

    def _together(
        self, ns: NDArray[np.int64], line: NDArray[np.int64], order: NDArray[np.int64] | None
    ) -> NDArray[np.int64] | None:
        """The same order without rows that stand years from all others."""
        if int(ns.max()) - int(ns.min()) < outliers.YEAR_NS:
            return order
        instants, lines = _ordered(ns, order), _ordered(line, order)
        bulk = outliers.bulk(instants, lines)
        if bulk is None:
            return order
        self.warnings.append(f"{outliers.REASON if bulk.alone else outliers.APART}: {bulk.sentence}")
        if not bulk.alone:
            return order
        outside = np.concatenate((lines[: bulk.first], lines[bulk.last :])).tolist()
        self.rejected = sorted(
            (*self.rejected, *(Rejected(at, outliers.REASON) for at in outside)), key=lambda row: row.line
        )
        kept = np.arange(bulk.first, bulk.last)
        return kept if order is None else order[kept]

    def _pad(self, name: str) -> array[int]:
        """An optional column, filled up to the row that is being added."""
        column = self._optional[name]
        column.extend([_ABSENT[name]] * (len(self._ns) - len(column)))
        return column

    def _pad_blocks(self) -> None:
        self._block_start.extend([len(self._block_ids)] * (len(self._ns) + 1 - len(self._block_start)))

    def _column(self, name: str, order: NDArray[np.int64] | None) -> Any:
        if not self._optional[name]:
            return None
        return _ordered(np.array(self._pad(name)), order)

    def _prefix(self, block_tokens: int, order: NDArray[np.int64] | None) -> Prefix | None:
        if not self._block_ids:
            return None
        self._pad_blocks()
        prefix = Prefix(np.array(self._block_start), np.array(self._block_ids), block_tokens)
        return prefix if order is None else prefix.take(order)

    def _empty(self) -> WorkloadError:
        if not self.rejected:
            return WorkloadError(f"{self.path} holds no request.", code="empty_trace", hint="Give a trace with rows.")
        first = self.rejected[0]
        untimed = first.reason == "timestamp" and self._unreadable
        why = f"{first.reason} {self._unreadable[:40]!r}" if untimed else first.reason
        return WorkloadError(
            f"None of the {len(self.rejected)} rows of {self.path} can be replayed (line {first.line}: {why}).",
            code="empty_trace",
            hint=hint_for(self._unreadable) if untimed else "docs/traces.md explains the reasons.",
        )
