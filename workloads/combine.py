"""Several traces, or several copies of one, as one trace: merge, superpose, repeat.

Sessions and shared prompt blocks are numbered apart, so that two sources never share content by accident.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.arrivals import checked_rate
from workloads.errors import WorkloadError
from workloads.shape import sample, take, units, warned
from workloads.trace import Prefix, Trace

MAX_COPIES = 100_000


def merge(traces: Sequence[Trace], *, class_per_trace: bool = False) -> Trace:
    """All rows by their absolute times; with `class_per_trace` the SLO class of a row is the place of its trace.

    A trace without absolute times raises WorkloadError `no_origin`: where it would lie is not known.
    """
    undated = [trace.name for trace in traces if trace.origin_ns is None]
    if undated and len(traces) > 1:
        raise WorkloadError(
            f"{', '.join(undated)} counts from zero, so it cannot be laid beside the others in time.",
            code="no_origin",
            hint="Merge traces with absolute times.",
        )
    if class_per_trace:
        traces = [replace(t, slo_class=np.full(len(t), place)) for place, t in enumerate(traces)]
    origin = min(trace.origin_ns or 0 for trace in traces)
    merged = _joined(traces, [(trace.origin_ns or 0) - origin for trace in traces])
    return replace(merged, name="+".join(trace.name for trace in traces), origin_ns=origin if not undated else None)


def superpose(trace: Trace, rate_per_s: float, rng: np.random.Generator) -> Trace:
    """Copies of the trace on top of each other, each turned by a random part of the span, to the wanted mean rate.

    The last copy is thinned. The rate must be at least the trace's own.
    """
    own = trace.mean_rate_per_s
    wanted = checked_rate(rate_per_s) * trace.span_s + 1
    if own is None or wanted < len(trace) - 0.5:
        raise WorkloadError(
            f"Superposition cannot lower the rate of {trace.name} from {own or 0:g} to {rate_per_s:g} per second.",
            code="rate",
            hint="Use thinning or scaling.",
        )
    copies, more = divmod(round(wanted), len(trace))
    _check_copies(copies)
    base = replace(trace, origin_ns=0)  # from here on, how far from the start of the span a copy begins
    parts = [base, *(_turned(base, trace.arrival_ns[-1], rng) for _ in range(copies - 1))]
    if more:
        parts.append(_turned(sample(base, more, rng), trace.arrival_ns[-1], rng))
    word = f"superposed: {rate_per_s / own:.3g} copies, each turned by a random part of the span"
    return warned(_joined(parts, [part.origin_ns or 0 for part in parts], trace), word)


def repeat(trace: Trace, times: int, rng: np.random.Generator) -> Trace:
    """The trace one time after the other, a mean gap between; from the second time its requests are reshuffled.

    Arrivals recur, lengths do not come in the same order again; sessions and prefixes keep their rows.
    """
    if times < 1:
        raise WorkloadError(f"A trace cannot be repeated {times} times.", code="repeat", hint="Give 1 or more.")
    _check_copies(times * max(len(trace) // 10_000, 1))
    period = int(trace.arrival_ns[-1]) + round(float(trace.arrival_ns[-1]) / max(len(trace) - 1, 1))
    parts = [trace, *(_reshuffled(trace, rng) for _ in range(times - 1))]
    again = _joined(parts, [period * i for i in range(times)], trace)
    return again if times == 1 else warned(again, f"repeated: {times} times, reshuffled")


def _reshuffled(trace: Trace, rng: np.random.Generator) -> Trace:
    if trace.session is not None or trace.prefix is not None:
        return trace
    order = rng.permutation(len(trace))
    return replace(
        trace,
        prompt_tokens=trace.prompt_tokens[order],
        output_tokens=trace.output_tokens[order],
        slo_class=None if trace.slo_class is None else trace.slo_class[order],
    )


def _turned(trace: Trace, last_ns: int, rng: np.random.Generator) -> Trace:
    """The rows turned around the span as around a circle, sessions whole; `origin_ns` is where they begin on it."""
    at = trace.arrival_ns + (trace.origin_ns or 0)
    unit = units(trace)
    start = np.full(unit.max() + 1, np.iinfo(np.int64).max)
    np.minimum.at(start, unit, at)
    moved = ((start + int(rng.integers(last_ns + 1))) % (last_ns + 1) - start)[unit] + at
    order = np.argsort(moved, kind="stable")
    timeless = replace(trace, arrival_ns=np.zeros(len(trace), dtype=np.int64))
    first = int(moved[order[0]])
    return replace(take(timeless, order), arrival_ns=moved[order] - first, origin_ns=first)


def _check_copies(copies: int) -> None:
    if copies > MAX_COPIES:
        raise WorkloadError(f"{copies} copies of a trace are too many.", code="repeat", hint="Ask for less.")


def _joined(parts: Sequence[Trace], offsets_ns: Sequence[int], like: Trace | None = None) -> Trace:
    """The rows of all parts by time, part i moved by `offsets_ns[i]`; equal instants keep the order of the parts."""
    at = np.concatenate([part.arrival_ns + offset for part, offset in zip(parts, offsets_ns, strict=True)])
    order = np.argsort(at, kind="stable")
    origin = None if like is None else like.origin_ns
    joined = Trace(
        name=parts[0].name,
        arrival_ns=at[order] - at[order[0]],
        prompt_tokens=np.concatenate([part.prompt_tokens for part in parts])[order],
        output_tokens=np.concatenate([part.output_tokens for part in parts])[order],
        session=_numbered([part.session for part in parts], parts, order),
        turn=_column([part.turn for part in parts], parts, order, -1),
        slo_class=_column([part.slo_class for part in parts], parts, order, 0),
        prefix=_prefix(parts, order),
        origin_ns=origin,
        reading=None if like is None else like.reading,
    )
    sources = (like,) if like is not None else tuple(parts)
    return replace(
        joined,
        rejected=tuple(row for source in sources for row in source.rejected),
        warnings=tuple(dict.fromkeys(word for source in sources for word in source.warnings)),
    )


def _column(
    columns: Sequence[NDArray[Any] | None], parts: Sequence[Trace], order: NDArray[np.int64], absent: int
) -> NDArray[Any] | None:
    if all(column is None for column in columns):
        return None
    filled = [np.full(len(p), absent) if c is None else c for c, p in zip(columns, parts, strict=True)]
    return np.concatenate(filled)[order]


def _numbered(
    columns: Sequence[NDArray[np.int64] | None], parts: Sequence[Trace], order: NDArray[np.int64]
) -> NDArray[Any] | None:
    """Session numbers, those of each part above those of the part before."""
    moved, above = [], 0
    for column in columns:
        moved.append(None if column is None else np.where(column < 0, -1, column + above))
        above += 0 if column is None else int(column.max()) + 1
    return _column(moved, parts, order, -1)


def _prefix(parts: Sequence[Trace], order: NDArray[np.int64]) -> Prefix | None:
    known = [part.prefix for part in parts if part.prefix is not None]
    if not known:
        return None
    sizes = {prefix.block_tokens for prefix in known}
    if len(sizes) > 1:
        raise WorkloadError(
            f"Prompt blocks of {' and '.join(map(str, sorted(sizes)))} tokens cannot be merged.", code="blocks"
        )
    lengths, ids, above = [], [], 0
    for part in parts:
        if part.prefix is None:
            lengths.append(np.zeros(len(part), dtype=np.int64))
            continue
        lengths.append(np.diff(part.prefix.start))
        ids.append(part.prefix.ids + above)
        above += int(part.prefix.ids.max(initial=-1)) + 1
    start = np.concatenate(([0], np.cumsum(np.concatenate(lengths))))
    return Prefix(start, np.concatenate(ids), known[0].block_tokens).take(order)
