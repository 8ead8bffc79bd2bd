"""What the reference engine's forward pass costs on a CPU, against the network's matrix products alone.

CPU time of one thread, engine and floor in turn, medians. The floor is exactly the network's matrix products; the
roofline adds attention at the measured rates: products for prompts, reading KV once for decodes. Where `transformers`
is installed, its plain `generate` and its continuous batching answer the same prompts in the same run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch.nn.functional import linear

from benchmarks.targets import Target, conclude, say
from loadtest.backends.engine.kvcache import BlockPool, KvCache, kv_shape
from loadtest.backends.engine.messages import Sampling
from loadtest.backends.engine.model import Model
from loadtest.backends.engine.runner import Piece, Runner
from loadtest.backends.engine.shapes import PRESETS, Shape
from loadtest.backends.engine.weights import Weights, load_weights

GATE = 0.8  # of a target: a noisy machine is no regression
BLOCK = 16
ASK = Sampling()


class Case(NamedTuple):
    """A prompt of `context` tokens (`batch` 0), or one decode step; targets are shares of floor and roofline."""

    name: str
    batch: int
    context: int
    of_floor: float | None
    of_roofline: float


CASES = (
    Case("prefill 512", 0, 512, 0.62, 0.67),
    Case("prefill 2000", 0, 2000, 0.52, 0.70),
    Case("decode batch 1 context 256", 1, 256, 0.70, 0.75),
    Case("decode batch 8 context 256", 8, 256, 0.62, 0.70),
    Case("decode batch 32 context 256", 32, 256, 0.45, 0.60),
    Case("decode batch 8 context 1024", 8, 1024, None, 0.68),
    Case("decode batch 32 context 1024", 32, 1024, None, 0.58),
)


def main() -> int:
    """Measure every case, judge the targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=sorted(PRESETS), default="tiny")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    shape = PRESETS[options.model]
    weights = load_weights(options.model, shape, torch.float32, torch.device("cpu"))
    bench = Bench(shape, weights)
    flops, bandwidth = product_rate(), read_rate()
    say(f"{flops / 1e9:.0f} GFLOP/s in products, {bandwidth / 1e9:.1f} GB/s read, one thread")
    targets = []
    for case in CASES:
        floor_s, own_s = interleaved([bench.floor(case), bench.own(case)], options.rounds)
        roof_s = floor_s + bench.attention_s(case, flops, bandwidth)
        say(
            f"{case.name:30} floor {floor_s * 1e3:8.1f} ms  engine {own_s * 1e3:8.1f} ms  "
            f"floor/engine {floor_s / own_s:.2f}  roofline/engine {roof_s / own_s:.2f}"
        )
        if case.of_floor is not None:
            targets.append(Target(f"{case.name}: engine/floor", own_s / floor_s, 1 / (case.of_floor * GATE), "x"))
        targets.append(Target(f"{case.name}: engine/roofline", own_s / roof_s, 1 / (case.of_roofline * GATE), "x"))
    targets += beside_transformers(bench)
    return conclude("engine", targets)


