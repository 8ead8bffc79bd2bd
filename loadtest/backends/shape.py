"""The shape of a model: what its weights, its KV and its arithmetic amount to, from a Hugging Face `config.json`.

attention  dense or grouped-query: 2 layers kv_heads head_dim elements of KV a token
           multi-head latent (MLA): layers (kv_lora_rank + qk_rope_head_dim)
experts    every token passes `num_experts_per_tok` routed and all shared ones: active parameters
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from loadtest.errors import UsageError

_BYTES = {"float32": 4.0, "float16": 2.0, "bfloat16": 2.0, "float8_e4m3fn": 1.0, "fp8": 1.0, "int8": 1.0}


class Shape(msgspec.Struct, frozen=True):
    """Figures that an iteration's time follows from."""

    layers: int
    hidden: int
    parameters: float
    active_parameters: float  # of them, what one token passes
    kv_bytes_per_token: int
    bytes_per_parameter: float


def read_shape(path: Path) -> Shape:
    """The shape of the model that `config.json` describes; UsageError when it lacks what is needed."""
    try:
        config = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        return shape_of(config)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", code="bad_model") from error
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} is not JSON: {error}", code="bad_model") from error
    except (KeyError, TypeError, ZeroDivisionError) as error:
        raise UsageError(
            f"{path} is not a model's config.json: {error} is missing or not a number",
            hint="hidden_size, num_hidden_layers, num_attention_heads and intermediate_size are needed",
            code="bad_model",
        ) from error


def shape_of(config: dict[str, Any]) -> Shape:
    """From the keys of a Llama-, Qwen-, Mixtral- or DeepSeek-style configuration; KeyError names a missing one."""
    layers, hidden, heads = (int(config[key]) for key in ("num_hidden_layers", "hidden_size", "num_attention_heads"))
    element = _BYTES.get(str(config.get("torch_dtype") or config.get("dtype")), 2.0)
    weights = 1.0 if "quantization_config" in config and "fp8" in str(config["quantization_config"]) else element
    attention, kv_elements = _attention(config, hidden, heads)
    dense, sparse = _dense_layers(config, layers), layers - _dense_layers(config, layers)
    expert = 3 * hidden * int(config.get("moe_intermediate_size") or config["intermediate_size"])
    shared = int(config.get("n_shared_experts") or 0)
    mlp = 3 * hidden * int(config["intermediate_size"])
    experts, used = _experts(config)
    embedding = int(config.get("vocab_size", 32_000)) * hidden * (1 if config.get("tie_word_embeddings") else 2)
    fixed = layers * attention + dense * mlp + sparse * shared * expert + embedding
    return Shape(
        layers=layers,
        hidden=hidden,
        parameters=float(fixed + sparse * experts * expert),
        active_parameters=float(fixed + sparse * used * expert),
        kv_bytes_per_token=int(layers * kv_elements * max(element if element < 4 else 2.0, 1.0)),
        bytes_per_parameter=weights,
    )


def _attention(config: dict[str, Any], hidden: int, heads: int) -> tuple[int, int]:
    """Parameters of one layer's attention, and KV elements of one token in it."""
    rank = config.get("kv_lora_rank")
    if rank:
        rope, nope = int(config["qk_rope_head_dim"]), int(config["qk_nope_head_dim"])
        value, query = int(config["v_head_dim"]), int(config.get("q_lora_rank") or 0)
        queries = query * (hidden + heads * (rope + nope)) if query else hidden * heads * (rope + nope)
        latent = hidden * (int(rank) + rope) + int(rank) * heads * (nope + value)
        return queries + latent + heads * value * hidden, int(rank) + rope
    head = int(config.get("head_dim") or hidden // heads)
    kv_heads = int(config.get("num_key_value_heads") or heads)
    return hidden * head * (2 * heads + 2 * kv_heads), 2 * kv_heads * head


def _experts(config: dict[str, Any]) -> tuple[int, int]:
    """Routed experts of a layer, and how many of them a token passes; 0 and 0 for a dense model."""
    for key in ("num_local_experts", "n_routed_experts", "num_experts"):
        if config.get(key):
            return int(config[key]), int(config["num_experts_per_tok"])
    return 0, 0


def _dense_layers(config: dict[str, Any], layers: int) -> int:
    if not _experts(config)[0]:
        return layers
    return int(config.get("first_k_dense_replace") or 0)
