"""How long an iteration takes: fitted forms over measured data, coefficients as JSON in data/.

    prefill(n, S) = (a^4 + (b n + h max(0, n - 2048) + d S)^4)^(1/4)
    decode(B, K)  = A + beta B + beta2 max(0, B - 32) + cK K + cx K/B
    mixed         = max(prefill(n + B, S), A + beta B + beta2 max(0, B - 32)) + cK K

n prompt tokens in the iteration; S the sum over its prompts or chunks of c (2 done + c), which is the sum of squares
for whole prompts; B decoding requests; K the sum of their contexts. The 4-norm is a roofline with a soft corner:
at few tokens the fixed cost (weights, launches) binds, at many the arithmetic. Derivation: docs/backends.md.
"""

from __future__ import annotations

import difflib
from functools import cache
from importlib.resources import files
from math import sqrt
from typing import Final

import msgspec

from loadtest.errors import UsageError

KNEE_TOKENS: Final = 2048  # prefill throughput of the measured machines peaks here
KNEE_BATCH: Final = 32
MODELS: Final = ("llama2-70b", "bloom-176b", "demo-8b")


class PrefillFit(msgspec.Struct, frozen=True):
    """a, b, h, d of the prefill form, in milliseconds."""

    base_ms: float
    per_token_ms: float
    per_token_over_2048_ms: float
    per_attended_ms: float
    error_percent: float


class DecodeFit(msgspec.Struct, frozen=True):
    """A, beta, beta2, cx, cK of the decode form, in milliseconds."""

    base_ms: float
    per_request_ms: float
    per_request_over_32_ms: float
    per_mean_context_ms: float
    per_context_token_ms: float
    error_percent: float


class Profile(msgspec.Struct, frozen=True):
    """The fit of one model on one kind of GPU at one tensor-parallel degree."""

    hardware: str
    tp: int
    prefill: PrefillFit
    decode: DecodeFit


class Model(msgspec.Struct, frozen=True):
    """A model's facts, where its figures come from, and the range they were fitted on."""

    model: str
    source: str
    layers: int
    parameters: float
    bytes_per_parameter: int
    kv_bytes_per_token: int
    default_tp: int
    calibrated_batch: int
    calibrated_context: int
    profiles: tuple[Profile, ...]


class Hardware(msgspec.Struct, frozen=True):
    """What the emulation needs to know of a GPU beside its speed."""

    memory_gib: float
    nvlink_gbps: float
    kv_link: str
    kv_latency_us: float


class _HardwareFile(msgspec.Struct):
    source: str
    hardware: dict[str, Hardware]


class PerfModel:
    """Iteration times, in seconds, of one model on one instance."""

    def __init__(self, model: Model, profile: Profile) -> None:
        self.model = model
        self.profile = profile
        prefill, decode = profile.prefill, profile.decode
        self._a4 = (prefill.base_ms * 1e-3) ** 4
        self._b, self._h, self._d = (
            ms * 1e-3 for ms in (prefill.per_token_ms, prefill.per_token_over_2048_ms, prefill.per_attended_ms)
        )
        self._base, self._beta, self._beta2, self._cx, self._ck = (
            ms * 1e-3
            for ms in (
                decode.base_ms,
                decode.per_request_ms,
                decode.per_request_over_32_ms,
                decode.per_mean_context_ms,
                decode.per_context_token_ms,
            )
        )

    def prefill_s(self, tokens: int, attended: int) -> float:
        """An iteration of prompt tokens only; `attended` is S, the sum of c (2 done + c)."""
        arithmetic = self._b * tokens + self._h * max(0, tokens - KNEE_TOKENS) + self._d * attended
        power = arithmetic * arithmetic
        return sqrt(sqrt(self._a4 + power * power))

    def decode_s(self, batch: int, context: int) -> float:
        """An iteration of `batch` decodes whose contexts add up to `context` tokens."""
        return self._batch_s(batch) + (self._ck + self._cx / batch) * context

    def mixed_s(self, tokens: int, attended: int, batch: int, context: int) -> float:
        """Prompt tokens and decodes in one iteration; either may be absent."""
        if not tokens:
            return self.decode_s(batch, context)
        if not batch:
            return self.prefill_s(tokens, attended)
        return max(self.prefill_s(tokens + batch, attended), self._batch_s(batch)) + self._ck * context

    def kv_tokens(self, gpu_memory_utilization: float) -> int:
        """How many tokens of KV cache fit beside the weights; 0 when the weights alone do not fit."""
        memory = self.profile.tp * hardware(self.profile.hardware).memory_gib * 2**30 * gpu_memory_utilization
        weights = self.model.parameters * self.model.bytes_per_parameter
        return max(0, int((memory - weights) / self.model.kv_bytes_per_token))

    def _batch_s(self, batch: int) -> float:
        return self._base + self._beta * batch + self._beta2 * max(0, batch - KNEE_BATCH)


@cache
def load_model(name: str) -> Model:
    """The model of that name, from data/; a UsageError names the nearest that exists."""
    if name not in MODELS:
        near = difflib.get_close_matches(name, MODELS, n=1)
        raise UsageError(
            f"there is no emulated model {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
            hint=f"emulated models: {', '.join(MODELS)}",
            code="unknown_model",
        )
    return msgspec.json.decode(_data(f"{name}.json"), type=Model)


def load_perf_model(name: str, hardware_name: str, tp: int) -> PerfModel:
    """The fit of a model on a kind of GPU at a tensor-parallel degree; a UsageError lists those that exist."""
    model = load_model(name)
    for profile in model.profiles:
        if (profile.hardware, profile.tp) == (hardware_name, tp):
            return PerfModel(model, profile)
    known = ", ".join(f"hardware={profile.hardware},tp={profile.tp}" for profile in model.profiles)
    raise UsageError(
        f"{name} was not measured with hardware={hardware_name},tp={tp}",
        hint=f"measured for {name}: {known}",
        code="unknown_profile",
    )


@cache
def _hardware_table() -> dict[str, Hardware]:
    return msgspec.json.decode(_data("hardware.json"), type=_HardwareFile).hardware


def hardware(name: str) -> Hardware:
    """The GPU of that name; every name in a profile is in the table."""
    return _hardware_table()[name]


def _data(name: str) -> bytes:
    return (files("loadtest.backends") / "data" / name).read_bytes()
