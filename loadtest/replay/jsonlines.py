"""One JSON document a line, as Ollama streams: bytes in, documents out."""

from __future__ import annotations

from loadtest.replay.sse import MAX_EVENT_BYTES, EventTooLargeError, SseEvent


class LineParser:
    """A line belongs to the `feed` that held its line feed; blank lines say nothing."""

    __slots__ = ("_bytes", "_partial")

    def __init__(self) -> None:
        self._partial: list[bytes] = []  # pieces of a line whose end has not come
        self._bytes = 0

    @property
    def at_event_boundary(self) -> bool:
        """True when the next byte starts a new line."""
        return not self._partial

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Lines completed by `chunk`; raises EventTooLargeError."""
        *whole, rest = chunk.split(b"\n")
        lines = []
        for piece in whole:
            lines.append(b"".join([*self._partial, piece]))
            self._partial.clear()
            self._bytes = 0
        if rest:
            self._partial.append(rest)
            self._bytes += len(rest)
            if self._bytes > MAX_EVENT_BYTES:
                raise EventTooLargeError(f"a line is longer than {MAX_EVENT_BYTES // 2**20} MiB")
        return [SseEvent(b"", line) for line in lines if line.strip()]

    def close(self) -> list[SseEvent]:
        """The body ended: a last line without its line feed still counts."""
        return self.feed(b"\n") if self._partial else []
