"""A simulation as a run directory: the same files as of a live run, so that the same reports read it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from loadtest.backends.hardware import hardware
from loadtest.backends.perfmodel import load_model
from loadtest.backends.simulator import Simulation, run_simulation
from loadtest.backends.spec import resolve
from loadtest.deployment import Deployment
from loadtest.record import begin, finish, planned_info
from loadtest.target import Measurement, SimulatedTarget
from metrics.energy import Economy, PoolUse, economy
from metrics.records import Outcome
from metrics.rundir import Run
from metrics.runinfo import Scalar
from metrics.slo import SLO, attain
from workloads.schedule import Schedule

GPUS_PER_MACHINE = 8


def record_simulation(deployment: Deployment, schedule: Schedule, directory: Path, slo: SLO | None = None) -> Run:
    """Simulate `schedule` and write the run into `directory`, which exists and is empty (rundir.create)."""
    info = planned_info(SimulatedTarget(deployment), schedule)
    info = msgspec.structs.replace(
        info, name=directory.name, model=resolve(deployment).model, slo="" if slo is None else str(slo)
    )
    begin(schedule, info, directory)
    simulation = run_simulation(deployment, schedule)
    info = msgspec.structs.replace(info, server=server_facts(deployment, simulation, slo))
    return finish(info, directory, Measurement(simulation.table))


def server_facts(deployment: Deployment, simulation: Simulation, slo: SLO | None = None) -> dict[str, Scalar]:
    """What a server would tell of itself: its model and how far to trust it, what it did, what that cost."""
    stats = simulation.stats
    spec = resolve(deployment)
    model = load_model(spec.model)
    norms = {pool.perf.profile.prefill.norm for pool in spec.pools}
    facts: dict[str, Scalar] = {
        "performance_model": model.source,
        "prefill_form": " and ".join(f"{norm}-norm" for norm in sorted(norms)),
        "measured": all(pool.perf.profile.measured for pool in spec.pools),
        "extrapolated_share": stats.extrapolated_share,
        "preemptions": stats.preemptions,
        "transferred_bytes": stats.transferred_bytes,
        "pipeline_bubble_s": stats.bubble_s,
    }
    if spec.prefix_block is not None:
        facts["prefix_cache_hits"] = stats.prefix_tokens
    if (cost := costs(deployment, simulation, slo)) is not None:
        facts |= msgspec.to_builtins(cost)
    return facts


def costs(deployment: Deployment, simulation: Simulation, slo: SLO | None = None) -> Economy | None:
    """Money and energy from the first arrival to the last token; None when nothing was served."""
    rows = simulation.table.rows
    served = rows[rows["outcome"] == Outcome.OK]
    if not len(served):
        return None
    good = attain(simulation.table, slo).good if slo is not None else None
    duration_s = float(served["done_s"].max() - rows["scheduled_s"].min())
    return economy(_use(deployment, simulation), duration_s, len(served), good)


def _use(deployment: Deployment, simulation: Simulation) -> list[PoolUse]:
    uses = []
    for size, pool, work in zip(deployment.pools, resolve(deployment).pools, simulation.stats.pools, strict=True):
        gpu = hardware(size.hardware)
        price = deployment.of_pool("gpu_hour_usd", size.role)
        share = 1.0 if pool.power_cap_w is None else pool.power_cap_w / gpu.power_w
        uses.append(
            PoolUse(
                hardware=size.hardware,
                instances=size.instances,
                gpus_per_instance=size.tp * size.pp,
                gpu_power_w=gpu.power_w * share,
                machine_power_w=size.gpus * (gpu.machine_w / GPUS_PER_MACHINE - gpu.power_w * (1 - share)),
                gpu_hour_usd=gpu.gpu_hour_usd if price is None else float(price),
                prefill_s=work.prefill_s,
                decode_s=work.busy_s - work.prefill_s,
                prompt_tokens_per_batch=work.prompt_tokens / max(1, work.prefill_iterations),
            )
        )
    return uses
