"""`goodput plan` from the outside, on one tensor degree so that it is quick."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtest.cli.main import run
from loadtest.deployment import Deployment
from loadtest.errors import ExitCode
from loadtest.plan import designs, planner, probe
from loadtest.replay.options import SenderOptions
from loadtest.sides import BundledSide, EndpointOptions, launched
from loadtest.target import LoadSettings

LLAMA_70B = {
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "intermediate_size": 28_672,
    "vocab_size": 128_256,
    "torch_dtype": "bfloat16",
}
SMALL = ["--gpus", "16", "--tp", "8", "--slo", "ttft=1s,tpot=45ms"]


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """One setting of each arrangement, short probes, few runs."""
    monkeypatch.setattr(planner, "QUICK_RUNS", 3)
    monkeypatch.setattr(planner, "WORK_REQUESTS", 200)
    monkeypatch.setattr(designs, "BUDGETS", {"colocated": (2048,), "chunked": (512,)})
    monkeypatch.setattr(probe, "REQUESTS", 200)
    monkeypatch.setattr(probe, "MOST_REQUESTS", 400)
    monkeypatch.setattr(probe, "SATURATING_BETWEEN", (400, 800))


@pytest.mark.slow
@pytest.mark.usefixtures("quickly")
def test_a_plan_for_ones_own_model_on_two_kinds_of_gpu(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Text, the same as a document, launch files of the winner, and that nobody measured any of it."""
    model, out, emitted = tmp_path / "my-70b" / "config.json", tmp_path / "plan.json", tmp_path / "files"
    model.parent.mkdir()
    model.write_text(json.dumps(LLAMA_70B))
    words = ["--model", str(model), "--hardware", "h100,l40s", "--gpus", "16", "--tp", "8", "--rate", "9"]
    files = ["--out", str(out), "--emit", str(emitted)]
    assert ExitCode.OK == run(["plan", "--slo", "ttft=1s,tpot=45ms", *words, *files])
    text = capsys.readouterr().out
    found = json.loads(out.read_text())
    assert ("goodput.plan/1", 16, 9.0) == (found["schema"], found["gpus"], found["wanted_rate_per_s"])
    for word in ("throughput only", "relaxed", "strict", "KV link rate", "Token time", "minus transfer", "$/h"):
        assert word in text
    assert ("holds here" if found["rule_holds"] else "does not hold here") in " ".join(text.split())
    assert "nobody measured" in found["warnings"][0]
    assert {1.0} == {c["extrapolated"] for row in found["rows"] for c in row["candidates"]}
    winner = Deployment.parse(found["rows"][-1]["candidates"][0]["deployment"])
    side = launched(emitted / "emulated.toml", {}, LoadSettings(SenderOptions()), EndpointOptions())
    assert isinstance(side, BundledSide)
    assert winner == side.deployment
    assert "my-70b" in (emitted / "vllm.toml").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gpus", "16"], "a plan needs an SLO"),
        ([*SMALL, "--rate", "-1"], "--rate must be above 0"),
        ([*SMALL, "--tp", "two"], "not a list of tensor degrees"),
        ([*SMALL, "--relaxed", "0.5"], "--relaxed must be above 1"),
        ([*SMALL, "--gpu-hour-usd", "free"], "is not a price"),
        ([*SMALL, "--hardware", "h10"], "did you mean 'h100'?"),
        ([*SMALL, "--hardware", ""], "there is no hardware ''"),
        ([*SMALL, "--tp", "3"], "--tp 2,4,8 can"),
        ([*SMALL, "--out", "/proc/x/plan.json"], "cannot write /proc/x/plan.json"),
        ([*SMALL, "--model", "llama2-7"], "llama2-7"),
        (["--gpus", "1", "--slo", "ttft=1s,tpot=45ms"], "does not fit"),
    ],
)
def test_what_cannot_be_planned_is_refused(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    """One sentence, exit code 2."""
    assert ExitCode.USAGE == run(["plan", *words])
    assert message in capsys.readouterr().err
