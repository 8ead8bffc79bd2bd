from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loadtest.backends.perfmodel import load_model, load_perf_model
from loadtest.backends.shape import read_shape, shape_of
from loadtest.errors import UsageError

LLAMA_70B = {
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "intermediate_size": 28672,
    "vocab_size": 32000,
    "torch_dtype": "float16",
}
MIXTRAL = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 32000,
    "torch_dtype": "bfloat16",
}
DEEPSEEK_V3 = {
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8"},
}


@pytest.mark.parametrize(
    ("config", "parameters", "active", "kv_bytes", "weight_bytes"),
    [
        (LLAMA_70B, 68.98e9, 68.98e9, 327_680, 2),
        (MIXTRAL, 46.7e9, 12.9e9, 131_072, 2),
        (DEEPSEEK_V3, 671e9, 37e9, 61 * 576 * 2, 1),
        ({**LLAMA_70B, "num_key_value_heads": None}, 78.4e9, 78.4e9, 2_621_440, 2),
    ],
    ids=["gqa", "experts", "mla", "multi-head"],
)
def test_published_models_have_their_published_size(
    config: dict[str, Any], parameters: float, active: float, kv_bytes: int, weight_bytes: float
) -> None:
    """Parameters, those a token passes, and KV bytes: dense, grouped-query, latent attention, experts, fp8."""
    shape = shape_of(config)
    assert parameters == pytest.approx(shape.parameters, rel=0.01)
    assert active == pytest.approx(shape.active_parameters, rel=0.03)
    assert kv_bytes == shape.kv_bytes_per_token
    assert weight_bytes == shape.bytes_per_parameter


def test_a_config_is_a_model_to_deploy(tmp_path: Path) -> None:
    """`model=path/config.json`: through the roofline, everything outside what was measured."""
    path = tmp_path / "my-model" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(LLAMA_70B))
    assert "my-model" == load_model(str(path)).model
    perf, measured = load_perf_model(str(path), "h100", 8), load_perf_model("llama2-70b", "h100", 8)
    assert (0, 0, False) == (perf.calibrated_batch, perf.calibrated_context, perf.profile.measured)
    assert measured.prefill_s(1500, 1500**2) == pytest.approx(perf.prefill_s(1500, 1500**2), rel=0.22)
    assert measured.decode_s(16, 16 * 1000) == pytest.approx(perf.decode_s(16, 16 * 1000), rel=0.12)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "cannot be read"),
        ("{", "is not JSON"),
        ("[]", "is not JSON"),
        ("{}", "'num_hidden_layers' is missing"),
        ('{"num_hidden_layers": null}', "is not a model's config.json"),
    ],
)
def test_what_is_no_config_is_said_so(tmp_path: Path, text: str | None, sentence: str) -> None:
    """One sentence that names the file."""
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=sentence):
        read_shape(path)
