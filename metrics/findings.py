"""What a finding is, and the words that all of them share."""

from __future__ import annotations

from typing import Literal

import msgspec

from metrics.latency import Mask
from metrics.records import Rows
from metrics.stats import defined

Level = Literal["invalid", "warning"]
Evidence = dict[str, float | int | str | None]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to know before believing a figure."""

    code: str
    level: Level
    message: str
    evidence: Evidence = {}


def invalid(code: str, message: str, **evidence: float | int | str | None) -> Finding:
    """The measurement is unsound."""
    return Finding(code=code, level="invalid", message=message, evidence=evidence)


def warning(code: str, message: str, **evidence: float | int | str | None) -> Finding:
    """The measurement stands, but this is to be read first."""
    return Finding(code=code, level="warning", message=message, evidence=evidence)


def what(rows: Rows, mask: Mask) -> Evidence:
    """How many of the rows, and from when on."""
    return {"count": int(mask.sum()), "share": float(mask.mean()), "first_scheduled_s": first_due_s(rows, mask)}


def part(mask: Mask) -> str:
    """`3 of 20 requests`."""
    return f"{int(mask.sum())} of {len(mask)} requests"


def first_due_s(rows: Rows, mask: Mask) -> float | None:
    """When the first of these was due; None where none had an instant."""
    scheduled = defined(rows["scheduled_s"][mask])
    return float(scheduled.min()) if len(scheduled) else None
