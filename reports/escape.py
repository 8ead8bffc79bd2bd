"""Text from elsewhere made harmless for where it goes: one function per sink.

A server, a trace, a run directory and a command line are all elsewhere. The templates of
pages escape markup themselves; drawings pass `static.drawable`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderResult

GONE = "\N{REPLACEMENT CHARACTER}"
_SHOWN = "\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{THIN SPACE}"  # of our own numbers
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MARKDOWN = re.compile(r"[\\`*_<>\[\]|~]")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")

# What GitHub, Azure and TeamCity take for a command in a step's log: `::name::` as a line's first word, and `##[name]`
# or `##name[` anywhere in it.
_COMMAND = re.compile(r"^([^\S\n]*):(?=:)|##(?=\w*\[)", re.MULTILINE)


def printable(text: str) -> str:
    """Text within one line of a terminal or log: no control character, line end, direction mark or lone surrogate."""
    return text if text.isprintable() else "".join(c if c.isprintable() or c in _SHOWN else GONE for c in text)


def printable_lines(text: str) -> str:
    """The same of text whose line ends and tabs are meant."""
    return text if text.isprintable() else "".join(c if c in "\n\t" else printable(c) for c in text)


def log(text: str) -> str:
    """Text whose lines no CI takes for commands: a blank breaks `::` at the start of a line, and `##` before a `[`."""
    return _COMMAND.sub(lambda found: f"{found[1]}: " if found[1] is not None else "## ", text)


def command_value(text: str) -> str:
    """The message of a workflow command of ours."""
    shown = printable_lines(text.replace("\r", "\n"))
    return shown.replace("##[", "## [").replace("%", "%25").replace("\n", "%0A")


def command_property(text: str) -> str:
    """The title of a workflow command of ours."""
    return command_value(text).replace(":", "%3A").replace(",", "%2C")


def html_text(value: Any) -> Any:
    """A value that a template prints, before it is escaped: a page shows it as a terminal would."""
    return printable_lines(value) if type(value) is str else value  # Markup is ours, and escaped already


def markdown(text: str) -> str:
    """Text within a line of Markdown: nothing in it is markup, or calls anybody."""
    return printable(_MARKDOWN.sub(r"\\\g<0>", text.replace("\n", " "))).replace("@", "@\N{WORD JOINER}")


def json_document(text: str) -> str:
    """JSON for a terminal or log: the same values, written without what steers either."""
    if not text.isprintable():  # line ends stand between values only
        text = "".join(c if c.isprintable() or c == "\n" else _json_form(c) for c in text)
    return _COMMAND.sub(lambda found: found[0] if found[1] is not None else "#\\u0023", text)


def _json_form(character: str) -> str:
    return json.dumps(character)[1:-1]


def csv_cell(cell: Any) -> Any:
    """A cell of one line that no spreadsheet takes for a formula, and no terminal or CI for a command."""
    if not isinstance(cell, str):
        return cell
    told = log(printable(cell))
    return f"'{told}" if cell.startswith(_FORMULA) else told


def xml(text: str) -> str:
    """Text without the characters that XML cannot hold."""
    return _NOT_XML.sub(GONE, text)


def metric_label(text: str) -> str:
    """The value of a label in OpenMetrics."""
    return printable_lines(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class Shown:
    """A hook of a rich console: what it prints passes `printable_lines`, whatever it was made of."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """What is printed, each behind the filter."""
        return [_Filtered(each) for each in renderables]


class _Filtered:
    def __init__(self, inner: ConsoleRenderable) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment

        for segment in console.render(self._inner, options):
            yield segment if segment.control else Segment(printable_lines(segment.text), segment.style)
