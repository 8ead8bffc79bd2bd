"""Splitwise's clusters beside ours: designs of equal power or cost, pool sizes, a change of workload, batch jobs.

BLOOM-176B, Poisson arrivals with the lengths of the Azure traces, 120 s (the artifact's short traces), the first fifth
not counted. A rate holds when all nine slowdown limits do, relative to the same request alone on a DGX-A100. Machines
and prices as in the artifact: 44 and 24.8 units of power (x 0.7 capped), 4.76 and 2.21 $; JSQ by pending tokens, mixed
pool on, KV links without contention.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from benchmarks.splitwise import lengths_of
from benchmarks.targets import Target, say
from loadtest.backends.simulator import simulate
from loadtest.deployment import Deployment
from loadtest.search.reference import model_unloaded, reference_deployment
from loadtest.search.saturation import saturation_of
from metrics.families import FAMILIES
from metrics.objective import judge
from workloads.schedule import Schedule, unrelated

SECONDS: Final = 120.0
WARMUP: Final = 0.2
PRECISION: Final = 1.02  # of a rate
POWER: Final = {"a100": 24.8, "h100": 44.0}
CAPPED: Final = 0.7
USD: Final = {"a100": 2.21, "h100": 4.76}
BATCH_REQUESTS: Final = 6000
RATIO_BAND: Final = 0.25


class Design(NamedTuple):
    """A cluster: its name, machines for prompts and for tokens (none apart in a baseline)."""

    name: str
    prompt: int
    token: int = 0

    @property
    def kinds(self) -> tuple[str, str]:
        """GPUs of the prompt and of the token machines."""
        letters = self.name.removesuffix("cap").rpartition("-")[2][-2:]
        both = {"AA": ("a100", "a100"), "HH": ("h100", "h100"), "HA": ("h100", "a100")}
        return both.get(letters) or (("a100", "a100") if self.name == "Baseline-A100" else ("h100", "h100"))

    @property
    def power(self) -> float:
        """In the artifact's units."""
        first, second = self.kinds
        return self.prompt * POWER[first] + self.token * POWER[second] * (CAPPED if "cap" in self.name else 1.0)

    @property
    def cost(self) -> float:
        """$ per hour of a GPU of each machine."""
        first, second = self.kinds
        return self.prompt * USD[first] + self.token * USD[second]

    @property
    def deployment(self) -> Deployment:
        """On our simulator."""
        first, second = self.kinds
        common = "model=bloom-176b,max_num_seqs=512,max_num_batched_tokens=2048"
        if not self.token:
            return Deployment.parse(f"emulated:colocated,{common},hardware={first},instances={self.prompt}")
        cap = ",decode_power_cap_w=350" if "cap" in self.name else ""
        link = "ib400" if second == "h100" else "ib200"
        return Deployment.parse(
            f"emulated:disaggregated,{common},prefill_hardware={first},decode_hardware={second},prefill={self.prompt},"
            f"decode={self.token},kv_link={link},kv_contention=none,mixed_pool=on{cap}"
        )

    def __str__(self) -> str:
        return f"{self.name} ({self.prompt}P,{self.token}T)" if self.token else f"{self.name} ({self.prompt})"


A100, H100, AA, HH, HA, CAP = "Baseline-A100", "Baseline-H100", "AA", "HH", "HA", "HHcap"


def _designs(**machines: tuple[int, int]) -> dict[str, Design]:
    names = {"a100": A100, "h100": H100, "aa": AA, "hh": HH, "ha": HA, "cap": CAP}
    return {names[key]: Design(names[key], *counts) for key, counts in machines.items()}


ISO_POWER: Final = {
    "code": _designs(a100=(70, 0), h100=(40, 0), aa=(55, 15), hh=(35, 5), ha=(35, 8), cap=(35, 7)),
    "conv": _designs(a100=(70, 0), h100=(40, 0), aa=(45, 25), hh=(25, 15), ha=(25, 26), cap=(25, 21)),
}
ISO_COST: Final = {
    "code": _designs(h100=(40, 0), aa=(66, 20)),
    "conv": _designs(h100=(40, 0), aa=(51, 35)),
}


