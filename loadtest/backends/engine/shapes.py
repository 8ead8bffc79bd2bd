"""Which model: a named shape with random weights, or the config.json of a Hugging Face folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from loadtest.errors import UsageError


class Llama3Rope(msgspec.Struct, frozen=True):
    """Llama 3.1's stretched rotary frequencies."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


class Shape(msgspec.Struct, frozen=True):
    """Everything about a decoder-only transformer but its weights."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    max_position: int = 16384
    rope_theta: float = 10000.0
    rope_scaling: Llama3Rope | None = None
    norm_eps: float = 1e-5
    tied_head: bool = False
    qkv_bias: bool = False  # Qwen2
    qk_norm: bool = False  # Qwen3
    stop_tokens: tuple[int, ...] = ()  # end of sequence

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return self.heads // self.kv_heads

    def kv_values_per_token(self) -> int:
        """Numbers of K and V of one token in one layer."""
        return 2 * self.kv_heads * self.head_dim


PRESETS: Final = {
    "nano": Shape(4, 256, 768, 4, 2, 64, 2048),
    "tiny": Shape(8, 512, 1536, 8, 4, 64, 8192),
    "1b": Shape(16, 2048, 8192, 32, 8, 64, 128256, rope_theta=500000.0, tied_head=True),
    "8b": Shape(32, 4096, 14336, 32, 8, 128, 128256, rope_theta=500000.0),
}
_FAMILIES: Final = ("llama", "qwen2", "qwen3", "mistral")


def read_shape(model: str) -> Shape:
    """The shape of a preset or of a model folder; UsageError when it is neither, or of another family."""
    if model in PRESETS:
        return PRESETS[model]
    path = Path(model) / "config.json"
    try:
        config = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise UsageError(
            f"model {model!r} is neither one of {', '.join(PRESETS)} nor a folder with a config.json: {error.strerror}",
            hint="write model=tiny, or the path of a Hugging Face model folder",
            code="unknown_model",
        ) from None
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is not a model configuration: {error}", code="unknown_model") from None
    try:
        return _from_config(config)
    except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
        raise UsageError(f"{path} cannot be served: {error}", code="unknown_model") from None


def _from_config(config: dict[str, Any]) -> Shape:
    family = config["model_type"]
    if family not in _FAMILIES:
        raise ValueError(f"model_type {family!r} is not one of {', '.join(_FAMILIES)}")
    if config.get("hidden_act", "silu") != "silu" or config.get("use_sliding_window") or config.get("sliding_window"):
        raise ValueError("another activation than silu, or a sliding window")
    if family == "llama" and config.get("attention_bias"):
        raise ValueError("attention_bias")
    heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
    # Transformers 5 keeps theta and scaling together under rope_parameters.
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return Shape(
        layers=int(config["num_hidden_layers"]),
        hidden=hidden,
        intermediate=int(config["intermediate_size"]),
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=int(config.get("head_dim") or hidden // heads),
        vocab=int(config["vocab_size"]),
        max_position=int(config.get("max_position_embeddings", 2048)),
        rope_theta=float(config.get("rope_theta") or rope.get("rope_theta") or 10000.0),
        rope_scaling=_rope_scaling(rope),
        norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        tied_head=bool(config.get("tie_word_embeddings", False)),
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
        stop_tokens=_stop_tokens(config.get("eos_token_id")),
    )


def _rope_scaling(rope: dict[str, Any]) -> Llama3Rope | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise ValueError(f"rope scaling {kind!r} is not supported")
    return msgspec.convert(rope, Llama3Rope)


def _stop_tokens(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (int(value),)
