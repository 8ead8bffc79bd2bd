"""`goodput run --dry-run`: the plan and its price."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loadtest.cli.dryrun import cost, prices
from loadtest.cli.main import run
from loadtest.errors import ExitCode, UsageError


def given(**options: Any) -> dict[str, Any]:
    return {"gpus": None, "backend": None, "gpu_hour_usd": None, "token_usd": None} | options


def test_plan(capsys: pytest.CaptureFixture[str]) -> None:
    """Requests, tokens, peak rate, duration, cost; nothing is contacted."""
    words = ["run", "--dry-run", "--backend", "emulated:chunked", "--rate", "4", "--duration", "60s"]
    assert ExitCode.OK == run([*words, "--gpu-hour-usd", "4", "--token-usd", "2,10", "--json"])
    plan = json.loads(capsys.readouterr().out)
    assert (240, 4.0) == (plan["requests"], pytest.approx(plan["rate_per_s"]))
    assert plan["peak_rate_per_s"] >= plan["peak_rate_10s_per_s"] >= 4
    tokens = (plan["prompt_tokens"] * 2 + plan["output_tokens"] * 10) / 1e6
    hours = plan["cost"]["gpu_hours"]
    assert {"gpu_usd": pytest.approx(4 * hours, abs=1e-5), "token_usd": pytest.approx(tokens, abs=1e-5)} == {
        name: plan["cost"][name] for name in ("gpu_usd", "token_usd")
    }
    assert ["truncation_atom"] == [finding.split(":")[0] for finding in plan["findings"]]
    assert ExitCode.OK == run(words)
    assert "requests             240" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--abort-on", "nonsense"], "bad_rule"),
        (["--extra-body", "word"], "usage"),
        (["--extra-body", "{bad"], "usage"),
        (["--drop-field", "max_token"], "usage"),
        (["--rename-field", "max_tokens"], "usage"),
        (["--target", "ftp://host"], "usage"),
        (["--target", "http://h", "--backend", "emulated:chunked"], "one_of"),
        (["--backend", "emulated:nix"], "bad_deployment"),
        (["--backend", "emulated:chunked", "--path", "/x"], "of_a_target"),
        (["--max-in-flight", "1", "--workers", "2"], "max_in_flight"),
        (["--metrics-url", "ftp://x"], "metrics_url"),
        (["--metrics-url", "http://user:word@h"], "metrics_url"),
        (["--predict", "http://h:1"], "predict"),
        (["--predict", "emulated:chunked,model=missing.json"], "bad_model"),
        (["--virtual"], "virtual"),
        (["--require", "nonsense"], "bad_rule"),
    ],
)
def test_what_a_run_would_refuse_is_refused(words: list[str], code: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run is there to find it."""
    assert ExitCode.USAGE == run(["run", "--dry-run", "--requests", "3", "--json", *words])
    assert code == json.loads(capsys.readouterr().out)["error"]["code"]


def test_a_dry_run_waits_for_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    """With --master it neither listens nor says that it does."""
    words = ["--target", "http://h:1", "--master", "--expect-workers", "2"]
    assert ExitCode.OK == run(["run", "--dry-run", "--requests", "3", *words])
    assert "waiting" not in capsys.readouterr().err


def test_cost_by_hand() -> None:
    """Two GPUs for half an hour at 3 $; 1 M prompt tokens at 2 $ and 0.5 M output tokens at 8 $."""
    found = cost(given(gpus=2, gpu_hour_usd=3.0, token_usd="2,8"), 1800.0, 1_000_000, 500_000)
    assert {"gpu_hours": 1.0, "gpu_usd": 3.0, "token_usd": 6.0} == found
    assert {} == cost(given(), 1800.0, 1, 1)


def test_prices_that_are_none() -> None:
    """Said in words."""
    for text in ("2", "a,b", "-1,2", "1,2,3", "nan,1", "inf,1"):
        with pytest.raises(UsageError):
            prices(text)
    with pytest.raises(UsageError, match="--gpu-hour-usd"):
        cost(given(gpu_hour_usd=3.0), 1.0, 1, 1)
