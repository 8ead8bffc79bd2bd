"""Is this measurement sound? Findings with their evidence; a server's failures are never held against the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
import numpy as np

from metrics.evidence import contradictions
from metrics.findings import Finding, first_due_s, invalid, part, warning, what
from metrics.latency import Mask, client_lag_s, counted, failed_by_server, is_ok, select, ttft_s
from metrics.records import EventTimes, Flag, Outcome, Rows
from metrics.rundir import Run
from metrics.runinfo import RunInfo
from metrics.slo import SLO, attain
from metrics.stamps import loop_lag, read_late, stamp_uncertainty_s
from metrics.stats import Stat, describe
from metrics.unjudged import not_judged

Verdict = Literal["valid", "warning", "invalid"]

MAX_LAG_S = 0.020
LAG_SHARE_OF_TTFT = 0.10
UNCERTAINTY_SHARE_OF_TPOT = 0.10
UNCERTAIN_TOKENS = 0.01
BUFFERED_ROWS = 0.01
COLD_START_FACTOR = 3.0
COLD_START_ROWS = 20
COLD_LENGTH_ROWS = 5  # of one power of two of prompt tokens: kernels are compiled for sizes


class Validity(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict (the worst finding's level), the findings, and how well the client kept time."""

    verdict: Verdict
    findings: list[Finding]
    client_lag_s: Stat | None  # sent - scheduled
    client_queue_s: Stat | None  # waits for a slot under --max-in-flight; None when nothing waited
    loop_lag_s: Stat | None  # user-space stamp - kernel stamp of the reads that completed an event
    kernel_stamped_share: float | None  # of reads
    coalesced_share: float | None  # of reads: more than one token event in one


def assess(run: Run, slo: SLO | None) -> Validity:
    """Everything that makes the run invalid, then everything that makes it worth a warning."""
    rows, info = run.table.rows, run.info
    of = counted(rows, info.stopped_at_s)
    mine = select(rows, of)
    findings = [
        *_not_offered(mine),
        *not_judged(mine, None if slo is None else attain(run.table, slo, info.stopped_at_s)),
        *_limited_by_client(rows, run.table.events, of, slo),
        *_server_evidence(mine),
        *contradictions(run.table, of, info),
        *_buffered(rows, run.table.events, of),
        *_run_conditions(mine, info),
    ]
    waits = mine["client_queue_s"][mine["client_queue_s"] > 0]
    return Validity(
        verdict=max((f.level for f in findings), key=("warning", "invalid").index, default="valid"),
        findings=findings,
        client_lag_s=describe(client_lag_s(mine)),
        client_queue_s=describe(waits),
        loop_lag_s=None if run.table.events is None else loop_lag(rows, run.table.events, of),
        kernel_stamped_share=_share(int(mine["kernel_reads"].sum()), int(mine["reads"].sum())),
        coalesced_share=_share(int(mine["coalesced_reads"].sum()), int(mine["reads"].sum())),
    )


def lag_limit_s(slo: SLO | None) -> float:
    """How late the client may send (p99): 10 % of the TTFT target, at most 20 ms."""
    if slo is None or slo.ttft_s is None:
        return MAX_LAG_S
    return min(LAG_SHARE_OF_TTFT * slo.ttft_s, MAX_LAG_S)


def _not_offered(rows: Rows) -> Iterator[Finding]:
    if not len(rows):
        yield invalid("no_requests", "No request was due after the warm-up, so there is nothing to report.")
        return
    lost = rows["outcome"] == Outcome.LOST_WORKER
    if lost.any():
        yield invalid(
            "worker_lost",
            f"{part(lost)} were lost with their worker{_since(rows, lost)}: the load fell there.",
            **what(rows, lost),
        )
    skipped = np.isin(rows["outcome"], (Outcome.NOT_SENT, Outcome.SKIPPED_LATE))
    if skipped.any():
        yield invalid(
            "schedule_not_offered",
            f"{part(skipped)} were not sent{_since(rows, skipped)}.",
            **what(rows, skipped),
        )


def _limited_by_client(rows: Rows, events: EventTimes | None, of: Mask, slo: SLO | None) -> Iterator[Finding]:
    lag = describe(client_lag_s(select(rows, of)))
    limit = lag_limit_s(slo)
    if lag is not None and lag.p99 > limit:
        yield invalid(
            "limited_by_client",
            f"The client sent late: p99 {lag.p99 * 1e3:.3g} ms after the schedule, allowed are {limit * 1e3:.3g} ms.",
            lag_p99_s=lag.p99,
            lag_max_s=lag.max,
            limit_s=limit,
        )
    if events is None or slo is None or slo.tpot_s is None or not len(events.us):
        return
    uncertainty = stamp_uncertainty_s(rows, events)
    if not of.all():
        uncertainty = uncertainty[np.repeat(of, np.diff(events.start))]
    allowed = UNCERTAINTY_SHARE_OF_TPOT * slo.tpot_s
    share = float((uncertainty > allowed).mean()) if len(uncertainty) else 0.0
    if share > UNCERTAIN_TOKENS:
        yield invalid(
            "limited_by_client",
            f"{share * 100:.1f} % of the token times may be wrong by more than {allowed * 1e3:.3g} ms because the "
            "client read late; 1 % is allowed.",
            uncertain_share=share,
            limit_s=allowed,
            uncertainty_p99_s=float(np.percentile(uncertainty, 99)),
        )


