"""A contest of designs: who has the most goodput per GPU, with as few simulations as that takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from loadtest.deployment import Deployment
from loadtest.plan.designs import Space
from loadtest.plan.probe import Probe
from loadtest.search.windows import Windows
from metrics.objective import Objective
from metrics.plan import DISAGGREGATED

COARSE: Final = 8  # splits of one pair of pools looked at first; then the neighbours of the best


class Lead(NamedTuple):
    """Who is ahead, and with how much per GPU: requests per second, without an SLO output tokens per second."""

    probe: Probe | None = None
    worth: float = 0.0


@dataclass(frozen=True)
class Contest:
    """Keeps a probe per design, so that every simulation serves every question."""

    space: Space
    windows: Windows
    probes: dict[str, Probe] = field(default_factory=dict)

    def best(self, arrangement: str, slo: Objective | None, space: Space | None = None, link: str = "") -> Lead:
        """The best design of an arrangement; of two pools over every pair of kinds and every split."""
        space = space or self.space
        if arrangement != DISAGGREGATED:
            designs = (d for d in space.single_pools() if d.arrangement == arrangement)
            return self.race([self.probe(design) for design in designs], slo)
        lead = Lead()
        for prefill, decode in space.pairs():
            lead = self._best_split(space.splits(prefill, decode, link), slo, lead)
        return lead

    def race(self, probes: Iterable[Probe], slo: Objective | None, lead: Lead = Lead()) -> Lead:  # noqa: B008  immutable
        """The best of these and the one that leads; who fails at the leader's rate is out after that one run."""
        for probe in probes:
            if slo is None:
                worth = probe.saturation.output_tokens_per_s / probe.gpus
            elif lead.worth and not probe.beats(lead.worth, slo):
                continue
            else:
                worth = probe.goodput_per_gpu(slo, lead.worth or None)
            if worth > lead.worth:
                lead = Lead(probe, worth)
        return lead

    def probe(self, deployment: Deployment) -> Probe:
        """The probe of a design."""
        text = str(deployment)
        if text not in self.probes:
            self.probes[text] = Probe(deployment, self.windows)
        return self.probes[text]

    def _best_split(self, splits: Sequence[Deployment], slo: Objective | None, lead: Lead) -> Lead:
        """Some splits, then those around the best of them."""
        every = max(1, -(-len(splits) // COARSE))
        coarse = self.race([self.probe(split) for split in splits[every // 2 :: every]], slo, lead)
        texts = [str(split) for split in splits]
        if every == 1 or coarse.probe is None or str(coarse.probe.deployment) not in texts:
            return coarse
        at = texts.index(str(coarse.probe.deployment))
        near = [i for i in range(max(0, at - every + 1), min(len(splits), at + every)) if i != at]
        return self.race([self.probe(splits[i]) for i in near], slo, coarse)
