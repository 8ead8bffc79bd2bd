"""Cost and energy of a deployment's work, per request and per *good* request.

    cost    = GPU hours x price                 all GPUs, all the time, busy or not
    energy  = sum over pools of GPUs x watts x seconds, in one of two ways:
      two-level  prefill at the share of power that its tokens in a batch draw, decode at a flat share, idle at its own
      constant   the machine's power all the time, as the Splitwise paper counts

The two levels are Splitwise's A100 rows (perf_model.csv, Llama2-70B at TP 8, share of the GPU's power): prompts draw
.46 at 128 tokens in the batch, .66 at 256, .75 at 512, .99 at 2,048 and 1.0 beyond; decodes .45 whatever the batch.
Other GPUs were not measured there: `constant`. The share of an idle GPU is an assumption.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from metrics.errors import MetricsError

PowerModel = Literal["two-level", "constant"]

PROMPT_POWER: Final = ((128, 0.46), (256, 0.66), (512, 0.75), (2048, 0.99), (8192, 1.0))
DECODE_POWER: Final = 0.45
IDLE_POWER: Final = 0.15
MEASURED: Final = ("a100",)


class PoolUse(msgspec.Struct, frozen=True, kw_only=True):
    """A pool over one run; seconds are summed over its instances, each of `gpus_per_instance` GPUs."""

    hardware: str
    instances: int
    gpus_per_instance: int
    gpu_power_w: float  # peak, or the cap
    machine_power_w: float  # of all its GPUs with their hosts
    gpu_hour_usd: float
    prefill_s: float
    decode_s: float
    prompt_tokens_per_batch: float = 512.0

    @property
    def gpus(self) -> int:
        """GPUs of the pool."""
        return self.instances * self.gpus_per_instance


class Economy(msgspec.Struct, frozen=True, kw_only=True):
    """What a run cost; None where nothing was served, or nothing was good."""

    usd: float
    usd_per_request: float | None
    usd_per_good_request: float | None
    wh: float
    wh_per_request: float | None
    wh_per_good_request: float | None
    power_model: PowerModel
    idle_share: float  # of all GPU seconds


def economy(pools: Sequence[PoolUse], duration_s: float, served: int, good: float | None = None) -> Economy:
    """Cost and energy over `duration_s`, first arrival to last token; MetricsError when that is not above 0."""
    if not duration_s > 0:
        raise MetricsError(f"a run of {duration_s:g} s has no cost", code="no_duration")
    two_level = all(pool.hardware in MEASURED for pool in pools)
    usd = sum(pool.gpus * pool.gpu_hour_usd for pool in pools) * duration_s / 3600
    joules = sum(_two_level_j(pool, duration_s) if two_level else pool.machine_power_w * duration_s for pool in pools)
    seconds = sum(pool.instances for pool in pools) * duration_s
    busy = sum(min(pool.prefill_s + pool.decode_s, pool.instances * duration_s) for pool in pools)
    power_model: PowerModel = "two-level" if two_level else "constant"
    return _shared_out(usd, joules / 3600, power_model, 1 - busy / seconds, served, good)


def told_economy(server: Mapping[str, object], served: int, good: float | None = None) -> Economy | None:
    """The economy of a run whose run.json tells what it cost as a whole; None where it does not.

    `server` holds `usd` and `wh` of all GPUs from first arrival to last token, `power_model`, and `idle_share` of all
    GPU seconds; a simulation writes them. They do not depend on an SLO, so any SLO can be asked for afterwards: `good`
    is how many requests met it. Every report's bill is `summarise(run, slo).economy`.
    """
    usd, wh, idle = (server.get(key) for key in ("usd", "wh", "idle_share"))
    if not (isinstance(usd, int | float) and isinstance(wh, int | float) and isinstance(idle, int | float)):
        return None
    power_model: PowerModel = "two-level" if server.get("power_model") == "two-level" else "constant"
    return _shared_out(usd, wh, power_model, idle, served, good)


def _shared_out(
    usd: float, wh: float, power_model: PowerModel, idle_share: float, served: int, good: float | None
) -> Economy:
    return Economy(
        usd=usd,
        usd_per_request=_per(usd, served),
        usd_per_good_request=_per(usd, good),
        wh=wh,
        wh_per_request=_per(wh, served),
        wh_per_good_request=_per(wh, good),
        power_model=power_model,
        idle_share=idle_share,
    )


def alone_usd(e2e_s: float, machine_hour_usd: float) -> float:
    """A request's cost as Splitwise compares machines: it has one to itself from arrival to last token."""
    return e2e_s * machine_hour_usd / 3600


def alone_wh(e2e_s: float, machine_power_w: float) -> float:
    """A request's energy on a machine of its own."""
    return e2e_s * machine_power_w / 3600


def prompt_power(tokens: float) -> float:
    """Share of the GPU's power that a batch of so many prompt tokens draws, linear between the measured ones."""
    sizes = [size for size, _ in PROMPT_POWER]
    place = bisect_left(sizes, tokens)
    if place == 0:
        return PROMPT_POWER[0][1]
    if place == len(sizes):
        return PROMPT_POWER[-1][1]
    (low, begin), (high, end) = PROMPT_POWER[place - 1], PROMPT_POWER[place]
    return begin + (end - begin) * (tokens - low) / (high - low)


def _two_level_j(pool: PoolUse, duration_s: float) -> float:
    idle_s = max(0.0, pool.instances * duration_s - pool.prefill_s - pool.decode_s)
    share_s = pool.prefill_s * prompt_power(pool.prompt_tokens_per_batch)
    share_s += pool.decode_s * DECODE_POWER + idle_s * IDLE_POWER
    return pool.gpus_per_instance * pool.gpu_power_w * share_s


def _per(amount: float, count: float | None) -> float | None:
    return amount / count if count else None
