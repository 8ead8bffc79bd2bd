"""One thing that a check of a run found."""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["invalid", "warning"]
Evidence = dict[str, float | int | str | None]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to know before believing a figure."""

    code: str
    level: Level
    message: str
    evidence: Evidence = {}
