"""What a plan has to show: the decision table and what it rests on (`goodput.plan/1`)."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from metrics.energy import PowerModel
from metrics.goodput import GoodputEstimate

Demand = Literal["throughput only", "relaxed", "strict"]
DISAGGREGATED: Final = "disaggregated"
# Which arrangement the rule of thumb names: a single pool for tokens, chunks for an SLO, two pools for a strict one.
RULE: Final[dict[str, tuple[str, ...]]] = {
    "throughput only": ("colocated", "colocated_prefill_first", "chunked"),
    "relaxed": ("chunked",),
    "strict": (DISAGGREGATED,),
}


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """The best design of one arrangement under one demand; cost and energy per request that met the SLO.

    Without an SLO `goodput` is None, requests are those completed at saturation, and all of them count; so they do at
    the goodput of a family, whose limits speak of all requests together.
    """

    arrangement: str
    deployment: str
    gpus: int
    goodput: GoodputEstimate | None
    goodput_per_gpu: GoodputEstimate | None
    output_tokens_per_s_per_gpu: float
    usd_per_1000_good: float | None
    wh_per_good: float | None
    extrapolated: float = 0.0  # share of busy time outside the range the performance model was fitted on

    @property
    def worth(self) -> float:
        """What it is ranked by: goodput per GPU, without an SLO tokens per second and GPU."""
        return self.output_tokens_per_s_per_gpu if self.goodput_per_gpu is None else self.goodput_per_gpu.rate


class PlanRow(msgspec.Struct, frozen=True, kw_only=True):
    """One demand: the arrangements, best first; `tie` when the first two cannot be told apart."""

    demand: Demand
    slo: str
    candidates: list[Candidate]
    tie: bool

    @property
    def winner(self) -> Candidate:
        """The best."""
        return self.candidates[0]


class KvFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How much a prompt's KV cache weighs, and how long it is on the wire of the best disaggregated design."""

    bytes_per_token: int
    link_gbps: float
    prompt_tokens_p50: float
    prompt_tokens_p99: float
    gigabytes_p50: float
    gigabytes_p99: float
    wire_s_p50: float
    wire_s_p99: float


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One bar of the waterfall: the best design when this is allowed too, and what it adds per GPU."""

    name: str
    deployment: str
    goodput_per_gpu: float
    gain: float


class Sizing(msgspec.Struct, frozen=True, kw_only=True):
    """The fewest GPUs of one arrangement found to carry a wanted rate, and their price."""

    arrangement: str
    deployment: str
    gpus: int
    usd_per_hour: float
    attainment: float  # at the wanted rate; of a family, the share within the limit that is nearest to being missed


class PlanReport(msgspec.Struct, frozen=True, kw_only=True):
    """A whole plan. Break-evens are None where neither side ever leads."""

    schema: str = "goodput.plan/1"
    trace: str
    model: str
    hardware: list[str]
    gpus: int
    slo: str
    seed: int
    command: list[str]
    designs: int
    rows: list[PlanRow]
    kv: KvFacts | None
    flip_tpot_s: float | None  # limit on the time of a token: below it disaggregation leads, above it one pool does
    flip_note: str
    link_gbps: float | None  # below it the best disaggregated design loses to the best single pool
    link_note: str
    waterfall: list[Step]
    sizing: list[Sizing] = []
    wanted_rate_per_s: float | None = None
    rule_holds: bool = False
    rule_note: str = ""
    power_model: PowerModel = "constant"  # of every energy in the plan
    warnings: list[str] = []


def row_of(demand: Demand, slo: str, candidates: list[Candidate]) -> PlanRow:
    """Candidates best first; a tie when the intervals of the first two overlap."""
    ranked = sorted(candidates, key=lambda candidate: -candidate.worth)
    tie = len(ranked) > 1 and not _apart(ranked[0].goodput_per_gpu, ranked[1].goodput_per_gpu)
    return PlanRow(demand=demand, slo=slo, candidates=ranked, tie=tie)


def rule(rows: list[PlanRow]) -> tuple[bool, str]:
    """Whether the rule of thumb holds here, and where it does not; a tie never confirms it."""
    broken = []
    for row in rows:
        expected = RULE[row.demand]
        if row.winner.arrangement not in expected:
            verb = "leads" if row.tie else "wins"
            broken.append(f"{row.demand}: {_named(row.winner)} {verb}, not {' or '.join(expected)}")
        elif row.tie and row.candidates[1].arrangement not in expected:
            broken.append(f"{row.demand}: {_named(row.winner)} and {_named(row.candidates[1])} are level")
    return not broken, "; ".join(broken)


def _named(candidate: Candidate) -> str:
    return candidate.arrangement.replace("_", " ")


def _apart(best: GoodputEstimate | None, second: GoodputEstimate | None) -> bool:
    """Whether the intervals do not overlap; saturation has none and differs by any amount."""
    return best is None or second is None or second.most < best.least
