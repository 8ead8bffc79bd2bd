"""How true a search for goodput is: hundreds of virtual searches against a truth from millions of requests.

One instance of Llama2-70B on 8 H100, TTFT 1 s and TPOT 45 ms, joint 90 %. The truth is the rate at which a run without
end has 90 % attainment, read off long Poisson runs around it; its own standard error is printed. A search is judged
by bias, root mean square error and how often its interval holds the truth, each with a standard error.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.targets import Target, conclude, say
from loadtest import clock
from loadtest.backends.simulator import simulate
from loadtest.deployment import Deployment
from loadtest.search import QUICK_RUNS, Counted, Search
from loadtest.search.virtual import run_length
from loadtest.search.windows import without_edges
from metrics.goodput import GoodputEstimate
from metrics.latency import e2e_s
from metrics.records import Rows
from metrics.slo import SLO, good_rows
from workloads import arrivals, shape
from workloads.formats import read_trace
from workloads.schedule import plan
from workloads.synth import generate
from workloads.trace import Trace

Floats = NDArray[np.float64]
MakeTrace = Callable[[int, float, np.random.Generator], Trace]
Measure = Callable[[float, int], Counted]

SLO_ = SLO(ttft_s=1.0, tpot_s=0.045)
CODE_SLO = SLO(ttft_s=5.0, tpot_s=0.1)  # within 1 s and 45 ms its bursts alone miss more than a tenth at any rate
CODE_DEPLOYMENT = "emulated:chunked,instances=4"
ARRANGEMENTS = {"prefill-first": "emulated:colocated_prefill_first", "chunked": "emulated:chunked"}
TRUTH_REQUESTS, TRUTH_START = 80_000, 2_000
CODE_TRACE = Path(__file__).parents[2] / "shared" / "traces" / "AzureLLMInferenceTrace_code.csv"


class Truth(NamedTuple):
    """The rate at which the long run is at 90 %, and its standard error."""

    rate: float
    error: float


@dataclass
class Judged:
    """Searches of one kind against the truth; everything relative to it, in per cent."""

    name: str
    bias: float
    bias_error: float
    rmse: float
    rmse_error: float
    coverage: float
    coverage_error: float
    width: float
    requests: float
    replicates: int

    def __str__(self) -> str:
        held = f"coverage {self.coverage:.1f} ± {self.coverage_error:.1f} %  width {self.width:.1f} %"
        return (
            f"{self.name:<34} bias {self.bias:+.2f} ± {self.bias_error:.2f} %  RMSE {self.rmse:.2f} ±"
            f" {self.rmse_error:.2f} %  {held if math.isfinite(self.coverage) else 'no interval'}"
            f"  {self.requests:,.0f} requests  n={self.replicates}"
        )


def main() -> int:
    """Run what is asked for, print a table, judge the targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicates", type=int, default=1000)
    parser.add_argument("--truth-runs", type=int, default=24, help=f"of {TRUTH_REQUESTS:,} requests at three rates")
    parser.add_argument("--only", action="append", choices=[*ARRANGEMENTS, "code"], help="a part; all without it")
    parser.add_argument("--skip", action="append", default=[], choices=["bisection", "peers", "code"])
    options = parser.parse_args()
    parts = options.only or [*ARRANGEMENTS, "code"]
    say(f"{'arm':<34} of {options.replicates} searches of {QUICK_RUNS} adaptive runs of 500 requests")
    targets: list[Target] = []
    for name, text in ARRANGEMENTS.items():
        if name not in parts:
            continue
        deployment = Deployment.parse(text)
        truth = long_run(deployment, poisson_trace, _guess(deployment), options.truth_runs)
        say(f"{name}: truth {truth.rate:.4f} ± {truth.error:.4f} requests/s")
        found = {}
        for workload, make in {"Poisson": poisson_trace, "conv": conv_trace}.items():
            found[workload] = replicate(f"{name}, {workload}", deployment, make, truth, options.replicates)
            targets += _targets(f"{name}.{workload}", found[workload])
        if name == "chunked":
            hour = long_run(deployment, conv_trace, 0.88 * truth.rate, max(options.truth_runs // 2, 2))
            say(f"{name}: with the conversation hour as it changes its rate: {hour.rate:.3f} ± {hour.error:.3f}")
            if "bisection" not in options.skip:
                targets.append(against_bisection(deployment, truth, found["Poisson"], options.replicates))
            if "peers" not in options.skip:
                peers(deployment, truth, max(options.replicates // 2, 20))
    if "code" in parts and "code" not in options.skip:
        code_arrivals(options)
    return conclude("search", targets)


def _targets(name: str, found: Judged) -> list[Target]:
    say(str(found))
    return [
        Target(f"bias.{name}", abs(found.bias), 1.5, "%"),
        Target(f"rmse.{name}", found.rmse, 4.0, "%"),
        Target(f"coverage_off_95.{name}", abs(found.coverage - 95.0), 2.0, "points"),
    ]


# --- what arrives -------------------------------------------------------------------------------------------------


def conv_trace(requests: int, rate: float, rng: np.random.Generator) -> Trace:
    """The built-in conversation workload."""
    return generate("azure-conv", requests=requests, rate_per_s=rate, rng=rng)


def poisson_trace(requests: int, rate: float, rng: np.random.Generator) -> Trace:
    """Its lengths with Poisson arrivals, at exactly the rate."""
    trace = conv_trace(requests, rate, rng)
    times = arrivals.poisson(len(trace), rate, rng)
    return shape.to_rate(replace(trace, arrival_ns=np.rint((times - times[0]) * 1e9).astype(np.int64)), rate)


class Recorded:
    """The recorded coding hour: a window from a random row on, in circles, lengths shuffled after the first lap."""

    def __init__(self, path: Path) -> None:
        self._trace = read_trace(path)

    def __call__(self, requests: int, rate: float, rng: np.random.Generator) -> Trace:
        """So many rows at exactly the rate."""
        trace, rows = self._trace, len(self._trace)
        position = np.arange(requests) + int(rng.integers(rows))
        row, lap = position % rows, position // rows
        lap_ns = int(trace.arrival_ns[-1] * rows / (rows - 1))
        times = trace.arrival_ns[row] + lap * lap_ns
        lengths = np.where(position < rows + position[0], row, rng.permutation(rows)[row])
        prompts, outputs = trace.prompt_tokens[lengths], trace.output_tokens[lengths]
        made = Trace(trace.name, times - times[0], prompts, outputs)
        return shape.to_rate(made, rate)


# --- the truth ----------------------------------------------------------------------------------------------------


def long_run(
    deployment: Deployment, make: MakeTrace, guess: float, runs: int, requests: int = TRUTH_REQUESTS, slo: SLO = SLO_
) -> Truth:
    """Attainment at three rates around the guess, and where its line crosses 90 %; error over the runs."""
    rates = guess * np.array([0.96, 1.0, 1.04])
    shares = np.array(
        [
            [_share(deployment, make(requests, rate, _rng(7_000, number)), slo) for rate in rates]
            for number in range(runs)
        ]
    )
    crossing = float(np.exp(_crossing(np.log(rates), shares.mean(axis=0))))
    singles = [math.exp(_crossing(np.log(rates), one)) for one in shares]
    return Truth(crossing, float(np.std(singles, ddof=1) / math.sqrt(runs)) if runs > 1 else math.nan)


def _share(deployment: Deployment, trace: Trace, slo: SLO) -> float:
    rows: Rows = simulate(deployment, plan(trace, seed=0, salt=""), events=False).rows[TRUTH_START:]
    return float(good_rows(rows, slo).mean())


def _rng(*seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _crossing(log_rates: Floats, shares: Floats) -> float:
    slope, level = np.polyfit(log_rates - log_rates[1], shares, 1)
    return float(log_rates[1] + (0.9 - level) / slope)


def _guess(deployment: Deployment) -> float:
    searches = (Search(runs_of(deployment, poisson_trace, seed), 0.9).run(1.0, 12) for seed in range(3))
    return float(np.mean([found.goodput.rate for found in searches]))


# --- searches -----------------------------------------------------------------------------------------------------


def runs_of(
    deployment: Deployment, make: MakeTrace, seed: int, least: int = 500, most: int | None = None, slo: SLO = SLO_
) -> Measure:
    """The product's runs, with arrivals of our own making."""
    median_s = 0.0

    def measure(rate: float, number: int) -> Counted:
        nonlocal median_s
        requests = run_length(rate, median_s, least)
        trace = make(min(requests, most or requests), rate, _rng(seed, number))
        schedule = without_edges(trace)
        rows = simulate(deployment, schedule, events=False).rows
        median_s = float(np.nanmedian(e2e_s(rows)))
        counted = rows[~schedule.warmup]
        return Counted(int(good_rows(counted, slo).sum()), len(counted), requests=len(rows))

    return measure


def replicate(
    name: str, deployment: Deployment, make: MakeTrace, truth: Truth, count: int, least: int = 500, slo: SLO = SLO_
) -> Judged:
    """So many searches, each with seeds of its own."""

    def searches() -> Iterator[tuple[GoodputEstimate, int]]:
        for number in range(count):
            measure = runs_of(deployment, make, 100_000 + number, least, slo=slo)
            found = Search(measure, 0.9).run(0.6 * truth.rate, QUICK_RUNS)
            yield found.goodput, sum(a.requests for a in found.attempts if a.purpose == "fit")

    return judged(name, truth, list(searches()))


def judged(name: str, truth: Truth, found: list[tuple[GoodputEstimate, int]]) -> Judged:
    """The figures, with standard errors."""
    ratio = np.array([goodput.rate for goodput, _ in found]) / truth.rate - 1
    known = [(g.low, g.high) for g, _ in found if g.low is not None and g.high is not None]
    held = np.array([low <= truth.rate <= high for low, high in known])
    n, squares = len(ratio), ratio**2
    rmse = math.sqrt(squares.mean())
    coverage = held.sum() / n if len(held) else math.nan  # a search without an interval did not hold the truth
    return Judged(
        name=name,
        bias=100 * float(ratio.mean()),
        bias_error=100 * math.hypot(float(ratio.std()) / math.sqrt(n), truth.error / truth.rate),
        rmse=100 * rmse,
        rmse_error=100 * float(squares.std()) / math.sqrt(n) / (2 * rmse),
        coverage=100 * float(coverage),
        coverage_error=100 * math.sqrt(coverage * (1 - coverage) / n) if len(held) else math.nan,
        width=100 * float(np.median([(high - low) / truth.rate for low, high in known])) if known else math.nan,
        requests=float(np.mean([requests for _, requests in found])),
        replicates=n,
    )


# --- other procedures ---------------------------------------------------------------------------------------------


def bisect(measure: Measure, low: float, high: float, steps: int) -> GoodputEstimate:
    """Halve the bracket by one run at its middle; the answer is the middle of what is left."""
    for number in range(steps):
        middle = math.sqrt(low * high)
        run = measure(middle, number)
        low, high = (middle, high) if run.good >= 0.9 * run.total else (low, middle)
    return GoodputEstimate(rate=math.sqrt(low * high), low=None, high=None, bound="estimate", runs=steps)


def against_bisection(deployment: Deployment, truth: Truth, ours: Judged, count: int) -> Target:
    """How many requests a bisection from a bracket of 1.6 needs for the error of our 6 runs of 500."""
    sizes, errors = [], []
    for size in (500, 1000, 2000, 4000):
        found = []
        for number in range(max(count // 4, 25)):
            shift = 1.6 ** float(_rng(number).random())  # where in the bracket the truth lies
            measure = runs_of(deployment, poisson_trace, 300_000 + number, size, size)
            found.append((bisect(measure, truth.rate / shift, 1.6 * truth.rate / shift, 6), 6 * size))
        figures = judged(f"bisection, 6 x {size}", truth, found)
        say(str(figures))
        sizes.append(figures.requests)
        errors.append(figures.rmse)
    needed = math.exp(float(np.interp(-math.log(ours.rmse), -np.log(errors), np.log(sizes))))
    more = "at least " if ours.rmse < min(errors) else ""
    say(f"for an RMSE of {ours.rmse:.2f} % bisection needs {more}{needed:,.0f} requests, the fit {ours.requests:,.0f}")
    return Target("requests_of_the_fit_for_those_of_bisection", ours.requests / needed, 0.5, "")


def peers(deployment: Deployment, truth: Truth, count: int) -> None:
    """The procedures of two peers as documented, each run with 500 requests; they give no interval.

    GuideLLM sweep: one request at a time, then as fast as possible, then eight constant rates evenly between; the
    answer is the highest that passes. AIPerf adaptive scale: raise the load window by window while the share holds
    (here by 10 %, Poisson), the answer is the last that passes.
    """
    for name, procedure in {"GuideLLM sweep (10 strategies)": guidellm, "AIPerf adaptive scale": aiperf}.items():
        say(str(judged(name, truth, [procedure(deployment, 500_000 + number) for number in range(count)])))


def guidellm(deployment: Deployment, seed: int) -> tuple[GoodputEstimate, int]:
    """Constant rates between the synchronous and the saturated one."""
    from loadtest.backends.cluster import Cluster
    from loadtest.search.concurrency import closed_loop
    from loadtest.search.saturation import saturation_of
    from loadtest.search.windows import at_once

    rng = np.random.default_rng(seed)
    trace = conv_trace(60, 1.0, rng)
    alone = closed_loop(Cluster(deployment), trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), 1)
    slowest = len(alone.rows) / float(alone.rows["done_s"].max())
    flat_out = plan(at_once(conv_trace(500, 1.0, rng)), seed=0, salt="")
    fastest = saturation_of(simulate(deployment, flat_out, events=False), None).requests_per_s
    rates = np.linspace(slowest, fastest, 10)[1:-1]
    measure, requests = runs_of(deployment, _constant, seed, 500, 500), 560
    best = slowest
    for number, rate in enumerate(rates):
        run = measure(float(rate), number)
        requests += run.requests
        if run.good < 0.9 * run.total:
            break
        best = float(rate)
    return GoodputEstimate(rate=best, low=None, high=None, bound="estimate", runs=10), requests


def _constant(requests: int, rate: float, rng: np.random.Generator) -> Trace:
    trace = conv_trace(requests, rate, rng)
    return replace(trace, arrival_ns=np.rint(arrivals.constant(len(trace), rate) * 1e9).astype(np.int64))


def aiperf(deployment: Deployment, seed: int) -> tuple[GoodputEstimate, int]:
    """From a quarter of the start rate of ours on, 10 % more in every window."""
    measure, requests, rate = runs_of(deployment, poisson_trace, seed, 500, 500), 0, 0.5
    for number in range(40):
        run = measure(rate, number)
        requests += run.requests
        if run.good < 0.9 * run.total:
            break
        rate *= 1.1
    return GoodputEstimate(rate=rate / 1.1, low=None, high=None, bound="estimate", runs=number + 1), requests


def code_arrivals(options: argparse.Namespace) -> None:
    """Recorded coding arrivals (CV 13): reported, not judged."""
    if not CODE_TRACE.exists():
        say("code arrivals: the recorded trace is not here; left out")
        return
    deployment, make = Deployment.parse(CODE_DEPLOYMENT), Recorded(CODE_TRACE)
    guess = Search(runs_of(deployment, make, 1, 8_000, slo=CODE_SLO), 0.9).run(1.0, QUICK_RUNS).goodput.rate
    truth = long_run(deployment, make, guess, max(options.truth_runs // 4, 2), 88_190, CODE_SLO)
    say(f"recorded code arrivals, {CODE_DEPLOYMENT}, {CODE_SLO}: truth {truth.rate:.3f} ± {truth.error:.3f} requests/s")
    for total in (5_000, 20_000, 80_000):
        count = max(min(options.replicates, round(options.replicates * 3_000 / total)), 10)
        least = total // QUICK_RUNS
        say(str(replicate(f"recorded code, {total:,} requests", deployment, make, truth, count, least, CODE_SLO)))


if __name__ == "__main__":
    before_ns = clock.monotonic_ns()
    code = main()
    say(f"took {(clock.monotonic_ns() - before_ns) / 6e10:.1f} minutes")
    raise SystemExit(code)
