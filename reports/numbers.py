"""Numbers as people read them: a unit, three significant digits, and never a rounding that changes the verdict."""

from __future__ import annotations

import math

NOTHING = "\N{EN DASH}"
THIN = "\N{NO-BREAK SPACE}"  # between a number and its unit


def digits(value: float, significant: int = 3, trim: bool = False) -> str:
    """A number with so many significant digits, thousands separated, never in exponent form."""
    if value == 0 or not math.isfinite(value):
        return "0"
    places = max(0, significant - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{places}f}"
    # 9.996 has three places for its size but rounds up to 10.00: one digit too many.
    if sum(c.isdigit() for c in text.lstrip("-0.,")) > significant and places:
        text = f"{value:,.{places - 1}f}"
    return text.rstrip("0").rstrip(".") if trim and "." in text else text


def seconds(value: float | None, trim: bool = False) -> str:
    """A duration in µs, ms, s or (from ten minutes on) min, whichever reads best."""
    if value is None:
        return NOTHING
    if 0 < abs(value) < 0.9995e-3:
        return f"{digits(value * 1e6, trim=trim)}{THIN}\N{MICRO SIGN}s"
    if abs(value) < 0.9995:
        return f"{digits(value * 1e3, trim=trim)}{THIN}ms"
    if abs(value) < 600:
        return f"{digits(value, trim=trim)}{THIN}s"
    return f"{digits(value / 60, trim=trim)}{THIN}min"


def span(low: float, high: float, joint: str = " to ") -> str:
    """Two durations, the unit written once when it is the same."""
    return joined(seconds(low), seconds(high), joint)


def percent(share: float | None, limit: float | None = None) -> str:
    """A share as per cent, with as many places as it takes to stay on its side of 0, 1 and `limit`."""
    if share is None:
        return NOTHING
    if share in (0.0, 1.0):
        return f"{share:.0%}".replace("%", f"{THIN}%")
    for places in (1, 2, 3, 4):
        shown = round(share * 100, places)
        crosses = limit is not None and share != limit and (shown >= limit * 100) != (share >= limit)
        if 0 < shown < 100 and not crosses:
            break
    return f"{shown:.{places}f}{THIN}%"


def target(share: float) -> str:
    """A share somebody chose, without places it does not need."""
    return f"{digits(share * 100, 6, trim=True)}{THIN}%"


def rate(value: float | None, unit: str = "/s") -> str:
    """A rate with its unit."""
    return NOTHING if value is None else f"{digits(value)}{unit if unit.startswith('/') else THIN + unit}"


def change(value: float | None, unit: str = "%", trim: bool = False) -> str:
    """A signed difference of shares or relative change as `+4.4 %`: two places at most, none of them noise."""
    if value is None:
        return NOTHING
    text = digits(round(abs(value) * 100, 2), 2 if abs(value) < 0.1 else 3, trim=trim or abs(value) < 5e-5)
    sign = "" if text == "0" else "+" if value > 0 else "\N{MINUS SIGN}"
    return f"{sign}{text}{THIN}{unit}"


def data_size(value: float) -> str:
    """Bytes in the largest of B, kB, MB and GB that leaves at least one."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{digits(value / size)}{THIN}{unit}"
    return f"{value:.0f}{THIN}B"


def joined(first: str, second: str, joint: str = " to ") -> str:
    """Two numbers as one range, their unit written once when it is the same."""
    same = first.partition(THIN)[2] == second.partition(THIN)[2]
    return f"{first.partition(THIN)[0] if same else first}{joint}{second}"


def count(value: int | None) -> str:
    """A whole number with thousands separated."""
    return NOTHING if value is None else f"{value:,}"


def of(part: int, whole: int) -> str:
    """`part of whole`, both whole numbers."""
    return f"{part:,} of {whole:,}"


def plural(number: int, noun: str) -> str:
    """`1 request`, `2,000 requests`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def compact(value: float | None) -> float | None:
    """A number for a chart: five significant digits are more than a screen can show; NaN becomes null."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.5g}")
