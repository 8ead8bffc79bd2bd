"""The model against `transformers` (stored logits), and against itself however a prompt is cut and its KV scattered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.stage import PICO, cache_of, model_of, torch

# isort: split
import msgspec
from safetensors.torch import save_file

from loadtest.backends.engine.kvcache import Blocks
from loadtest.backends.engine.messages import Sampling
from loadtest.backends.engine.model import Model
from loadtest.backends.engine.runner import Piece, Runner
from loadtest.backends.engine.shapes import Llama3Rope, Shape, read_shape
from loadtest.backends.engine.weights import load_weights
from loadtest.errors import UsageError
from tests.engine.make_golden import IDS, value
from tests.golden import differences

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "golden.json").read_text())
SHAPES = {
    "llama": PICO,
    "llama3": msgspec.structs.replace(PICO, rope_scaling=Llama3Rope(8.0, 1.0, 4.0, 64)),
    "qwen2": msgspec.structs.replace(PICO, qkv_bias=True, tied_head=True),
    "qwen3": msgspec.structs.replace(PICO, qk_norm=True, head_dim=16),
    "no groups": msgspec.structs.replace(PICO, kv_heads=4),
    "one kv head": msgspec.structs.replace(PICO, kv_heads=1),
}
ANY = Sampling()


def logits(runner: Runner, *pieces: Piece) -> Any:
    return runner.model.forward(runner._flat(pieces), runner.cache)


def folder_of(path: Path, config: dict[str, Any]) -> Path:
    """A Hugging Face folder with two shards, as `save_pretrained` writes it."""
    (path / "config.json").write_text(json.dumps(config))
    layers = [f"model.layers.{number}." for number in range(config["num_hidden_layers"])]
    hidden, inter, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    rows = {"q": config["num_attention_heads"] * dim, "k": config["num_key_value_heads"] * dim}
    rows["v"] = rows["k"]
    sizes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    sizes["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        sizes["lm_head.weight"] = (config["vocab_size"], hidden)
    for layer in layers:
        sizes |= {f"{layer}{name}.weight": (hidden,) for name in ("input_layernorm", "post_attention_layernorm")}
        sizes |= {f"{layer}self_attn.{name}_proj.weight": (size, hidden) for name, size in rows.items()}
        if config["model_type"] == "qwen2":
            sizes |= {f"{layer}self_attn.{name}_proj.bias": (size,) for name, size in rows.items()}
        if config["model_type"] == "qwen3":
            sizes |= {f"{layer}self_attn.{name}_norm.weight": (dim,) for name in ("q", "k")}
        sizes[f"{layer}self_attn.o_proj.weight"] = (hidden, rows["q"])
        sizes |= {f"{layer}mlp.{name}_proj.weight": (inter, hidden) for name in ("gate", "up")}
        sizes[f"{layer}mlp.down_proj.weight"] = (hidden, inter)
    names = sorted(sizes)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, held in shards.items():
        save_file({name: value(name, sizes[name]) for name in held}, path / file)
    weight_map = {name: file for file, held in shards.items() for name in held}
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return path


def model_in(path: Path) -> Model:
    shape = read_shape(str(path))
    return Model(shape, load_weights(str(path), shape, torch.float32, torch.device("cpu")), 256)


@pytest.mark.parametrize("family", GOLDEN)
def test_a_checkpoint_folder_gives_the_logits_of_transformers(family: str, tmp_path: Path) -> None:
    """Configuration and two shards in, the reference's logits and greedy tokens out."""
    golden = GOLDEN[family]
    model = model_in(folder_of(tmp_path, golden["config"]))
    runner = Runner(model, cache_of(model.shape, 16))
    blocks = Blocks(range(16), 16)
    for row, expected in golden["logits"].items():
        found = logits(runner, Piece(IDS[: int(row) + 1], 0, blocks, ANY))[0, ::16]
        assert [] == differences(expected, found.tolist(), absolute=1e-5)
    tokens = runner.run([Piece(IDS, 0, blocks, ANY)])
    while len(tokens) < len(golden["greedy"]):
        tokens += runner.run([Piece(tokens[-1:], len(IDS) + len(tokens) - 1, blocks, ANY)])
    assert golden["greedy"] == tokens
    assert (2,) == model.shape.stop_tokens


