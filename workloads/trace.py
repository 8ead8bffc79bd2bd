"""`Trace`: what arrived when, with how many tokens, in frozen columns; the input of everything else.

Arrivals are integer nanoseconds from the first kept row, so nothing is lost of the 100 ns ticks of public traces.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from workloads.errors import WorkloadError
from workloads.reading import Reading


def frozen(values: Any, dtype: DTypeLike) -> NDArray[Any]:
    """A read-only view of `values` as a contiguous array of `dtype`; no copy when it already is one."""
    view = np.ascontiguousarray(values, dtype=dtype).view()
    view.setflags(write=False)
    return view


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row that is not replayed: its line in the file (1 is the header) and the reason, a stable word."""

    line: int
    reason: str


@dataclass(frozen=True, eq=False)
class Prefix:
    """Prompt blocks by id, ragged: row i starts with the blocks `ids[start[i]:start[i + 1]]`.

    Rows that name the same block share that part of their prompt. A block is `block_tokens` tokens long
    (512 in Mooncake traces, 16 in Qwen-Bailian's); the last one may be cut by the prompt's length.
    """

    start: NDArray[np.int64]
    ids: NDArray[np.int64]
    block_tokens: int = 512

    def __len__(self) -> int:
        return len(self.start) - 1

    def row(self, index: int) -> list[int]:
        """The block ids of one row."""
        blocks: list[int] = self.ids[self.start[index] : self.start[index + 1]].tolist()
        return blocks

    def take(self, rows: NDArray[np.int64]) -> Prefix:
        """The blocks of the given rows, in that order."""
        lengths = np.diff(self.start)[rows]
        start = np.concatenate(([0], np.cumsum(lengths)))
        within = np.arange(start[-1]) - np.repeat(start[:-1], lengths)
        return Prefix(start, self.ids[np.repeat(self.start[:-1][rows], lengths) + within], self.block_tokens)


@dataclass(frozen=True, eq=False)
class Trace:
    """Requests in order of arrival.

    `session` (-1 for none), `turn`, `slo_class` and `prefix` are None when the source does not tell; `line` is the
    line each row came from; a warning reads `code: sentence`; `origin_ns` is the absolute time of the first kept
    row (since 1970, as written in the file) and None when the source counts from zero; `reading` is None unless the
    rows came from one file.
    """

    name: str
    arrival_ns: NDArray[np.int64]
    prompt_tokens: NDArray[np.int32]
    output_tokens: NDArray[np.int32]
    session: NDArray[np.int64] | None = None
    turn: NDArray[np.int32] | None = None
    slo_class: NDArray[np.uint8] | None = None
    prefix: Prefix | None = None
    rejected: tuple[Rejected, ...] = ()
    warnings: tuple[str, ...] = ()
    origin_ns: int | None = None
    line: NDArray[np.int64] | None = None
    reading: Reading | None = None

    def __post_init__(self) -> None:
        for column, dtype in _DTYPES.items():
            values = getattr(self, column)
            if values is not None:
                object.__setattr__(self, column, frozen(values, dtype))
                self._check_length(column)
        if len(self) and (self.arrival_ns[0] != 0 or (self.arrival_ns[1:] < self.arrival_ns[:-1]).any()):
            raise WorkloadError(
                f"The arrivals of trace {self.name} must start at 0 and never go back.",
                code="unsorted",
                hint="Sort the rows by arrival and subtract the first one.",
            )

    def _check_length(self, column: str) -> None:
        if len(getattr(self, column)) != len(self):
            raise WorkloadError(
                f"Column {column} of trace {self.name} has {len(getattr(self, column))} rows, arrival_ns {len(self)}.",
                code="columns",
            )

    def __len__(self) -> int:
        return len(self.arrival_ns)

    @property
    def span_s(self) -> float:
        """Seconds from the first arrival to the last one."""
        return float(self.arrival_ns[-1]) / 1e9 if len(self) else 0.0

    @property
    def mean_rate_per_s(self) -> float | None:
        """(n - 1) / span in requests per second; None when all rows arrive at one instant."""
        return (len(self) - 1) / self.span_s if self.span_s > 0 else None

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 over the columns that decide what is sent and when (not the name, the lines or the date)."""
        digest = hashlib.sha256()
        columns = [(name, getattr(self, name)) for name in _HASHED]
        if self.prefix is not None:
            columns += [("start", self.prefix.start), ("ids", self.prefix.ids)]
        for name, values in columns:
            if values is not None:
                digest.update(f"{name}:{len(values)};".encode())
                digest.update(values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes())
        return digest.hexdigest()


_DTYPES: dict[str, DTypeLike] = {
    "arrival_ns": np.int64,
    "prompt_tokens": np.int32,
    "output_tokens": np.int32,
    "session": np.int64,
    "turn": np.int32,
    "slo_class": np.uint8,
    "line": np.int64,
}
_HASHED = [name for name in _DTYPES if name != "line"]
