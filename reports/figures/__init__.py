"""One function per chart; each returns an Altair specification and nothing else."""

from __future__ import annotations

import importlib
import os
from contextlib import AbstractContextManager


def _import_altair() -> None:
    """Altair asks for a home as it is imported, for a cache that no chart of ours uses: a user without one gets /."""
    homeless = os.path.expanduser("~") == "~"
    if homeless:
        os.environ["HOME"] = os.sep
    try:
        importlib.import_module("altair")
    finally:
        if homeless:
            del os.environ["HOME"]


_import_altair()


def unchecked() -> AbstractContextManager[object]:
    """Altair would check every part of every chart against its schema; our tests do that, users need not wait."""
    from altair.utils.schemapi import debug_mode

    return debug_mode(False)
