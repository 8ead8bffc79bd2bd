"""A model's tensors: from the safetensors of a Hugging Face folder, or random by name and seed.

Projections that read the same input are one matrix: q, k and v; gate and up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from loadtest.backends.engine.shapes import PRESETS, Shape
from loadtest.errors import UsageError

Read = Callable[[str, tuple[int, ...]], Tensor]


@dataclass(frozen=True)
class Layer:
    """The tensors of one transformer layer."""

    norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    out: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True)
class Weights:
    """The tensors of a model."""

    embedding: Tensor
    layers: tuple[Layer, ...]
    norm: Tensor
    head: Tensor


def load_weights(model: str, shape: Shape, dtype: torch.dtype, device: torch.device, seed: int = 0) -> Weights:
    """The tensors of a preset or folder; UsageError when a file or tensor is missing or of another shape."""
    read = _random(shape, seed) if model in PRESETS else _folder(Path(model))

    def get(name: str, *size: int) -> Tensor:
        return read(name, size).to(device=device, dtype=dtype)

    embedding = get("model.embed_tokens.weight", shape.vocab, shape.hidden)
    head = embedding if shape.tied_head else get("lm_head.weight", shape.vocab, shape.hidden)
    layers = tuple(_layer(get, f"model.layers.{number}.", shape) for number in range(shape.layers))
    return Weights(embedding, layers, get("model.norm.weight", shape.hidden), head)


def _layer(get: Callable[..., Tensor], prefix: str, shape: Shape) -> Layer:
    rows = {"q": shape.heads * shape.head_dim, "k": shape.kv_heads * shape.head_dim}
    rows["v"] = rows["k"]
    attention, mlp = prefix + "self_attn.", prefix + "mlp."
    projections = [get(f"{attention}{name}_proj.weight", size, shape.hidden) for name, size in rows.items()]
    biases = [get(f"{attention}{name}_proj.bias", size) for name, size in rows.items() if shape.qkv_bias]
    gates = [get(f"{mlp}{name}_proj.weight", shape.intermediate, shape.hidden) for name in ("gate", "up")]
    return Layer(
        norm=get(prefix + "input_layernorm.weight", shape.hidden),
        qkv=torch.cat(projections),
        qkv_bias=torch.cat(biases) if biases else None,
        q_norm=get(attention + "q_norm.weight", shape.head_dim) if shape.qk_norm else None,
        k_norm=get(attention + "k_norm.weight", shape.head_dim) if shape.qk_norm else None,
        out=get(attention + "o_proj.weight", shape.hidden, rows["q"]),
        mlp_norm=get(prefix + "post_attention_layernorm.weight", shape.hidden),
        gate_up=torch.cat(gates),
        down=get(mlp + "down_proj.weight", shape.hidden, shape.intermediate),
    )


def _random(shape: Shape, seed: int) -> Read:
    """Each tensor from a generator of its own name, so that every process makes the same ones."""

    def read(name: str, size: tuple[int, ...]) -> Tensor:
        if name.endswith("norm.weight"):
            return torch.ones(size)
        digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=8).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
        return torch.empty(size).normal_(0.0, shape.hidden**-0.5, generator=generator)

    return read


def _folder(folder: Path) -> Read:
    files = _files(folder)

    def read(name: str, size: tuple[int, ...]) -> Tensor:
        if name not in files:
            raise UsageError(f"{folder} has no tensor {name!r}", code="bad_weights")
        try:
            with safe_open(files[name], framework="pt") as opened:
                tensor: Tensor = opened.get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise UsageError(f"{files[name]} cannot be read: {error}", code="bad_weights") from None
        if tuple(tensor.shape) != size:
            raise UsageError(
                f"{folder}: tensor {name!r} is {list(tensor.shape)}, config.json says {list(size)}", code="bad_weights"
            )
        return tensor

    return read


def _files(folder: Path) -> dict[str, Path]:
    """Which file holds which tensor."""
    index = folder / "model.safetensors.index.json"
    try:
        if index.exists():
            names = msgspec.json.decode(index.read_bytes())["weight_map"]
            return {name: folder / file for name, file in names.items()}
        whole = folder / "model.safetensors"
        with safe_open(whole, framework="pt") as opened:
            return dict.fromkeys(opened.keys(), whole)
    except (OSError, SafetensorError, msgspec.DecodeError, KeyError) as error:
        raise UsageError(f"{folder} has no readable safetensors: {error}", code="bad_weights") from None
