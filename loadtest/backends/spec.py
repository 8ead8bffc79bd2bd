"""A `Deployment` resolved into what a cluster is built from: every default filled in, every conflict refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from loadtest.backends.instance import Limits
from loadtest.backends.kvlink import LINK_GBPS, KvLink
from loadtest.backends.perfmodel import PerfModel, hardware, load_perf_model
from loadtest.backends.policies import Chunked, Colocated, ColocatedPrefillFirst, Policy, load_policy
from loadtest.deployment import Deployment, PoolSize
from loadtest.errors import UsageError

DEFAULT_MAX_NUM_SEQS: Final = 256


@dataclass(frozen=True)
class Pool:
    """Equal instances; `role` is prefill, decode, or empty for both."""

    role: str
    instances: int
    perf: PerfModel
    policy: Policy
    limits: Limits


@dataclass(frozen=True)
class ClusterSpec:
    """Pools (the one that takes arrivals first), router, link between the pools, and limits."""

    model: str
    max_model_len: int
    max_queue: int | None
    router: str
    pools: tuple[Pool, ...]
    link: KvLink | None
    first_token: str


def resolve(deployment: Deployment) -> ClusterSpec:
    """What an emulated deployment is made of; UsageError when its parts do not fit together."""
    if deployment.backend != "emulated":
        raise UsageError(f"{deployment} is not an emulated deployment", code="bad_deployment")
    pools = tuple(_pool(deployment, size) for size in deployment.pools)
    max_queue = deployment.get("max_queue")
    return ClusterSpec(
        model=str(deployment["model"]),
        max_model_len=int(deployment["max_model_len"]),
        max_queue=None if max_queue is None else int(max_queue),
        router=str(deployment["router"]),
        pools=pools,
        link=_link(deployment, pools[0].perf) if len(pools) > 1 else None,
        first_token=str(deployment["first_token"]),
    )


def _pool(deployment: Deployment, size: PoolSize) -> Pool:
    perf = load_perf_model(str(deployment["model"]), size.hardware, size.tp)
    return Pool(size.role, size.instances, perf, _policy(deployment), _limits(deployment, size, perf))


def _policy(deployment: Deployment) -> Policy:
    budget = int(deployment["max_num_batched_tokens"])
    if path := deployment.get("policy"):
        return load_policy(str(path), budget)
    if deployment.arrangement == "chunked":
        return Chunked(budget, int(deployment["long_prefill_token_threshold"]))
    if deployment.arrangement == "colocated_prefill_first":
        return ColocatedPrefillFirst(budget)
    return Colocated(budget)  # of a pool for one phase: batches of whole prompts, or of decodes


def _limits(deployment: Deployment, size: PoolSize, perf: PerfModel) -> Limits:
    block_size = int(deployment["block_size"])
    fitting = perf.kv_tokens(float(deployment["gpu_memory_utilization"])) // block_size
    num_blocks = int(deployment.get("num_gpu_blocks") or fitting)
    max_model_len = int(deployment["max_model_len"])
    if num_blocks * block_size < max_model_len:
        raise UsageError(
            f"{deployment}: KV memory holds {num_blocks * block_size} tokens on {size.tp} x {size.hardware}, "
            f"fewer than max_model_len={max_model_len}",
            hint="lower max_model_len, or raise tp or gpu_memory_utilization",
            code="bad_deployment",
        )
    return Limits(
        num_blocks=num_blocks,
        block_size=block_size,
        watermark_blocks=int(float(deployment["watermark"]) * num_blocks),
        max_num_seqs=_max_num_seqs(deployment),
        reserve_output=deployment["kv_policy"] == "reserve_output",
    )


def _max_num_seqs(deployment: Deployment) -> int:
    budget = int(deployment["max_num_batched_tokens"])
    asked = deployment.get("max_num_seqs")
    if asked is None:
        return min(DEFAULT_MAX_NUM_SEQS, budget)
    if int(asked) > budget:
        raise UsageError(
            f"{deployment}: max_num_batched_tokens={budget} has no room for max_num_seqs={asked} decodes",
            hint="every decode takes one token of the budget: raise it, or lower max_num_seqs",
            code="bad_deployment",
        )
    return int(asked)


def _link(deployment: Deployment, sender: PerfModel) -> KvLink:
    gpu = hardware(sender.profile.hardware)
    name = str(deployment.get("kv_link") or gpu.kv_link)
    gbps = deployment.get("kv_link_gbps") or LINK_GBPS.get(name, gpu.nvlink_gbps)
    latency_us = deployment.get("kv_link_latency_us")
    return KvLink(
        bytes_per_s=float(gbps) * 1e9 / 8,
        latency_s=float(gpu.kv_latency_us if latency_us is None else latency_us) * 1e-6,
        mode=str(deployment["kv_transfer"]),
        layers=sender.model.layers,
        kv_bytes_per_token=sender.model.kv_bytes_per_token,
    )
