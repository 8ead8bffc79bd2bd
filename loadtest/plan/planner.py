"""The plan: the best design of every arrangement under three demands, and what the choice hangs on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import numpy as np

from loadtest.backends.hardware import hardware
from loadtest.backends.perfmodel import load_model
from loadtest.backends.simulator import run_simulation
from loadtest.backends.spec import resolve
from loadtest.deployment import Deployment
from loadtest.errors import UsageError
from loadtest.plan.contest import Contest, Lead
from loadtest.plan.designs import SINGLE_POOL, Space, check, scaled
from loadtest.plan.probe import Probe
from loadtest.search.procedure import QUICK_RUNS, Search
from loadtest.search.virtual import VirtualRuns
from loadtest.search.windows import Windows, without_edges
from metrics.plan import (
    DISAGGREGATED,
    Candidate,
    Demand,
    KvFacts,
    PlanReport,
    PlanRow,
    Sizing,
    Step,
    row_of,
    rule,
)
from metrics.slo import SLO

ARRANGEMENTS: Final = (*SINGLE_POOL, DISAGGREGATED)
FREE_LINK: Final = ",kv_link_gbps=1000000,kv_link_latency_us=0,kv_contention=none"
FEWEST_GBPS, MOST_GBPS = 0.1, 1e6
TPOT_SPAN: Final = 2.0  # the flip is looked for from half to twice the target
GPUS_PER_MACHINE: Final = 8

OnStep = Callable[[str], None]


@dataclass
class Planner:
    """A workload, an SLO and what there is to build with; prices in $ per GPU-hour by hardware."""

    space: Space
    windows: Windows
    slo: SLO
    relaxed: float = 2.0  # times the SLO, for the demand in between
    prices: dict[str, float] = field(default_factory=dict)
    on_step: OnStep | None = None

    @cached_property
    def contest(self) -> Contest:
        """The designs and what is known of them."""
        return Contest(self.space, self.windows)

    def plan(self, command: list[str], wanted_rate_per_s: float | None = None) -> PlanReport:
        """Everything the plan says; UsageError when the model does not fit."""
        check(self.space)
        demands: dict[Demand, SLO | None] = {"throughput only": None, "relaxed": self._relaxed(), "strict": self.slo}
        rows = []
        for demand, slo in demands.items():
            self._say(f"{demand}: the best of each arrangement")
            rows.append(self._row(demand, slo))
        strict = rows[-1]
        flip, flip_note = self._flip(rows)
        link, link_note = self._link_break_even(strict)
        holds, note = rule(rows)
        return PlanReport(
            trace=self.windows.trace_name,
            model=self.space.model,
            hardware=list(self.space.hardware),
            gpus=self.space.gpus,
            slo=str(self.slo),
            seed=self.windows.seed,
            command=command,
            designs=len(self.contest.probes),
            rows=rows,
            kv=self._kv(strict),
            flip_tpot_s=flip,
            flip_note=flip_note,
            link_gbps=link,
            link_note=link_note,
            waterfall=self._waterfall(),
            sizing=[] if wanted_rate_per_s is None else self._sizes(strict, wanted_rate_per_s),
            wanted_rate_per_s=wanted_rate_per_s,
            rule_holds=holds,
            rule_note=note,
            warnings=_warnings(rows),
        )

    # --- the decision table ------------------------------------------------------------------------------------

    def _row(self, demand: Demand, slo: SLO | None) -> PlanRow:
        best = [self.contest.best(arrangement, slo) for arrangement in ARRANGEMENTS]
        candidates = [self._candidate(lead, slo) for lead in best if lead.probe is not None]
        return row_of(demand, "none" if slo is None else str(slo), candidates)

    def _candidate(self, lead: Lead, slo: SLO | None) -> Candidate:
        probe = lead.probe
        assert probe is not None
        deployment = probe.deployment
        filled = probe.saturation
        goodput, rate, extrapolated = None, filled.requests_per_s, 0.0
        if slo is not None:
            runs = VirtualRuns(deployment, self.windows, slo)
            start = max(lead.worth * probe.gpus, 1e-3)
            goodput = Search(runs, slo.share, bracketing=runs.bracketing).run(0.9 * start, QUICK_RUNS).goodput
            rate = goodput.rate * slo.share
            extrapolated = self._extrapolated(deployment, goodput.rate)
        per_hour = self.usd_per_hour(deployment)
        return Candidate(
            arrangement=deployment.arrangement,
            deployment=str(deployment),
            gpus=probe.gpus,
            goodput=goodput,
            goodput_per_gpu=None if goodput is None else goodput.per_gpu(probe.gpus),
            output_tokens_per_s_per_gpu=filled.output_tokens_per_s / probe.gpus,
            usd_per_1000_good=1000 * per_hour / 3600 / rate if rate else None,
            wh_per_good=_watts(deployment) / 3600 / rate if rate else None,
            extrapolated=extrapolated,
        )

    def _extrapolated(self, deployment: Deployment, rate_per_s: float) -> float:
        schedule = without_edges(self.windows.trace(0, rate_per_s, 500))
        return float(run_simulation(deployment, schedule, events=False).stats.extrapolated_share)

    def usd_per_hour(self, deployment: Deployment) -> float:
        """What its GPUs cost."""
        return sum(pool.gpus * self._price(pool.hardware) for pool in deployment.pools)

    def _price(self, name: str) -> float:
        return self.prices.get(name, hardware(name).gpu_hour_usd)

    def _relaxed(self) -> SLO:
        return _scaled(self.slo, self.relaxed, self.relaxed)

    # --- break-evens -------------------------------------------------------------------------------------------

    def _flip(self, rows: list[PlanRow]) -> tuple[float | None, str]:
        """The TPOT target at which one pool and two pools are level, the TTFT target kept."""
        if self.slo.tpot_s is None:
            return None, "the SLO has no TPOT limit"
        finalists = set()
        for row in rows:
            for two in (True, False):
                kind = [c for c in row.candidates if (c.arrangement == DISAGGREGATED) is two]
                finalists |= {c.deployment for c in kind[:1] if c.goodput is not None}
        probes = [self.contest.probe(Deployment.parse(text)) for text in sorted(finalists)]
        pairs = [probe for probe in probes if probe.deployment.arrangement == DISAGGREGATED]
        single = [probe for probe in probes if probe.deployment.arrangement != DISAGGREGATED]
        if not pairs or not single:
            return None, "there is only one kind of design"

        def lead(tpot_s: float) -> float:
            """1 where two pools lead, -1 where one does."""
            slo = replace(self.slo, tpot_s=tpot_s)
            best = self.contest.race(single, slo)
            return 1.0 if self.contest.race(pairs, slo, best).probe in pairs else -1.0

        steps = self.slo.tpot_s * TPOT_SPAN ** np.linspace(-1, 1, 7)
        leads = [lead(float(tpot)) for tpot in steps]
        for i in range(len(steps) - 1, 0, -1):
            if leads[i] < 0 < leads[i - 1]:
                return _bisect(lead, float(steps[i - 1]), float(steps[i])), ""
        who = "two pools lead" if leads[-1] > 0 else "one pool leads"
        return None, f"{who} from {steps[0] * 1e3:.0f} to {steps[-1] * 1e3:.0f} ms per token"

    def _link_break_even(self, strict: PlanRow) -> tuple[float | None, str]:
        """The KV link rate at which the best disaggregated design is level with the best single pool."""
        two = next((c for c in strict.candidates if c.arrangement == DISAGGREGATED), None)
        one = next((c for c in strict.candidates if c.arrangement != DISAGGREGATED), None)
        if two is None or one is None or one.goodput is None:
            return None, "there is only one kind of design"
        target = one.goodput.rate

        def spare(gbps: float) -> float:
            linked = Deployment.parse(f"{two.deployment},kv_link_gbps={gbps:.6g}")
            return self.slo.share - Probe(linked, self.windows).share(target, self.slo)

        if spare(MOST_GBPS) > 0:
            return None, "disaggregation loses even with an infinite link"
        if spare(FEWEST_GBPS) <= 0:
            return None, f"disaggregation leads even at {FEWEST_GBPS:g} Gb/s"
        return _bisect(spare, FEWEST_GBPS, MOST_GBPS, 0.05), ""

    def _waterfall(self) -> list[Step]:
        """From one pool to two, one freedom after the other, and the transfer's price at the end."""
        tp = load_model(self.space.model).default_tp
        first = self.space.hardware[0]
        own = replace(self.space, hardware=(first,))
        usual = tp if tp in own.degrees_of(first) and self.space.gpus % tp == 0 else own.degrees_of(first)[-1]
        narrow = replace(own, degrees=(usual,))
        pools = [d for d in narrow.single_pools() if d.arrangement in ("colocated", "colocated_prefill_first")]
        base = self.contest.race([self.contest.probe(d) for d in pools], self.slo)
        spaces = {"no interference": narrow, "own parallelism": own}
        if len(self.space.hardware) > 1:
            spaces["own hardware"] = self.space
        free = {name: self.contest.best(DISAGGREGATED, self.slo, space, FREE_LINK) for name, space in spaces.items()}
        real = self.contest.best(DISAGGREGATED, self.slo)
        return self._steps((f"colocated, tp={usual}", base), free, real)

    def _steps(self, base: tuple[str, Lead], free: dict[str, Lead], real: Lead) -> list[Step]:
        """One design after the other; what may be chosen earlier may be chosen later, with and without the transfer."""
        name, (probe, worth) = base
        if probe is None or real.probe is None:
            return []
        steps = [Step(name=name, deployment=str(probe.deployment), goodput_per_gpu=worth, gain=0.0)]
        texts: list[str] = []
        for name, lead in free.items():
            texts += [] if lead.probe is None else [str(lead.probe.deployment)]
            if name == list(free)[-1]:
                texts.append(_linked(str(real.probe.deployment)))
            steps.append(self._step(name, texts, steps[-1], worth))
        with_transfer = [text.replace(FREE_LINK, "") for text in texts]
        return [*steps, self._step("minus transfer", with_transfer, steps[-1], worth)]

    def _step(self, name: str, texts: list[str], before: Step, hint: float) -> Step:
        """The best of some designs, all looked for from the same rate on, so that noise is common to them."""
        probes = [self.contest.probe(Deployment.parse(text)) for text in texts]
        worth, best = max(
            ((probe.goodput_per_gpu(self.slo, hint), probe) for probe in probes), key=lambda pair: pair[0]
        )
        gain = worth - before.goodput_per_gpu
        return Step(name=name, deployment=str(best.deployment), goodput_per_gpu=worth, gain=gain)

    # --- facts -------------------------------------------------------------------------------------------------

    def _kv(self, strict: PlanRow) -> KvFacts | None:
        two = next((c for c in strict.candidates if c.arrangement == DISAGGREGATED), None)
        if two is None:
            return None
        link = resolve(Deployment.parse(two.deployment)).link
        assert link is not None
        prompts = self.windows.trace(0, 1.0, 4_000).prompt_tokens
        p50, p99 = (float(value) for value in np.percentile(prompts, [50, 99]))
        size = link.kv_bytes_per_token
        return KvFacts(
            bytes_per_token=size,
            link_gbps=link.bytes_per_s * 8e-9,
            prompt_tokens_p50=p50,
            prompt_tokens_p99=p99,
            gigabytes_p50=p50 * size / 1e9,
            gigabytes_p99=p99 * size / 1e9,
            wire_s_p50=p50 * size / link.bytes_per_s,
            wire_s_p99=p99 * size / link.bytes_per_s,
        )

    def _sizes(self, strict: PlanRow, rate_per_s: float) -> list[Sizing]:
        """The fewest GPUs of each arrangement that carry the rate, cheapest first."""
        found = []
        for candidate in strict.candidates:
            if candidate.goodput is None or not candidate.goodput.rate:
                continue
            design = Deployment.parse(candidate.deployment)
            sizing = self._smallest(scaled(design, rate_per_s / candidate.goodput.rate), rate_per_s)
            if sizing is not None:
                found.append(sizing)
        return sorted(found, key=lambda sizing: sizing.usd_per_hour)

    def _smallest(self, designs: Iterable[Deployment], rate_per_s: float) -> Sizing | None:
        for design in designs:
            share = Probe(design, self.windows).share(rate_per_s, self.slo)
            if share >= self.slo.share:
                return Sizing(
                    arrangement=design.arrangement,
                    deployment=str(design),
                    gpus=design.gpus or 0,
                    usd_per_hour=self.usd_per_hour(design),
                    attainment=share,
                )
        return None

    def _say(self, text: str) -> None:
        if self.on_step is not None:
            self.on_step(text)


