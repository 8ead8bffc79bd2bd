"""Where the gain of two pools comes from: one freedom after the other, and the transfer's price at the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from loadtest.backends.perfmodel import load_model
from loadtest.deployment import Deployment
from loadtest.plan.contest import Contest, Lead
from metrics.objective import Objective
from metrics.plan import DISAGGREGATED, Step

FREE_LINK: Final = ",kv_link_gbps=1000000,kv_link_latency_us=0,kv_contention=none"
PLAIN: Final = ("colocated", "colocated_prefill_first")


def waterfall(contest: Contest, slo: Objective) -> list[Step]:
    """From one pool to two, each bar the best design of what is allowed by then."""
    space = contest.space
    first = next(kind for kind in space.hardware if space.degrees_of(kind))
    own = replace(space, hardware=(first,))
    degrees = own.degrees_of(first)
    tp = load_model(space.model).default_tp
    usual = tp if tp in degrees and space.gpus % tp == 0 else degrees[0]
    narrow = replace(own, degrees=(usual,))
    pools = [design for design in narrow.single_pools() if design.arrangement in PLAIN]
    base = contest.race([contest.probe(design) for design in pools], slo)
    spaces = {"no interference": narrow, "own parallelism": own}
    if len(space.hardware) > 1:
        spaces["own hardware"] = space
    free = {name: contest.best(DISAGGREGATED, slo, space, FREE_LINK) for name, space in spaces.items()}
    real = contest.best(DISAGGREGATED, slo)
    return _steps(contest, slo, (f"colocated, tp={usual}", base), free, real)


def _steps(contest: Contest, slo: Objective, base: tuple[str, Lead], free: dict[str, Lead], real: Lead) -> list[Step]:
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
        if texts:
            steps.append(_step(contest, slo, name, texts, steps[-1], worth))
    with_transfer = [text.replace(FREE_LINK, "") for text in texts]
    return [*steps, _step(contest, slo, "minus transfer", with_transfer, steps[-1], worth)]


def _step(contest: Contest, slo: Objective, name: str, texts: list[str], before: Step, hint: float) -> Step:
    """The best of some designs, all looked for from the same rate on, so that noise is common to them."""
    probes = [contest.probe(Deployment.parse(text)) for text in texts]
    worth, best = max(((probe.goodput_per_gpu(slo, hint), probe) for probe in probes), key=lambda pair: pair[0])
    gain = worth - before.goodput_per_gpu
    return Step(name=name, deployment=str(best.deployment), goodput_per_gpu=worth, gain=gain)


def _linked(text: str) -> str:
    """A disaggregated design with the free link."""
    return str(Deployment.parse(text + FREE_LINK))
