"""For all tests: a property takes as long as the machine needs; `--update-golden` records what is compared."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings

from tests.golden import check_file

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="record anew what differs from its golden file")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with the file of that name in golden/ beside the test, or record it."""
    folder, update = request.path.parent / "golden", request.config.getoption("--update-golden")
    return lambda name, text: check_file(folder / name, text, update=update)
