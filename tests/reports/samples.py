"""Synthetic runs for the report tests: a queue and a decode loop in a few lines of numpy, from a seed."""

from __future__ import annotations

import numpy as np

from metrics.bins import bins
from metrics.compare import RunSet, compare
from metrics.decision import DecisionRow, Pair, decide
from metrics.goodput import GoodputEstimate
from metrics.plan import Candidate, KvFacts, PlanReport, Sizing, Step
from metrics.plan import row_of as plan_row
from metrics.prediction import prediction
from metrics.records import EventTimes, Flag, Outcome, Phase, RecordTable, StampSource, WorkerStats, empty_rows
from metrics.rundir import Run
from metrics.runinfo import RunInfo, Setting
from metrics.search import Attempt, SearchReport, SearchRow
from metrics.slo import SLO
from metrics.summary import summarise
from metrics.sweep import Sweep, sweep
from reports import pages
from reports.page import PageData, RunView

TARGETS = SLO(ttft_s=0.5, tpot_s=0.05, share=0.9)
STALLS = {"colocated": 1.0, "chunked": 0.25, "disaggregated": 0.0}


def run(
    arrangement: str = "chunked",
    *,
    requests: int = 400,
    rate_per_s: float = 8.0,
    failures: float = 0.01,
    seed: int = 1,
    name: str = "azure-conv",
    spans: bool = False,
) -> Run:
    """A run whose decodes stall when prompts arrive (as much as the arrangement lets them) and whose prompts queue."""
    rng = np.random.default_rng(seed)
    rows = empty_rows(requests)
    due = np.concatenate([[0.0], np.cumsum(rng.exponential(1 / rate_per_s, requests - 1))])
    prompts = np.clip(rng.lognormal(6.6, 1.0, requests), 20, 8000).astype(int)
    tokens = np.clip(rng.lognormal(4.6, 0.7, requests), 2, 600).astype(int)
    prefill = prompts * 45e-6 + 0.008
    stall = STALLS[arrangement]
    waits = _waits(due, prefill * (1.0 if stall else 1.25))
    rows["scheduled_s"] = due
    rows["sent_s"] = due + rng.gamma(2.0, 1e-4, requests)
    rows["prompt_tokens"] = rows["served_prompt_tokens"] = prompts
    rows["max_tokens"] = rows["output_tokens"] = rows["token_events"] = tokens
    rows["first_token_s"] = rows["sent_s"] + waits + prefill * (1 + 0.6 * (stall == 0.25))
    pieces = [_tokens(i, rows, due, prefill, stall, rng) for i in range(requests)]
    us = [np.round((piece - rows["sent_s"][i]) * 1e6).astype(np.uint32) for i, piece in enumerate(pieces)]
    rows["first_token_s"] = [rows["sent_s"][i] + piece[0] / 1e6 for i, piece in enumerate(us)]
    rows["last_token_s"] = [rows["sent_s"][i] + piece[-1] / 1e6 for i, piece in enumerate(us)]
    rows["done_s"] = rows["last_token_s"] + 2e-4
    rows["outcome"], rows["http_status"] = Outcome.OK, 200
    rows["stamp_source"], rows["reads"], rows["kernel_reads"] = StampSource.KERNEL, tokens, tokens
    rows["worker"] = 0
    if spans:
        rows["queue_s"], rows["prefill_s"], rows["transfer_s"] = waits, prefill, 0.03 * (not stall)
        rows["decode_s"] = rows["done_s"] - rows["sent_s"] - waits - prefill - rows["transfer_s"] - 1e-3
    bad = rng.random(requests) < failures
    _fail(rows, bad)
    start = np.concatenate([[0], np.cumsum([len(piece) for piece in us])]).astype(np.int64)
    joined = np.concatenate(us)
    events = EventTimes(
        start, joined, np.ones(len(joined), np.uint16), rng.integers(5, 60, len(joined)).astype(np.uint16)
    )
    table = RecordTable(
        rows, events, ['too many <requests> & "others"'], [WorkerStats(worker=0, connections_opened=40)]
    )
    return Run(_info(arrangement, requests, rate_per_s, seed, name), table)


def _waits(due: np.ndarray, busy: np.ndarray) -> np.ndarray:
    waits = np.zeros(len(due))
    free = 0.0
    for i, at in enumerate(due):
        waits[i] = max(0.0, free - at)
        free = max(free, at) + busy[i]
    return waits


