"""What a design costs and draws at its goodput, and how far outside of the measurements it works there."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from loadtest.backends.hardware import hardware
from loadtest.backends.simulator import run_simulation
from loadtest.backends.spec import resolve
from loadtest.deployment import Deployment
from loadtest.errors import UsageError
from loadtest.virtual import GPUS_PER_MACHINE, costs
from metrics.energy import MEASURED, PowerModel
from workloads.schedule import Schedule

FITTED_FOR: Final = ("a100", "h100")  # whose roofline efficiencies were measured


class Work(NamedTuple):
    """Mean power of all GPUs while a load is served, and the share of busy time outside the calibrated range."""

    watts: float
    extrapolated: float


def power_model(kinds: tuple[str, ...]) -> PowerModel:
    """One for the whole table, or its rows could not be compared: two levels only where every kind was measured."""
    return "two-level" if set(kinds) <= set(MEASURED) else "constant"


def at_work(deployment: Deployment, schedule: Schedule, power: PowerModel) -> Work:
    """The design under a load, simulated once; energy is that of docs/backends.md."""
    simulation = run_simulation(deployment, schedule, events=False)
    rows = simulation.table.rows
    cost = costs(deployment, simulation) if power == "two-level" else None
    watts = constant_watts(deployment)
    if cost is not None:
        watts = cost.wh * 3600 / float(rows["done_s"].max() - rows["scheduled_s"].min())
    return Work(watts, float(simulation.stats.extrapolated_share))


def constant_watts(deployment: Deployment) -> float:
    """The power of its share of the machines, all the time, as the Splitwise paper counts: not a measurement."""
    return sum(pool.gpus * hardware(pool.hardware).machine_w / GPUS_PER_MACHINE for pool in deployment.pools)


def usd_per_hour(deployment: Deployment, prices: dict[str, float]) -> float:
    """What its GPUs cost, at these prices of a GPU-hour or else the table's."""
    return sum(pool.gpus * prices.get(pool.hardware, hardware(pool.hardware).gpu_hour_usd) for pool in deployment.pools)


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
        if not 0 < price < math.inf or (equals and name not in kinds):
            raise UsageError(
                f"--gpu-hour-usd {text!r} is not a price",
                hint="write 4.76, or a price for each --hardware: h100=4.76,a100=2.21",
                code="bad_price",
            )
        found |= dict.fromkeys((name,) if equals else kinds, price)
    return found


def unmeasured(model: str, deployments: list[str]) -> list[str]:
    """What to know of designs whose iteration times nobody measured: a sentence for each reason."""
    pools = [
        pool for text in deployments for pool in resolve(Deployment.parse(text)).pools if not pool.perf.profile.measured
    ]
    kinds = sorted({pool.perf.profile.hardware for pool in pools})
    if not kinds:
        return []
    found = [
        f"nobody measured {model} on {' or '.join(kinds)} at these degrees: all times there are the unified roofline's,"
        " which misses models it was not fitted to by up to 20 % (prefill) and 9 % (decode)"
    ]
    guessed = [kind for kind in kinds if kind not in FITTED_FOR]
    if guessed:
        found.append(f"the efficiencies of {' and '.join(guessed)} are assumed to be those of h100")
    return found
