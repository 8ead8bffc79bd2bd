"""Service-level objectives and the share of requests that met them (docs/definitions.md)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import msgspec
import numpy as np

from metrics.errors import MetricsError
from metrics.judge import Judgement, Measured, Verdict, Verdicts, judge, judge_rows, measure
from metrics.latency import Mask, Seconds, counted, e2e_s, is_ok, is_streamed, select, tpot_s, ttft_s
from metrics.records import RecordTable, Rows

QUANTITIES: dict[str, Callable[[Rows], Seconds]] = {"ttft": ttft_s, "tpot": tpot_s, "e2e": e2e_s}
FAILURES, UNMEASURABLE = "failures", "unmeasurable"
NOT_MEASURABLE = "_not_measurable"  # how reasons end, after the quantity
BOUNDS_ABOVE = 0.01  # share of undecided requests from which on both bounds are given

_UNITS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60)}
_DURATION = re.compile(r"([0-9.]+(?:e[+-]?[0-9]+)?)\s*(ms|s|m)")


@dataclass(frozen=True)
class SLO:
    """Joint limits on a request's latencies, and the share of all requests that must meet them."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    share: float = 0.9

    def __post_init__(self) -> None:
        if not self.limits:
            raise _bad_slo("an SLO needs at least one limit")
        for quantity, limit_s in self.limits.items():
            if not 0 < limit_s < float("inf"):
                raise _bad_slo(f"the limit of {quantity} must be above 0, not {limit_s} s")
        if not 0 < self.share <= 1:
            raise _bad_slo(f"share must lie above 0 % and not above 100 %, not {self.share:.6g}")

    @property
    def limits(self) -> dict[str, float]:
        """The limits that are set, in seconds, by quantity."""
        named = {"ttft": self.ttft_s, "tpot": self.tpot_s, "e2e": self.e2e_s}
        return {quantity: limit_s for quantity, limit_s in named.items() if limit_s is not None}

    @classmethod
    def parse(cls, text: str) -> SLO:
        """Read `ttft=200ms,tpot=50ms,share=90%`; units are required; MetricsError `bad_slo`."""
        given: dict[str, float] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            key, equals, value = (piece.strip() for piece in part.partition("="))
            if not equals:
                raise _bad_slo(f"{part!r} in the SLO {text!r} is not KEY=VALUE")
            field = _field(key, text)
            if field in given:
                raise _bad_slo(f"{key!r} is given twice in the SLO {text!r}")
            given[field] = _share(value) if key == "share" else _seconds(key, value)
        return cls(**given)

    def __str__(self) -> str:
        limits = [f"{quantity}={_duration(limit_s)}" for quantity, limit_s in self.limits.items()]
        return ",".join([*limits, f"share={_decimal(_exact(self.share) * 100)}%"])


class SentAttainment(msgspec.Struct, frozen=True, kw_only=True):
    """Attainment as it would be had every request left the client on time: TTFT counted from sent."""

    share: float | None
    good: int | None


