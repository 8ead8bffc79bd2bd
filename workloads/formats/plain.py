"""The plain rows of a table, a block at a time in numpy: a million rows a second, 24 bytes each.

A row is plain when it has the header's width and no quotes, its time has the format's usual shape and its counts are
1 to 8 digits. Every other row is left to the row-by-row reader, so this one only has to be right, never complete.

Text is read eight bytes at a time: `words[i]` is the little-endian 64-bit number at byte i, so that one gather fetches
a field of up to eight characters, and three multiplications turn eight digits into a number.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from workloads.formats.timestamp import Unreadable, calendar_ns

TimeForm = Literal["calendar", "seconds", "nanoseconds"]
Bytes = NDArray[np.uint8]
Positions = NDArray[np.int64]
Words = NDArray[np.uint64]
Good = NDArray[np.bool_]

_LEAD = 32  # bytes before the text, so that a field's last eight bytes can always be read
_ZEROS, _HIGH, _SIXES = (np.uint64(int(pattern * 8, 16)) for pattern in ("30", "F0", "06"))
_ONES = np.uint64(2**64 - 1)
_EIGHT, _MINUTE_CHARS = 8, 16  # `2023-11-16 18:15`
_SECOND_NS = 1_000_000_000
_POWERS = 10 ** np.arange(19, dtype=np.int64)


class PlainRows(NamedTuple):
    """The plain rows of a block: their line (0 is the block's first), times and counts; and the other lines."""

    line: Positions
    ns: Positions
    prompt: NDArray[np.int32]
    output: NDArray[np.int32]
    others: list[int]


class Layout(NamedTuple):
    """How a table's rows look: separator, number of cells, which cells are wanted, and how its times are written."""

    separator: str
    width: int
    time: int
    prompt: int
    output: int
    form: TimeForm


def read_block(block: bytes, layout: Layout) -> PlainRows:
    """The plain rows of a block of whole lines that end with LF."""
    raw = np.frombuffer(bytes(_LEAD) + block, dtype=np.uint8)
    first, row, lines = _cells(raw, layout)
    if b'"' in block or not block.isascii():
        keep = ~_marked(first, (raw == ord('"')) | (raw > 127))
        first, row = first[keep], row[keep]
    # Words may be read up to the byte before a field's end, so the view stops seven bytes before the text does.
    words: Words = np.ndarray(len(raw) - 7, dtype="<u8", buffer=raw, strides=(1,))
    prompt, ok_prompt = _count(words, *_bounds(first, layout.prompt))
    output, ok_output = _count(words, *_bounds(first, layout.output))
    ns, ok_time = _TIMES[layout.form](raw, words, *_bounds(first, layout.time))
    keep = ok_prompt & ok_output & ok_time & (prompt > 0) & (output > 0)
    line = row[keep]
    other = np.ones(lines, dtype=bool)
    other[line] = False
    return PlainRows(
        line,
        ns[keep],
        prompt[keep].astype(np.int32),
        output[keep].astype(np.int32),
        np.flatnonzero(other).tolist(),
    )


def _cells(raw: Bytes, layout: Layout) -> tuple[NDArray[np.int64], Positions, int]:
    """Where the cells of the lines of the right width begin and, one further, end: (rows, width + 1).

    Also the numbers of these lines, and how many lines there are.
    """
    width = layout.width
    is_end = raw == ord("\n")
    marks = np.flatnonzero(is_end | (raw == ord(layout.separator)))
    lines = int(np.count_nonzero(is_end))
    row = np.arange(lines)
    last = marks[width - 1 :: width]
    if len(marks) == lines * width and is_end[last].all():  # every line has the same number of cells
        ends_of_cells = marks.reshape(lines, width)
    else:
        at = np.flatnonzero(is_end[marks])  # which of the marks end a line
        row = np.flatnonzero(np.diff(at, prepend=-1) == width)
        ends_of_cells = marks[at[row, None] - np.arange(width - 1, -1, -1)]
    ends = marks[is_end[marks]]
    starts = np.concatenate(([_LEAD], ends[:-1] + 1))[row]
    return np.column_stack((starts, ends_of_cells + 1)), row, lines


def _marked(first: NDArray[np.int64], odd: Good) -> Good:
    """Which of the lines hold a marked byte."""
    upto = np.cumsum(odd, dtype=np.int32)
    return np.asarray(upto[first[:, -1] - 1] > upto[first[:, 0] - 1])


def _bounds(first: NDArray[np.int64], cell: int) -> tuple[Positions, Positions]:
    return first[:, cell], first[:, cell + 1] - 1


def _digits(words: Words, end: Positions, length: Positions) -> tuple[Positions, Good]:
    """The number written in the `length` characters before `end` (0 to 8 of them), and whether all are digits."""
    blank = ((_EIGHT - np.clip(length, 0, _EIGHT)) * 8).astype(np.uint64)
    # The field is the word's last bytes; the rest becomes leading zeros. Shifting by 64 gives 0 in numpy.
    word = (words[end - _EIGHT] >> blank) << blank | ~(_ONES << blank) & _ZEROS
    digits = ((word & _HIGH) == _ZEROS) & (((word + _SIXES) & _HIGH) == _ZEROS)
    word = word - _ZEROS
    word = word * np.uint64(10) + (word >> np.uint64(8))
    pairs = (word & np.uint64(0x000000FF000000FF)) * np.uint64(0x000F424000000064)
    pairs += ((word >> np.uint64(16)) & np.uint64(0x000000FF000000FF)) * np.uint64(0x0000271000000001)
    return (pairs >> np.uint64(32)).astype(np.int64), digits & (length >= 0) & (length <= _EIGHT)


def _long_digits(words: Words, end: Positions, length: Positions) -> tuple[Positions, Good]:
    """As `_digits`, for up to 16 characters."""
    if length.max(initial=0) <= _EIGHT:
        return _digits(words, end, length)
    low, ok_low = _digits(words, end, np.minimum(length, _EIGHT))
    high, ok_high = _digits(words, end - _EIGHT, np.maximum(length - _EIGHT, 0))
    return high * _POWERS[8] + low, ok_low & ok_high


def _count(words: Words, start: Positions, end: Positions) -> tuple[Positions, Good]:
    value, ok = _digits(words, end, end - start)
    return value, ok & (end > start)


def _calendar(raw: Bytes, words: Words, start: Positions, end: Positions) -> tuple[Positions, Good]:
    """`2023-11-16 18:15:46.6805900`, with 0 to 9 fractional digits, no zone or `+00:00`."""
    length = end - start
    zoned = (length >= 25) & (words[np.maximum(end, _EIGHT) - _EIGHT] >> np.uint64(16) == _UTC)
    length = length - 6 * zoned
    fraction = np.maximum(length - 20, 0)
    ok = (length == 19) | ((length > 20) & (fraction <= 9))
    start = np.where(ok, start, 0)
    tens, ones = (raw[start + at].astype(np.int64) - ord("0") for at in (17, 18))
    ok &= (tens >= 0) & (tens < 6) & (ones >= 0) & (ones < 10)
    seconds = tens * 10 + ones
    part, ok_part = _long_digits(words, start + np.where(ok, 20 + fraction, 19), np.where(ok, fraction, 0))
    ok &= ok_part & (raw[start + _MINUTE_CHARS] == ord(":"))
    ok &= (fraction == 0) | (raw[start + 19] == ord("."))
    minute_ns, ok_minute = _minutes(raw, words, start, ok)
    ns = minute_ns + seconds * _SECOND_NS + part * _POWERS[9 - np.minimum(fraction, 9)]
    return ns, ok & ok_minute


_UTC = np.uint64(int.from_bytes(b"+00:00", "little"))


def _minutes(raw: Bytes, words: Words, start: Positions, ok: Good) -> tuple[Positions, Good]:
    """Date, hour and minute: neighbouring rows mostly share them, so each run of equal text is read once."""
    date, hour = words[start], words[start + _EIGHT]
    new = np.ones(len(start), dtype=bool)
    new[1:] = (date[1:] != date[:-1]) | (hour[1:] != hour[:-1])
    run = np.cumsum(new) - 1
    values = np.zeros(int(new.sum()), dtype=np.int64)
    known = np.zeros(len(values), dtype=bool)
    for i, at in enumerate(start[new].tolist()):
        try:
            values[i] = calendar_ns(raw[at : at + _MINUTE_CHARS].tobytes().decode("latin-1") + ":00")
            known[i] = True
        except Unreadable:
            pass
    return values[run], known[run] & ok


def _seconds(raw: Bytes, words: Words, start: Positions, end: Positions) -> tuple[Positions, Good]:
    """`12.345678`: up to 9 digits before the point and 16 behind it, rounded to the nearest nanosecond."""
    dots = np.append(np.flatnonzero(raw == ord(".")), len(raw))
    dot = np.minimum(dots[np.searchsorted(dots, start)], end)
    fraction = np.maximum(end - dot - 1, 0)
    whole, ok_whole = _long_digits(words, dot, dot - start)
    part, ok_part = _long_digits(words, end, fraction)
    ok = ok_whole & ok_part & (dot > start) & (dot - start <= 9) & (fraction <= 16) & (end - dot != 1)
    part = part * _POWERS[np.clip(16 - fraction, 0, 16)]  # in 1e-16 s
    ns, rest = np.divmod(part, 10_000_000)
    ns += (rest > 5_000_000) | ((rest == 5_000_000) & (ns % 2 == 1))  # half to even, as round() does
    return whole * _SECOND_NS + ns, ok


def _nanoseconds(
    raw: Bytes,  # noqa: ARG001  the other readers of times look for marks
    words: Words,
    start: Positions,
    end: Positions,
) -> tuple[Positions, Good]:
    """A whole number of up to 16 digits; with 17 to 19 (nanoseconds since 1970) in two parts."""
    length = end - start
    low, ok_low = _long_digits(words, end, np.minimum(length, 16))
    high, ok_high = _digits(words, end - 16, np.maximum(length - 16, 0))
    return high * _POWERS[16] + low, ok_low & ok_high & (length > 0) & (length <= 19) & (high < 461)


_TIMES = {"calendar": _calendar, "seconds": _seconds, "nanoseconds": _nanoseconds}
