"""Which deployment is better, by how much, and how sure: the goodput per GPU of several, in one sentence.

The rule is deliberately plain: a deployment beats another when their intervals of goodput per GPU do not
overlap. The factor printed is the ratio of the estimates, between the ratios of the nearest and of the
farthest ends, so "at least 1.2 times" holds whenever both intervals do. Where no deployment has GPUs (all run on
a CPU), or none says how many, they are compared whole, and the sentence leaves "per GPU" out.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from metrics.goodput import GoodputEstimate

Standing = Literal["winner", "tie", "single", "none"]


class Factor(msgspec.Struct, frozen=True):
    """How many times more; `value` None (and `high` None) when only a least factor is known."""

    value: float | None
    low: float
    high: float | None


class Pair(msgspec.Struct, frozen=True):
    """Median and 90th percentile of a latency, in seconds."""

    p50: float
    p90: float


class DecisionRow(msgspec.Struct, frozen=True, kw_only=True):
    """One deployment: its goodput, and what one live run of it showed at a common rate.

    An invalid live run spoils a goodput that was measured live, not one found on the virtual clock.
    """

    label: str
    deployment: str
    gpus: int | None
    goodput_per_s: GoodputEstimate | None = None
    goodput_per_gpu: GoodputEstimate | None = None
    live_attainment: float | None = None
    predicted_attainment: float | None = None
    ttft_s: Pair | None = None
    tpot_s: Pair | None = None
    validity: Literal["valid", "warning", "invalid"] = "valid"
    goodput_from: Literal["live", "virtual clock"] = "live"


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The rows, best first, and the verdict in words; schema `goodput.decision/1`."""

    schema: str = "goodput.decision/1"
    standing: Standing
    sentence: str
    leaders: list[str]
    factor: Factor | None
    rows: list[DecisionRow]


def decide(rows: list[DecisionRow]) -> Decision:
    """Rank deployments by goodput per GPU and say in one sentence what the intervals allow to be said."""
    able = sorted((row for row in rows if _usable(row, rows)), key=_rank_key)
    ranked = able + sorted((row for row in rows if not _usable(row, rows)), key=_rank_key)
    if not able:
        return _decision("none", _why_nothing(ranked), [], None, ranked)
    if len(able) == 1:
        return _decision("single", _alone(able[0], ranked), [able[0].label], None, ranked)
    leaders = [row for row in able if _high(row) >= _low(able[0])]
    if len(leaders) > 1:
        return _decision("tie", _tie(leaders, able, ranked), [row.label for row in leaders], None, ranked)
    factor = _factor(able[0], able[1])
    sentence = _win(able, factor) + _left_out(ranked)
    return _decision("winner", sentence, [able[0].label], factor, ranked)


def _decision(
    standing: Standing, sentence: str, leaders: list[str], factor: Factor | None, rows: list[DecisionRow]
) -> Decision:
    sentence = sentence[:1].upper() + sentence[1:]
    return Decision(standing=standing, sentence=sentence, leaders=leaders, factor=factor, rows=rows)


def _counted(rows: list[DecisionRow]) -> bool:
    """Whether GPUs come into it."""
    return any(row.gpus is not None for row in rows)


def _known(row: DecisionRow, rows: list[DecisionRow]) -> bool:
    return (row.goodput_per_gpu if _counted(rows) else row.goodput_per_s) is not None


def _usable(row: DecisionRow, rows: list[DecisionRow]) -> bool:
    return _known(row, rows) and (row.goodput_from != "live" or row.validity != "invalid")


def _rank_key(row: DecisionRow) -> tuple[float, str]:
    rate = row.goodput_per_gpu or row.goodput_per_s
    return (-(rate.rate if rate else 0.0), row.label)


def _rate(row: DecisionRow) -> GoodputEstimate:
    """What is compared, of a row that can be: per GPU, or of the whole where no row has GPUs."""
    rate = row.goodput_per_gpu or row.goodput_per_s
    assert rate is not None
    return rate


def _each(row: DecisionRow) -> str:
    return " per GPU" if row.goodput_per_gpu is not None else ""


