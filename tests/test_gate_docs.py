"""docs/gate.md names every metric, reason and key that a gate can print."""

from __future__ import annotations

import re
from pathlib import Path

from metrics.gate.rules import DEFAULT_RULES, GUARD, METRICS, STATS

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")


def test_every_metric_and_statistic_is_documented() -> None:
    """What may stand in a rule."""
    assert [] == [name for name in METRICS if f"`{name}`" not in PAGE]
    assert [] == [stat for stat in STATS if f".{stat}" not in PAGE]


def test_the_default_rules_are_documented() -> None:
    """To the letter."""
    assert [] == [rule for rule in (*DEFAULT_RULES, GUARD) if f"`{rule}`" not in PAGE]


def test_every_reason_for_invalid_is_documented() -> None:
    """The codes in metrics/gate/ and those of an unsound run."""
    sources = "".join(path.read_text() for path in (ROOT / "metrics" / "gate").glob("*.py"))
    codes = set(re.findall(r'code="([a-z_]+)", side=', sources))
    assert {"different_traces", "metric_missing", "no_runs"} <= codes
    assert [] == [code for code in codes if f"`{code}`" not in PAGE]


def test_the_files_are_named_as_they_are() -> None:
    """Schemas and file names."""
    for name in ("goodput.gate/1", "goodput.comparison/1", "noise.json", "gate.json", "action.yml", "ci/gitlab.yml"):
        assert name in PAGE
