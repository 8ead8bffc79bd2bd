"""What kind of body an answer has, by the first byte that tells, and its bytes where they are no stream of events.

Servers mislabel bodies (an error object under text/event-stream, say), so the label is not asked. White space and a
byte-order mark tell nothing: DeepSeek sends blank lines before a JSON answer that has to wait.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from loadtest.replay.dialects import openai

MAX_ERROR_BODY_BYTES = 64 * 1024
MAX_JSON_BODY_BYTES = 16 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"

Kind = Literal["", "events", "json", "text"]


class Body:
    """Takes the pieces of one body."""

    __slots__ = ("_kept", "_lead", "kind")

    def __init__(self) -> None:
        self.kind: Kind = ""  # not known yet
        self._lead = b""  # a byte-order mark that is not whole yet
        self._kept = bytearray()

    def take(self, data: bytes, *, accepted: bool, json_lines: bool) -> bytes:
        """The part of `data` that belongs to a stream of events; anything else is kept."""
        if not self.kind:
            data = (self._lead + data).lstrip().removeprefix(_BOM).lstrip()
            self._lead = data if _BOM.startswith(data) else b""
            if self._lead or not data:
                return b""
            self.kind = _kind(data, accepted, json_lines)
        if self.kind == "events":
            return data
        if self.kind == "json":
            if len(self._kept) <= MAX_JSON_BODY_BYTES:
                self._kept += data
        elif len(self._kept) < MAX_ERROR_BODY_BYTES:
            self._kept += data[: MAX_ERROR_BODY_BYTES - len(self._kept)]
        return b""

    @property
    def kept(self) -> bytes:
        """The whole of a body that is no stream, up to a limit."""
        return bytes(self._kept)

    def document(self) -> object:
        """The body as one JSON document; None when it is none."""
        try:
            return msgspec.json.decode(self.kept)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def message(self) -> str:
        """What a body that is no stream says: the message of an error object, else its text."""
        document = self.document()
        found = openai.error_text(document) if isinstance(document, dict) else None
        return found or self.kept.decode("utf-8", "replace")


def _kind(data: bytes, accepted: bool, json_lines: bool) -> Kind:
    if not accepted:
        return "text"
    if data.startswith((b"{", b"[")):
        return "events" if json_lines else "json"
    return "text" if data.startswith(b"<") else "events"
