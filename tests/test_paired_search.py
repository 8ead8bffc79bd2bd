"""Goodput as a gate's metric."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.deployment import Deployment
from loadtest.paired_search import GoodputSearch
from loadtest.pairs import Pairs, run_gate
from loadtest.sides import VirtualSide
from loadtest.workload import Workload
from metrics.gate.report import Plan
from metrics.gate.rules import parse_rules
from metrics.slo import SLO

CHUNKED = "emulated:chunked,model=demo-8b"
SEARCH = GoodputSearch(
    Workload(trace="azure-conv", rate_per_s=5.0, requests=60), SLO.parse("ttft=500ms,tpot=20ms"), 5.0, runs=4
)


@pytest.mark.parametrize(("candidate", "verdict"), [(CHUNKED, "PASS"), (f"{CHUNKED},max_num_seqs=4", "FAIL")])
def test_goodput_is_compared_by_paired_searches(tmp_path: Path, candidate: str, verdict: str) -> None:
    """Equal deployments have equal goodput in every pair; one with room for four requests has far less."""
    sides = [VirtualSide(name, Deployment.parse(text)) for name, text in (("a", CHUNKED), ("b", candidate))]
    report = run_gate(Pairs(*sides, SEARCH, tmp_path), Plan(rules=parse_rules(["goodput drop < 5%"]), looks=[3]))
    assert verdict == report.verdict, report.sentence
    assert ["goodput"] == [result.metric for result in report.rules]


def test_the_cost_of_a_search_is_that_of_its_runs() -> None:
    """Four runs at the estimate and three to bracket it, 60 requests at 5/s each."""
    assert 7 * 60 / 5 == SEARCH.expected_s()
