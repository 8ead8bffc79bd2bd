"""`goodput run --require`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtest.cli import require
from loadtest.cli.main import run
from loadtest.errors import ExitCode
from metrics.slo import SLO
from metrics.summary import summarise
from tests.metrics.rows import ok_rows, run_of

TARGETS = SLO.parse("ttft=200ms,share=90%")


@pytest.mark.parametrize(
    ("count", "texts", "code"),
    [
        (200, [], ExitCode.OK),
        (200, ["attainment > 90%", "ttft.p90 < 150ms"], ExitCode.OK),
        (200, ["attainment > 90%", "ttft.p90 < 50ms"], ExitCode.FAILED),
        (200, ["ttft.p90 < 50ms warn"], ExitCode.OK),
        (8, ["attainment > 90%"], ExitCode.INCONCLUSIVE),
    ],
)
def test_the_exit_code_is_that_of_the_worst_requirement(
    count: int, texts: list[str], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """0, 1 or 3; the table on stderr, stdout left to the run's own result; the results in a file."""
    finished = run_of(ok_rows([0.1] * count))
    assert code == require.told(require.judge(finished, summarise(finished, TARGETS), TARGETS, texts, tmp_path))
    printed = capsys.readouterr()
    assert "" == printed.out
    if texts:
        stored = json.loads((tmp_path / require.REQUIREMENTS).read_text())
        assert texts == [result["rule"] for result in stored]
        assert all(result["metric"] in printed.err for result in stored)


@pytest.mark.parametrize("text", ["attainment > 90%", "ttft.p90 rise < 10%", "nonsense"])
def test_a_requirement_that_cannot_be_judged_is_found_before_anything_is_sent(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """No SLO, no baseline, no rule: exit 2 although nobody listens at the target."""
    assert ExitCode.USAGE == run(["run", "--json", "--target", "http://127.0.0.1:1", "--require", text])
    assert "bad_rule" == json.loads(capsys.readouterr().out)["error"]["code"]
