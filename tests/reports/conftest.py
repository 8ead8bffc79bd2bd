"""Golden files for reports: `pytest tests/reports --update-golden` rewrites them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from reports import pages
from reports.page import render_html
from tests.reports import samples
from tests.reports.gates import gate_report

GOLDEN = Path(__file__).parent / "golden"
Check = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/reports/golden from the code as it is")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Check:
    """Compare a text with the golden file of that name, or rewrite it."""
    update = request.config.getoption("--update-golden", default=False)

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if update:
            path.write_text(text, encoding="utf-8")
        assert path.read_text(encoding="utf-8") == text, f"{name} changed; see --update-golden"

    return check


@pytest.fixture(scope="session")
def one_html() -> str:
    """The page of one run."""
    return render_html(samples.single_page())


@pytest.fixture(scope="session")
def search_html() -> str:
    """The page of a search."""
    return render_html(samples.search_page())


@pytest.fixture(scope="session")
def compare_html() -> str:
    """The page of a comparison."""
    return render_html(samples.comparison_page())


@pytest.fixture(scope="session")
def plan_html() -> str:
    """The page of a plan."""
    return render_html(samples.plan_page())


@pytest.fixture(scope="session")
def gate_html() -> str:
    """The page of a gate that failed."""
    return render_html(pages.gate_page(gate_report("FAIL")))


@pytest.fixture(scope="session")
def demo_html() -> str:
    """The page of three runs and a decision."""
    return render_html(samples.demo_page())
