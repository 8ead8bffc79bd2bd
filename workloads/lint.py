"""`lint`: what is suspicious about a trace, before a request is sent because of it."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from workloads.trace import Trace

Level = Literal["error", "warning", "note"]

_ATOM_SHARE, _ATOM_WIDTH = 0.03, 0.01  # a hundredth of the values' range holding this share of the rows
_SAME_SHARE, _LEAST_ROWS = 0.2, 100
_TICK_SHARE = 0.5
_BURST_SHARE, _BURST_WIDTH, _BURST_ROWS = 0.9, 0.01, 10
_UNTIMED = "no_arrivals"
_WARNINGS = {"far_in_time", "far_apart", "few_requests", "time_unit", "mixed_times", "odd_rate", "clock_set_back"}
_TICKS_NS = tuple((name, ns) for name, ns in (("minute", 60 * 10**9), ("second", 10**9), ("millisecond", 10**6)))


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to know; `error` when no run can come of it."""

    code: str
    level: Level
    message: str
    evidence: dict[str, float | int | str]

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


def lint(trace: Trace, *, max_tokens: int | None = None) -> list[Finding]:
    """Findings about a trace's rows, clock and lengths, and (with the target's context) what cannot be sent to it."""
    found = [*_from_reading(trace), *_one_burst(trace), *_clock(trace), *_repeated(trace)]
    for name in ("prompt", "output"):
        found += _atoms(name, getattr(trace, f"{name}_tokens"))
    return found + ([] if max_tokens is None else _not_sendable(trace, max_tokens))


def _from_reading(trace: Trace) -> list[Finding]:
    found = []
    if trace.rejected:
        reasons = dict(Counter(row.reason for row in trace.rejected))
        listed = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
        first = trace.rejected[0]
        found.append(
            _finding(
                "rejected",
                f"{len(trace.rejected)} of {len(trace) + len(trace.rejected)} rows are not replayed ({listed}; "
                f"the first is line {first.line})",
                **reasons,
            )
        )
    for warning in trace.warnings:
        code, _, sentence = warning.partition(": ")
        level: Level = "error" if code == _UNTIMED else "warning" if code in _WARNINGS else "note"
        found.append(Finding(code=code, level=level, message=sentence, evidence={}))
    return found


def _one_burst(trace: Trace) -> list[Finding]:
    """Nearly all rows within a hundredth of the span, or in one instant: the rest of the time nothing is sent."""
    rows, at = len(trace), trace.arrival_ns
    if rows < 2 or any(word.startswith(_UNTIMED) for word in trace.warnings):
        return []
    if trace.span_s == 0:
        return [_finding("one_instant", f"all {rows} rows arrive at one instant and are sent as one burst", rows=rows)]
    if rows < _BURST_ROWS:
        return []
    width_ns = int(trace.span_s * _BURST_WIDTH * 1e9)
    crowd = int((np.searchsorted(at, at + width_ns, side="right") - np.arange(rows)).max())
    if crowd < _BURST_SHARE * rows:
        return []
    message = (
        f"{crowd} of {rows} rows arrive within {width_ns / 1e9:.3g} s, the others in the rest of {trace.span_s:.4g} s"
    )
    return [_finding("one_burst", message, rows=crowd, width_s=width_ns / 1e9, span_s=trace.span_s)]


def _clock(trace: Trace) -> list[Finding]:
    """Instants that many rows share, or a clock that only knows whole seconds: bursts that never were."""
    if len(trace) < _LEAST_ROWS or trace.span_s == 0:
        return []
    instants = np.unique(trace.arrival_ns)
    shared = 1 - len(instants) / len(trace)
    tick = next((name for name, ns in _TICKS_NS if not (instants % ns).any()), None)
    grid_s = float(np.median(np.diff(instants))) / 1e9
    if shared < _TICK_SHARE and tick in (None, "millisecond"):
        return []
    what = f"all times are whole {tick}s"
    if shared >= _TICK_SHARE:
        what = f"{len(trace)} rows share {len(instants)} instants, about {grid_s:.3g} s apart"
    message = f"{what}: replayed as they are, they make bursts that the source may not have seen; --shape spread"
    return [_finding("quantised_clock", message, instants=len(instants), rows=len(trace), tick_s=grid_s)]


def _repeated(trace: Trace) -> list[Finding]:
    """One pair of lengths again and again: a probe, a cron job, or a client that retries."""
    if len(trace) < _LEAST_ROWS:
        return []
    pairs = trace.prompt_tokens.astype(np.int64) << 32 | trace.output_tokens
    values, counts = np.unique(pairs, return_counts=True)
    worst = int(counts.argmax())
    share = counts[worst] / len(trace)
    if share < _SAME_SHARE:
        return []
    prompt, output = int(values[worst]) >> 32, int(values[worst]) & 0xFFFF_FFFF
    message = f"{share:.0%} of the rows have {prompt} prompt and {output} output tokens"
    return [_finding("repeated_lengths", message, prompt=prompt, output=output, share=float(share))]


def _atoms(name: str, values: NDArray[np.int32]) -> list[Finding]:
    """Many rows in the last hundredth below a cap: lengths that a limit has cut."""
    if len(values) < _LEAST_ROWS:
        return []
    distinct, counts = np.unique(values, return_counts=True)
    width = max(1, int(np.percentile(values, 99.9) * _ATOM_WIDTH))
    sums = np.concatenate(([0], np.cumsum(counts)))
    share = (sums[1:] - sums[np.searchsorted(distinct, distinct - width, side="right")]) / len(values)
    # A cap shows as a crowd with next to nothing above it.
    above = 1 - sums[1:] / len(values)
    capped = np.flatnonzero((share >= _ATOM_SHARE) & (above <= share / 2) & (distinct > 16))
    if not len(capped) or distinct[-1] == distinct[0]:
        return []
    at = int(capped[share[capped].argmax()])
    low, high = int(distinct[at] - width + 1), int(distinct[at])
    message = f"{share[at]:.1%} of the {name}s have {low} to {high} tokens: a limit of the source has cut them"
    return [_finding("truncation_atom", message, column=name, low=low, high=high, share=float(share[at]))]


def _not_sendable(trace: Trace, max_tokens: int) -> list[Finding]:
    over = trace.prompt_tokens.astype(np.int64) + trace.output_tokens > max_tokens
    if not over.any():
        return []
    count = int(over.sum())
    level: Level = "error" if count == len(trace) else "warning"
    message = f"{count} of {len(trace)} rows do not fit the target's context of {max_tokens} tokens"
    return [Finding(code="not_sendable", level=level, message=message, evidence={"rows": count, "context": max_tokens})]


def _finding(code: str, message: str, **evidence: float | int | str) -> Finding:
    return Finding(code=code, level="warning", message=message, evidence=evidence)
