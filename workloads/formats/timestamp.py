"""Instants as exact nanoseconds: calendar text (with or without fraction and zone) and decimal seconds."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from functools import lru_cache

LIMIT_NS = 2**62  # about 1824 to 2116: differences of two instants stay inside 64 bits

_CALENDAR = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2})(?:[.,]([0-9]+))?"
    r"\s?(Z|z|UTC|[+-][0-9]{2}:?(?:[0-9]{2})?)?"
)


class Unreadable(ValueError):
    """This text is no instant of the expected form."""


def calendar_ns(text: str) -> int:
    """Nanoseconds since 1970 of `2023-11-16 18:15:46.6805900+00:00`; fraction and zone are optional.

    Without a zone the text is read as UTC: only differences are meaningful then. Digits below a nanosecond are cut.
    """
    match = _CALENDAR.fullmatch(text)
    if match is None:
        raise Unreadable(text)
    second, fraction, zone = match.groups()
    ns = _second(second, zone) * 1_000_000_000 + int((fraction or "0")[:9].ljust(9, "0"))
    if abs(ns) > LIMIT_NS:
        raise Unreadable(text)
    return ns


def decimal_ns(text: str | Decimal | int, unit_ns: int = 1_000_000_000) -> int:
    """Nanoseconds of a decimal number of units (seconds by default), rounded to the nearest one."""
    if isinstance(text, str) and (not text.isascii() or "_" in text):  # Decimal would take both
        raise Unreadable(text)
    try:
        value = Decimal(text) * unit_ns
        if abs(value) > LIMIT_NS:  # before rounding: the integer of 1e999999 would fill the machine
            raise Unreadable(str(text))
    except ArithmeticError:  # not a number, NaN, an exponent out of range
        raise Unreadable(str(text)) from None
    return round(value)


def number(text: str) -> Decimal:
    """A decimal number as text; anything else is Unreadable."""
    if not text.isascii() or "_" in text:  # Decimal would take both
        raise Unreadable(text)
    try:
        value = Decimal(text)
    except ArithmeticError:
        raise Unreadable(text) from None
    if not value.is_finite():
        raise Unreadable(text)
    return value


@lru_cache(maxsize=64)  # neighbouring rows mostly share their second
def _second(text: str, zone: str | None) -> int:
    try:
        local = datetime.fromisoformat(text).replace(tzinfo=_zone(zone))
    except ValueError:
        raise Unreadable(text) from None
    return (local - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)


def _zone(text: str | None) -> timezone:
    if text is None or text in ("Z", "z", "UTC"):
        return UTC
    digits = text[1:].replace(":", "").ljust(4, "0")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if text[0] == "-" else offset)
