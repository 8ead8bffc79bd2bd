"""`goodput plan` from the outside, on one tensor degree so that it is quick."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtest.cli.main import run
from loadtest.errors import ExitCode
from loadtest.plan import designs

SMALL = ["--gpus", "16", "--tp", "8", "--slo", "ttft=1s,tpot=45ms"]


@pytest.mark.slow
def test_a_plan_as_text_and_as_a_document(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The decision table, break-evens and the waterfall; --out holds the same as JSON."""
    monkeypatch.setattr(designs, "BUDGETS", {"colocated": (2048,), "chunked": (512,)})
    out = tmp_path / "plan.json"
    assert ExitCode.OK == run(["plan", *SMALL, "--rate", "9", "--out", str(out)])
    text = capsys.readouterr().out
    found = json.loads(out.read_text())
    assert ("goodput.plan/1", 16, 9.0) == (found["schema"], found["gpus"], found["wanted_rate_per_s"])
    for word in ("throughput only", "relaxed", "strict", "KV link rate", "TPOT target", "minus transfer", "$/h"):
        assert word in text
    assert ("holds here" if found["rule_holds"] else "does not hold here") in " ".join(text.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gpus", "16"], "a plan needs an SLO"),
        ([*SMALL, "--rate", "-1"], "--rate must be above 0"),
        ([*SMALL, "--tp", "two"], "not a list of tensor degrees"),
        ([*SMALL, "--relaxed", "0.5"], "--relaxed must be above 1"),
        ([*SMALL, "--gpu-hour-usd", "free"], "is not a price"),
        ([*SMALL, "--hardware", "h10"], "h10"),
        ([*SMALL, "--model", "llama2-7"], "llama2-7"),
        (["--gpus", "1", "--slo", "ttft=1s,tpot=45ms"], "does not fit"),
    ],
)
def test_what_cannot_be_planned_is_refused(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    """One sentence, exit code 2."""
    assert ExitCode.USAGE == run(["plan", *words])
    assert message in capsys.readouterr().err
