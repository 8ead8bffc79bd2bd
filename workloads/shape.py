"""Pure transforms of one trace: its speed, a part of it, what fits a context, other arrivals.

How the rate is changed decides what stays: scaling (`to_rate`) keeps the order and relative burstiness and changes
every time constant; thinning (`thin`) keeps the time constants and the profile of the day and makes the gaps more
like Poisson; superposition (combine.py) keeps each source's bursts and evens out their sum.
"""

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
    return take(trace, np.flatnonzero(kept))


def head(trace: Trace, n: int) -> Trace:
    """The first `n` rows."""
    if n < 1:
        raise WorkloadError(f"A trace of {n} requests cannot be replayed.", code="empty_trace", hint="Ask for more.")
    return take(trace, np.arange(min(n, len(trace))))


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
    return replace(take(trace, np.flatnonzero(~over)), rejected=rejected)


def clip_context(trace: Trace, max_tokens: int) -> Trace:
    """Prompts cut so that prompt and output fit `max_tokens`; an output that alone does not fit is cut too."""
    if max_tokens < 2:
        raise WorkloadError(f"Nothing fits a context of {max_tokens} tokens.", code="exceeds_context", hint="Use more.")
    output = np.minimum(trace.output_tokens, max_tokens - 1)
    prompt = np.minimum(trace.prompt_tokens, max_tokens - output)
    cut = int(((prompt < trace.prompt_tokens) | (output < trace.output_tokens)).sum())
    if not cut:
        return trace
    return warned(
        replace(trace, prompt_tokens=prompt, output_tokens=output),
        f"clipped: {cut} rows were cut to fit a context of {max_tokens} tokens",
    )


def thin(trace: Trace, rate_per_s: float, rng: np.random.Generator) -> Trace:
    """A random part of the rows, sessions whole, at their own times: as many as make the mean rate `rate_per_s`."""
    wanted = round(checked_rate(rate_per_s) * trace.span_s) + 1
    if trace.span_s == 0 or wanted > len(trace):
        raise WorkloadError(
            f"Thinning cannot raise the rate of {trace.name} from {trace.mean_rate_per_s or 0:g} to {rate_per_s:g} "
            "requests per second.",
            code="rate",
            hint="Use superposition or scaling.",
        )
    return sample(trace, wanted, rng)


def sample(trace: Trace, n: int, rng: np.random.Generator) -> Trace:
    """About `n` rows drawn at random (exactly n without sessions, which stay whole), in order."""
    if n < 1:
        raise WorkloadError(f"A trace of {n} requests cannot be replayed.", code="empty_trace", hint="Ask for more.")
    unit = units(trace)
    size = np.bincount(unit)
    order = rng.permutation(len(size))
    chosen = order[: max(1, int(np.searchsorted(np.cumsum(size[order]), n, side="right")))]
    return take(trace, np.flatnonzero(np.isin(unit, chosen)))


def units(trace: Trace) -> NDArray[np.int64]:
    """What belongs together, numbered from 0: the rows of a session, or a row without one by itself."""
    if trace.session is None:
        return np.arange(len(trace))
    alone = trace.session < 0
    keys = np.where(alone, trace.session.max() + 1 + np.arange(len(trace)), trace.session)
    return np.unique(keys, return_inverse=True)[1]


def spread_ticks(trace: Trace, rng: np.random.Generator) -> Trace:
    """Rows of one instant spread evenly at random up to the next instant: for clocks that tick in seconds.

    The last tick is as long as the median one. Order is kept, and a trace without equal instants comes back as it is.
    """
    instant, count = np.unique(trace.arrival_ns, return_counts=True)
    if len(instant) == len(trace) or len(instant) < 2:
        return trace
    ticks = np.diff(instant)
    ticks = np.append(ticks, int(np.median(ticks)))
    shared = np.repeat(count > 1, count)
    place = np.where(shared, rng.random(len(trace)), 0.0) + np.repeat(np.arange(len(instant)), count)
    # Sorting within a tick: the whole part keeps ticks apart.
    share = np.sort(place) - np.repeat(np.arange(len(instant)), count)
    moved = np.repeat(instant, count) + (share * np.repeat(ticks, count)).astype(np.int64)
    word = f"spread_ticks: {int(shared.sum())} rows that shared {int((count > 1).sum())} instants were spread"
    return warned(replace(trace, arrival_ns=moved - moved[0]), word)


def with_arrivals(trace: Trace, arrival_s: NDArray[np.float64], process: str) -> Trace:
    """The same requests in the same order at other times (seconds, not going back)."""
    ns = np.rint((arrival_s - arrival_s[:1]) * 1e9).astype(np.int64)
    lacking = tuple(word for word in trace.warnings if not word.startswith("no_arrivals"))
    return warned(replace(trace, arrival_ns=ns, origin_ns=None, warnings=lacking), f"arrivals: {process}, not recorded")


def warned(trace: Trace, warning: str) -> Trace:
    """The trace with one more warning (`code: sentence`)."""
    return replace(trace, warnings=(*trace.warnings, warning))


def _stretched(trace: Trace, factor: float) -> Trace:
    return replace(trace, arrival_ns=np.rint(trace.arrival_ns * factor).astype(np.int64))


def take(trace: Trace, rows: NDArray[np.int64]) -> Trace:
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
