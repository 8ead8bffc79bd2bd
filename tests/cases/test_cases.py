"""Runs every case through the module of its kind."""

from __future__ import annotations

import importlib
import importlib.util
import json
from pathlib import Path

import pytest


def test_case(case_dir: Path) -> None:
    """The product answers the recorded situation as expected.json says."""
    case = json.loads((case_dir / "case.json").read_text(encoding="utf-8"))
    expected = json.loads((case_dir / "expected.json").read_text(encoding="utf-8"))
    kind = case["kind"]
    module = f"tests.cases.kinds.{kind}"
    if not kind.isidentifier() or importlib.util.find_spec(module) is None:
        pytest.skip(f"kind {kind!r} is not built yet")
    importlib.import_module(module).run(case_dir, case, expected)
