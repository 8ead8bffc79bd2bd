"""The ladder's rungs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from loadtest.backends.perfmodel import load_perf_model
from loadtest.deployment import Deployment
from loadtest.ladder import POINTS, RULES, Ladder
from loadtest.pairs import Pairs, run_gate
from loadtest.sides import VirtualSide
from metrics.gate.report import Plan
from metrics.gate.rules import parse_rules

CHUNKED = "emulated:chunked,model=demo-8b,max_num_batched_tokens=16384"


def climbed(tmp_path: Path, text: str = CHUNKED) -> dict[str, float]:
    with VirtualSide("x", Deployment.parse(text)).open(tmp_path) as target:
        return Ladder()(target, 1, tmp_path).values


def test_a_lone_prompt_takes_what_the_model_says(tmp_path: Path) -> None:
    """TTFT at 512, 2,048 and 8,192 tokens is one prefill each: nothing else runs."""
    model = load_perf_model("demo-8b", "h100", 1)
    values = climbed(tmp_path)
    for tokens in (512, 2048, 8192):
        assert model.prefill_s(tokens, tokens**2) == pytest.approx(values[f"ttft@{tokens}.p50"], rel=1e-6)


def test_a_batch_decodes_alone(tmp_path: Path) -> None:
    """TPOT at batch 1, 8 and 32 lies between its first and its last step."""
    model = load_perf_model("demo-8b", "h100", 1)
    values = climbed(tmp_path)
    for batch in (1, 8, 32):
        steps = [model.decode_s(batch, batch * context) for context in (64, 192)]
        assert steps[0] <= values[f"tpot@{batch}.p50"] <= steps[1] * 1.001


def test_every_rung_has_a_rule_and_a_warm_up() -> None:
    """The first group of each is not counted; arrivals of a group are simultaneous."""
    for point in POINTS:
        schedule = point.schedule()
        assert point.batch == int(schedule.warmup.sum())
        assert point.repeats + 1 == len(np.unique(schedule.scheduled_s))
        assert any(rule.startswith(f"{point.metric}@{point.at}.") for rule in RULES)


def test_rungs_beyond_the_context_are_left_out(tmp_path: Path) -> None:
    """A model of 4,096 tokens has no rung of 8,192."""
    values = climbed(tmp_path, f"{CHUNKED},max_model_len=4096")
    assert "ttft@2048.p50" in values
    assert "ttft@8192.p50" not in values


def test_the_ladder_finds_a_larger_model_step(tmp_path: Path) -> None:
    """The same gate machinery, in three pairs."""
    sides = [VirtualSide(name, Deployment.parse(text)) for name, text in (("a", CHUNKED), ("b", CHUNKED))]
    report = run_gate(Pairs(*sides, Ladder(), tmp_path), Plan(rules=parse_rules(list(RULES)), looks=[3]))
    assert ("PASS", 3) == (report.verdict, len(report.pairs))
    assert {"failed", "tpot@1.p50"} <= {result.metric for result in report.rules}
