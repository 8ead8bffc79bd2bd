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
from pathlib import Path
from typing import Final

import msgspec

from loadtest.backends.hardware import CPU, Hardware, hardware
from loadtest.backends.roofline import Roofline
from loadtest.backends.shape import Shape, read_shape
from loadtest.errors import UsageError

KNEE_TOKENS: Final = 2048  # prefill throughput of the measured machines peaks here
KNEE_BATCH: Final = 32
CAPPED_PROMPT_SLOWDOWN: Final = 0.3  # at half the power
MODELS: Final = (
    *("llama2-70b", "bloom-176b", "demo-8b"),
    *("opt-13b-distserve", "opt-13b-vllm", "opt-66b-distserve", "opt-66b-vllm"),
)


class PrefillFit(msgspec.Struct, frozen=True):
    """a, b, h, d of the prefill form, in milliseconds; `norm` 4 for the form above, 1 for a plain sum."""

    base_ms: float
    per_token_ms: float
    per_token_over_2048_ms: float
    per_attended_ms: float
    error_percent: float
    norm: int = 4


class DecodeFit(msgspec.Struct, frozen=True):
    """A, beta, beta2, cx, cK of the decode form, in milliseconds; from `from_batch` on `larger` holds instead."""

    base_ms: float
    per_request_ms: float
    per_request_over_32_ms: float
    per_mean_context_ms: float
    per_context_token_ms: float
    error_percent: float
    from_batch: int | None = None
    larger: DecodeFit | None = None


class Profile(msgspec.Struct, frozen=True):
    """The fit of one model on one kind of GPU at one tensor-parallel degree."""

    hardware: str
    tp: int
    prefill: PrefillFit
    decode: DecodeFit
    measured: bool = True  # False: fitted to the unified roofline instead


class Model(msgspec.Struct, frozen=True):
    """A model's facts, where its figures come from, and the range they were fitted on."""

    model: str
    source: str
    layers: int
    parameters: float
    bytes_per_parameter: float
    kv_bytes_per_token: int
    default_tp: int
    calibrated_batch: int
    calibrated_context: int
    profiles: tuple[Profile, ...]
    hidden: int = 0  # 0: unknown, no roofline
    active_parameters: float | None = None  # of a mixture of experts

    @property
    def shape(self) -> Shape:
        """What a roofline needs to know."""
        return Shape(
            layers=self.layers,
            hidden=self.hidden,
            parameters=self.parameters,
            active_parameters=self.active_parameters or self.parameters,
            kv_bytes_per_token=self.kv_bytes_per_token,
            bytes_per_parameter=self.bytes_per_parameter,
        )


class PerfModel:
    """Iteration times, in seconds, of one model on one instance.

    `slowdown` multiplies the arithmetic of prompts: a power cap.
    """

    def __init__(self, model: Model, profile: Profile, slowdown: float = 1.0) -> None:
        self.model = model
        self.profile = profile
        prefill, decode = profile.prefill, profile.decode
        self._norm4 = prefill.norm == 4
        self._a = prefill.base_ms * 1e-3
        self._a4 = (self._a * self._a) * (self._a * self._a)
        self._b, self._h, self._d = (
            ms * 1e-3 * slowdown
            for ms in (prefill.per_token_ms, prefill.per_token_over_2048_ms, prefill.per_attended_ms)
        )
        self._small = _seconds(decode)
        self._large = _seconds(decode.larger or decode)
        self._from_batch = decode.from_batch or 0
        self._lines: dict[int, tuple[float, float, float, float]] = {}
        # nothing is within the range of measurements when there are none
        self.calibrated_batch = model.calibrated_batch if profile.measured else 0
        self.calibrated_context = model.calibrated_context if profile.measured else 0

    def prefill_s(self, tokens: int, attended: int) -> float:
        """An iteration of prompt tokens only; `attended` is S, the sum of c (2 done + c)."""
        return self.mixed_s(tokens, attended, 0, 0)

    def decode_line(self, batch: int) -> tuple[float, float, float, float]:
        """Of an iteration of `batch` decodes: fixed seconds, seconds per token of context, how much longer the next
        iteration of the same decodes takes (each has one more token of context), and cK.
        """
        line = self._lines.get(batch)
        if line is None:
            base, beta, beta2, cx, ck = self._small if batch < self._from_batch else self._large
            over = beta2 * (batch - KNEE_BATCH) if batch > KNEE_BATCH else 0.0
            line = self._lines[batch] = (base + beta * batch + over, ck + cx / batch, ck * batch + cx, ck)
        return line

    def decode_s(self, batch: int, context: int) -> float:
        """An iteration of `batch` decodes whose contexts add up to `context` tokens."""
        line = self.decode_line(batch)
        return line[0] + line[1] * context

    def decode_growth_s(self, batch: int) -> float:
        """How much longer the next iteration of the same decodes takes."""
        return self.decode_line(batch)[2]

    def mixed_s(self, tokens: int, attended: int, batch: int, context: int) -> float:
        """Prompt tokens and decodes in one iteration; either may be absent."""
        if not tokens:
            return self.decode_s(batch, context)
        tokens += batch
        seconds = self._b * tokens + self._d * attended
        if tokens > KNEE_TOKENS:
            seconds += self._h * (tokens - KNEE_TOKENS)
        if self._norm4:
            power = seconds * seconds
            seconds = sqrt(sqrt(self._a4 + power * power))
        else:
            seconds += self._a
        if not batch:
            return seconds
        fixed_s, _, _, ck = self.decode_line(batch)
        return (seconds if seconds > fixed_s else fixed_s) + ck * context

    def kv_tokens(self, gpu_memory_utilization: float, stages: int = 1) -> int:
        """How many tokens of KV cache fit beside the weights; 0 when the weights alone do not fit."""
        gpus = self.profile.tp * stages
        memory = gpus * hardware(self.profile.hardware).memory_gib * 2**30 * gpu_memory_utilization
        weights = self.model.parameters * self.model.bytes_per_parameter
        return max(0, int((memory - weights) / self.model.kv_bytes_per_token))


