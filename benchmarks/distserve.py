"""DistServe's measurements of real systems beside ours: its table 2, and what its plotting notebook has stored.

Everything about the load is theirs: OPT on A100 with the coefficients of their repository, their servers' limits
(vLLM 16,384 batched tokens, DistServe 8,192, 1,024 requests, KV tokens of max_num_tokens.csv), 25, 50 or 100 requests a
GPU, gaps drawn by their client (seed 0, so the arrivals are the very ones), and their data sets: ShareGPT and HumanEval
as their script prepares them (of ShareGPT conversations of three turns or more, a random number of turns as the prompt,
below 2,048 tokens in all), counted with OPT's tokenizer (GPT-2's and one token in front). Token counts alone are
in data/distserve_lengths.csv.gz: 4,000 pairs of ShareGPT_V3's first 17,671 conversations, mean 769/195, and all 164
problems, 171/98. Which requests of ShareGPT they drew is not known, so
each point is simulated with SAMPLES draws: their spread is what one measurement can be off by chance.

Table 2's SLO is nowhere named. Its ablation's (0.4 s, 0.1 s) is taken; the notebook's are its own.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from benchmarks import rivals
from benchmarks.targets import Target, say
from loadtest.backends.simulator import simulate
from loadtest.deployment import Deployment
from metrics.slo import SLO, attain
from workloads.schedule import Schedule, unrelated

LENGTHS: Final = Path(__file__).parent / "data" / "distserve_lengths.csv.gz"
SAMPLES: Final = 20
THEIR_SAMPLES: Final = 3  # each takes their simulator seconds
BOUND: Final = 5.0  # points of attainment
_LIMITS: Final = "max_model_len=2048,max_num_seqs=1024"
VLLM_66B: Final = (
    "emulated:colocated_prefill_first,model=opt-66b-vllm,hardware=a100,tp=4,num_gpu_blocks=4906,"
    f"max_num_batched_tokens=16384,{_LIMITS}"
)
VLLM_13B: Final = (
    "emulated:colocated_prefill_first,model=opt-13b-vllm,hardware=a100,tp=1,num_gpu_blocks=4134,"
    f"max_num_batched_tokens=16384,{_LIMITS}"
)
DISTSERVE_66B: Final = (
    "emulated:disaggregated,model=opt-66b-distserve,hardware=a100,prefill_tp=4,decode_tp=2,decode_pp=2,"
    f"kv_link=nvlink,kv_link_latency_us=0,num_gpu_blocks=4906,max_num_batched_tokens=8192,{_LIMITS}"
)


class Series(NamedTuple):
    """One system under one workload; `points` are (requests per second, TTFT s, TPOT s, measured attainment)."""

    name: str
    deployment: str
    engine: tuple[str, str, str]  # for their simulator: backend, model, tensor parallelism of prefill or of all
    dataset: str
    requests: int
    points: tuple[tuple[float, float, float, float], ...]


def _at_rates(
    ttft_s: float, tpot_s: float, measured: dict[float, float]
) -> tuple[tuple[float, float, float, float], ...]:
    return tuple((rate, ttft_s, tpot_s, share) for rate, share in measured.items())


def _at_scales(
    rate: float, ttft_s: float, tpot_s: float, measured: dict[float, float]
) -> tuple[tuple[float, float, float, float], ...]:
    return tuple((rate, scale * ttft_s, scale * tpot_s, share) for scale, share in measured.items())


TABLE_2: Final = (
    Series(
        *("table 2, vLLM 66B", VLLM_66B, ("vllm", "opt_66b", "4"), "sharegpt", 100),
        _at_rates(0.4, 0.1, {1.0: 0.970, 1.5: 0.655, 2.0: 0.528, 4.0: 0.236}),
    ),
    Series(
        *("table 2, DistServe 66B", DISTSERVE_66B, ("distserve", "opt_66b", "4"), "sharegpt", 200),
        _at_rates(0.4, 0.1, {2.0: 0.993, 2.5: 0.873, 4.0: 0.700}),
    ),
)
NOTEBOOK: Final = (
    Series(
        *("vLLM 13B, rates", VLLM_13B, ("vllm", "opt_13b", "1"), "sharegpt", 100),
        _at_rates(
            *(0.25, 0.1),
            {0.25: 0.90, 0.5: 0.90, 1.0: 0.85, 1.5: 0.81, 2.0: 0.71, 2.25: 0.70, 2.5: 0.68, 3.0: 0.55},
        ),
    ),
    Series(
        *("vLLM 66B, SLO scales", VLLM_66B, ("vllm", "opt_66b", "4"), "sharegpt", 100),
        _at_scales(
            *(3.0, 2.5, 0.15),
            {3: 0.94, 2.5: 0.92, 2: 0.87, 1.7: 0.81, 1.5: 0.78, 1.3: 0.76, 1.1: 0.63, 0.9: 0.50, 0.8: 0.41, 0.7: 0.32},
        ),
    ),
    Series(
        *("vLLM 66B, HumanEval", VLLM_66B, ("vllm", "opt_66b", "4"), "humaneval", 200),
        _at_rates(
            *(0.125, 0.2),
            {0.5: 0.915, 1.5: 0.865, 2.5: 0.795, 3.5: 0.71, 4.5: 0.65, 5.5: 0.565, 6.5: 0.38, 7.5: 0.365, 8.5: 0.28},
        ),
    ),
)


class Outcome(NamedTuple):
    """A point of a series in shares: measured, ours with the spread of its draws, their simulator's if it ran.

    `same` is ours on the requests that their simulator had.
    """

    series: Series
    rate: float
    slo: SLO
    real: float
    ours: float
    spread: float
    same: float
    theirs: float | None


def targets(distserve: str = "", python: str = "") -> list[Target]:
    """Print every point of every series, judge ours against the real system and against their simulator."""
    lengths = read_lengths()
    head = f"{'real systems of DistServe':<26} {'req/s':>5} {'TTFT/TPOT s':>12} {'real':>6} {'ours':>14} {'theirs':>7}"
    say(f"\n{head}  off")
    found = []
    for series in (*TABLE_2, *NOTEBOOK):
        for outcome in outcomes(series, lengths, distserve, python):
            say(_line(outcome))
            found.append(outcome)
    say(_too_long(lengths))
    judged = []
    for outcome in found:
        name = f"{outcome.series.name} at {outcome.rate:g}/s, {outcome.slo.ttft_s:g}/{outcome.slo.tpot_s:g} s"
        judged.append(Target(f"{name}: ours - real", 100 * abs(outcome.ours - outcome.real), BOUND, "points"))
        if outcome.theirs is not None:
            judged.append(Target(f"{name}: ours - theirs", 100 * abs(outcome.same - outcome.theirs), BOUND, "points"))
    return judged


def outcomes(
    series: Series, lengths: dict[str, np.ndarray], distserve: str = "", python: str = "", samples: int = SAMPLES
) -> Iterator[Outcome]:
    """Every point of a series, simulated with that many draws of lengths."""
    for rate, ttft_s, tpot_s, real in series.points:
        slo = SLO(ttft_s=ttft_s, tpot_s=tpot_s)
        schedules = [offered(lengths[series.dataset], rate, series.requests, draw) for draw in range(samples)]
        deployment = Deployment.parse(series.deployment)
        shares = [attain(simulate(deployment, schedule, events=False), slo).share or 0.0 for schedule in schedules]
        theirs = _theirs(series, slo, schedules, distserve, python) if distserve and python else None
        same = float(np.mean(shares[:THEIR_SAMPLES]))
        yield Outcome(series, rate, slo, real, float(np.mean(shares)), float(np.std(shares)), same, theirs)


def _line(found: Outcome) -> str:
    beside = "not run" if found.theirs is None else f"{found.theirs:7.1%}"
    off = found.ours - found.real
    verdict = "" if 100 * abs(off) <= BOUND else "  MISS" if abs(off) > 2 * found.spread else "  MISS, within chance"
    against = "" if found.theirs is None else f"; theirs {100 * (found.theirs - found.real):+.1f}"
    point = f"{found.rate:>5g} {found.slo.ttft_s:>6.3g}/{found.slo.tpot_s:<5.3g} {found.real:>6.1%}"
    ours = f"{found.ours:>6.1%} +-{found.spread:>5.1%} {beside:>7}"
    return f"{found.series.name:<26} {point} {ours}  {100 * off:+.1f} points{against}{verdict}"


def _theirs(series: Series, slo: SLO, schedules: list[Schedule], distserve: str, python: str) -> float | None:
    """Their simulator on the first draws."""
    assert slo.ttft_s is not None
    assert slo.tpot_s is not None
    shares = []
    for schedule in schedules[:THEIR_SAMPLES]:
        columns = (schedule.scheduled_s, schedule.prompt_tokens, schedule.max_tokens)
        requests: rivals.Requests = list(zip(*(column.tolist() for column in columns), strict=True))
        limits = (f"{1e3 * slo.ttft_s:.0f}", f"{1e3 * slo.tpot_s:.0f}")
        outcome = rivals.simulate(rivals.DISTSERVE, python, distserve, requests, *series.engine, *limits)
        if outcome.attainment is None:
            say(f"DistServe's simulator does not run: {outcome.error}")
            return None
        shares.append(outcome.attainment)
    return float(np.mean(shares))


def _too_long(lengths: dict[str, np.ndarray]) -> str:
    """Why no scheduler can give table 2's 97 % of vLLM at 1/s under 0.4 s."""
    from loadtest.backends.perfmodel import load_perf_model

    prompts = lengths["sharegpt"][:, 0].tolist()
    perf = load_perf_model("opt-66b-vllm", "a100", 4)
    alone = np.array([perf.prefill_s(prompt, prompt * prompt) for prompt in prompts])
    return (
        f"With their coefficients {np.mean(alone > 0.4):.0%} of the ShareGPT prompts take vLLM longer than 0.4 s on an "
        "idle machine, so table 2's 97 % at 1/s is not of this SLO and this data set, whatever schedules it.\nAt 3/s "
        "their notebook has 32 % under 1.75 s/0.105 s, which is looser."
    )


def read_lengths() -> dict[str, np.ndarray]:
    """Prompt and output tokens of both data sets."""
    with gzip.open(LENGTHS, "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        name: np.array([(int(r["prompt_tokens"]), int(r["output_tokens"])) for r in rows if r["dataset"] == name])
        for name in ("sharegpt", "humaneval")
    }


def offered(lengths: np.ndarray, rate_per_s: float, requests: int, draw: int) -> Schedule:
    """Their arrivals (the first at once), and one draw of lengths, nobody twice where there are enough."""
    gaps = np.random.RandomState(0).gamma(1.0, 1 / rate_per_s, requests)  # their client's own generator and seed
    rng = np.random.default_rng(draw)
    prompts, outputs = lengths[rng.choice(len(lengths), requests, replace=requests > len(lengths))].T
    return unrelated(np.concatenate([[0.0], np.cumsum(gaps[:-1])]), prompts, outputs, name="DistServe's client")
