"""Pure transforms of a trace: faster, a window of it, its head, what fits a context."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from workloads.arrivals import checked_rate
from workloads.errors import WorkloadError
from workloads.trace import Rejected, Trace


def speed(trace: Trace, x: float) -> Trace:
    """The trace `x` times as fast: every offset from the start is divided by x, so burstiness is unchanged."""
    if not 0 < x < float("inf"):
        raise WorkloadError(f"A speed of {x} cannot be replayed.", code="speed", hint="Give a positive number.")
    return _stretched(trace, 1 / x)


def to_rate(trace: Trace, rate_per_s: float) -> Trace:
    """The trace scaled in time so that (n - 1) / span is `rate_per_s`; a single request stays as it is."""
    checked_rate(rate_per_s)
    if len(trace) < 2:
        return trace
    if trace.span_s == 0:
        raise WorkloadError(
            f"All {len(trace)} rows of {trace.name} arrive at one instant, so no scaling gives a rate.",
            code="no_span",
            hint="Leave the rate out to send them as a burst.",
        )
    return _stretched(trace, (len(trace) - 1) / rate_per_s / trace.span_s)


def window(trace: Trace, start_s: float, length_s: float | None = None) -> Trace:
    """Rows in [start, start + length), in seconds from the first row; times restart at the first kept row."""
    start_ns = round(start_s * 1e9)
    kept = trace.arrival_ns >= start_ns
    if length_s is not None:
        kept &= trace.arrival_ns < start_ns + round(length_s * 1e9)
    if not kept.any():
        end = "" if length_s is None else f" to {start_s + length_s:g} s"
        raise WorkloadError(
            f"No row of {trace.name} arrives from {start_s:g} s{end}; it spans {trace.span_s:.3f} s.",
            code="empty_trace",
            hint="Choose a window inside the trace.",
        )
    return _rows(trace, np.flatnonzero(kept))


def head(trace: Trace, n: int) -> Trace:
    """The first `n` rows."""
    if n < 1:
        raise WorkloadError(f"A trace of {n} requests cannot be replayed.", code="empty_trace", hint="Ask for more.")
    return _rows(trace, np.arange(min(n, len(trace))))


def fit_context(trace: Trace, max_tokens: int) -> Trace:
    """Without the rows whose prompt and output together exceed `max_tokens`; they become rejected rows."""
    over = trace.prompt_tokens.astype(np.int64) + trace.output_tokens > max_tokens
    if not over.any():
        return trace
    if over.all():
        raise WorkloadError(
            f"No row of {trace.name} fits a context of {max_tokens} tokens.",
            code="exceeds_context",
            hint="Use a model with a longer context or a trace with shorter prompts.",
        )
    lines = np.arange(1, len(trace) + 1) if trace.line is None else trace.line
    dropped = [Rejected(line, "exceeds_context") for line in lines[over].tolist()]
    rejected = tuple(sorted((*trace.rejected, *dropped), key=lambda row: row.line))
    return replace(_rows(trace, np.flatnonzero(~over)), rejected=rejected)


def _stretched(trace: Trace, factor: float) -> Trace:
    return replace(trace, arrival_ns=np.rint(trace.arrival_ns * factor).astype(np.int64))


def _rows(trace: Trace, rows: NDArray[np.int64]) -> Trace:
    """The given rows (at least one), times restarted at the first of them."""
    first = int(trace.arrival_ns[rows[0]])
    return replace(
        trace,
        prompt_tokens=trace.prompt_tokens[rows],
        output_tokens=trace.output_tokens[rows],
        session=None if trace.session is None else trace.session[rows],
        turn=None if trace.turn is None else trace.turn[rows],
        slo_class=None if trace.slo_class is None else trace.slo_class[rows],
        line=None if trace.line is None else trace.line[rows],
        arrival_ns=trace.arrival_ns[rows] - first,
        prefix=None if trace.prefix is None else trace.prefix.take(rows),
        origin_ns=None if trace.origin_ns is None else trace.origin_ns + first,
    )
