"""stdout and stderr: what they can hold, and whether anybody reads them, never decides how a command ends.

Characters that an encoding lacks are written in readable ASCII. After the first write that fails (a closed pipe, a
full disk) the command goes on, and what it prints is dropped.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import re
import sys
import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from loadtest import secrets
from reports.escape import GONE, log

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

# Control characters but line end and tab, and marks that turn the direction of writing; in the group what we draw with.
_STEERING = re.compile(
    r"(\x1b\[\d*(?:;\d+)*m|\x1b\[[12]?[AK]|\r)"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]"
)

READABLE = "goodput-readable"  # an error handler of codecs
_ASCII = "goodput_ascii"

_FORMS = {
    **dict.fromkeys("\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}", " "),
    **dict.fromkeys("\N{EN DASH}\N{EM DASH}\N{MINUS SIGN}\N{HYPHEN}\N{NON-BREAKING HYPHEN}", "-"),
    **dict.fromkeys("\N{LEFT SINGLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK}\N{PRIME}", "'"),
    **dict.fromkeys("\N{LEFT DOUBLE QUOTATION MARK}\N{RIGHT DOUBLE QUOTATION MARK}", '"'),
    **dict.fromkeys("µμ", "u"),
    **dict.fromkeys("·•│┃", "|"),
    **dict.fromkeys("─╌", "-"),
    **dict.fromkeys("━═", "="),
    **dict.fromkeys("├└┌┐┘┤┬┴┼╭╮╯╰", "+"),
    **dict(zip("▁▂▃▄▅▆▇█", "_.-:=+*#", strict=True)),
    **dict(zip("\N{MULTIPLICATION SIGN}✗✓★░↑↓", "xx+*.^v", strict=True)),
    "±": "+/-",
    "≤": "<=",
    "≥": ">=",
    "≈": "~",
    "≠": "!=",
    "→": "->",
    "←": "<-",
    "∞": "inf",
}


def install() -> Callable[[], OSError | None]:
    """Put both streams in place of the interpreter's; the function given tells why stdout could not take everything.

    A reader that went away is no reason: `| head` has seen what it wanted.
    """
    register()
    _occupy_closed()
    stdout, out = _opened(sys.stdout, 1)
    stderr, _ = _opened(sys.stderr, 2)
    sys.stdout, sys.stderr = stdout, stderr

    def failed() -> OSError | None:
        stdout.flush()
        stderr.flush()
        return None if out.error is None or out.error.errno == errno.EPIPE else out.error

    return failed


def register() -> None:
    """Make the error handler and the encoding known to `codecs`."""
    codecs.register_error(READABLE, _readable)
    codecs.register(_readable_ascii)


class Outlet(io.FileIO):
    """A descriptor that never fails: after its first error, what is written to it is dropped."""

    error: OSError | None = None

    def write(self, data: Buffer, /) -> int:
        """All of it, or nothing any more."""
        if self.error is None:
            try:
                return super().write(data)
            except OSError as error:
                self.error = error
        return memoryview(data).nbytes


class _Masked(io.TextIOWrapper):
    """Text without the secrets of this process, and without what steers a terminal or a CI.

    Our own colours and rewritten lines pass where somebody sees them; our workflow commands are written as bytes.
    """

    drawn = False  # whether colours and movements are wanted
    _inside = False  # a line that was begun

    def write(self, text: str, /) -> int:
        """All of it; what is held is masked, what steers is replaced."""
        shown = secrets.mask(text)
        if not shown.isprintable():
            shown = _STEERING.sub(self._passed, shown)
        shown = log(shown) if not self._inside else log(f".{shown}")[1:]
        super().write(shown)
        if text:
            self._inside = not text.endswith("\n")
        return len(text)

    def _passed(self, found: re.Match[str]) -> str:
        return found[0] if self.drawn and found[1] else GONE


def text_stream(outlet: Outlet, encoding: str, *, line_buffering: bool = False) -> TextIO:
    """Text to a descriptor; click would write UTF-8 to a stream that calls itself ASCII, so none does."""
    encoding = _ASCII if codecs.lookup(encoding).name == "ascii" else encoding
    buffer = io.BufferedWriter(outlet)
    stream = _Masked(buffer, encoding=encoding, errors=READABLE, line_buffering=line_buffering)
    stream.drawn = outlet.isatty() or any(map(os.environ.get, ("FORCE_COLOR", "TTY_COMPATIBLE")))
    return stream


def _opened(stream: TextIO | None, descriptor: int) -> tuple[TextIO, Outlet]:
    if stream is not None:
        stream.flush()
    outlet = Outlet(descriptor, "wb", closefd=False)
    if not os.get_blocking(descriptor):  # a neighbour on the same terminal left it so; half of a line would be lost
        os.set_blocking(descriptor, True)
    encoding = "utf-8" if stream is None else stream.encoding
    return text_stream(outlet, encoding, line_buffering=descriptor == 2 or outlet.isatty()), outlet


def _occupy_closed() -> None:
    """A descriptor below 3 that is closed would become that of the next file, and a child would print into it."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def _readable(error: UnicodeError) -> tuple[str, int]:
    """Readable ASCII for what an encoding lacks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_form, error.object[error.start : error.end])), error.end


def _form(character: str) -> str:
    known = _FORMS.get(character)
    if known is not None:
        return known
    letters = "".join(c for c in unicodedata.normalize("NFKD", character) if c.isascii())
    return letters or ("" if unicodedata.combining(character) else "?")


def _readable_ascii(name: str) -> codecs.CodecInfo | None:
    """ASCII under a name of its own."""
    if name != _ASCII:
        return None
    ascii_ = codecs.lookup("ascii")
    return codecs.CodecInfo(
        name=_ASCII.replace("_", "-"),
        encode=ascii_.encode,
        decode=ascii_.decode,
        incrementalencoder=ascii_.incrementalencoder,
        incrementaldecoder=ascii_.incrementaldecoder,
        streamwriter=ascii_.streamwriter,
        streamreader=ascii_.streamreader,
    )