def _low(row: DecisionRow) -> float:
    """The least the data allow: nothing at all when the search only found that even its lowest rate fails."""
    rate = _rate(row)
    if rate.bound == "below":
        return 0.0
    if rate.bound == "at_least":
        return rate.rate
    return rate.rate if rate.low is None else rate.low


def _high(row: DecisionRow) -> float:
    """The most the data allow: without limit when even the highest rate tried passed."""
    rate = _rate(row)
    if rate.bound == "at_least":
        return float("inf")
    if rate.bound == "below":
        return rate.rate
    return rate.rate if rate.high is None else rate.high


def _factor(best: DecisionRow, second: DecisionRow) -> Factor | None:
    """How many times more the best serves; None when the runner-up may serve nothing."""
    top, other = _rate(best), _rate(second)
    if other.rate <= 0 or _high(second) <= 0:
        return None
    low = _low(best) / _high(second)
    if top.bound == "at_least" or other.bound == "below" or _low(second) <= 0:
        return Factor(None, low, None)
    return Factor(top.rate / other.rate, low, _high(best) / _low(second))


def _win(able: list[DecisionRow], factor: Factor | None) -> str:
    best, second = able[0], able[1]
    if factor is None:
        return f"{best.label} wins: {_told(best)} against {_told(second)} requests/s{_each(best)}."
    than = f"the goodput{_each(best)} of {second.label}"
    if factor.value is None or factor.high is None:
        return f"{best.label} wins: at least {factor.low:.3g} times {than}."
    sure = f" (between {factor.low:.3g} and {factor.high:.3g})" if factor.high > factor.low else ""
    return f"{best.label} wins: {factor.value:.3g} times {than}{sure}."


def _told(row: DecisionRow) -> str:
    rate = _rate(row)
    prefix = {"estimate": "", "at_least": "at least ", "below": "below "}[rate.bound]
    return f"{prefix}{rate.rate:.3g}"


def _tie(leaders: list[DecisionRow], able: list[DecisionRow], ranked: list[DecisionRow]) -> str:
    names = _listed([row.label for row in leaders])
    if all(_rate(row).bound == "below" for row in able):
        return f"None of {names} reaches the target, not even at the lowest rate tried.{_left_out(ranked)}"
    rest = [row for row in able if row not in leaders]
    # Only what lies below *every* leader is beaten by all of them.
    beaten = [row.label for row in rest if all(_high(row) < _low(leader) for leader in leaders)]
    ahead = f" Each is ahead of {_listed(beaten)}." if beaten else ""
    return f"The data cannot tell {names} apart: their intervals overlap.{ahead}{_left_out(ranked)}"


def _alone(row: DecisionRow, ranked: list[DecisionRow]) -> str:
    return f"{row.label} serves {_told(row)} requests/s{_each(row)}{_ends(row)}.{_left_out(ranked)}"


def _ends(row: DecisionRow) -> str:
    rate = _rate(row)
    if rate.bound != "estimate" or rate.low is None or rate.high is None:
        return ""
    return f" (95 % interval {rate.low:.3g} to {rate.high:.3g})"


def _left_out(ranked: list[DecisionRow]) -> str:
    """A clause for each row the verdict does not cover."""
    invalid = [row.label for row in ranked if row.validity == "invalid" and not _usable(row, ranked)]
    unknown = [row.label for row in ranked if row.validity != "invalid" and not _known(row, ranked)]
    # A goodput found on the virtual clock stands, but not what the live run showed beside it.
    spoilt = [row.label for row in ranked if row.validity == "invalid" and _usable(row, ranked)]
    said = f" Nothing can be said of {_listed(invalid)}: the measurement is invalid." if invalid else ""
    said += f" Do not use the live figures of {_listed(spoilt)}: that measurement is invalid." if spoilt else ""
    of = " per GPU" if _counted(ranked) else ""
    return said + (f" The goodput{of} of {_listed(unknown)} is not known." if unknown else "")


def _why_nothing(ranked: list[DecisionRow]) -> str:
    return "No deployment can be ranked." + _left_out(ranked) if ranked else "No deployment was measured."


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
