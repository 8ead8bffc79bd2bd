"""The pages that the tests of reports look at, drawn once."""

from __future__ import annotations

import pytest

from reports import pages
from reports.page import render_html
from tests.reports import samples
from tests.reports.gates import gate_report


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
