"""A simulation as a run directory: the same files as of a live run, so that the same reports read it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from loadtest.backends.hardware import hardware
from loadtest.backends.perfmodel import load_model
from loadtest.backends.simulator import Simulation, run_simulation
from loadtest.backends.spec import resolve
from loadtest.deployment import Deployment
from loadtest.record import planned_info, record
from loadtest.target import SimulatedTarget
from metrics.energy import Economy, PoolUse, economy
from metrics.records import Outcome
from metrics.rundir import Run
from metrics.runinfo import Scalar
from metrics.slo import SLO
from workloads.schedule import Schedule

GPUS_PER_MACHINE = 8


def record_simulation(deployment: Deployment, schedule: Schedule, directory: Path, slo: SLO | None = None) -> Run:
    """Simulate `schedule` and write the run into `directory`, which exists and is empty (rundir.create)."""
    with SimulatedTarget(deployment) as target:
        info = msgspec.structs.replace(
            planned_info(target, schedule), name=directory.name, slo="" if slo is None else str(slo)
        )
        return record(target, schedule, info, directory)


def server_facts(deployment: Deployment, simulation: Simulation) -> dict[str, Scalar]:
    """What a server would tell of itself, for run.json: how far to trust its model, what it did, what that cost.

    `extrapolated_share` is what validity warns of, and the keys of `costs` are what every bill is made from
    (metrics.energy.told_economy).
    """
    stats = simulation.stats
    facts = _model_facts(deployment, simulation)
    facts |= {
        "preemptions": stats.preemptions,
        "transferred_bytes": stats.transferred_bytes,
        "pipeline_bubble_s": stats.bubble_s,
    }
    if resolve(deployment).prefix_block is not None:
        facts["prefix_cache_hits"] = stats.prefix_tokens
    if (cost := costs(deployment, simulation)) is not None:
        facts |= {"usd": cost.usd, "wh": cost.wh, "power_model": cost.power_model, "idle_share": cost.idle_share}
    return facts


def model_facts(deployment: Deployment, schedule: Schedule) -> dict[str, Scalar]:
    """How far to trust the model of an emulated server that was offered `schedule`: the share is the simulator's."""
    return _model_facts(deployment, run_simulation(deployment, schedule, events=False))


def _model_facts(deployment: Deployment, simulation: Simulation) -> dict[str, Scalar]:
    spec = resolve(deployment)
    norms = {pool.perf.profile.prefill.norm for pool in spec.pools}
    return {
        "performance_model": load_model(spec.model).source,
        "prefill_form": " and ".join(f"{norm}-norm" for norm in sorted(norms)),
        "measured": all(pool.perf.profile.measured for pool in spec.pools),
        "extrapolated_share": simulation.stats.extrapolated_share,
    }


def costs(deployment: Deployment, simulation: Simulation) -> Economy | None:
    """Money and energy from the first arrival to the last token; None when nothing was served."""
    rows = simulation.table.rows
    served = rows[rows["outcome"] == Outcome.OK]
    if not len(served):
        return None
    duration_s = float(served["done_s"].max() - np.nanmin(rows["scheduled_s"]))
    return economy(_use(deployment, simulation), duration_s, len(served))


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