class Ratio(NamedTuple):
    """A published comparison: a design's rate on a workload over that of another, and under which conditions."""

    place: str
    workload: str
    design: Design
    over: Design
    published: float
    said: str


RATIOS: Final = (
    Ratio("iso-power", "code", ISO_POWER["code"][HH], ISO_POWER["code"][H100], 2.35, "equal cost and power"),
    Ratio("iso-power", "code", ISO_POWER["code"][AA], ISO_POWER["code"][H100], 1.4, "20 % lower cost"),
    Ratio("iso-power", "conv", ISO_POWER["conv"][AA], ISO_POWER["conv"][A100], 2.15, "equal power and cost"),
    Ratio("iso-power", "conv", ISO_POWER["conv"][HA], ISO_POWER["conv"][H100], 1.18, "10 % lower cost"),
    Ratio("iso-cost", "code", ISO_COST["code"][AA], ISO_COST["code"][H100], 1.4, "25 % more power; workload not said"),
    Ratio("iso-cost", "conv", ISO_COST["conv"][AA], ISO_COST["conv"][H100], 1.4, "25 % more power; workload not said"),
)
LOSSES: Final = {AA: 0.0, HH: 0.0, HA: 0.07, CAP: 0.07}  # conversation on a cluster sized for coding
PER_USD: Final = {AA: 0.89, HH: 0.75}  # requests per second and $, batch jobs


class Clusters:
    """What designs can carry; every rate is searched for once."""

    def __init__(self, traces: Path) -> None:
        self._lengths = {name: lengths_of(traces, name) for name in ("code", "conv")}
        self._unloaded = model_unloaded(reference_deployment(Deployment.parse("emulated:colocated,model=bloom-176b")))
        self.capacity = cache(self._capacity)

    def _capacity(self, design: Design, workload: str) -> float:
        """The highest rate that holds, requests per second, to two per cent; 0 when hardly any does."""
        low, high = 0.25 * design.power / 44, 0.5 * design.power / 44
        while self.holds(design, workload, high):
            low, high = high, 1.6 * high
        while high / low > PRECISION:
            middle = (low * high) ** 0.5
            low, high = (middle, high) if self.holds(design, workload, middle) else (low, middle)
            if high < 0.02 * design.power / 44:
                return 0.0
        return low

    def holds(self, design: Design, workload: str, rate_per_s: float) -> bool:
        """Whether all nine limits do."""
        schedule = self.offered(workload, rate_per_s, int(rate_per_s * SECONDS))
        table = simulate(design.deployment, schedule, events=False)
        return judge(table, FAMILIES["splitwise"], self._unloaded.reference(table.rows)).met

    def batch_rate(self, design: Design, workload: str) -> float:
        """Requests per second when all are there from the start."""
        schedule = self.offered(workload, 1e6, BATCH_REQUESTS)
        return saturation_of(simulate(design.deployment, schedule, events=False), None).requests_per_s

    def offered(self, workload: str, rate_per_s: float, requests: int) -> Schedule:
        """Poisson arrivals, lengths of the trace's rows."""
        rng = np.random.default_rng(0)
        lengths = self._lengths[workload]
        prompts, outputs = lengths[rng.integers(0, len(lengths), requests)].T
        due = np.cumsum(rng.exponential(1 / rate_per_s, requests))
        return unrelated(due, prompts, outputs, warmup_s=WARMUP * SECONDS, name=workload)


def targets(traces: Path) -> list[Target]:
    """Print the comparisons and judge them."""
    clusters = Clusters(traces)
    return [
        *_ratios(clusters),
        *_pool_sizes(clusters),
        *_cheapest(clusters),
        *_losses(clusters),
        *_batch_jobs(clusters),
    ]