def _server_evidence(rows: Rows) -> Iterator[Finding]:
    """What the server did that a reader must know before any figure."""
    ok = is_ok(rows)
    failed = failed_by_server(rows)
    if failed.any():
        yield warning("failures", f"{part(failed)} failed and count as not good.", **what(rows, failed))
    for code, flag, words in (
        ("short_outputs", Flag.SHORT_OUTPUT, "gave fewer tokens than asked"),
        ("estimated_tokens", Flag.TOKENS_ESTIMATED, "came without usage: their token events were counted"),
    ):
        flagged = ok & ((rows["flags"] & flag) != 0)
        if flagged.any():
            yield warning(code, f"{part(flagged)} {words}.", **what(rows, flagged))
    yield from _cold_start(rows)


def _buffered(rows: Rows, events: EventTimes | None, of: Mask) -> Iterator[Finding]:
    """Streams that the way here held up, and not the client, which says of itself when it reads late."""
    flagged = of & is_ok(rows) & ((rows["flags"] & Flag.BUFFERED) != 0)
    if flagged.sum() <= BUFFERED_ROWS * of.sum() or (events is not None and read_late(events, flagged)):
        return
    buffered = flagged[of]
    yield warning(
        "buffered_stream",
        f"{part(buffered)} were buffered on the way, so their token times say little.",
        **what(select(rows, of), buffered),
    )


def _cold_start(rows: Rows) -> Iterator[Finding]:
    """The first answer, of all or of most lengths, took far longer than others: a compilation was part of it."""
    ttft = ttft_s(rows)
    known = ~np.isnan(ttft)
    ttft = ttft[known]
    if len(ttft) < COLD_START_ROWS:
        return
    first, p90 = float(ttft[0]), float(np.percentile(ttft[1:], 90))
    if first > COLD_START_FACTOR * p90:
        yield warning(
            "cold_start",
            f"The first answer's TTFT was {first:.3g} s where 90 % of the others stayed within {p90:.3g} s; "
            "use --warmup.",
            first_ttft_s=first,
            others_p90_s=p90,
        )
        return
    octave = np.log2(np.maximum(rows["prompt_tokens"][known], 1)).astype(np.int64)
    groups = [ttft[octave == power] for power in np.unique(octave)]
    groups = [group for group in groups if len(group) >= COLD_LENGTH_ROWS]
    slow = [float(group[0]) for group in groups if group[0] > COLD_START_FACTOR * np.percentile(group[1:], 90)]
    if len(groups) > 1 and 2 * len(slow) > len(groups):
        yield warning(
            "cold_start",
            f"In {len(slow)} of {len(groups)} ranges of prompt length the first TTFT, up to {max(slow):.3g} s, "
            f"was over {COLD_START_FACTOR:.3g} times what 90 % of the range's others stayed within; use --warmup.",
            first_ttft_s=max(slow),
            ranges=len(slow),
        )


def _run_conditions(rows: Rows, info: RunInfo) -> Iterator[Finding]:
    """What the set-up, rather than a single answer, puts in doubt."""
    outside = info.server.get("extrapolated_share")
    if isinstance(outside, int | float) and outside > 0:
        yield warning(
            "extrapolated_model",
            f"{outside * 100:.1f} % of the modelled time lay outside the range the performance model was fitted on.",
            share=outside,
        )
    waits = rows["client_queue_s"]
    waiting = waits > 0
    if waiting.any():
        yield warning(
            "not_open_loop",
            f"{part(waiting)} waited for a slot under --max-in-flight, up to {waits.max():.3g} s: "
            "the arrivals are no longer the schedule's.",
            count=int(waiting.sum()),
            wait_max_s=float(waits.max()),
        )
    if info.stopped_at_s is not None:
        why = f" ({info.stop_reason})" if info.stop_reason else ""
        yield warning(
            "partial",
            f"The run was ended at {info.stopped_at_s:.3g} s{why}; results are about the requests due before.",
            stopped_at_s=info.stopped_at_s,
            reason=info.stop_reason,
        )


def _since(rows: Rows, mask: Mask) -> str:
    first = first_due_s(rows, mask)
    return "" if first is None else f", the first of them due at {first:.4g} s"


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


__all__ = ["Finding", "Validity", "Verdict", "assess", "lag_limit_s"]