def prices_of(text: str | None, kinds: tuple[str, ...]) -> dict[str, float]:
    """`4.76` for all, or `h100=4.76,a100=2.21`; UsageError for anything else."""
    if not text:
        return {}
    found: dict[str, float] = {}
    for word in text.split(","):
        name, equals, value = word.rpartition("=")
        try:
            price = float(value)
        except ValueError:
            price = math.nan
        if not price > 0 or (equals and name not in kinds):
            raise UsageError(
                f"--gpu-hour-usd {text!r} is not a price",
                hint="write 4.76, or a price for each --hardware: h100=4.76,a100=2.21",
                code="bad_price",
            )
        found |= dict.fromkeys((name,) if equals else kinds, price)
    return found


def _watts(deployment: Deployment) -> float:
    """Constant machine power, as the Splitwise paper counts: not a measurement."""
    return sum(pool.gpus * hardware(pool.hardware).machine_w / GPUS_PER_MACHINE for pool in deployment.pools)


def _scaled(slo: SLO, ttft: float, tpot: float) -> SLO:
    return replace(
        slo,
        ttft_s=None if slo.ttft_s is None else slo.ttft_s * ttft,
        tpot_s=None if slo.tpot_s is None else slo.tpot_s * tpot,
    )


def _bisect(decreasing: Callable[[float], float], low: float, high: float, precision: float = 0.02) -> float:
    """Where a function falls through 0 between two arguments, found on a logarithmic scale."""
    while high / low > 1 + precision:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if decreasing(middle) > 0 else (low, middle)
    return math.sqrt(low * high)


def _linked(text: str) -> str:
    """A disaggregated design with the free link."""
    return str(Deployment.parse(text + FREE_LINK))


def _warnings(rows: list[PlanRow]) -> list[str]:
    return [
        f"{row.demand}: {c.arrangement} spends {c.extrapolated:.0%} of its busy time outside what was measured"
        for row in rows
        for c in row.candidates
        if c.extrapolated > 0.05
    ]
