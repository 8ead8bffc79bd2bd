"""Traces of splitwise-sim: seconds from zero, a row per request."""

from __future__ import annotations

from workloads.formats.delimited import Table
from workloads.formats.timestamp import decimal_ns

TABLE = Table("splitwise-csv", "arrival_timestamp", "prompt_size", "token_size", decimal_ns)
