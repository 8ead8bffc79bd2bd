"""The plan: the best design of every arrangement under three demands, and what the choice hangs on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from loadtest.backends.spec import resolve
from loadtest.deployment import Deployment
from loadtest.errors import UsageError
from loadtest.plan.bill import at_work, power_model, unmeasured, usd_per_hour
from loadtest.plan.breakeven import flip, link_rate
from loadtest.plan.contest import Contest, Lead
from loadtest.plan.demands import asked_share, relaxed
from loadtest.plan.designs import SINGLE_POOL, Space, check, scaled
from loadtest.plan.probe import Probe
from loadtest.plan.waterfall import waterfall
from loadtest.search.procedure import QUICK_RUNS, Search, spread_of
from loadtest.search.virtual import VirtualRuns
from loadtest.search.windows import Windows, at_once, without_edges
from metrics.objective import Objective
from metrics.plan import (
    DISAGGREGATED,
    Candidate,
    Demand,
    KvFacts,
    PlanReport,
    PlanRow,
    Sizing,
    row_of,
    rule,
)
from workloads.schedule import plan as schedule_of

ARRANGEMENTS: Final = (*SINGLE_POOL, DISAGGREGATED)
WORK_REQUESTS: Final = 1_000  # of the run that power and extrapolation are read off
OUTSIDE: Final = 0.05  # of the busy time: from here on a design's extrapolation is a warning

OnStep = Callable[[str], None]


@dataclass
class Planner:
    """A workload, an SLO and what there is to build with; prices in $ per GPU-hour by hardware."""

    space: Space
    windows: Windows
    slo: Objective
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
        rows = self._rows()
        strict = rows[-1]
        self._say("where the winner changes, and where the gain comes from")
        flip_s, flip_note = flip(self.contest, rows, self.slo)
        link, link_note = link_rate(self.contest, strict, self.slo)
        holds, note = rule(rows)
        return PlanReport(
            trace=self.windows.trace_name,
            model=self.space.model,
            hardware=list(self.space.hardware),
            gpus=self.space.gpus,
            slo=str(self.slo),
            seed=self.windows.seed,
            command=command,
            rows=rows,
            kv=self._kv(strict),
            flip_tpot_s=flip_s,
            flip_note=flip_note,
            link_gbps=link,
            link_note=link_note,
            waterfall=waterfall(self.contest, self.slo),
            sizing=[] if wanted_rate_per_s is None else self._sizes(strict, wanted_rate_per_s),
            wanted_rate_per_s=wanted_rate_per_s,
            rule_holds=holds,
            rule_note=note,
            power_model=power_model(self.space.hardware),
            warnings=self._warnings(rows),
            designs=len(self.contest.probes),
        )

    # --- the decision table ------------------------------------------------------------------------------------

    def _rows(self) -> list[PlanRow]:
        loose = relaxed(self.slo, self.relaxed)
        demands: dict[Demand, Objective | None] = {"throughput only": None, "relaxed": loose, "strict": self.slo}
        rows = []
        for demand, slo in demands.items():
            self._say(f"{demand}: the best of each arrangement")
            best = [self.contest.best(arrangement, slo) for arrangement in ARRANGEMENTS]
            candidates = [self._candidate(lead, slo) for lead in best if lead.probe is not None]
            if not candidates:
                raise UsageError(
                    f"no design keeps {slo} at any rate",
                    hint="goodput search --backend emulated:... without --slo suggests targets",
                    code="out_of_reach",
                )
            rows.append(row_of(demand, "none" if slo is None else str(slo), candidates))
        return rows

    def _candidate(self, lead: Lead, slo: Objective | None) -> Candidate:
        probe = lead.probe
        assert probe is not None
        deployment, filled = probe.deployment, probe.saturation
        if slo is None:
            goodput, rate = None, filled.requests_per_s
            schedule = schedule_of(at_once(self.windows.trace(0, 1.0, WORK_REQUESTS)), seed=0, salt="")
        else:
            runs = VirtualRuns(deployment, self.windows, slo)
            start = max(0.9 * lead.worth * probe.gpus, 1e-3)
            search = Search(runs, asked_share(slo), bracketing=runs.bracketing, spread=spread_of(slo))
            goodput = search.run(start, QUICK_RUNS).goodput
            rate = goodput.rate * asked_share(slo)
            schedule = without_edges(self.windows.trace(0, goodput.rate or start, WORK_REQUESTS))
        work = at_work(deployment, schedule, power_model(self.space.hardware))
        return Candidate(
            arrangement=deployment.arrangement,
            deployment=str(deployment),
            gpus=probe.gpus,
            goodput=goodput,
            goodput_per_gpu=None if goodput is None else goodput.per_gpu(probe.gpus),
            output_tokens_per_s_per_gpu=filled.output_tokens_per_s / probe.gpus,
            usd_per_1000_good=1000 * usd_per_hour(deployment, self.prices) / 3600 / rate if rate else None,
            wh_per_good=work.watts / 3600 / rate if rate else None,
            extrapolated=work.extrapolated,
        )

    def _warnings(self, rows: list[PlanRow]) -> list[str]:
        """What nobody measured, in one breath; then the measured designs that work outside what was measured."""
        found = unmeasured(self.space.model, [c.deployment for row in rows for c in row.candidates])
        for row in rows:
            outside = [
                f"{c.extrapolated * 100:.0f} % of the busy time of {c.arrangement}"
                for c in row.candidates
                if c.extrapolated > OUTSIDE and not unmeasured(self.space.model, [c.deployment])
            ]
            if outside:
                found.append(
                    f"{row.demand}: {', '.join(outside)} lies outside what the performance model was measured at"
                )
        return found

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
            shown = Probe(design, self.windows).shown(rate_per_s, self.slo)
            if shown.spare >= 0:
                return Sizing(
                    arrangement=design.arrangement,
                    deployment=str(design),
                    gpus=design.gpus or 0,
                    usd_per_hour=usd_per_hour(design, self.prices),
                    attainment=shown.share,
                )
        return None

    def _say(self, text: str) -> None:
        if self.on_step is not None:
            self.on_step(text)
