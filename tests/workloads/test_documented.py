"""docs/traces.md names every format, step, process, finding and column key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from workloads.formats import FORMATS
from workloads.formats.columns import _FIELDS
from workloads.recipe import PROCESSES, STEPS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "traces.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("names", [FORMATS, _FIELDS, STEPS, [text.partition(":")[0] for text in PROCESSES]])
def test_names(names: list[str]) -> None:
    """In code marks, so that a search finds them."""
    marked = {word for text in re.findall(r"`([^`\n]+)`", PAGE) for word in re.findall(r"[a-z][a-z0-9-]*", text)}
    assert [] == [name for name in names if name not in marked]


def test_codes_of_warnings_and_findings() -> None:
    """Every `code: sentence` of the package's sources, and every code of lint."""
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "workloads").rglob("*.py")]
    codes = {code for text in sources for code in re.findall(r'f?"([a-z_]+): [a-z{0-9]', text)}
    codes |= set(re.findall(r'_finding\(\s*"([a-z_]+)"', (ROOT / "workloads" / "lint.py").read_text(encoding="utf-8")))
    assert {"unsorted", "clipped", "quantised_clock"} <= codes
    assert [] == sorted(code for code in codes if f"`{code}`" not in PAGE)
