"""Is this measurement sound? Findings with their evidence; a server's failures are never held against the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec
import numpy as np

from metrics.finding import Evidence, Finding
from metrics.latency import Mask, client_lag_s, counted, failed_by_server, is_ok, select, ttft_s
from metrics.records import EventTimes, Flag, Outcome, Rows
from metrics.rundir import Run
from metrics.runinfo import RunInfo
from metrics.slo import SLO, attain
from metrics.stamps import loop_lag, read_late, stamp_uncertainty_s
from metrics.stats import Stat, defined, describe
from metrics.unjudged import not_judged

Verdict = Literal["valid", "warning", "invalid"]

MAX_LAG_S = 0.020
LAG_SHARE_OF_TTFT = 0.10
UNCERTAINTY_SHARE_OF_TPOT = 0.10
UNCERTAIN_TOKENS = 0.01
BUFFERED_ROWS = 0.01
PROMPT_COUNT_ERROR = 0.01
PREFIX_CACHE_SHARE = 0.01  # of the prompt tokens: a start token that all prompts share is no finding
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
        yield _invalid("no_requests", "No request was due after the warm-up, so there is nothing to report.")
        return
    lost = rows["outcome"] == Outcome.LOST_WORKER
    if lost.any():
        yield _invalid(
            "worker_lost",
            f"{_part(lost)} were lost with their worker{_since(rows, lost)}: the load fell there.",
            **_what(rows, lost),
        )
    skipped = np.isin(rows["outcome"], (Outcome.NOT_SENT, Outcome.SKIPPED_LATE))
    if skipped.any():
        yield _invalid(
            "schedule_not_offered",
            f"{_part(skipped)} were not sent{_since(rows, skipped)}.",
            **_what(rows, skipped),
        )


def _limited_by_client(rows: Rows, events: EventTimes | None, of: Mask, slo: SLO | None) -> Iterator[Finding]:
    lag = describe(client_lag_s(select(rows, of)))
    limit = lag_limit_s(slo)
    if lag is not None and lag.p99 > limit:
        yield _invalid(
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
        yield _invalid(
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
        yield _warning("failures", f"{_part(failed)} failed and count as not good.", **_what(rows, failed))
    for code, flag, words in (
        ("short_outputs", Flag.SHORT_OUTPUT, "gave fewer tokens than asked"),
        ("estimated_tokens", Flag.TOKENS_ESTIMATED, "came without usage: their token events were counted"),
    ):
        flagged = ok & ((rows["flags"] & flag) != 0)
        if flagged.any():
            yield _warning(code, f"{_part(flagged)} {words}.", **_what(rows, flagged))
    yield from _cold_start(rows)
    yield from _prompt_counts(rows)


def _buffered(rows: Rows, events: EventTimes | None, of: Mask) -> Iterator[Finding]:
    """Streams that the way here held up, and not the client, which says of itself when it reads late."""
    flagged = of & is_ok(rows) & ((rows["flags"] & Flag.BUFFERED) != 0)
    if flagged.sum() <= BUFFERED_ROWS * of.sum() or (events is not None and read_late(events, flagged)):
        return
    buffered = flagged[of]
    yield _warning(
        "buffered_stream",
        f"{_part(buffered)} were buffered on the way, so their token times say little.",
        **_what(select(rows, of), buffered),
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
        yield _warning(
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
        yield _warning(
            "cold_start",
            f"In {len(slow)} of {len(groups)} ranges of prompt length the first TTFT, up to {max(slow):.3g} s, "
            f"was over {COLD_START_FACTOR:.3g} times what 90 % of the range's others stayed within; use --warmup.",
            first_ttft_s=max(slow),
            ranges=len(slow),
        )


def _prompt_counts(rows: Rows) -> Iterator[Finding]:
    told = is_ok(rows) & (rows["served_prompt_tokens"] >= 0)
    planned, served = (int(rows[name][told].sum()) for name in ("prompt_tokens", "served_prompt_tokens"))
    if planned and abs(served / planned - 1) > PROMPT_COUNT_ERROR:
        yield _warning(
            "prompt_count_mismatch",
            f"The server counted {served} prompt tokens where {planned} were planned ({served / planned - 1:+.1%}).",
            planned=planned,
            served=served,
        )


def _run_conditions(rows: Rows, info: RunInfo) -> Iterator[Finding]:
    """What the set-up, rather than a single answer, puts in doubt."""
    hits = info.server.get("prefix_cache_hits")
    planned = int(rows["prompt_tokens"].sum())
    if isinstance(hits, int | float) and hits > PREFIX_CACHE_SHARE * planned:
        yield _warning(
            "prefix_cache",
            f"The server took {hits:g} of {planned} prompt tokens from its prefix cache: TTFT is better than it "
            "would be with fresh prompts.",
            hits=hits,
        )
    outside = info.server.get("extrapolated_share")
    if isinstance(outside, int | float) and outside > 0:
        yield _warning(
            "extrapolated_model",
            f"{outside * 100:.1f} % of the modelled time lay outside the range the performance model was fitted on.",
            share=outside,
        )
    waits = rows["client_queue_s"]
    waiting = waits > 0
    if waiting.any():
        yield _warning(
            "not_open_loop",
            f"{_part(waiting)} waited for a slot under --max-in-flight, up to {waits.max():.3g} s: "
            "the arrivals are no longer the schedule's.",
            count=int(waiting.sum()),
            wait_max_s=float(waits.max()),
        )
    if info.stopped_at_s is not None:
        why = f" ({info.stop_reason})" if info.stop_reason else ""
        yield _warning(
            "partial",
            f"The run was ended at {info.stopped_at_s:.3g} s{why}; results are about the requests due before.",
            stopped_at_s=info.stopped_at_s,
            reason=info.stop_reason,
        )


def _what(rows: Rows, mask: Mask) -> Evidence:
    return {"count": int(mask.sum()), "share": float(mask.mean()), "first_scheduled_s": _first(rows, mask)}


def _part(mask: Mask) -> str:
    return f"{int(mask.sum())} of {len(mask)} requests"


def _since(rows: Rows, mask: Mask) -> str:
    first = _first(rows, mask)
    return "" if first is None else f", the first of them due at {first:.4g} s"


def _first(rows: Rows, mask: Mask) -> float | None:
    scheduled = defined(rows["scheduled_s"][mask])
    return float(scheduled.min()) if len(scheduled) else None


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _invalid(code: str, message: str, **evidence: float | int | str | None) -> Finding:
    return Finding(code=code, level="invalid", message=message, evidence=evidence)


def _warning(code: str, message: str, **evidence: float | int | str | None) -> Finding:
    return Finding(code=code, level="warning", message=message, evidence=evidence)


__all__ = ["Finding", "Validity", "Verdict", "assess", "lag_limit_s"]