def _tokens(
    i: int, rows: np.ndarray, due: np.ndarray, prefill: np.ndarray, stall: float, rng: np.random.Generator
) -> np.ndarray:
    steps = rng.normal(0.028, 0.0012, int(rows["max_tokens"][i]) - 1).clip(0.02)
    times = rows["first_token_s"][i] + np.concatenate([[0.0], np.cumsum(steps)])
    if not stall:
        times[1:] += 0.035
        return times
    for j in np.flatnonzero((due > times[0]) & (due < times[-1])):
        hit = np.searchsorted(times, due[j] + 0.01)
        pause = prefill[j] * stall
        parts = 1 if stall == 1.0 else 4
        for k in range(parts):
            times[hit + k :] += pause / (1 if parts == 1 else 2)
    return times


def _fail(rows: np.ndarray, bad: np.ndarray) -> None:
    rows["outcome"][bad] = Outcome.HTTP_ERROR
    rows["http_status"][bad] = 503
    rows["phase"][bad] = Phase.HEADERS
    rows["error_id"][bad] = 0
    rows["flags"][np.flatnonzero(~bad)[:3]] |= np.uint32(Flag.SHORT_OUTPUT)
    rows["done_s"][bad] = rows["sent_s"][bad] + 0.02
    for column in ("first_token_s", "last_token_s"):
        rows[column][bad] = np.nan


def _info(arrangement: str, requests: int, rate: float, seed: int, name: str) -> RunInfo:
    sizes = "prefill=1,decode=1" if arrangement == "disaggregated" else "instances=2"
    deployment = f"emulated:{arrangement},model=demo-8b,hardware=h100,tp=1,{sizes}"
    return RunInfo(
        state="complete",
        name=f"{name} on {arrangement}",
        created_at="2026-01-31T12:00:00Z",
        command=[
            "goodput",
            "run",
            "--backend",
            deployment,
            "--trace",
            name,
            "--rate",
            f"{rate:g}",
            "--slo",
            str(TARGETS),
        ],
        deployment=deployment,
        arrangement=arrangement,
        gpus=2,
        target_url="http://127.0.0.1:41873",
        model="demo-8b",
        endpoint="/v1/completions",
        slo=str(TARGETS),
        seed=seed,
        salt="9f3b6c2a",
        trace_name=name,
        trace_hash="b2f0c1d4a7e95833b2f0c1d4a7e95833",
        recipe_hash="44aa90d2c0ffee1144aa90d2c0ffee11",
        requests=requests,
        rate_per_s=rate,
        rejected={"zero_output_tokens": 2},
        config={
            "rate": Setting(rate, "flag"),
            "warmup_s": Setting(0.0),
            "slo": Setting(str(TARGETS), "GOODPUT_SLO"),
            "header": Setting(["x-team: <serving>"], "goodput.toml"),
        },
        versions={"goodput": "0.1.0", "python": "3.11.7", "locust": "2.40.1"},
        host={"cpus": 2, "kernel": "6.1.0"},
        server={"max_model_len": 16384, "token_ids": True},
    )


def view(arrangement: str = "chunked", **options: object) -> RunView:
    """A run as a report receives it."""
    made = run(arrangement, **options)  # type: ignore[arg-type]
    foretold = prediction(run(arrangement, **{**options, "seed": 2}).table, TARGETS)  # type: ignore[arg-type]
    return RunView(label=arrangement, summary=summarise(made, TARGETS), bins=bins(made, TARGETS), predicted=foretold)


def sweeps() -> list[Sweep]:
    """Two deployments at six rates each."""
    return [
        sweep(
            name, [run(name, requests=120, rate_per_s=rate, seed=int(rate)) for rate in (4, 8, 12, 16, 20, 24)], TARGETS
        )
        for name in ("colocated", "disaggregated")
    ]


def single_page(**options: object) -> PageData:
    """The page of one run."""
    return PageData(title="azure-conv on chunked", runs=[view(**options)])  # type: ignore[arg-type]


def estimate(rate: float, low: float | None, high: float | None, bound: str = "estimate") -> GoodputEstimate:
    """A goodput with its interval."""
    return GoodputEstimate(rate=rate, low=low, high=high, bound=bound, runs=6)  # type: ignore[arg-type]


