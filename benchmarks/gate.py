"""Whom the gate wakes for nothing and what it finds: verdicts under injected noise and drift, and what they cost.

Three rules on 1,000 comparisons a cell through the gate's own code; the same runs judged by inference-doctor's rule
(Welch's t on the log ratio of means, 90 %, three runs a side) and by a fixed 5 % threshold on one run a side; then
fewer comparisons of simulated servers whose speed wanders; with --live, five pairs of real servers on loopback.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.gate_live import SCENARIOS, live
from benchmarks.slowed import slowed
from benchmarks.targets import Target, conclude, say
from loadtest.backends.simulator import simulate
from loadtest.deployment import Deployment
from loadtest.pairs import order_of
from loadtest.search import virtual_schedule
from metrics.gate.looks import LOOKS
from metrics.gate.report import Plan, decide
from metrics.gate.rules import parse_rule
from metrics.gate.sample import Sample, sample_of
from metrics.intervals import t_quantile
from metrics.rundir import Run
from metrics.runinfo import RunInfo
from metrics.slo import SLO
from metrics.summary import summarise

Floats = NDArray[np.float64]

RULES = [parse_rule(text) for text in ("attainment drop < 2pp", "ttft.p90 rise < 10%", "tpot.p90 rise < 5%")]
USUAL = (0.95, 0.2, 0.02)  # attainment, TTFT and TPOT of the build that did not change
RUN_MINUTES = 1.0
RATIOS = (0.3, 0.5, 0.7, 1.0)  # sigma of a pair / margin
DRIFT = 1.0  # margins from the first to the 24th run of a session
PLAN = Plan(rules=RULES, looks=list(LOOKS))

Judge = Callable[[Floats, Floats], tuple[str, int]]


@dataclass(frozen=True)
class Cell:
    """Shares of the verdicts in one cell of the table, and the mean cost."""

    passed: float
    failed: float
    open: float
    runs: float

    @property
    def red(self) -> float:
        return self.failed + self.open


def sessions(
    sigma: float, effects: tuple[float, ...], count: int, seed: int, order: str
) -> Iterator[tuple[Floats, Floats]]:
    """`count` sessions of 12 runs a side: how much worse each run is, in margins, by rule; drift included.

    `order` is abba, or sequence for a baseline measured before the candidate.
    """
    rng = np.random.default_rng([seed, round(sigma * 100)])
    places: dict[str, list[int]] = {"A": [], "B": []}
    position = 0
    for pair in range(1, LOOKS[-1] + 1):
        for side in order_of(pair, "abba") if order == "abba" else ("A", "B"):
            places[side].append(position)
            position += 1
    if order == "sequence":  # AAABBB for the three runs a side that are used
        places = {"A": [0, 1, 2], "B": [3, 4, 5]}
    at = {side: np.array(found) * DRIFT / 23 for side, found in places.items()}
    for _ in range(count):
        noise = {side: rng.normal(0, sigma / np.sqrt(2), (len(RULES), len(at[side]))) for side in at}
        yield noise["A"] + at["A"], noise["B"] + at["B"] + np.array(effects)[:, None]


def sample(worse: Floats) -> Sample:
    """A run that is so many margins worse than the usual one, by rule."""
    values = {}
    for rule, usual, margins in zip(RULES, USUAL, worse, strict=True):
        by = float(margins) * rule.margin
        values[rule.key] = usual - by if rule.kind == "share" else usual * float(np.exp(by))
    return Sample(values=values, requests=1000)


def ours(a: Floats, b: Floats) -> tuple[str, int]:
    """The gate's verdict, and how many runs it took."""
    pairs = [(sample(a[:, i]), sample(b[:, i])) for i in range(a.shape[1])]
    for look in LOOKS:
        report = decide(PLAN, pairs[:look], [])
        if report.verdict != "INCONCLUSIVE":
            break
    return report.verdict, 2 * look


def doctor(a: Floats, b: Floats) -> tuple[str, int]:
    """inference-doctor: Welch's 90 % interval over three runs a side against the margin, per rule."""
    verdicts = []
    for worse_a, worse_b in zip(a[:, :3], b[:, :3], strict=True):
        va, vb = worse_a.var(ddof=1) / 3, worse_b.var(ddof=1) / 3
        degrees = (va + vb) ** 2 / (va**2 / 2 + vb**2 / 2)
        reach = t_quantile(0.05, degrees) * np.sqrt(va + vb)
        effect = worse_b.mean() - worse_a.mean()
        verdicts.append("FAIL" if effect - reach > 1 else "PASS" if effect + reach < 1 else "INCONCLUSIVE")
    return next((v for v in ("FAIL", "INCONCLUSIVE") if v in verdicts), "PASS"), 6


def threshold(a: Floats, b: Floats) -> tuple[str, int]:
    """One run a side: 5 % on times, 2 points on attainment, no statistics."""
    limits = [1.0, np.log(1.05) / RULES[1].margin, 1.0]
    return ("FAIL" if (b[:, 0] - a[:, 0] > limits).any() else "PASS"), 2


def cell(judge: Judge, sigma: float, effects: tuple[float, ...], count: int, order: str) -> Cell:
    """Judge `count` sessions."""
    found = [judge(a, b) for a, b in sessions(sigma, effects, count, 7, order)]
    verdicts = Counter(verdict for verdict, _ in found)
    share = {name: verdicts[name] / count for name in ("PASS", "FAIL", "INCONCLUSIVE")}
    return Cell(share["PASS"], share["FAIL"], share["INCONCLUSIVE"], float(np.mean([runs for _, runs in found])))


