"""What a benchmark promises: measured values, their limits, and the one JSON line at the end."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """A value that must not exceed its limit; `value` None means it could not be measured, which does not hold."""

    name: str
    value: float | None
    limit: float
    unit: str

    @property
    def holds(self) -> bool:
        return self.value is not None and bool(self.value <= self.limit)

    def __str__(self) -> str:
        value = "not measured" if self.value is None else f"{self.value:.4g} {self.unit}"
        return f"{'ok  ' if self.holds else 'MISS'} {self.name}: {value} (limit {self.limit:g} {self.unit})"


def say(text: str) -> None:
    """A figure or a step, at once even when stdout is a pipe."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def conclude(benchmark: str, targets: list[Target]) -> int:
    """Print every target and, as the last line, one JSON object; the exit code: 0 when all hold."""
    for target in targets:
        say(str(target))
    judged = {
        target.name: {"value": target.value, "limit": target.limit, "unit": target.unit, "holds": target.holds}
        for target in targets
    }
    holds = all(target.holds for target in targets)
    say(json.dumps({"benchmark": benchmark, "targets": judged, "holds": holds}))
    return 0 if holds else 1
