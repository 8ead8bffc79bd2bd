"""One module per kind of case, each with `run(case_dir, case, expected)` that raises AssertionError."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

ATTEMPTS = 3


def undisturbed(play: Callable[[], None]) -> None:
    """Play a case whose answer is a matter of time; a machine that stumbles spoils one playing, a fault all three."""
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(AssertionError):
            play()
            return
    play()