@pytest.mark.parametrize("chunk", [1, 7, 16, 100])
@pytest.mark.parametrize("family", SHAPES)
def test_a_prompt_in_pieces_is_the_prompt(family: str, chunk: int) -> None:
    """Whatever the piece, with its blocks in a row or anywhere."""
    shape = SHAPES[family]
    runner = Runner(model_of(shape), cache_of(shape, 40))
    whole = logits(runner, Piece(IDS, 0, Blocks(range(8), 16), ANY))
    for ids in (list(range(10, 18)), [30, 11, 20, 35, 12, 33, 19, 27]):
        blocks = Blocks(ids, 16)
        for begin in range(0, len(IDS), chunk):
            last = logits(runner, Piece(IDS[begin : begin + chunk], begin, blocks, ANY))
        assert float((last - whole).abs().max()) < 2e-5


def test_a_mixed_batch_is_its_requests() -> None:
    """Whole prompts, pieces and decodes in one pass give each what it gets alone; rows nobody asks for are left out."""
    runner = Runner(model_of(PICO), cache_of(PICO, 64))
    blocks = [Blocks(range(8 * number, 8 * number + 8), 16) for number in range(5)]
    alone = torch.cat([logits(runner, Piece(IDS[:size], 0, blocks[0], ANY)) for size in (20, 60, 61, 90)])
    logits(runner, Piece(IDS[:40], 0, blocks[2], ANY))
    logits(runner, Piece(IDS[:60], 0, blocks[3], ANY))
    logits(runner, Piece(IDS[:30], 0, blocks[1], ANY))
    together = logits(
        runner,
        Piece(IDS[60:61], 60, blocks[3], ANY),
        Piece(IDS[:20], 0, blocks[4], ANY),
        Piece(IDS[30:90], 30, blocks[1], ANY),
        Piece(IDS[40:50], 40, blocks[2], None),
    )
    assert float((together - alone[[2, 0, 3]]).abs().max()) < 2e-5


def test_random_weights_depend_on_name_and_seed_alone() -> None:
    """Prefill and decode workers make the same model, each by itself."""
    first, again = (load_weights("nano", PICO, torch.float32, torch.device("cpu"), 3) for _ in range(2))
    other = load_weights("nano", PICO, torch.float32, torch.device("cpu"), 4)
    assert bool(torch.equal(first.layers[1].qkv, again.layers[1].qkv))
    assert not bool(torch.equal(first.layers[1].qkv, other.layers[1].qkv))
    assert not bool(torch.equal(first.layers[0].qkv, first.layers[1].qkv))


def test_layers_are_announced_when_their_kv_is_there() -> None:
    """What a layer-wise push relies on."""
    runner = Runner(model_of(PICO), cache_of(PICO, 8))
    seen = []

    def after(layer: int) -> None:
        seen.append((layer, bool(runner.cache.tensor[layer, :1].any()), bool(runner.cache.tensor[layer + 1 :].any())))

    runner.run([Piece(IDS[:20], 0, Blocks([0, 1], 16), ANY)], after)
    assert [(0, True, False), (1, True, False)] == seen


def test_a_broken_folder_is_one_sentence(tmp_path: Path) -> None:
    """Missing tensors, another size, no file, no family."""
    golden = GOLDEN["llama"]["config"]
    folder_of(tmp_path, golden)
    shape = read_shape(str(tmp_path))

    def refused(match: str, other: Shape = shape) -> None:
        with pytest.raises(UsageError, match=match):
            load_weights(str(tmp_path), other, torch.float32, torch.device("cpu"))

    refused("has no tensor .*layers.2.", msgspec.structs.replace(shape, layers=3))
    refused(r"is \[512, 32\], config.json says \[256, 32\]", msgspec.structs.replace(shape, vocab=256))
    (tmp_path / "model-00001-of-00002.safetensors").write_bytes(b"no")
    refused("cannot be read")
    (tmp_path / "model.safetensors.index.json").unlink()
    refused("no readable safetensors")
    for change, match in (
        ({"model_type": "mamba"}, "mamba"),
        ({"hidden_act": "gelu"}, "silu"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "yarn"),
        ({"num_hidden_layers": "x"}, "cannot be served"),
    ):
        (tmp_path / "config.json").write_text(json.dumps({**golden, **change}))
        with pytest.raises(UsageError, match=match):
            read_shape(str(tmp_path))
    with pytest.raises(UsageError, match="neither one of nano"):
        read_shape(str(tmp_path / "nowhere"))