def demo_page(requests: int = 400) -> PageData:
    """The page of the demo: three arrangements on equal GPUs and the decision."""
    views = [view(arrangement, requests=requests, spans=True) for arrangement in STALLS]
    found = {"colocated": (4.1, 3.8, 4.4), "chunked": (5.2, 4.9, 5.6), "disaggregated": (7.0, 6.6, 7.5)}
    rows = [
        DecisionRow(
            label=v.label,
            deployment=v.summary.run.deployment,
            gpus=2,
            goodput_per_s=estimate(*found[v.label]),
            goodput_per_gpu=estimate(*found[v.label]).per_gpu(2),
            live_attainment=v.summary.attainment.share if v.summary.attainment else None,
            predicted_attainment=0.95,
            ttft_s=Pair(v.summary.ttft_s.p50, v.summary.ttft_s.p90) if v.summary.ttft_s else None,
            tpot_s=Pair(v.summary.tpot_s.p50, v.summary.tpot_s.p90) if v.summary.tpot_s else None,
            validity=v.summary.validity.verdict,
        )
        for v in views
    ]
    return PageData(title="goodput demo", runs=views, decision=decide(rows), sweeps=sweeps())


def search_page() -> PageData:
    """The page of a search over two deployments."""
    rows = [
        SearchRow(
            label=found.label,
            deployment=found.deployment,
            gpus=2,
            goodput=estimate(10.0 + i, 9.5 + i, 10.5 + i),
            goodput_per_gpu=estimate(5.0 + i / 2, 4.75 + i / 2, 5.25 + i / 2),
            attempts=[
                Attempt(p.good, p.total, misses={"ttft": p.total - p.good}, rate_per_s=p.rate_per_s, purpose="fit")
                for p in found.points
            ],
            binding="ttft",
            marginals={"ttft": 0.9},
        )
        for i, found in enumerate(sweeps())
    ]
    report = SearchReport(
        mode="search",
        clock="virtual",
        trace="azure-conv",
        slo=str(TARGETS),
        seed=0,
        share=0.9,
        command=["goodput", "search", "--virtual"],
        rows=rows,
        warnings=["one <run> was odd"],
    )
    return pages.search_page(report)


def comparison_page() -> PageData:
    """The page of a comparison of three runs a side."""
    sides = [
        RunSet(name, [run(name, requests=80, seed=seed) for seed in (1, 2, 3)], TARGETS)
        for name in ("colocated", "disaggregated")
    ]
    return pages.comparison_page(compare(sides), [view("colocated", requests=80), view("disaggregated", requests=80)])


def plan_page() -> PageData:
    """The page of a plan for two demands."""

    def candidate(arrangement: str, worth: float) -> Candidate:
        return Candidate(
            arrangement=arrangement,
            deployment=f"emulated:{arrangement}",
            gpus=8,
            goodput=estimate(8 * worth, 7.6 * worth, 8.4 * worth),
            goodput_per_gpu=estimate(worth, 0.95 * worth, 1.05 * worth),
            output_tokens_per_s_per_gpu=300 * worth,
            usd_per_1000_good=0.9 / worth,
            wh_per_good=1.2 / worth,
        )

    def step(name: str, worth: float, gain: float) -> Step:
        return Step(name=name, deployment=f"emulated:{name}", goodput_per_gpu=worth, gain=gain)

    report = PlanReport(
        trace="azure-conv",
        model="llama2-70b",
        hardware=["h100"],
        gpus=8,
        slo=str(TARGETS),
        seed=0,
        command=["goodput", "plan"],
        designs=42,
        rows=[
            plan_row("strict", "ttft=500ms,tpot=50ms", [candidate("disaggregated", 2.0), candidate("chunked", 1.5)]),
            plan_row("relaxed", "ttft=2s,tpot=200ms", [candidate("disaggregated", 2.1), candidate("chunked", 2.2)]),
        ],
        kv=KvFacts(
            bytes_per_token=327_680,
            link_gbps=200.0,
            prompt_tokens_p50=1020,
            prompt_tokens_p99=4100,
            gigabytes_p50=0.33,
            gigabytes_p99=1.34,
            wire_s_p50=0.013,
            wire_s_p99=0.054,
        ),
        flip_tpot_s=0.06,
        flip_note="below it disaggregation leads",
        link_gbps=None,
        link_note="no link is slow enough",
        waterfall=[step("colocated", 1.2, 1.2), step("chunked", 1.5, 0.3)],
        sizing=[
            Sizing(arrangement="chunked", deployment="emulated:chunked", gpus=12, usd_per_hour=30.0, attainment=0.93)
        ],
        wanted_rate_per_s=14.0,
    )
    return pages.plan_page(report)
