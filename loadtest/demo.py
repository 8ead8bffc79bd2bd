"""The demo's recipe: three arrangements on equal GPUs, one workload, live first and then on the virtual clock."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from loadtest.backends.simulator import simulate
from loadtest.deployment import Deployment
from loadtest.record import planned_info, record
from loadtest.replay.sender import SenderOptions
from loadtest.search import Found, OnAttempt, Search, VirtualRuns
from loadtest.target import LoadSettings, OnProgress, SupervisedTarget
from loadtest.workload import Workload
from metrics import rundir
from metrics.decision import DecisionRow, Pair
from metrics.prediction import Prediction, prediction
from metrics.rundir import Run
from metrics.slo import SLO
from metrics.summary import Summary, summarise
from workloads.schedule import Schedule

# Four GPUs each. The fast model keeps a run short; the split of the disaggregated one is the best of the three.
ARRANGEMENTS = {
    "colocated": "emulated:colocated,model=demo-8b,instances=4",
    "chunked": "emulated:chunked,model=demo-8b,instances=4,max_num_batched_tokens=512",
    "disaggregated": "emulated:disaggregated,model=demo-8b,prefill=1,decode=3",
}
WORKLOAD = "azure-conv"
RATE_PER_S = 26.0
AROUND_EACH_RUN_S = 4.0  # start of the server, preflight, drain
SEARCHES_S = 12.0
SHORTEST_RUN_S = 2.0


@dataclass(frozen=True)
class Shown:
    """One arrangement as the demo saw it."""

    label: str
    run: Run
    summary: Summary
    row: DecisionRow
    found: Found
    predicted: Prediction


def live_seconds(seconds: float) -> float:
    """How long each live run may last when the whole demo should take about `seconds`."""
    return max(seconds / len(ARRANGEMENTS) - AROUND_EACH_RUN_S - SEARCHES_S / len(ARRANGEMENTS), SHORTEST_RUN_S)


def demo_schedule(seconds: float, seed: int) -> Schedule:
    """The schedule that all three arrangements get."""
    workload = Workload(trace=WORKLOAD, rate_per_s=RATE_PER_S, duration_s=live_seconds(seconds), seed=seed)
    return workload.schedule(workload.read())


def run_live(
    deployment: Deployment, schedule: Schedule, slo: SLO, directory: Path, command: list[str], progress: OnProgress
) -> Run:
    """Start the arrangement's server, replay the schedule through Locust over real sockets, stop it."""
    rundir.create(directory)
    settings = LoadSettings(SenderOptions(slo=str(slo)))
    with SupervisedTarget(deployment, settings, directory / "server.log") as target:
        info = msgspec.structs.replace(
            planned_info(target, schedule), name=directory.name, command=command, slo=str(slo)
        )
        return record(target, schedule, info, directory, progress)


def evaluate(label: str, run: Run, schedule: Schedule, slo: SLO, on_attempt: OnAttempt | None = None) -> Shown:
    """What the live run showed, what the simulator says of the same schedule, and goodput on the virtual clock."""
    deployment = Deployment.parse(run.info.deployment)
    summary = summarise(run, slo)
    predicted = prediction(simulate(deployment, schedule, events=False), slo)
    found = Search(VirtualRuns(deployment, WORKLOAD, slo), slo.share, on_attempt).run(RATE_PER_S)
    gpus = deployment.gpus or 1
    row = DecisionRow(
        label=label,
        deployment=str(deployment),
        gpus=deployment.gpus,
        goodput_per_s=found.goodput,
        goodput_per_gpu=found.goodput.per_gpu(gpus),
        live_attainment=summary.attainment.share if summary.attainment is not None else None,
        predicted_attainment=predicted.attainment,
        ttft_s=Pair(summary.ttft_s.p50, summary.ttft_s.p90) if summary.ttft_s is not None else None,
        tpot_s=Pair(summary.tpot_s.p50, summary.tpot_s.p90) if summary.tpot_s is not None else None,
        validity=summary.validity.verdict,
        goodput_from="virtual clock",
    )
    return Shown(label, run, summary, row, found, predicted)
