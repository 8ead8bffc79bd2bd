"""Writes golden.json, the logits of `transformers` for small random models: run where that is installed.

python tests/engine/make_golden.py > tests/engine/golden.json
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import torch

IDS = [(7 * i * i + 3 * i) % 512 for i in range(120)]
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 512,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "eos_token_id": 2,
}
STRETCHED = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"rope_theta": 10000.0}),
    "llama3": ("llama", {"rope_theta": 500000.0, "rope_scaling": STRETCHED}),
    "qwen2": ("qwen2", {"rope_theta": 10000.0, "tie_word_embeddings": True}),
    "qwen3": ("qwen3", {"rope_theta": 10000.0}),
}


def value(name: str, size: tuple[int, ...]) -> torch.Tensor:
    """A tensor that depends on its name alone; norms are not all ones, or nobody would notice a missing one."""
    seed = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "little")
    noise = torch.randn(size, generator=torch.Generator().manual_seed(seed))
    return 1 + 0.1 * noise if name.endswith("norm.weight") else noise * 32**-0.5


def golden(kind: str, extra: dict[str, Any]) -> dict[str, Any]:
    """Configuration, a sample of the logits, and what greedy decoding says."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(kind, **{**SIZES, **extra})
    model = AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(value(name, tuple(parameter.shape)))
        model.tie_weights()
        logits = model(torch.tensor([IDS])).logits[0]
        greedy = model.generate(torch.tensor([IDS]), max_new_tokens=12, do_sample=False, eos_token_id=None)
    known = config.to_dict()
    kept = {key: known[key] for key in (*SIZES, "model_type", "rope_parameters") if key in known}
    sampled = {str(row): [round(number, 6) for number in logits[row, ::16].tolist()] for row in (60, 119)}
    return {"config": {**kept, "model_type": kind}, "logits": sampled, "greedy": greedy[0, len(IDS) :].tolist()}


if __name__ == "__main__":
    json.dump({name: golden(*case) for name, case in CASES.items()}, sys.stdout)