def _seconds(fit: DecodeFit) -> tuple[float, float, float, float, float]:
    return (
        fit.base_ms * 1e-3,
        fit.per_request_ms * 1e-3,
        fit.per_request_over_32_ms * 1e-3,
        fit.per_mean_context_ms * 1e-3,
        fit.per_context_token_ms * 1e-3,
    )


@cache
def load_model(name: str) -> Model:
    """A model of data/, a file of `goodput calibrate`, or a config.json; a UsageError names the nearest that exists."""
    if name.endswith(".json"):
        return _read_model(Path(name))
    if name not in MODELS:
        near = difflib.get_close_matches(name, MODELS, n=1)
        raise UsageError(
            f"there is no emulated model {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
            hint=f"emulated models: {', '.join(MODELS)}, or a .json file: a calibration or a model's config.json",
            code="unknown_model",
        )
    return msgspec.json.decode((files("loadtest.backends") / "data" / f"{name}.json").read_bytes(), type=Model)


def _read_model(path: Path) -> Model:
    shape = read_shape(path) if not _is_calibration(path) else None
    if shape is None:
        return msgspec.json.decode(path.read_bytes(), type=Model)
    return model_of(shape, path.parent.name or path.stem, f"{path}, through the unified roofline of docs/backends.md")


def _is_calibration(path: Path) -> bool:
    try:
        return "profiles" in msgspec.json.decode(path.read_bytes(), type=dict[str, object])
    except (OSError, msgspec.MsgspecError):
        return False


def model_of(shape: Shape, name: str, source: str) -> Model:
    """A model that nobody measured."""
    return Model(
        model=name,
        source=source,
        layers=shape.layers,
        parameters=shape.parameters,
        bytes_per_parameter=shape.bytes_per_parameter,
        kv_bytes_per_token=shape.kv_bytes_per_token,
        default_tp=1,
        calibrated_batch=0,
        calibrated_context=0,
        profiles=(),
        hidden=shape.hidden,
        active_parameters=shape.active_parameters,
    )


def load_perf_model(name: str, hardware_name: str, tp: int, power_cap_w: float | None = None) -> PerfModel:
    """The fit of a model on a kind of GPU at a tensor-parallel degree; of the unified roofline where none was measured.

    UsageError when there is no such GPU, or a model of which only measurements are known was not measured there.
    """
    model, gpu = load_model(name), hardware(hardware_name)
    slowdown = capped_slowdown(gpu, power_cap_w)
    for profile in model.profiles:
        if (profile.hardware, profile.tp) == (hardware_name, tp):
            return PerfModel(model, profile, slowdown)
    if not model.hidden or tp & (tp - 1) or hardware_name == CPU:
        known = ", ".join(f"hardware={profile.hardware},tp={profile.tp}" for profile in model.profiles)
        raise UsageError(
            f"{name} was not measured with hardware={hardware_name},tp={tp}"
            + (", and tp of the roofline is a power of two" if model.hidden and hardware_name != CPU else ""),
            hint=f"measured for {name}: {known}",
            code="unknown_profile",
        )
    return PerfModel(model, _unmeasured(name, hardware_name, tp), slowdown)


def capped_slowdown(gpu: Hardware, power_cap_w: float | None) -> float:
    """How much longer the arithmetic of prompts takes under a power cap.

    Splitwise's simulator takes 1.30 at half the power for prompts and 1 for decodes; not measured, linear between.
    """
    if power_cap_w is None:
        return 1.0
    if not gpu.power_w / 2 <= power_cap_w <= gpu.power_w:
        raise UsageError(
            f"power_cap_w={power_cap_w:g} is outside {gpu.power_w / 2:g} to {gpu.power_w:g} W",
            hint="what happens below half the power is not known",
            code="bad_deployment",
        )
    return 1 + CAPPED_PROMPT_SLOWDOWN * (1 - power_cap_w / gpu.power_w) / 0.5


@cache
def _unmeasured(name: str, hardware_name: str, tp: int) -> Profile:
    """The shipped forms fitted to the unified roofline, over the range that measured tables have."""
    from loadtest.backends.fitting import DecodePoint, PrefillPoint, fit_decode, fit_prefill

    line = Roofline(load_model(name).shape, hardware_name, tp)
    prompts = [(n, n * n) for n in (128, 256, 512, 1024, 2048, 3072, 4096, 8192)]
    batches = [(batch, batch * each) for batch in (1, 2, 4, 8, 16, 32, 48, 64) for each in (256, 1024, 4096)]
    return Profile(
        hardware_name,
        tp,
        fit_prefill([PrefillPoint(n, s, line.prefill(n, s).total_s * 1e3) for n, s in prompts]),
        fit_decode(
            [DecodePoint(b, k, line.decode(b, k).total_s * 1e3) for b, k in batches],
            per_context_token_ms(line.shape.kv_bytes_per_token, hardware(hardware_name), tp),
        ),
        measured=False,
    )


def per_context_token_ms(kv_bytes_per_token: int, gpu: Hardware, tp: int) -> float:
    """cK: reading a token's KV at 65 % of the memory bandwidth of `tp` GPUs."""
    return kv_bytes_per_token / (tp * gpu.bandwidth_tb_s * 1e12 * 0.65) * 1e3