class Attainment(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the planned requests (after warm-up) were good; `share` is None when that cannot be known.

    `total` leaves out the `undecided`, which a stop cut off before they were past a limit. Where they are more than
    1 %, `bounds` are the shares of all requests had none, and had all of them, been good.
    """

    share: float | None
    good: int | None
    total: int
    target_share: float
    meets: bool | None
    marginals: dict[str, float | None]  # the share that met each limit alone
    binding: str | None  # what most requests missed: a quantity, `failures` or `unmeasurable`; None: nothing
    from_sent: SentAttainment
    limits_s: dict[str, float]
    reason: str | None = None  # why the share is None: `ttft_not_measurable`, `no_requests`, `undecided`, ...
    unmeasurable: dict[str, int] = {}  # answers on which a limit applied and could not be measured, by limit
    unmeasurable_requests: int = 0  # not good for that reason alone
    undecided: int = 0
    bounds: tuple[float, float] | None = None

    @property
    def hinges_on_unmeasurable(self) -> bool:
        """Whether the target is missed only because some answers could not be measured."""
        return hinges(self.good, self.unmeasurable_requests, self.total, self.target_share)


def attain(table: RecordTable, slo: SLO, stopped_at_s: float | None = None) -> Attainment:
    """Judge every counted row; compares counts, never rounded percentages."""
    rows = select(table.rows, counted(table.rows, stopped_at_s))
    measured = measure(rows, slo.limits)
    judged = judge(measured, slo.limits)
    good, undecided = judged.count(Verdict.GOOD), judged.count(Verdict.UNDECIDED)
    total, reason = len(rows) - undecided, unknown_because(rows, judged)
    known = reason is None
    loose = undecided > BOUNDS_ABOVE * len(rows) and not judged.none_measurable
    return Attainment(
        share=good / total if known else None,
        good=good if known else None,
        total=total,
        target_share=slo.share,
        meets=reaches(good, total, slo.share) if known else None,
        marginals={quantity: _met_share(found) if known else None for quantity, found in judged.by_limit.items()},
        binding=_binding(judged) if known else None,
        from_sent=_from_sent(rows, measured, slo) if known else SentAttainment(share=None, good=None),
        limits_s=slo.limits,
        reason=reason,
        unmeasurable={q: count for q in slo.limits if (count := judged.count(Verdict.UNMEASURABLE, q))},
        unmeasurable_requests=judged.count(Verdict.UNMEASURABLE),
        undecided=undecided,
        bounds=(good / len(rows), (good + undecided) / len(rows)) if loose else None,
    )


def attain_by_class(
    table: RecordTable, slo: SLO | Mapping[int, SLO], stopped_at_s: float | None = None
) -> dict[int, Attainment]:
    """Judge the rows of each SLO class by themselves, against one SLO or their own; a class without one is left out."""
    classes = [int(number) for number in np.unique(table.rows["slo_class"])]
    slos = dict.fromkeys(classes, slo) if isinstance(slo, SLO) else slo
    return {
        number: attain(RecordTable(table.rows[table.rows["slo_class"] == number]), slos[number], stopped_at_s)
        for number in classes
        if number in slos
    }


def good_rows(rows: Rows, slo: SLO) -> Mask:
    """Which rows came through and met every limit."""
    return judge_rows(rows, slo.limits).good


def unknown_because(rows: Rows, judged: Judgement) -> str | None:
    """Why the share of good requests cannot be known; None where it can."""
    if not len(rows):
        return "no_requests"
    if not judged.none_measurable:
        return None if judged.decided.any() else "undecided"
    if (is_ok(rows) & ~is_streamed(rows)).any():
        return f"ttft{NOT_MEASURABLE}"
    counts = {quantity: judged.count(Verdict.UNMEASURABLE, quantity) for quantity in judged.by_limit}
    return f"{max(counts, key=lambda quantity: counts[quantity])}{NOT_MEASURABLE}"


def reaches(good: int, total: int, share: float) -> bool:
    """Whether `good` of `total` is at least `share`, whatever 0.9 is in binary."""
    return good >= share * total - 1e-9 * total


def hinges(good: int | None, unmeasurable: int, total: int, share: float) -> bool:
    """Whether a target that is missed would be met if all that could not be measured were good."""
    if good is None or reaches(good, total, share):
        return False
    return reaches(good + unmeasurable, total, share)


def _met_share(found: Verdicts) -> float | None:
    decided = int(np.count_nonzero(found != Verdict.UNDECIDED))
    return int(np.count_nonzero(found == Verdict.GOOD)) / decided if decided else None


def _binding(judged: Judgement) -> str | None:
    """What most requests missed; ties go to failures, then in the order of the limits."""
    misses = {FAILURES: judged.count(Verdict.FAILED)}
    misses |= {quantity: judged.count(Verdict.MISSED, quantity) for quantity in judged.by_limit}
    misses[UNMEASURABLE] = judged.count(Verdict.UNMEASURABLE)
    worst = max(misses, key=lambda name: misses[name])
    return worst if misses[worst] else None


def _from_sent(rows: Rows, measured: Measured, slo: SLO) -> SentAttainment:
    values = dict(measured.values)
    if slo.ttft_s is not None:
        values["ttft"] = values["ttft"] - np.nan_to_num(rows["sent_s"] - rows["scheduled_s"])
    judged = judge(measured._replace(values=values), slo.limits)
    good, decided = judged.count(Verdict.GOOD), int(judged.decided.sum())
    return SentAttainment(share=good / decided if decided else None, good=good)


def _field(key: str, text: str) -> str:
    known = [*QUANTITIES, "share"]
    if key in known:
        return key if key == "share" else f"{key}_s"
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
    raise _bad_slo(f"{key!r} in the SLO {text!r} is not known", hint)


def _seconds(key: str, value: str) -> float:
    match = _DURATION.fullmatch(value)
    number = _number(match[1]) if match else None
    if match is None or number is None:
        raise _bad_slo(f"{key}={value} is not a duration", "write a number and ms, s or m, as in ttft=200ms")
    return float(number * _UNITS[match[2]])


def _share(value: str) -> float:
    number = _number(value.removesuffix("%").strip())
    if number is None:
        raise _bad_slo(f"share={value} is not a share", "write share=90% or share=0.9")
    return float(number / 100 if value.endswith("%") else number)


def _number(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _duration(seconds: float) -> str:
    exact = _exact(seconds)
    return f"{_decimal(exact)}s" if exact >= 1 else f"{_decimal(exact * 1000)}ms"


def _exact(value: float) -> Decimal:
    return Decimal(repr(float(value)))


def _decimal(value: Decimal) -> str:
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _bad_slo(message: str, hint: str = "as in ttft=200ms,tpot=50ms,share=90%") -> MetricsError:
    return MetricsError(message, code="bad_slo", hint=hint)
