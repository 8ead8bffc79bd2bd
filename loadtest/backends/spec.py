"""A `Deployment` resolved into what a cluster is built from: every default filled in, every conflict refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from loadtest.backends.hardware import hardware
from loadtest.backends.kvlink import LINK_GBPS, KvLink
from loadtest.backends.memory import Limits
from loadtest.backends.perfmodel import PerfModel, load_perf_model
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
    limits: Limits  # of one group of requests: an instance, or a stage's worth of it
    stages: int = 1  # of its pipeline
    power_cap_w: float | None = None  # per GPU


@dataclass(frozen=True)
class MixedPool:
    """Queue lengths, in tokens, from which a pool borrows an instance of the other one."""

    prompt_tokens: int
    decode_tokens: int


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
    contention: str
    mixed: MixedPool | None
    prefix_block: int | None  # tokens of a block of the prefix cache, None without one


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
        contention=str(deployment["kv_contention"]),
        mixed=_mixed(deployment),
        prefix_block=_prefix_block(deployment),
    )


def _pool(deployment: Deployment, size: PoolSize) -> Pool:
    cap_w = deployment.of_pool("power_cap_w", size.role)
    perf = load_perf_model(str(deployment["model"]), size.hardware, size.tp, None if cap_w is None else float(cap_w))
    return Pool(
        size.role,
        size.instances,
        perf,
        _policy(deployment, size.role),
        _limits(deployment, size, perf),
        size.pp,
        None if cap_w is None else float(cap_w),
    )


def _policy(deployment: Deployment, role: str) -> Policy:
    budget = _budget(deployment, role)
    if path := deployment.of_pool("policy", role):
        return load_policy(str(path), budget)
    if deployment.arrangement == "chunked":
        return Chunked(budget, int(deployment["long_prefill_token_threshold"]))
    if deployment.arrangement == "colocated_prefill_first":
        return ColocatedPrefillFirst(budget)
    return Colocated(budget)  # of a pool for one phase: batches of whole prompts, or of decodes


def _budget(deployment: Deployment, role: str) -> int:
    return int(deployment.of_pool("max_num_batched_tokens", role) or deployment["max_num_batched_tokens"])


def _limits(deployment: Deployment, size: PoolSize, perf: PerfModel) -> Limits:
    """Of one group: the groups of a pipeline share memory and batch slots equally."""
    block_size = int(deployment["block_size"])
    fitting = perf.kv_tokens(float(deployment["gpu_memory_utilization"]), size.pp) // block_size
    num_blocks = int(deployment.get("num_gpu_blocks") or fitting) // size.pp
    max_model_len = int(deployment["max_model_len"])
    if num_blocks * block_size < max_model_len:
        raise UsageError(
            f"{deployment}: KV memory holds {num_blocks * block_size} tokens on {size.tp * size.pp} x {size.hardware}"
            f"{f' in each of {size.pp} groups' if size.pp > 1 else ''}, fewer than max_model_len={max_model_len}",
            hint="lower max_model_len, or raise tp or gpu_memory_utilization",
            code="bad_deployment",
        )
    seqs = max_num_seqs(deployment, deployment.of_pool("max_num_seqs", size.role), _budget(deployment, size.role))
    return Limits(
        num_blocks=num_blocks,
        block_size=block_size,
        watermark_blocks=int(float(deployment["watermark"]) * num_blocks),
        max_num_seqs=max(1, seqs // size.pp),
        reserve_output=deployment["kv_policy"] == "reserve_output",
    )


def max_num_seqs(deployment: Deployment, asked: Any, budget: int) -> int:
    """Requests that may decode together: what was asked, which the token budget must hold, else what it holds."""
    if asked is None:
        return min(DEFAULT_MAX_NUM_SEQS, budget)
    if int(asked) > budget:
        raise UsageError(
            f"{deployment}: max_num_batched_tokens={budget} has no room for max_num_seqs={asked} decodes",
            hint="every decode takes one token of the budget: raise it, or lower max_num_seqs",
            code="bad_deployment",
        )
    return int(asked)


def _mixed(deployment: Deployment) -> MixedPool | None:
    if deployment.arrangement != "disaggregated" or deployment["mixed_pool"] == "off":
        return None
    return MixedPool(int(deployment["mixed_prompt_tokens"]), int(deployment["mixed_decode_tokens"]))


def _prefix_block(deployment: Deployment) -> int | None:
    if deployment["prefix_cache"] == "off":
        return None
    tokens, block_size = int(deployment["prefix_block_tokens"]), int(deployment["block_size"])
    if tokens % block_size:
        raise UsageError(
            f"{deployment}: prefix_block_tokens={tokens} is not a whole number of KV blocks of {block_size}",
            hint="make it a multiple of block_size",
            code="bad_deployment",
        )
    return tokens


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
