"""`--predict`: what the simulator says of the schedule that a run has offered, in the run's own terms."""

from __future__ import annotations

from pathlib import Path

from loadtest.backends.simulator import run_simulation
from loadtest.backends.spec import resolve
from loadtest.deployment import Deployment
from loadtest.errors import UsageError
from metrics import rundir
from metrics.prediction import Prediction, prediction
from metrics.records import Outcome, Rows
from metrics.rundir import Run
from metrics.slo import SLO
from workloads.schedule import Schedule

LEAST_OUTSIDE = 0.01  # share of the busy time outside the model's range that is worth a word


def model_of(text: str) -> Deployment:
    """The deployment to simulate, with a performance model that can be read; UsageError otherwise."""
    deployment = Deployment.parse(text)
    if deployment.backend != "emulated":
        raise UsageError(
            f"--predict simulates, and {text!r} has no simulator",
            hint="describe the server as an emulated one, e.g. emulated:chunked,model=FILE.json (goodput calibrate)",
            code="predict",
        )
    resolve(deployment)
    return deployment


def predict(deployment: Deployment, run: Run, directory: Path, slo: SLO | None) -> Prediction:
    """Simulate the schedule in the run's folder: the same instants, lengths, warm-up and, after a stop, part."""
    schedule = Schedule.load(directory / rundir.SCHEDULE)
    simulated = run_simulation(deployment, schedule, events=False)
    return prediction(
        simulated.table,
        slo,
        f"the simulator as {deployment}",
        stopped_at_s=run.info.stopped_at_s,
        notes=_notes(deployment, run, simulated.table.rows, simulated.stats.extrapolated_share),
    )


def _notes(deployment: Deployment, run: Run, simulated: Rows, outside: float) -> list[str]:
    """Where the two did not do the same, which no error says."""
    rows = run.table.rows
    ok = rows["outcome"] == Outcome.OK
    asked, got = int(rows["max_tokens"][ok].sum()), int(rows["output_tokens"][ok].sum())
    refused = int((simulated["outcome"] != Outcome.OK).sum())
    notes = []
    if failed := int((~ok).sum()):
        notes.append(f"{failed} of {len(rows)} requests did not come through; the simulator served them")
    if got != asked:
        notes.append(f"the server wrote {got:,} of {asked:,} tokens asked; the simulator writes all")
    if refused:
        notes.append(
            f"the simulated server refused {refused} requests: its max_model_len is {deployment['max_model_len']}"
        )
    if outside >= LEAST_OUTSIDE:
        notes.append(f"{outside:.0%} of the simulated time lies outside the range its model was fitted to")
    if deployment.gpus and run.info.gpus and deployment.gpus != run.info.gpus:
        notes.append(f"the run was on {run.info.gpus} GPUs, the simulation is on {deployment.gpus}")
    return notes
