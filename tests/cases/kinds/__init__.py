"""One module per kind of case, each with `run(case_dir, case, expected)` that raises AssertionError."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

ATTEMPTS = 3
# Other names under which a case may give an option of a replay.
ALIASES = {"rate": "rate_per_s", "max_requests": "requests", "limit": "requests", "speedup": "speed"}


def options_of(case: dict[str, Any]) -> dict[str, Any]:
    """A case's options by the names that the kinds use."""
    return {ALIASES.get(name, name): value for name, value in case.get("options", {}).items()}


def undisturbed(play: Callable[[], None]) -> None:
    """Play a case whose answer is a matter of time; a machine that stumbles spoils one playing, a fault all three."""
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(AssertionError):
            play()
            return
    play()
