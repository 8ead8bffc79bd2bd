"""Instants: exact nanoseconds, or a clear refusal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.formats.timestamp import Unreadable, calendar_ns, decimal_ns


@given(
    st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)),
    st.integers(0, 999_999_999),
    st.integers(0, 9),
    st.sampled_from([None, 0, 330, -210, 840]),
)
def test_calendar_text_keeps_every_digit(second: datetime, ns: int, digits: int, zone_min: int | None) -> None:
    """What datetime says of the whole second plus the written fraction, whatever the number of digits and the zone."""
    second = second.replace(microsecond=0)
    fraction = f"{ns:09d}"[:digits]
    zone = timezone(timedelta(minutes=zone_min or 0))
    text = second.strftime("%Y-%m-%d %H:%M:%S") + ("." + fraction if digits else "")
    if zone_min is not None:
        text += second.replace(tzinfo=zone).isoformat()[-6:]
    whole = (second.replace(tzinfo=zone) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    assert whole * 10**9 + int(fraction.ljust(9, "0")) == calendar_ns(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01 00:00:01", 10**9),
        ("1970-01-01T00:00:01Z", 10**9),
        ("1970-01-01 00:00:01.5", 1_500_000_000),
        ("1970-01-01 00:00:00,25", 250_000_000),
        ("1970-01-01 00:00:00.0000001", 100),
        ("1970-01-01 00:00:00.1234567899", 123_456_789),
        ("1970-01-01 02:00:00+02:00", 0),
        ("1970-01-01 02:00:00+0200", 0),
        ("1969-12-31 22:00:00 -02", 0),
        ("2024-02-29 00:00:00", 1_709_164_800 * 10**9),
    ],
)
def test_calendar_spellings(text: str, expected: int) -> None:
    """Space or T, comma or point, any zone spelling of ISO 8601."""
    assert expected == calendar_ns(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not-a-date",
        "2023-11-16",
        "2023-02-29 00:00:00",
        "2023-13-01 00:00:00",
        "2023-11-16 24:00:00",
        "2016-12-31 23:59:60",
        "2023-11-16 18:15",
        "2023-11-16 18:15:20.",
        "2023-11-16 18:15:20+99:00",
        "0001-01-01 00:00:00",
        "9999-12-31 23:59:59",
        "1700000000",
        "٢٠٢٣-11-16 18:15:20",
    ],
)
def test_calendar_refuses(text: str) -> None:
    """Dates that do not exist, leap seconds, other digits and centuries that do not fit are refused."""
    with pytest.raises(Unreadable):
        calendar_ns(text)


@given(st.integers(-(2**61), 2**61))
def test_decimal_seconds_are_exact(ns: int) -> None:
    """Decimal text with nine places comes back to the nanosecond, where a float would not."""
    assert ns == decimal_ns(str(Decimal(ns).scaleb(-9)))


def test_decimal_units_and_exponents() -> None:
    """pandas writes 6e-06; Mooncake counts in milliseconds."""
    assert decimal_ns("6e-06") == 6_000
    assert decimal_ns(27_482, 1_000_000) == 27_482_000_000
    assert decimal_ns(Decimal("1700000000000.5"), 1_000_000) == 1_700_000_000_000_500_000


@pytest.mark.parametrize("text", ["", "x", "NaN", "inf", "-inf", "1e999999999", "1e30", "1_0", "1,5", "\uff11"])
def test_decimal_refuses(text: str) -> None:
    """Not finite, too large for 64 bits of nanoseconds, or not plain digits: refused at once."""
    with pytest.raises(Unreadable):
        decimal_ns(text)