class Bench:
    """A model with its cache, and the same products without anything else."""

    def __init__(self, shape: Shape, weights: Weights) -> None:
        self.shape = shape
        self.weights = weights
        blocks = 32 * (1024 // BLOCK + 1)
        cache = KvCache(torch.zeros(kv_shape(shape.layers, blocks, BLOCK, shape.kv_heads, shape.head_dim)))
        self.runner = Runner(Model(shape, weights, 4096), cache)
        self.pool = BlockPool(blocks, BLOCK)

    def own(self, case: Case) -> Callable[[], object]:
        """One iteration of the engine."""
        pool = BlockPool(self.pool.free, BLOCK)
        ids = [(37 * n + 11) % self.shape.vocab for n in range(case.context)]
        if not case.batch:
            pieces = [Piece(ids, 0, pool.take(-(-case.context // BLOCK)), ASK)]
        else:
            held = [pool.take(-(-case.context // BLOCK)) for _ in range(case.batch)]
            pieces = [Piece(ids[-1:], case.context - 1, blocks, ASK) for blocks in held]
        return lambda: self.runner.run(pieces)

    def floor(self, case: Case) -> Callable[[], object]:
        """Its matrix products."""
        tokens, wanted = case.batch or case.context, case.batch or 1
        hidden = torch.randn(tokens, self.shape.hidden)
        heads = torch.randn(tokens, self.shape.heads * self.shape.head_dim)
        inner = torch.randn(tokens, self.shape.intermediate)

        def products() -> None:
            for layer in self.weights.layers:
                linear(hidden, layer.qkv)
                linear(heads, layer.out)
                linear(hidden, layer.gate_up)
                linear(inner, layer.down)
            linear(hidden[:wanted], self.weights.head)

        return products

    def attention_s(self, case: Case, flops: float, bandwidth: float) -> float:
        """Attention at the machine's rates: causal products of a prompt, or every KV byte of the batch once."""
        shape = self.shape
        if not case.batch:
            return 2 * case.context**2 * shape.heads * shape.head_dim * shape.layers / flops
        return case.batch * case.context * shape.kv_values_per_token() * 4 * shape.layers / bandwidth


def interleaved(works: list[Callable[[], object]], rounds: int) -> list[float]:
    """Median CPU seconds of each, one after the other in every round; the first two rounds are not counted."""
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(rounds + 2):
        for work, seconds in zip(works, taken, strict=True):
            began = time.thread_time()
            work()
            seconds.append(time.thread_time() - began)
    return [statistics.median(seconds[2:]) for seconds in taken]


def product_rate() -> float:
    """FLOP/s of a large product."""
    left, right = torch.randn(1024, 1024), torch.randn(1024, 1024)
    (seconds,) = interleaved([lambda: left @ right], 9)
    return float(2 * 1024**3 / seconds)


def read_rate() -> float:
    """Bytes/s of summing 256 MiB."""
    data = torch.ones(64 << 20)
    (seconds,) = interleaved([data.sum], 9)
    return data.nbytes / seconds


def beside_transformers(bench: Bench) -> list[Target]:
    """Eight prompts of 256 tokens, 32 tokens each: CPU time of the process for ours and for theirs."""
    if find_spec("transformers") is None:
        say("transformers is not installed: no comparison with it")
        return []
    model, prompts = their_model(bench), [[(37 * n + 11 * p) % 2000 for n in range(256)] for p in range(8)]
    ours_s, ours = timed(lambda: answer(bench, prompts))
    plain_s, plain = timed(lambda: [generated(model, prompt) for prompt in prompts])
    batched_s, batched = timed(lambda: in_batches(model, prompts))
    say("CPU time of 8 prompts of 256, 32 tokens each:")
    say(f"engine {ours_s:.2f} s, generate one by one {plain_s:.2f} s, continuous batching {batched_s:.2f} s")
    say(f"the same tokens: generate {ours == plain}, continuous batching {ours == batched}")
    return [
        Target("engine/transformers generate", ours_s / plain_s, 1.0, "x"),
        Target("engine/transformers continuous batching", ours_s / batched_s, 0.65 / GATE, "x"),
    ]


def answer(bench: Bench, prompts: list[list[int]]) -> list[list[int]]:
    """All prompts in one iteration each, then 31 decode steps of all."""
    pool = BlockPool(bench.pool.free, BLOCK)
    held = [pool.take((256 + 32) // BLOCK) for _ in prompts]
    tokens = [bench.runner.run([Piece(prompt, 0, blocks, ASK)]) for prompt, blocks in zip(prompts, held, strict=True)]
    for step in range(31):
        pieces = [Piece(got[-1:], 256 + step, blocks, ASK) for got, blocks in zip(tokens, held, strict=True)]
        for got, token in zip(tokens, bench.runner.run(pieces), strict=True):
            got.append(token)
    return tokens


def their_model(bench: Bench) -> Any:
    """The same network and numbers in transformers' Llama."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = bench.shape
    config = LlamaConfig(
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        vocab_size=shape.vocab,
        max_position_embeddings=shape.max_position,
        rms_norm_eps=shape.norm_eps,
        tie_word_embeddings=shape.tied_head,
        attn_implementation="sdpa",
    )
    model = LlamaForCausalLM(config).float().eval()
    state = {"model.embed_tokens.weight": bench.weights.embedding, "lm_head.weight": bench.weights.head}
    state["model.norm.weight"] = bench.weights.norm
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    for number, layer in enumerate(bench.weights.layers):
        prefix = f"model.layers.{number}."
        parts = layer.qkv.split([query, key, key])
        state |= {f"{prefix}self_attn.{n}_proj.weight": part for n, part in zip("qkv", parts, strict=True)}
        gate, up = layer.gate_up.chunk(2)
        state |= {f"{prefix}mlp.gate_proj.weight": gate, f"{prefix}mlp.up_proj.weight": up}
        state |= {f"{prefix}mlp.down_proj.weight": layer.down, f"{prefix}self_attn.o_proj.weight": layer.out}
        state |= {f"{prefix}input_layernorm.weight": layer.norm}
        state |= {f"{prefix}post_attention_layernorm.weight": layer.mlp_norm}
    model.load_state_dict(state)
    return model


def generated(model: Any, prompt: list[int]) -> list[int]:
    """transformers' plain generate, greedy."""
    ids = torch.tensor([prompt])
    whole = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=32, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    found: list[int] = whole[0, len(prompt) :].tolist()
    return found


def in_batches(model: Any, prompts: list[list[int]]) -> list[list[int]]:
    """transformers' continuous batching, greedy."""
    from transformers import GenerationConfig

    config = GenerationConfig(max_new_tokens=32, do_sample=False, eos_token_id=-1, pad_token_id=0)
    results = model.generate_batch(inputs=prompts, generation_config=config, progress_bar=False)
    ordered = sorted(results.values(), key=lambda result: int(str(result.request_id).rpartition("_")[2]))
    return [list(result.generated_tokens) for result in ordered]


def timed(work: Callable[[], list[list[int]]]) -> tuple[float, list[list[int]]]:
    """CPU seconds of the whole process, and what came of it."""
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


if __name__ == "__main__":
    raise SystemExit(main())
