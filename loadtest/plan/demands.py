"""What is asked of a design besides the user's own SLO: looser limits, or another limit on the time of a token."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from metrics.objective import Limit, Objective
from metrics.slo import SLO

TOKEN_TIMES = ("tpot", "itl")  # limits of a family that are on the time of a token, in seconds


def relaxed(slo: Objective, factor: float) -> Objective:
    """Every limit so many times as large."""
    if isinstance(slo, SLO):
        return replace(slo, **{f"{name}_s": limit * factor for name, limit in slo.limits.items()})
    name = f"{slo.name} x {factor:g}" if slo.name else ""
    return msgspec.structs.replace(slo, name=name, limits=tuple(_times(limit, factor) for limit in slo.limits))


def token_limit_s(slo: Objective) -> float | None:
    """The limit on the time of a token, in seconds: TPOT, or a family's first such percentile; None without one."""
    if isinstance(slo, SLO):
        return slo.tpot_s
    return next((limit.limit for limit in slo.limits if limit.quantity in TOKEN_TIMES), None)


def with_token_limit(slo: Objective, limit_s: float) -> Objective:
    """The same with that limit on the time of a token; a family's others on it keep their proportion."""
    if isinstance(slo, SLO):
        return replace(slo, tpot_s=limit_s)
    factor = limit_s / (token_limit_s(slo) or limit_s)
    limits = tuple(_times(limit, factor) if limit.quantity in TOKEN_TIMES else limit for limit in slo.limits)
    return msgspec.structs.replace(slo, limits=limits)


def asked_share(slo: Objective) -> float:
    """Of the requests at goodput, how many are good; the limits of a family speak of all of them together."""
    return slo.share if isinstance(slo, SLO) else 1.0


def _times(limit: Limit, factor: float) -> Limit:
    return Limit(limit.quantity, limit.limit * factor, limit.share)
