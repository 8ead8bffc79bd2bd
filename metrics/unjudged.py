"""Findings about requests that are neither good nor bad: not measurable, or cut off by the end of the run."""

from __future__ import annotations

from collections.abc import Iterator

from metrics.findings import Finding
from metrics.latency import is_ok, is_streamed
from metrics.records import Rows
from metrics.slo import NOT_MEASURABLE, UNMEASURABLE, Attainment

_WHY_NOT = {"TTFT": "no token of them was streamed", "TPOT": "all tokens came at once, or hidden"}


def not_judged(rows: Rows, attained: Attainment | None) -> Iterator[Finding]:
    """Answers that a limit could not be held against, and requests that the end of the run cut off."""
    reason = "" if attained is None else attained.reason or ""
    whole = is_ok(rows) & ~is_streamed(rows)
    if whole.any() and (attained is None or reason == f"ttft{NOT_MEASURABLE}"):
        yield Finding(
            code=f"ttft{NOT_MEASURABLE}",
            level="warning" if (is_ok(rows) & ~whole).any() and not reason else "invalid",
            message=f"{int(whole.sum())} of {len(rows)} requests were answered in one piece: they have no first-token "
            "time. Ask for a streamed answer.",
            evidence={"count": int(whole.sum()), "share": float(whole.mean())},
        )
    elif reason.endswith(NOT_MEASURABLE):
        name, answers = reason.removesuffix(NOT_MEASURABLE).upper(), int(is_ok(rows).sum())
        yield Finding(
            code=reason,
            level="invalid",
            message=f"{name} could be measured on none of {answers} answers: {_WHY_NOT.get(name, 'no time came')}.",
            evidence={"answers": answers},
        )
    if attained is not None and attained.good is not None:
        yield from _unmeasurable(attained)
    if attained is not None and attained.undecided:
        yield _undecided(attained)


def _unmeasurable(attained: Attainment) -> Iterator[Finding]:
    """Some answers could not be measured: they are not good, which may be all that the target is missed by."""
    if not attained.unmeasurable:
        return
    told = " and ".join(f"{name.upper()} on {count}" for name, count in attained.unmeasurable.items())
    decides = attained.hinges_on_unmeasurable
    so = "without them the target could be met" if decides else "they do not decide whether the target is met"
    yield Finding(
        code=UNMEASURABLE,
        level="invalid" if decides else "warning",
        message=f"Not measurable were {told} of {attained.total} requests; they count as not good, and {so}.",
        evidence={
            "count": attained.unmeasurable_requests,
            "share": attained.unmeasurable_requests / attained.total,
            **attained.unmeasurable,
        },
    )


def _undecided(attained: Attainment) -> Finding:
    """The stop came before it was known whether these are good."""
    requests = attained.total + attained.undecided
    told = f"{attained.undecided} of {requests} requests were cut off before they had missed a limit and are left out"
    if attained.bounds is not None:
        low, high = (f"{bound * 100:.1f} %" for bound in attained.bounds)
        told += f": had none of them been good, {low} would be, had all, {high}"
    bounds = attained.bounds or (None, None)
    return Finding(
        code="undecided",
        level="warning",
        message=f"{told}.",
        evidence={
            "count": attained.undecided,
            "share": attained.undecided / requests,
            "lowest_share": bounds[0],
            "highest_share": bounds[1],
        },
    )
