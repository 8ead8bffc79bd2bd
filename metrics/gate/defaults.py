"""The default rules: those that the workload can measure, and why the others are left out.

A rule that the user gave is never left out: where it cannot be judged, the gate is INVALID.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from metrics.gate.comparable import Pair
from metrics.gate.rules import DEFAULT_RULES, Rule, parse_rules

FEWEST: Final = 10  # answers of a run behind a percentile: of fewer, p90 is the highest

Divided = tuple[list[Rule], list["LeftOut"]]


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A default rule that says nothing about this workload, and why."""

    rule: str
    why: str


def default_rules(max_tokens: NDArray[np.integer] | None, *, slo: bool) -> Divided:
    """The rules of a gate that was given none; `max_tokens` is what each counted request asks for, where known."""
    why = {
        "attainment": "" if slo else "it is defined by an SLO, and there is none (--slo)",
        "tpot": _why_no_tpot(max_tokens),
    }
    rules = [msgspec.structs.replace(rule, default=True) for rule in parse_rules(DEFAULT_RULES)]
    return _divided(rules, lambda rule: why.get(rule.key.partition(".")[0], ""))


def judged_rules(rules: Sequence[Rule], pairs: Sequence[Pair]) -> Divided:
    """The rules without those defaults that no run of either side could measure.

    Where one side measured it and the other did not, the sides differ, and that is no reason to look away.
    """

    def why(rule: Rule) -> str:
        measured = any(rule.key in sample.values for pair in pairs for sample in pair)
        return "no run of either side could measure it" if rule.default and pairs and not measured else ""

    return _divided(rules, why)


def _divided(rules: Sequence[Rule], why: Callable[[Rule], str]) -> Divided:
    reasons = [(rule, why(rule)) for rule in rules]
    return (
        [rule for rule, reason in reasons if not reason],
        [LeftOut(rule=rule.text, why=reason) for rule, reason in reasons if reason],
    )


def _why_no_tpot(max_tokens: NDArray[np.integer] | None) -> str:
    """Time per output token needs a second token."""
    if max_tokens is None:
        return ""
    enough, asked = int((max_tokens >= 2).sum()), len(max_tokens)
    if enough >= min(FEWEST, asked):
        return ""
    few = f"only {enough} of {asked} requests ask" if enough else f"none of {asked} requests asks"
    return f"{few} for two tokens or more"
