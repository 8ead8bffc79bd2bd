"""Gate reports for tests of their renderings."""

from __future__ import annotations

import msgspec

from metrics.gate.report import Cost, GateReport, Plan, SideFacts, decide, record_of
from metrics.gate.rules import parse_rules
from metrics.validity import Finding
from tests.metrics.gate.sides import identified, paired

RULES = parse_rules(["attainment drop < 2pp", "ttft.p90 rise < 10%", "tpot.p90 rise < 5% warn", "failed < 1%"])
BASE = {
    "attainment": [0.95, 0.96, 0.955],
    "ttft_p90": [0.2, 0.21, 0.205],
    "tpot_p90": [0.02, 0.0201, 0.0199],
    "failed": [0.0, 0.0, 0.0],
}


def gate_report(verdict: str = "PASS", on_inconclusive: str = "fail", label: str = "emulated:chunked") -> GateReport:
    """A report with this verdict; INVALID because a worker was lost."""
    factors = {"FAIL": [1.3, 1.32, 1.31], "INCONCLUSIVE": [1.0, 1.2, 1.1]}.get(verdict, [1.0, 1.01, 0.99])
    cand = {**BASE, "ttft_p90": [t * f for t, f in zip(BASE["ttft_p90"], factors, strict=True)]}
    cand["tpot_p90"] = [0.03, 0.031, 0.0305]  # only a warning
    lost = [Finding(code="worker_lost", level="invalid", message="3 of 9 requests <were> lost | there.")]
    facts = {"requests": 900, "deployment": label, "findings": lost if verdict == "INVALID" else []}
    pairs = [(identified(a, requests=900), identified(b, **facts)) for a, b in paired(BASE, cand)]
    plan = Plan(rules=RULES, looks=[3, 5], on_inconclusive=on_inconclusive)  # type: ignore[arg-type]
    found = decide(plan, pairs, [record_of(pair, n, "AB", RULES) for n, pair in enumerate(pairs, 1)])
    side = SideFacts(label=label, deployment=label, model="m", gpus=1)
    return msgspec.structs.replace(
        found,
        baseline=side,
        candidate=side,
        cost=Cost(expected_least=3.0, expected_most=6.0, server_minutes=3.3),
        created_at="2026-01-31T12:00:00+00:00",
    )
