"""A `torch:` text resolved: defaults, conflicts, and no torch needed to say what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.backends.engine import settings as module
from loadtest.backends.engine.settings import resolve
from loadtest.deployment import TORCH_OPTIONS, Deployment, options_of
from loadtest.errors import UsageError

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def torch_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests do not compute anything."""
    monkeypatch.setattr(module, "find_spec", lambda name: name)
    monkeypatch.setattr(module, "cores", lambda: [0, 1, 2, 3])


def settings(text: str) -> module.Settings:
    return resolve(Deployment.parse(text))


def test_defaults() -> None:
    """float32 on a CPU, a worker's share of the cores, 1 GiB of KV, the model's context up to 16,384."""
    found = settings("torch:chunked")
    assert ("tiny", "float32", 4, 16384) == (found.name, found.dtype, found.threads, found.max_model_len)
    assert 1 << 30 == found.kv_bytes
    assert 16 * 2 * 4 * 64 * 4 == found.block_bytes
    assert ("both",) == found.roles
    gpu = settings("torch:disaggregated,device=cuda")
    assert ("bfloat16", "tcp", "shm") == (gpu.dtype, gpu.kv_link, settings("torch:disaggregated").kv_link)


def test_workers_share_the_cores() -> None:
    """Two instances or two phases: half of them each."""
    two, phases = settings("torch:colocated,instances=2"), settings("torch:disaggregated")
    assert (2, ("both", "both")) == (two.threads, two.roles)
    assert (2, ("prefill", "decode")) == (phases.threads, phases.roles)


def test_the_budget_is_a_multiple_of_16() -> None:
    """Rounded down, as matrix units like it; below 16 as it is."""
    assert 48 == settings("torch:chunked,max_num_batched_tokens=63,max_num_seqs=8").max_num_batched_tokens
    assert 7 == settings("torch:chunked,max_num_batched_tokens=7").max_num_batched_tokens


def test_which_prompts_leave_layer_by_layer() -> None:
    """Hybrid from layerwise_min_tokens on; the other two always or never."""
    hybrid = settings("torch:disaggregated,layerwise_min_tokens=100")
    assert (False, True) == (hybrid.overlaps(99), hybrid.overlaps(100))
    assert settings("torch:disaggregated,kv_transfer=layerwise").overlaps(1)
    assert not settings("torch:disaggregated,kv_transfer=serial").overlaps(10_000)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("torch:chunked,model=no/such/folder", "neither one of nano"),
        ("torch:chunked,max_model_len=20000", "made for 16384 tokens"),
        ("torch:chunked,num_gpu_blocks=10", "KV memory holds 160 tokens, fewer than max_model_len=16384"),
        ("torch:chunked,max_num_batched_tokens=32,max_num_seqs=64", "no room for max_num_seqs=64"),
        ("torch:disaggregated,device=cuda,kv_link=shm", "KV on a GPU is not in shared memory"),
        ("emulated:chunked", "is not a torch deployment"),
    ],
)
def test_what_does_not_fit_is_one_sentence(text: str, match: str) -> None:
    """With what to change."""
    with pytest.raises(UsageError, match=match):
        settings(text)


@pytest.mark.parametrize(
    "text", ["torch:chunked,hardware=h100", "torch:chunked,kv_link=shm", "torch:disaggregated,prefill=2", "torch:x"]
)
def test_options_the_engine_does_not_have(text: str) -> None:
    """Refused when the text is read."""
    with pytest.raises(UsageError):
        Deployment.parse(text)


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a traceback."""
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "torch" else name)
    with pytest.raises(UsageError, match="needs torch") as raised:
        settings("torch:chunked")
    assert "slo-goodput[torch]" in raised.value.hint


def test_the_talking_side_never_imports_torch() -> None:
    """It takes seconds and a gigabyte: only workers do."""
    code = "import sys, loadtest.backends.engine.handoff, loadtest.backends.server.face; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "False" == done.stdout.strip()


def test_every_option_is_documented() -> None:
    """In docs/engine.md, each by its name."""
    page = (ROOT / "docs" / "engine.md").read_text(encoding="utf-8")
    assert [] == [key for key in TORCH_OPTIONS if f"`{key}`" not in page]
    assert set(TORCH_OPTIONS) == set(options_of("chunked", "torch")) | set(options_of("disaggregated", "torch"))
