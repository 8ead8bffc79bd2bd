"""Rows packed by `struct` are the rows of RECORD_DTYPE, byte for byte."""

from __future__ import annotations

import numpy as np

from loadtest.replay.rowpacker import blank_row, pack
from metrics.records import RECORD_DTYPE, empty_rows


def test_a_blank_row_is_an_empty_one() -> None:
    """What has not been filled in reads as before the run."""
    assert empty_rows(1).tobytes() == pack(blank_row())


def test_every_column_comes_back() -> None:
    """A different number in each column, small enough for the narrowest of them."""
    names = RECORD_DTYPE.names or ()
    row = blank_row() | {name: number for number, name in enumerate(names, 2) if name != "warmup"} | {"warmup": True}
    found = np.frombuffer(pack(row), dtype=RECORD_DTYPE)[0]
    assert [row[name] for name in names] == list(found.item())
    assert [2, 3, 4, 5, True] == list(found.item())[:5]
