"""Why two sides cannot be compared: the reasons for INVALID, which come before any verdict.

A server's failures are never among them: they are evidence about the server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from metrics.gate.rules import Rule
from metrics.gate.sample import Sample

Side = Literal["baseline", "candidate", "both"]
Pair = tuple[Sample, Sample]

CLOCK = "clock"  # key of a run's server facts: real, or virtual for a simulated run


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why the measurement decides nothing."""

    code: str  # a validity finding's, or different_traces, different_slos, different_machines, different_clocks,
    side: Side  # metric_missing, no_runs
    message: str


def reasons(pairs: Sequence[Pair], rules: Sequence[Rule]) -> list[Reason]:
    """Every distinct reason, in the order of the runs; none for sound and comparable pairs."""
    found: dict[tuple[str, ...], Reason] = {}
    for pair in pairs:
        for reason in (*_unsound(pair), *_different(pair)):  # the figures in a message differ from run to run
            found.setdefault((reason.code, reason.side), reason)
        for reason in _missing(pair, rules):
            found.setdefault((reason.code, reason.side, reason.message), reason)
    return list(found.values())


def _unsound(pair: Pair) -> Iterator[Reason]:
    for side, sample in _sides(pair):
        for finding in sample.unsound:
            yield Reason(code=finding.code, side=side, message=finding.message)


def _different(pair: Pair) -> Iterator[Reason]:
    baseline, candidate = pair
    # The recipe has the trace's hash in it, and the lengths and instants as they were planned.
    for name, what in (("trace", "traces"), ("recipe", "schedules (arrivals, lengths, warm-up or seed)")):
        if _differ(getattr(baseline, name), getattr(candidate, name)):
            yield Reason(code="different_traces", side="both", message=f"The two sides were given different {what}.")
            break
    if _differ(baseline.slo, candidate.slo):
        told = f"{baseline.slo} and {candidate.slo}"
        yield Reason(code="different_slos", side="both", message=f"The two sides have different SLOs: {told}.")
    clocks = (baseline.server.get(CLOCK, "real"), candidate.server.get(CLOCK, "real"))
    if clocks[0] != clocks[1]:
        told = f"The baseline ran on the {clocks[0]} clock, the candidate on the {clocks[1]} one."
        yield Reason(code="different_clocks", side="both", message=told)
    if "virtual" not in clocks:
        yield from _machines(baseline, candidate)


def _machines(baseline: Sample, candidate: Sample) -> Iterator[Reason]:
    """Facts of the client's machine, and of the server's GPUs where it told them; unknown ones count for nothing."""
    told = [
        f"{key} {ours[key]} and {theirs[key]}"
        for ours, theirs in ((baseline.host, candidate.host), (_gpu(baseline), _gpu(candidate)))
        for key in ours.keys() & theirs.keys()
        if ours[key] != theirs[key]
    ]
    if told:
        message = f"The two sides ran on different machines: {', '.join(sorted(told))}."
        yield Reason(code="different_machines", side="both", message=message)


def _gpu(sample: Sample) -> dict[str, object]:
    return {key: value for key, value in sample.server.items() if key.startswith("gpu")}


def _missing(pair: Pair, rules: Sequence[Rule]) -> Iterator[Reason]:
    for rule in rules:
        for side, sample in _sides(pair):
            needed = rule.change or side == "candidate"
            if needed and not rule.warn and not rule.implied and rule.key not in sample.values:
                message = f"{rule.key} was not measured on the {side}, so {rule.text!r} cannot be judged."
                yield Reason(code="metric_missing", side=side, message=message)


def _sides(pair: Pair) -> tuple[tuple[Literal["baseline"], Sample], tuple[Literal["candidate"], Sample]]:
    return ("baseline", pair[0]), ("candidate", pair[1])


def _differ(one: str, other: str) -> bool:
    return bool(one) and bool(other) and one != other
