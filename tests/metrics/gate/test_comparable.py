"""Reasons for INVALID."""

from __future__ import annotations

import pytest

from metrics.gate.comparable import reasons
from metrics.gate.rules import parse_rule
from metrics.gate.sample import Sample
from metrics.validity import Finding

RULES = [parse_rule("ttft.p90 rise < 10%")]
VALUES = {"ttft.p90": 0.2}


def codes(baseline: dict[str, object], candidate: dict[str, object]) -> list[tuple[str, str]]:
    pair = (Sample(**{"values": VALUES, **baseline}), Sample(**{"values": VALUES, **candidate}))  # type: ignore[arg-type]
    return [(reason.code, reason.side) for reason in reasons([pair, pair], RULES)]


def test_sound_and_equal_sides_can_be_compared() -> None:
    """Nothing is said, also where identities are unknown."""
    assert [] == codes({"trace": "a", "slo": "x"}, {"trace": "a", "slo": "x"})
    assert [] == codes({"trace": "a"}, {})


@pytest.mark.parametrize("code", ["limited_by_client", "worker_lost", "schedule_not_offered", "ttft_not_measurable"])
def test_an_unsound_run_spoils_the_comparison(code: str) -> None:
    """Every invalid finding of either side, once, however many runs have it."""
    bad = [Finding(code=code, level="invalid", message="because")]
    assert [(code, "candidate")] == codes({}, {"findings": bad})
    assert [(code, "baseline")] == codes({"findings": bad}, {})


def test_warnings_and_failures_are_no_reason() -> None:
    """What the server did is evidence about the server."""
    findings = [
        Finding(code="failures", level="warning", message="m"),
        Finding(code="short_outputs", level="warning", message="m"),
    ]
    assert [] == codes({}, {"findings": findings, "failed": 50, "requests": 100})


@pytest.mark.parametrize(
    ("code", "one", "other"),
    [
        ("different_traces", {"trace": "a"}, {"trace": "b"}),
        ("different_traces", {"recipe": "a"}, {"recipe": "b"}),
        ("different_slos", {"slo": "ttft=1s"}, {"slo": "ttft=2s"}),
        ("different_machines", {"host": {"cpus": 2}}, {"host": {"cpus": 4}}),
        ("different_machines", {"server": {"gpu_clock_mhz": 1980}}, {"server": {"gpu_clock_mhz": 1410}}),
        ("different_clocks", {"server": {"clock": "virtual"}}, {}),
    ],
)
def test_sides_that_are_not_alike(code: str, one: dict[str, object], other: dict[str, object]) -> None:
    """Another trace, schedule, SLO, machine, GPU clock or kind of clock."""
    assert [(code, "both")] == codes(one, other)


def test_the_machine_of_simulated_runs_does_not_matter() -> None:
    """A simulated run is the same everywhere, so its baseline may lie in a repository."""
    virtual = {"clock": "virtual"}
    assert [] == codes({"server": virtual, "host": {"cpus": 2}}, {"server": virtual, "host": {"cpus": 64}})


def test_a_missing_metric_is_named() -> None:
    """A rule that cannot be judged makes the gate invalid; a warning that cannot does not."""
    pair = (Sample(values=VALUES), Sample())
    (reason,) = reasons([pair], RULES)
    assert ("metric_missing", "candidate") == (reason.code, reason.side)
    assert "ttft.p90" in reason.message
    assert [] == reasons([pair], [parse_rule("ttft.p90 rise < 10% warn")])


def test_a_requirement_needs_the_candidate_only() -> None:
    """The baseline need not have measured it."""
    assert [] == reasons([(Sample(), Sample(values=VALUES))], [parse_rule("ttft.p90 < 1s")])
