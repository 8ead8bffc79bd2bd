"""Where this program may keep what it can make or fetch again; nowhere, for a user without a home."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path | None:
    """`goodput` below $XDG_CACHE_HOME or ~/.cache; None where there is neither, as for an unknown user id."""
    named = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(named) / "goodput" if os.path.isabs(named) else None
