"""A `torch:` deployment, resolved: every default filled in, every conflict refused."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

import msgspec

from loadtest.backends.engine.shapes import PRESETS, Shape, read_shape
from loadtest.backends.spec import max_num_seqs
from loadtest.deployment import Deployment
from loadtest.errors import UsageError

Role = Literal["both", "prefill", "decode"]

_KV_BYTES: Final = 1 << 30  # of a worker's KV memory, when nothing else is said; touched only as used
_MAX_MODEL_LEN: Final = 16384
_MULTIPLE: Final = 16
_BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a server and its workers are built from; crosses to them as JSON."""

    arrangement: str
    model: str
    shape: Shape
    device: str
    dtype: str
    threads: int
    instances: int
    kv_link: str
    kv_link_gbps: float  # 0: as fast as it goes
    kv_link_latency_us: float
    kv_transfer: str
    layerwise_min_tokens: int
    kv_lease_s: float
    on_worker_failure: str
    max_num_batched_tokens: int
    max_num_seqs: int
    long_prefill_token_threshold: int
    block_size: int
    num_blocks: int
    max_model_len: int
    max_queue: int | None
    weights_seed: int

    @property
    def name(self) -> str:
        """What the API calls the model: the preset, or the folder's last part."""
        return self.model if self.model in PRESETS else Path(self.model).resolve().name

    @property
    def roles(self) -> tuple[Role, ...]:
        """Of its workers, one each."""
        if self.arrangement == "disaggregated":
            return ("prefill", "decode")
        both: Role = "both"
        return (both,) * self.instances

    @property
    def block_bytes(self) -> int:
        """Bytes of one layer of one KV block: what a transfer moves at a time."""
        return self.block_size * self.shape.kv_values_per_token() * _BYTES[self.dtype]

    @property
    def kv_bytes(self) -> int:
        """Bytes of a worker's KV memory."""
        return self.shape.layers * self.num_blocks * self.block_bytes

    def overlaps(self, prompt_tokens: int) -> bool:
        """Do the layers of such a prompt leave as they are computed?"""
        if self.kv_transfer == "hybrid":
            return prompt_tokens >= self.layerwise_min_tokens
        return self.kv_transfer == "layerwise"


def resolve(deployment: Deployment) -> Settings:
    """The settings of a `torch:` deployment; UsageError when its parts do not fit together or torch is missing."""
    if deployment.backend != "torch":
        raise UsageError(f"{deployment} is not a torch deployment", code="bad_deployment")
    _require_torch()
    shape = read_shape(str(deployment["model"]))
    cpu = deployment["device"] == "cpu"
    # bfloat16 takes 4-5 times as long as float32 on the processors measured
    dtype = str(deployment.get("dtype") or ("float32" if cpu else "bfloat16"))
    max_model_len = int(deployment.get("max_model_len") or min(shape.max_position, _MAX_MODEL_LEN))
    block_size = int(deployment["block_size"])
    block = shape.layers * block_size * shape.kv_values_per_token() * _BYTES[dtype]
    blocks = int(deployment.get("num_gpu_blocks") or max(_KV_BYTES // block, -(-max_model_len // block_size)))
    _check_lengths(deployment, shape, max_model_len, blocks * block_size)
    instances = int(deployment.get("instances") or 1)
    workers = 2 if deployment.arrangement == "disaggregated" else instances
    max_queue = deployment.get("max_queue")
    return Settings(
        arrangement=deployment.arrangement,
        model=str(deployment["model"]),
        shape=shape,
        device=str(deployment["device"]),
        dtype=dtype,
        threads=int(deployment.get("threads") or max(1, len(cores()) // workers)),
        instances=instances,
        kv_link=_kv_link(deployment, cpu=cpu),
        kv_link_gbps=float(deployment["kv_link_gbps"]),
        kv_link_latency_us=float(deployment["kv_link_latency_us"]),
        kv_transfer=str(deployment["kv_transfer"]),
        layerwise_min_tokens=int(deployment["layerwise_min_tokens"]),
        kv_lease_s=float(deployment["kv_lease_s"]),
        on_worker_failure=str(deployment["on_worker_failure"]),
        max_num_batched_tokens=_budget(deployment),
        max_num_seqs=max_num_seqs(deployment, deployment.get("max_num_seqs"), _budget(deployment)),
        long_prefill_token_threshold=int(deployment["long_prefill_token_threshold"]),
        block_size=block_size,
        num_blocks=blocks,
        max_model_len=max_model_len,
        max_queue=None if max_queue is None else int(max_queue),
        weights_seed=int(deployment["weights_seed"]),
    )


def cores() -> list[int]:
    """The processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _require_torch() -> None:
    missing = [name for name in ("torch", "safetensors") if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"the torch backend needs {' and '.join(missing)}, which this environment does not have",
            hint="pip install 'slo-goodput[torch]'",
            code="no_torch",
        )


def _check_lengths(deployment: Deployment, shape: Shape, max_model_len: int, kv_tokens: int) -> None:
    if max_model_len > shape.max_position:
        raise UsageError(
            f"{deployment}: the model was made for {shape.max_position} tokens, fewer than {max_model_len=}",
            hint=f"write max_model_len={shape.max_position} or less",
            code="bad_deployment",
        )
    if kv_tokens < max_model_len:
        raise UsageError(
            f"{deployment}: KV memory holds {kv_tokens} tokens, fewer than {max_model_len=}",
            hint="lower max_model_len, or raise num_gpu_blocks",
            code="bad_deployment",
        )


def _budget(deployment: Deployment) -> int:
    """max_num_batched_tokens in whole multiples of 16, as matrix units like them."""
    asked = int(deployment["max_num_batched_tokens"])
    return asked // _MULTIPLE * _MULTIPLE or asked


def _kv_link(deployment: Deployment, *, cpu: bool) -> str:
    link = str(deployment.get("kv_link") or ("shm" if cpu else "tcp"))
    if link == "shm" and not cpu:
        raise UsageError(
            f"{deployment}: KV on a GPU is not in shared memory", hint="write kv_link=tcp", code="bad_deployment"
        )
    return link
