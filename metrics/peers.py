"""The same records under other tools' definitions: what `vllm bench serve`, AIPerf and GuideLLM would have printed.

Definitions are those of vLLM 0.32 (`benchmarks/serve.py`), AIPerf 0.13 and GuideLLM 0.8 as released, with the
server's own token counts. Their clients' errors are not imitated: no peer measures from the scheduled instant, so all
their times begin at the actual send. Latencies are in seconds, throughputs per second of the whole run.
"""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from metrics.latency import Mask, counted, is_ok, itl_s, second_token_gap_s, select, tpot_s, ttft_from_sent_s
from metrics.rates import MOST_WINDOWS, duration_s
from metrics.records import Rows
from metrics.rundir import Run
from metrics.slo import SLO

Floats = NDArray[np.float64]
Tool = Literal["vllm", "aiperf", "guidellm"]


class Spread(msgspec.Struct, frozen=True):
    """A distribution as peers print it: linear percentiles, population standard deviation."""

    mean: float
    median: float
    p90: float
    p99: float
    least: float
    most: float
    std: float


class Common(msgspec.Struct, frozen=True, kw_only=True):
    """What all three count alike."""

    completed: int
    failed: int
    duration_s: float | None
    prompt_tokens: int
    output_tokens: int
    requests_per_s: float | None
    output_tokens_per_s: float | None


class PeerFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One tool's table; None where it has no such figure, or these records cannot give it."""

    tool: Tool
    common: Common
    good: tuple[float | None, float | None]  # good requests per second, and their share of the planned ones
    ttft_s: Spread | None
    itl_s: Spread | None  # vLLM: pooled gaps between events. AIPerf, GuideLLM: per request, a mean
    latency_s: Spread | None
    tpot_s: Spread | None = None  # per request; GuideLLM's has TTFT in it
    second_token_s: Spread | None = None  # AIPerf's "time to second token": the gap after the first
    peak_tokens_per_s: float | None = None
    peak_concurrent: int | None = None


class Peers(msgspec.Struct, frozen=True, kw_only=True):
    """All three, and what they would have seen otherwise."""

    vllm: PeerFigures
    aiperf: PeerFigures
    guidellm: PeerFigures
    role_chunk: bool  # a chat endpoint, whose empty first chunk vLLM takes for the first token
    headers_s: Spread | None  # when that chunk came at the earliest


def peers(run: Run, slo: SLO | None) -> Peers:
    """From the counted rows of a run."""
    table = run.table
    of = counted(table.rows, run.info.stopped_at_s)
    ok = of & is_ok(table.rows)
    gaps = None if table.events is None else itl_s(table.events, ok)
    second = None if table.events is None else second_token_gap_s(table.events)[ok]
    rows = select(table.rows, of)
    mine = rows[is_ok(rows)]
    ttft = ttft_from_sent_s(mine)
    to_last = mine["last_token_s"] - mine["sent_s"]
    tokens = mine["output_tokens"].astype(np.float64)
    long = tokens > 1
    each = np.where(long, (to_last - ttft) / np.where(long, tokens - 1, 1.0), np.nan)
    guide_tpot = np.where(tokens > 0, to_last / np.where(tokens > 0, tokens, 1.0), np.nan)
    common = _common(rows, mine)
    whole = mine["done_s"] - mine["sent_s"]
    lasted = common.duration_s
    return Peers(
        vllm=PeerFigures(
            tool="vllm",
            common=common,
            good=_good(slo, rows, lasted, ttft, np.where(long, each, 0.0), to_last),
            peak_tokens_per_s=_peak_events(run, ok),
            peak_concurrent=_peak_buckets(mine),
            ttft_s=spread(ttft),
            tpot_s=spread(each),
            itl_s=None if gaps is None else spread(gaps),
            latency_s=spread(to_last),
        ),
        aiperf=PeerFigures(
            tool="aiperf",
            common=common,
            good=_good(slo, rows, lasted, ttft, each, to_last),
            ttft_s=spread(ttft),
            second_token_s=None if second is None else spread(second),
            itl_s=spread(each),
            latency_s=spread(to_last),
        ),
        guidellm=PeerFigures(
            tool="guidellm",
            common=common,
            good=_good(slo, rows, lasted, ttft, tpot_s(mine), whole),
            ttft_s=spread(ttft),
            tpot_s=spread(guide_tpot),
            itl_s=spread(each),
            latency_s=spread(whole),
        ),
        role_chunk="chat" in run.info.endpoint,
        headers_s=spread(mine["headers_s"] - mine["sent_s"]),
    )


def _common(rows: Rows, mine: Rows) -> Common:
    lasted = duration_s(rows)
    served = mine["served_prompt_tokens"]
    prompts = np.where(served >= 0, served, mine["prompt_tokens"])
    output = int(mine["output_tokens"].sum())
    return Common(
        completed=len(mine),
        failed=len(rows) - len(mine),
        duration_s=lasted,
        prompt_tokens=int(prompts.sum()),
        output_tokens=output,
        requests_per_s=len(mine) / lasted if lasted else None,
        output_tokens_per_s=output / lasted if lasted else None,
    )


def _good(
    slo: SLO | None, rows: Rows, lasted: float | None, ttft: Floats, per_token: Floats, whole: Floats
) -> tuple[float | None, float | None]:
    """Good requests per second, and their share of all that were planned."""
    if slo is None or not lasted or not len(rows):
        return None, None
    values = {"ttft": ttft, "tpot": per_token, "e2e": whole}
    met = [np.nan_to_num(values[name], nan=np.inf) <= limit for name, limit in slo.limits.items()]
    good = int(np.logical_and.reduce(met).sum())
    return good / lasted, good / len(rows)


def _peak_events(run: Run, ok: Mask) -> float | None:
    """Most token *events* in one of the seconds since the first send, as vLLM counts them."""
    events, rows = run.table.events, run.table.rows
    if events is None or not ok.any():
        return None
    of = np.repeat(ok, np.diff(events.start))
    row = np.repeat(np.arange(len(rows)), np.diff(events.start))[of]
    at = rows["sent_s"][row] + events.us[of] / 1e6 - rows["sent_s"][ok].min()
    if not len(at) or not 0 <= at.min() <= at.max() < MOST_WINDOWS:
        return None
    return float(np.bincount(at.astype(np.int64)).max())


def _peak_buckets(mine: Rows) -> int | None:
    """Most requests alive in any one-second bucket, which is more than were ever alive at once."""
    if not len(mine):
        return None
    zero = mine["sent_s"].min()
    first = (mine["sent_s"] - zero).astype(np.int64)
    last = np.maximum(np.ceil(mine["last_token_s"] - zero), first + 1).astype(np.int64)
    if not 0 <= int(first.min()) <= int(last.max()) < MOST_WINDOWS:
        return None
    steps = np.zeros(int(last.max()) + 1, dtype=np.int64)
    np.add.at(steps, first, 1)
    np.add.at(steps, last, -1)
    return int(np.cumsum(steps).max())


def spread(values: Floats) -> Spread | None:
    """Describe the finite values; None when there are none."""
    known = values[np.isfinite(values)]
    if not len(known):
        return None
    median, p90, p99 = (float(value) for value in np.percentile(known, [50, 90, 99]))
    ends = (float(known.min()), float(known.max()), float(known.std()))
    return Spread(float(known.mean()), median, p90, p99, *ends)
