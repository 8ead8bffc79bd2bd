"""The option `--cases DIR`: a folder whose sub-folders hold case.json and expected.json."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.cases.kinds")

HERE = Path(__file__).parent
LIVE = {"stream", "http", "load", "command"}  # kinds that send requests


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cases", type=Path, metavar="DIR", help="folder of cases (default: tests/cases)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per folder that holds a case.json."""
    if "case_dir" not in metafunc.fixturenames:
        return
    folder = metafunc.config.getoption("cases", default=None) or HERE
    found = sorted(path.parent for path in folder.glob("*/case.json"))
    if not found:
        raise pytest.UsageError(f"{folder} holds no case (a folder with case.json and expected.json)")
    metafunc.parametrize("case_dir", [pytest.param(path, id=path.name, marks=_marks(path)) for path in found])


def _marks(path: Path) -> list[pytest.MarkDecorator]:
    kind = json.loads((path / "case.json").read_text(encoding="utf-8")).get("kind")
    return [pytest.mark.live] if kind in LIVE else []