def _ratios(clusters: Clusters) -> list[Target]:
    say("\nSplitwise's clusters, BLOOM-176B: highest rate at which nine slowdown limits hold, requests/s")
    for workload, designs in ISO_POWER.items():
        for design in designs.values():
            rate = clusters.capacity(design, workload)
            say(f"{workload} {design!s:<22} {rate:7.1f}/s   power {design.power:6.0f}  cost {design.cost:6.1f}")
    found = []
    for one in RATIOS:
        rate, other = clusters.capacity(one.design, one.workload), clusters.capacity(one.over, one.workload)
        ratio = rate / other if other else float("inf")
        name = f"{one.place}, {one.workload}: {one.design} / {one.over}"
        paid = one.design.cost / one.over.cost - 1
        say(f"{name}: {ratio:.2f} x ({one.published:g} x at {one.said}); ours at {paid:+.0%} cost")
        found.append(Target(f"{name}, off", abs(ratio / one.published - 1), RATIO_BAND, "of the ratio"))
    say(
        "Conversation misses for a known reason: splitwise-sim looks decode times up by tokens in the iteration, so a "
        "batch of 64 costs 47.6 ms where 96.6 ms were measured (BLOOM, A100); ours grow with the batch, as measured."
    )
    return found


def _pool_sizes(clusters: Clusters) -> list[Target]:
    """The best split of equal power, in steps of five machines as in the artifact."""
    say("\nBest split at equal power (published)")
    found = []
    for workload, name, machines, published in (("code", HH, 40, 35), ("code", AA, 70, 55), ("conv", HH, 40, 25)):
        wanted = Design(name, published, machines - published)
        best, most = wanted, clusters.capacity(wanted, workload)
        for prompt in range(5, machines, 5):
            design = Design(name, prompt, machines - prompt)
            if clusters.holds(design, workload, PRECISION * most):
                best, most = design, clusters.capacity(design, workload)
        lost = 1 - clusters.capacity(wanted, workload) / most if most else 0.0
        say(f"{workload} {best} {most:.1f}/s ({wanted}, {lost:.0%} less here)")
        off = abs(best.prompt - published)
        found.append(Target(f"best split, {workload} {name}: machines off", off, 5.0, "machines"))
    return found


def _cheapest(clusters: Clusters) -> list[Target]:
    """Fewest machines that carry 70 requests/s of coding: each number of token machines with the least for prompts."""
    rate, published = 70.0, Design(HH, 27, 3)
    able: list[Design] = []
    for token in range(2, 9):
        low, high = 10, 60
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if clusters.holds(Design(HH, middle, token), "code", rate) else (middle, high)
        if high < 60:
            able.append(Design(HH, high, token))
    best = min(able, key=lambda design: design.cost, default=None)
    say(f"\nCheapest HH for coding at 70/s: {best} ({published})")
    off = None if best is None else abs(best.cost / published.cost - 1)
    return [Target("cheapest HH at 70/s: cost off", off, RATIO_BAND, "of the cost")]


def _losses(clusters: Clusters) -> list[Target]:
    say("\nConversation on a cluster sized for coding: what it loses against one sized for conversation (published)")
    found = []
    for name, published in LOSSES.items():
        own = clusters.capacity(ISO_POWER["conv"][name], "conv")
        lost = 1 - clusters.capacity(ISO_POWER["code"][name], "conv") / own if own else None
        say(f"{name:<6} {'none holds' if lost is None else f'{lost:.0%}'} ({published:.0%})")
        off = None if lost is None else 100 * abs(lost - published)
        found.append(Target(f"change of workload, {name}: points off", off, 5.0, "points"))
    say("Misses for the same reason: a token pool that is too small makes batches, and so token times, grow.")
    return found


def _batch_jobs(clusters: Clusters) -> list[Target]:
    say("\nBatch jobs, no SLO: requests/s per $ (published 0.89 for A100 designs, 0.75 for H100 designs)")
    per_usd = {}
    for name in PER_USD:
        for workload, designs in ISO_POWER.items():
            design = designs[name]
            per_usd[name, workload] = clusters.batch_rate(design, workload) / design.cost
            say(f"{workload} {design!s:<14} {per_usd[name, workload]:.2f}")
    ratio = per_usd[AA, "conv"] / per_usd[HH, "conv"]
    found = [Target("batch jobs per $, A100 over H100 designs, off", abs(ratio / (0.89 / 0.75) - 1), RATIO_BAND, "")]
    for name, published in PER_USD.items():
        off = min(abs(per_usd[name, workload] / published - 1) for workload in ISO_POWER)
        found.append(Target(f"batch jobs per $, {name}, off (the nearer workload)", off, RATIO_BAND, ""))
    return found
