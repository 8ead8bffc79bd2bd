"""`Reading`: how a trace file was read: its format, the unit of its times, the size of its prompt blocks."""

from __future__ import annotations

from typing import Literal

import msgspec

# Who decided: the user (an option), the format's definition, the column's own name, or the values in the file.
Decided = Literal["stated", "format", "column name", "evidence"]


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What was taken for what, and who decided it; None where the file has no such thing."""

    format: str
    format_by: Decided
    time_unit: str | None = None  # s, ms, us, ns, or `date and time`
    time_unit_by: Decided | None = None
    block_tokens: int | None = None
    block_tokens_by: Decided | None = None

    def __str__(self) -> str:
        parts = [f"{self.format} ({self.format_by})"]
        if self.time_unit is not None:
            parts.append(f"times in {self.time_unit} ({self.time_unit_by})")
        if self.block_tokens is not None:
            parts.append(f"blocks of {self.block_tokens} tokens ({self.block_tokens_by})")
        return ", ".join(parts)
