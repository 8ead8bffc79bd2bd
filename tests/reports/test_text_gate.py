"""A gate, a noise floor and a comparison on a terminal."""

from __future__ import annotations

import io

import msgspec
import pytest

from metrics.compare import RunSet, compare
from metrics.gate.noise import noise_floor, refusals
from metrics.gate.requirement import parse_requirements, require
from metrics.gate.rules import parse_rule
from metrics.gate.sample import sample_of
from metrics.rundir import Run
from metrics.summary import summarise
from reports.text import console
from reports.text_gate import _folded, render_comparison, render_gate, render_noise, render_requirements
from tests.metrics.gate.sides import paired
from tests.metrics.rows import ok_rows, run_of
from tests.metrics.test_compare import TARGETS, sets
from tests.reports.gates import gate_report


def drawn(render: object, *arguments: object) -> str:
    file = io.StringIO()
    render(*arguments, console(file, width=80))  # type: ignore[operator]
    return file.getvalue()


@pytest.mark.parametrize("verdict", ["PASS", "FAIL", "INCONCLUSIVE", "INVALID"])
def test_a_gate_fits_80_columns_and_says_it_all(verdict: str) -> None:
    """Verdict, each rule's metric, effect and margin, cost; no line is wider."""
    text = drawn(render_gate, gate_report(verdict))
    assert verdict in text
    assert all(metric in text for metric in ("attainment", "ttft.p90", "tpot.p90", "failed"))
    assert "+10\N{NO-BREAK SPACE}%" in text
    assert "3.3 server-minutes" in text
    assert 80 >= max(map(len, text.splitlines()))
    assert ("worker_lost" in text) == (verdict == "INVALID")


def test_an_open_gate_that_shall_not_stop_the_build_says_so() -> None:
    """On request only."""
    assert "does not stop the build" in " ".join(drawn(render_gate, gate_report("INCONCLUSIVE", "warn")).split())
    assert "does not stop the build" not in drawn(render_gate, gate_report("INCONCLUSIVE"))


def test_a_noise_floor_says_what_it_cannot_carry() -> None:
    """The refused margin and the three ways out."""
    rule = parse_rule("ttft.p90 rise < 10%")
    floor = noise_floor(paired({"ttft_p90": [1.0] * 4}, {"ttft_p90": [1.1, 0.9, 1.1, 0.9]}), [rule])
    text = " ".join(drawn(render_noise, floor, refusals([rule], floor)).split())
    for part in ("ttft.p90", "found with 12", "a margin of", "times as long", "pairs in one look"):
        assert part in text


def test_a_comparison_has_a_column_per_side() -> None:
    """Values, contrasts by run and by request."""
    text = drawn(render_comparison, compare(sets(1.0, 1.2, 0.8)))
    assert {"A", "B", "C"} <= set(text.split())
    assert "B against A" in text
    assert "TTFT, same request +20.0 % +19.9 to +20.0 % worse 100 %" in " ".join(text.split())
    assert 80 >= max(map(len, text.splitlines()))


def test_sides_with_other_numbers_of_gpus_show_rates_per_gpu() -> None:
    """The same load on 2 and on 4 GPUs: half of it each, named so; other metrics are not divided."""
    alike, more = sets(1.0, 1.0)
    runs = [
        Run(msgspec.structs.replace(run.info, gpus=gpus), run.table)
        for gpus, run in zip((2, 4), (alike.runs[0], more.runs[0]), strict=True)
    ]
    found = compare([RunSet("two", runs[:1], alike.slo), RunSet("four", runs[1:], alike.slo)])
    two, four = (side.values for side in found.sides)
    for key in ("completed_per_s", "tokens_per_s", "slo_throughput"):
        assert two[key] == pytest.approx(2 * (four[key] or 0.0))
    assert two["ttft.p90"] == four["ttft.p90"]
    text = drawn(render_comparison, found)
    assert "completed requests/s per GPU" in text
    assert "output tokens/s per GPU" in text
    assert "TTFT p90 per GPU" not in text


def test_a_deployment_is_never_broken_inside_a_word() -> None:
    """In the table of what differed, lines end behind a comma."""
    assert "emulated:colocated,\ninstances=2" == _folded("emulated:colocated,instances=2", 21)
    assert "a,b,c" == _folded("a,b,c", 21)


def test_requirements_show_value_interval_and_limit() -> None:
    """One line each."""
    run = run_of(ok_rows([0.1] * 50))
    rules = parse_requirements(["ttft.p90 < 200ms", "tokens_per_s > 1"], TARGETS)
    text = drawn(render_requirements, require(run, sample_of(summarise(run, TARGETS)), TARGETS, rules))
    assert "< 200" in text
    assert "within one run" in text
