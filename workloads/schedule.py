"""`Schedule`: what is planned, row by row, before the first byte is sent; splits over workers, saved with the run."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from workloads.errors import WorkloadError
from workloads.tokenizer import file_hash
from workloads.trace import Prefix, Trace, frozen


@dataclass(frozen=True, eq=False)
class Schedule:
    """Planned requests in order of their instant.

    `scheduled_s` is seconds from the start of the run; lengths and arrivals came from `seed`, the prompts' content
    comes from `seed` and `salt`. `session` is -1 for a request that belongs to none.

    `scheduled_s` is NaN for a later turn of a session that waits: it is due `think_s` after the turn before it has
    ended, however that ended. It stands where the trace has it, so a session's rows are in the order of its turns.
    `tokenizer` is the file whose words make up texts ("" for common words), `template_tokens` what the server adds.
    """

    request_id: NDArray[np.int64]
    scheduled_s: NDArray[np.float64]
    prompt_tokens: NDArray[np.int32]
    max_tokens: NDArray[np.int32]
    session: NDArray[np.int64]
    slo_class: NDArray[np.uint8]
    warmup: NDArray[np.bool_]
    seed: int
    salt: str
    trace_name: str
    trace_hash: str
    prefix: Prefix | None = None
    think_s: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    tokenizer: str = ""
    template_tokens: int = 0

    def __post_init__(self) -> None:
        if not len(self.think_s):
            object.__setattr__(self, "think_s", np.zeros(len(self.request_id)))
        for column, dtype in _DTYPES.items():
            object.__setattr__(self, column, frozen(getattr(self, column), dtype))

    def __len__(self) -> int:
        return len(self.request_id)

    @property
    def duration_s(self) -> float:
        """The last instant that is planned, seconds from the start of the run; 0 when nothing is planned."""
        known = self._known_s
        return float(known[-1]) if len(known) else 0.0

    @property
    def offered_rate_per_s(self) -> float | None:
        """(n - 1) / (last - first) requests per second; None when all are due at one instant, or some wait."""
        known = self._known_s
        span = float(known[-1] - known[0]) if len(known) == len(self) > 0 else 0.0
        return (len(self) - 1) / span if span > 0 else None

    @property
    def _known_s(self) -> NDArray[np.float64]:
        return self.scheduled_s[~self.waits]

    @cached_property
    def waits(self) -> NDArray[np.bool_]:
        """Which rows are later turns that wait for the turn before them."""
        return np.isnan(self.scheduled_s)

    @cached_property
    def next_turn(self) -> NDArray[np.int64]:
        """For each row the row that waits for it, -1 for none."""
        following = np.full(len(self), -1, dtype=np.int64)
        order = np.lexsort((np.arange(len(self)), self.session))
        a, b = order[:-1], order[1:]
        waiting = (self.session[a] == self.session[b]) & (self.session[b] >= 0) & self.waits[b]
        following[a[waiting]] = b[waiting]
        return following

    @cached_property
    def recipe_hash(self) -> str:
        """SHA-256 of what is planned; the salt is left out, so that repetitions of one plan share it."""
        digest = hashlib.sha256(f"seed:{self.seed};trace:{self.trace_hash};".encode())
        if self.tokenizer:
            digest.update(f"tokenizer:{file_hash(self.tokenizer)};".encode())
        hashed = {column: dtype for column, dtype in _DTYPES.items() if column != "think_s" or self.waits.any()}
        for column, dtype in hashed.items():
            values = getattr(self, column)
            digest.update(f"{column}:{len(values)};".encode())
            digest.update(values.astype(np.dtype(dtype).newbyteorder("<"), copy=False).tobytes())
        return digest.hexdigest()

    def blocks(self, row: int) -> list[int]:
        """The shared prompt blocks row `row` starts with; empty when it shares none."""
        return [] if self.prefix is None else self.prefix.row(row)

    def rows(self, selection: slice | NDArray[Any]) -> Schedule:
        """The selected rows in their order; a slice costs nothing, its columns are views."""
        columns = {column: getattr(self, column)[selection] for column in _DTYPES}
        prefix = None if self.prefix is None else self.prefix.take(np.arange(len(self))[selection])
        return Schedule(**columns, **{name: getattr(self, name) for name in _SCALARS}, prefix=prefix)

    def shard(self, worker: int, workers: int) -> Schedule:
        """The part of worker `worker` of `workers`: whole sessions, dealt out by first appearance, order kept."""
        if not 0 <= worker < workers:
            raise WorkloadError(f"There is no worker {worker} among {workers}.", code="worker")
        return self.rows(self._unit_rank() % workers == worker)

    def _unit_rank(self) -> NDArray[np.int64]:
        """Rank, by first appearance, of the session of each row; a row without one is a unit of its own."""
        alone = self.session < 0
        if alone.all():
            return np.arange(len(self))
        unit = np.where(alone, -1 - np.arange(len(self)), self.session)
        _, first, inverse = np.unique(unit, return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[inverse]

    def save(self, path: Path | str) -> None:
        """Write the schedule as an .npz of plain arrays (no pickles)."""
        columns: dict[str, Any] = {column: getattr(self, column) for column in _DTYPES}
        columns |= {name: np.array(getattr(self, name)) for name in _SCALARS}
        if self.prefix is not None:
            columns |= {
                "prefix_start": self.prefix.start,
                "prefix_ids": self.prefix.ids,
                "block_tokens": np.array(self.prefix.block_tokens),
            }
        with open(path, "wb") as file:
            np.savez(file, **columns)

    @staticmethod
    def load(path: Path | str) -> Schedule:
        """Read what `save` wrote; a damaged or foreign file raises WorkloadError."""
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
                prefix = None
                if "prefix_start" in stored:
                    prefix = Prefix(stored["prefix_start"], stored["prefix_ids"], int(stored["block_tokens"]))
                columns = {column: stored[column] for column in _DTYPES}
                if len({column.shape for column in columns.values()}) > 1 or columns["request_id"].ndim != 1:
                    raise ValueError("its columns have different lengths")
                scalars = {name: kind(stored[name][()]) for name, kind in _SCALARS.items()}
                return Schedule(**columns, **scalars, prefix=prefix)
        except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise WorkloadError(
                f"{path} is not a schedule this program wrote: {error}.",
                code="schedule",
                hint="Point to the schedule.npz of a run directory.",
            ) from error


_DTYPES: dict[str, DTypeLike] = {
    "request_id": np.int64,
    "scheduled_s": np.float64,
    "prompt_tokens": np.int32,
    "max_tokens": np.int32,
    "session": np.int64,
    "slo_class": np.uint8,
    "warmup": np.bool_,
    "think_s": np.float64,
}
_SCALARS: dict[str, Any] = {
    "seed": int,
    "salt": str,
    "trace_name": str,
    "trace_hash": str,
    "tokenizer": str,
    "template_tokens": int,
}


def plan(
    trace: Trace,
    *,
    seed: int,
    salt: str,
    warmup_s: float = 0.0,
    think: Think | None = None,
    tokenizer: str = "",
    template_tokens: int = 0,
) -> Schedule:
    """The schedule that replays `trace`: a request per row; those recorded before `warmup_s` seconds are warm-up.

    With `think`, only the first turn of a session is due at its instant; each later one waits for the answer before it
    and thinks. Without, every turn is due at its recorded instant (an open loop).
    """
    count = len(trace)
    scheduled_s = trace.arrival_ns / 1e9
    later = np.zeros(count, dtype=bool) if think is None else _later_turns(trace)
    return Schedule(
        request_id=np.arange(count),
        scheduled_s=np.where(later, np.nan, scheduled_s),
        think_s=np.zeros(count) if think is None else np.where(later, think.seconds(trace), 0.0),
        tokenizer=tokenizer,
        template_tokens=template_tokens,
        prompt_tokens=trace.prompt_tokens,
        max_tokens=trace.output_tokens,
        session=np.full(count, -1) if trace.session is None else trace.session,
        slo_class=np.zeros(count, dtype=np.uint8) if trace.slo_class is None else trace.slo_class,
        warmup=scheduled_s < warmup_s,
        seed=seed,
        salt=salt,
        trace_name=trace.name,
        trace_hash=trace.content_hash,
        prefix=trace.prefix,
    )


def unrelated(
    scheduled_s: ArrayLike,
    prompt_tokens: ArrayLike,
    max_tokens: ArrayLike,
    *,
    warmup_s: float = 0.0,
    salt: str = "",
    name: str = "",
    name_hash: str = "",
) -> Schedule:
    """A schedule without a trace: requests that know nothing of each other, due at these instants, in their order."""
    due_s = np.asarray(scheduled_s, dtype=np.float64)
    return Schedule(
        request_id=np.arange(len(due_s)),
        scheduled_s=due_s,
        prompt_tokens=np.broadcast_to(prompt_tokens, due_s.shape),
        max_tokens=np.broadcast_to(max_tokens, due_s.shape),
        session=np.full(len(due_s), -1),
        slo_class=np.zeros(len(due_s), dtype=np.uint8),
        warmup=due_s < warmup_s,
        seed=0,
        salt=salt,
        trace_name=name,
        trace_hash=name_hash,
    )


@dataclass(frozen=True)
class Think:
    """How long a user thinks between an answer and the next turn: exponential around `mean_s`, drawn from `rng`.

    Without a mean, as long as the trace has between the two turns; the recorded answer's time is in there too.
    """

    mean_s: float | None
    rng: np.random.Generator

    def seconds(self, trace: Trace) -> NDArray[np.float64]:
        """Seconds before each row."""
        if self.mean_s is not None:
            return self.rng.exponential(self.mean_s, len(trace)) if self.mean_s > 0 else np.zeros(len(trace))
        assert trace.session is not None
        order = np.lexsort((np.arange(len(trace)), trace.session))
        think_s = np.zeros(len(trace))
        think_s[order[1:]] = np.diff(trace.arrival_ns[order]) / 1e9
        return np.asarray(np.maximum(think_s, 0.0))


def _later_turns(trace: Trace) -> NDArray[np.bool_]:
    """Rows whose session has a row before them; a trace without sessions raises WorkloadError."""
    if trace.session is None:
        raise WorkloadError(
            f"{trace.name} has no sessions, so no turn can wait for another.",
            code="no_sessions",
            hint="Leave --think out, or map a session column.",
        )
    later = np.ones(len(trace), dtype=bool)
    later[np.unique(trace.session, return_index=True)[1]] = False
    return later & (trace.session >= 0)
