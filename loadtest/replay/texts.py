"""What a server wrote, made fit to be kept: whole characters, no control characters, a length that has an end."""

from __future__ import annotations

from collections.abc import Iterable

from loadtest.replay.sse import EventTooLargeError
from loadtest.replay.wire import FramingError

MAX_ERROR_CHARS = 500
_CONTROLS = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), "\N{REPLACEMENT CHARACTER}")
_CONTROLS |= {ord(kept): kept for kept in "\t\n\r"}


def joined(parts: Iterable[str]) -> str:
    """One text: halves of a character that came in two events find each other."""
    return "".join(parts).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def error_text(text: str) -> str:
    """An error's text as it is recorded: an escape sequence in it must not steer the terminal that prints it."""
    return joined([text[:MAX_ERROR_CHARS]]).translate(_CONTROLS)


def unreadable(error: Exception) -> str:
    """What to say of an answer whose bytes cannot be read: the framing's own words, else what they led to."""
    if isinstance(error, FramingError | EventTooLargeError):
        return str(error)
    return error_text(f"the answer cannot be read: {type(error).__name__}: {error}")