def table(count: int) -> dict[tuple[str, float, float], Cell]:
    """Every rule over noise and true effect (of one metric, in margins)."""
    judges = {
        "ours": (ours, "abba"),
        "inference-doctor": (doctor, "sequence"),
        "inference-doctor, abba": (doctor, "abba"),
        "fixed 5 %": (threshold, "sequence"),
    }
    cells = {}
    say(f"{count} comparisons a cell; {RUN_MINUTES:g} server-minute a run; drift of {DRIFT:g} margin over 24 runs")
    say(
        f"{'rule':<24}{'sigma/margin':>13}{'effect':>8}{'PASS':>8}{'FAIL':>8}{'open':>8}{'red':>8}{'pairs':>7}{'minutes':>9}"
    )
    for name, (judge, order) in judges.items():
        for sigma in RATIOS:
            for effect in (0.0, 1.5, 2.0):
                made = cell(judge, sigma, (0.0, effect, 0.0), count, order)
                cells[name, sigma, effect] = made
                say(
                    f"{name:<24}{sigma:>13}{effect:>8}{made.passed:>8.1%}{made.failed:>8.1%}{made.open:>8.1%}"
                    f"{made.red:>8.1%}{made.runs / 2:>7.1f}{made.runs * RUN_MINUTES:>9.1f}"
                )
    return cells


# --- through the simulator -----------------------------------------------------------------------------------------

DEPLOYMENT = "emulated:chunked,model=demo-8b"
TARGETS = SLO.parse("ttft=500ms,tpot=20ms")
RATE, REQUESTS = 4.0, 250
WANDER = 0.01  # standard deviation of a run's speed, and drift of half that over a session


def simulated(prefill: float, decode: float, speed: float, seed: int) -> Sample:
    """One run of a server that takes so many times as long in each phase."""
    schedule = virtual_schedule("azure-conv", requests=REQUESTS, rate_per_s=RATE, rng=np.random.default_rng(seed))
    with slowed(prefill * speed, decode * speed):
        rows = simulate(Deployment.parse(DEPLOYMENT), schedule, events=False)
    info = RunInfo(state="complete", slo=str(TARGETS), recipe_hash=schedule.recipe_hash)
    return sample_of(summarise(Run(info, rows), TARGETS))


def virtual(prefill: float, decode: float, comparisons: int) -> Counter[str]:
    """Verdicts of as many gates between the usual server and this one, both wandering and drifting."""
    verdicts: Counter[str] = Counter()
    runs = 0
    for comparison in range(comparisons):
        rng = np.random.default_rng([3, comparison])
        pairs: list[tuple[Sample, Sample]] = []
        for look in LOOKS:
            while len(pairs) < look:
                place = 2 * len(pairs)
                first, second = (1 + WANDER * rng.normal() + WANDER / 2 * (place + k) / 23 for k in (0, 1))
                a, b = (first, second) if order_of(len(pairs) + 1, "abba") == "AB" else (second, first)
                seed = 1000 * comparison + len(pairs)
                pairs.append((simulated(1, 1, a, seed), simulated(prefill, decode, b, seed)))
            report = decide(PLAN, pairs, [])
            if report.verdict != "INCONCLUSIVE":
                break
        verdicts[report.verdict] += 1
        runs += 2 * len(pairs)
    minutes = runs / comparisons * REQUESTS / RATE / 60
    say(
        f"simulated, prefill x{prefill:g}, decode x{decode:g}: {dict(verdicts)} of {comparisons}, "
        f"{runs / comparisons / 2:.1f} pairs, {minutes:.0f} server-minutes each"
    )
    return verdicts


def main() -> int:
    """The table, the simulator, and with --live real servers; judge the targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--comparisons", type=int, default=1000)
    parser.add_argument("--simulated", type=int, default=60)
    parser.add_argument("--live", action="store_true", help="also five gates between servers on loopback, 12 minutes")
    parser.add_argument(
        "--scenario", action="append", choices=list(SCENARIOS), help="only this live gate, nothing else"
    )
    options = parser.parse_args()
    if options.scenario:
        return conclude("gate", run_live(options.scenario))
    cells = table(options.comparisons)
    targets = [
        Target("aa_red", 100 * cells["ours", 0.5, 0.0].red, 3.0, "%"),
        Target("aa_fail", 100 * cells["ours", 0.5, 0.0].failed, 2.0, "%"),
        Target("twice_margin_pass", 100 * cells["ours", 0.5, 2.0].passed, 2.0, "%"),
        Target("one_and_a_half_missed", 100 - 100 * cells["ours", 0.5, 1.5].failed, 20.0, "%"),
    ]
    if options.simulated:
        same = virtual(1.0, 1.0, options.simulated)
        slower = virtual(1.0, 1.15, max(1, options.simulated // 3))
        later = virtual(1.3, 1.0, max(1, options.simulated // 3))
        targets.append(Target("simulated_aa_fail", float(same["FAIL"]), 0.02 * options.simulated, "comparisons"))
        targets.append(Target("simulated_slower_passed", float(slower["PASS"] + later["PASS"]), 0, "comparisons"))
    if options.live:
        targets += run_live(list(SCENARIOS))
    return conclude("gate", targets)


def run_live(names: list[str]) -> list[Target]:
    """The live gates of those names, in a folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="goodput-gate-") as folder:
        return live(Path(folder), names)


if __name__ == "__main__":
    sys.exit(main())
