"""Traces of splitwise-sim: seconds from zero, a row per request."""

from __future__ import annotations

from workloads.formats.delimited import Table
from workloads.formats.timestamp import decimal_ns

TABLE = Table(
    name="splitwise-csv",
    time="arrival_timestamp",
    prompt="prompt_size",
    output="token_size",
    unit="s",
    nanoseconds=decimal_ns,
    form="seconds",
)
