"""`RowSink`: takes the rows of a file in any order, keeps the good ones, remembers why the others are not replayed."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from workloads.errors import WorkloadError
from workloads.trace import Prefix, Rejected, Trace

ZeroTokens = Literal["drop", "clamp"]

MAX_TOKENS = 2**31 - 1
_WHOLE = re.compile(r"([+-]?[0-9]+)(?:\.0*)?")


class Reject(Exception):
    """This row cannot be replayed; the argument is the reason, a stable word."""


def whole(text: str) -> int:
    """A token count as CSV writers print it: `1500`, ` 20 `, `1500.0`; anything else is rejected as `number`."""
    if text.isascii() and text.isdigit():
        return int(text)
    match = _WHOLE.fullmatch(text.strip())
    if match is None:
        raise Reject("number")
    return int(match[1])


class RowSink:
    """Collects rows and turns them into a Trace: sorted by time, restarted at the earliest kept row."""

    def __init__(self, path: Path, zero_tokens: ZeroTokens) -> None:
        self._path = path
        self._least = {"drop": 1, "clamp": 0}[zero_tokens]
        self._clamped = 0
        self._ns, self._prompt, self._output, self._line = array("q"), array("i"), array("i"), array("q")
        self._session, self._turn = array("q"), array("i")
        self._block_start, self._block_ids = array("q", [0]), array("q")
        self.rejected: list[Rejected] = []
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
        blocks: Sequence[int] = (),
    ) -> None:
        """Keep a row, unless its counts cannot be sent (raises Reject)."""
        if abs(prompt) > MAX_TOKENS or abs(output) > MAX_TOKENS:
            raise Reject("number")
        if prompt < self._least:
            raise Reject("prompt_tokens<1")
        if output < self._least:
            raise Reject("output_tokens<1")
        self._clamped += prompt == 0 or output == 0
        self._ns.append(ns)
        self._prompt.append(prompt or 1)
        self._output.append(output or 1)
        self._line.append(line)
        self._session.append(session)
        self._turn.append(turn)
        self._block_ids.extend(blocks)
        self._block_start.append(len(self._block_ids))

    def __len__(self) -> int:
        return len(self._ns)

    def reject(self, line: int, reason: str) -> None:
        """Remember a row that is not replayed."""
        self.rejected.append(Rejected(line, reason))

    def trace(self, name: str, *, absolute: bool, block_tokens: int) -> Trace:
        """The rows as a Trace; none at all raises WorkloadError `empty_trace`."""
        if not self._ns:
            raise self._empty()
        ns = np.array(self._ns)
        order = np.argsort(ns, kind="stable")  # linear when the rows are in order, as they mostly are
        if (np.diff(ns) < 0).any():
            self.warnings.append("unsorted: rows were out of order and have been sorted by time")
        if self._clamped:
            self.warnings.append(f"clamped: {self._clamped} rows with 0 tokens are replayed with 1")
        session, turn = np.array(self._session), np.array(self._turn)
        blocks = Prefix(np.array(self._block_start), np.array(self._block_ids), block_tokens)
        origin = int(ns[order[0]])
        return Trace(
            name=name,
            arrival_ns=ns[order] - origin,
            prompt_tokens=np.array(self._prompt)[order],
            output_tokens=np.array(self._output)[order],
            session=session[order] if (session >= 0).any() else None,
            turn=turn[order] if (turn >= 0).any() else None,
            prefix=blocks.take(order) if len(blocks.ids) else None,
            rejected=tuple(self.rejected),
            warnings=tuple(self.warnings),
            origin_ns=origin if absolute else None,
            line=np.array(self._line)[order],
        )

    def _empty(self) -> WorkloadError:
        if not self.rejected:
            return WorkloadError(f"{self._path} holds no request.", code="empty_trace", hint="Give a trace with rows.")
        first = self.rejected[0]
        return WorkloadError(
            f"None of the {len(self.rejected)} rows of {self._path} can be replayed "
            f"(line {first.line}: {first.reason}).",
            code="empty_trace",
            hint="`goodput trace info FILE` lists what is wrong; docs/traces.md explains the reasons.",
        )
