"""From the reads of one request to what its answer was: events, token times, counts, outcome.

Reads are decoded in batches, off the socket callback: most by the quick way of `template`, the rest through
framing, SSE and JSON.
"""

from __future__ import annotations

from array import array

import msgspec

from loadtest.replay import wire
from loadtest.replay.dialects import Dialect, Piece, openai
from loadtest.replay.dialects.dialect import Spans
from loadtest.replay.dialects.openai import COMPLETIONS
from loadtest.replay.jsonlines import LineParser
from loadtest.replay.sse import EventTooLargeError, SseEvent, SseParser
from loadtest.replay.stamps import NO_STAMP
from loadtest.replay.template import KNOWN_TEXTS, TokenTemplate
from loadtest.replay.texts import error_text, joined
from loadtest.replay.wire import FramingError, ResponseParser, State
from metrics.records import Flag, Outcome, Phase

MAX_ERROR_BODY_BYTES = 64 * 1024
MAX_JSON_BODY_BYTES = 64 * 1024 * 1024
MAX_TOKENS = 2**31 - 1  # what a column holds; a count beyond it is damage

Read = tuple[int, bytes, bytes]  # user stamp, kernel stamp (NO_STAMP where none came), what was read
KEEP_ALIVES = (b"ping", b"heartbeat", b"keepalive", b"keep-alive")  # names of events that say nothing
_NOTHING_KNOWN: tuple[dict[int, bytes], bytes, int] = ({}, b"", 0)


class Answer:
    """Everything one response said. Times are indices of reads (-1 = never) until `ReadTimes` makes them instants."""

    __slots__ = (
        "_choices",
        "_dialect",
        "_events",
        "_finished",
        "_json_body",
        "_kind",
        "_parser",
        "_stream_asked",
        "_template",
        "bytes_received",
        "cached_tokens",
        "closed",
        "coalesced_reads",
        "done_marker",
        "error",
        "event_reads",
        "finish_reason",
        "first_answer_read",
        "first_token_event",
        "headers_read",
        "kernel",
        "last_body_read",
        "malformed_events",
        "prompt_tokens",
        "reasoning_events",
        "reasoning_tokens",
        "shared_read_events",
        "slow_events",
        "slow_token_events",
        "spans",
        "text_parts",
        "usage_tokens",
        "user_ns",
    )

    def __init__(
        self, dialect: Dialect = COMPLETIONS, *, stream_asked: bool = True, choices: int = 1, keep_text: bool = False
    ) -> None:
        self._dialect, self._stream_asked, self._choices = dialect, stream_asked, choices
        self._finished: set[int] = set()  # choices that gave their finish reason
        self._parser = ResponseParser()
        self._events: SseParser | LineParser = LineParser() if dialect.json_lines else SseParser()
        self._kind = ""  # "", events, json or text, decided by the first byte of the body
        self._json_body = bytearray()
        self._template = TokenTemplate()
        self.user_ns = array("q")
        self.kernel = bytearray()
        self.event_reads = array("I")
        self.headers_read = self.first_answer_read = self.last_body_read = -1
        self.finish_reason: str | None = None
        self.done_marker = self.closed = False
        self.error: str | None = None
        self.usage_tokens = self.prompt_tokens = -1
        self.spans: Spans | None = None
        self.reasoning_tokens = self.reasoning_events = self.malformed_events = 0
        self.coalesced_reads = self.shared_read_events = self.bytes_received = 0
        self.cached_tokens = self.slow_events = self.slow_token_events = 0
        self.first_token_event = -1  # number of the event, [DONE] and comments left out
        self.text_parts: tuple[list[str], list[str]] | None = ([], []) if keep_text else None

    # --- feeding -----------------------------------------------------------------------------------------------

    def feed(self, reads: list[Read]) -> None:
        """Reads in order; raises FramingError, EventTooLargeError."""
        if not reads:
            return
        first, (users, kernels, datas) = len(self.user_ns), zip(*reads, strict=True)
        self.user_ns.extend(users)
        self.bytes_received += sum(map(len, datas))
        self.kernel += b"".join(kernels)
        add_event, quick = self.event_reads.append, self._may_be_quick
        heads, suffix, tail = self._template.known() if quick else _NOTHING_KNOWN
        for index, data in enumerate(datas, first):
            head = heads.get(len(data))
            # What most reads are, spelled out for speed; `TokenTemplate.matches` says the same with all its cases.
            if head and data.startswith(head) and data.endswith(suffix) and data[len(head) : tail] in KNOWN_TEXTS:
                add_event(index)
                self.last_body_read = index
            else:
                self._read(index, data, quick)
                quick = self._may_be_quick
                heads, suffix, tail = self._template.known() if quick else _NOTHING_KNOWN

    @property
    def _may_be_quick(self) -> bool:
        return (
            bool(self._template)
            and self._parser.at_chunk_boundary
            and self._events.at_event_boundary
            and self.text_parts is None
        )

    def _read(self, index: int, data: bytes, quick: bool) -> None:
        """A read that is not simply one plain token event."""
        before = len(self.event_reads)
        rest = self._after_plain_events(index, data) if quick else data
        if rest:
            self._read_carefully(index, rest)
        else:
            self.last_body_read = index
        events = len(self.event_reads) - before
        if events > 1:
            self.coalesced_reads += 1
            self.shared_read_events += events
        elif events == 1 and self._parser.at_chunk_boundary:
            self._template.learn(data)

    def _after_plain_events(self, index: int, data: bytes) -> bytes:
        """Take the plain token events that a read of several chunks begins with; returns what follows them."""
        position = 0
        while True:
            end = data.find(b"\n\n\r\n", position) + 4
            if end == 3 or not self._template.matches(data[position:end]):
                return data[position:]
            self.event_reads.append(index)
            position = end

    def _read_carefully(self, index: int, data: bytes) -> None:
        """Framing, then events."""
        in_head = self._parser.state == State.HEAD
        body = self._parser.feed(data)
        if in_head and self._parser.state != State.HEAD:
            self.headers_read = index
        if body:
            self.last_body_read = index
            self._body(body, index)
        if self._parser.state == State.DONE:
            self._body_ended(index)

    def close(self, now_ns: int) -> None:
        """The peer closed the connection (cleanly) at `now_ns`."""
        self.closed = True
        self._parser.close()
        self.user_ns.append(now_ns)
        self.kernel += NO_STAMP
        self._body_ended(len(self.user_ns) - 1)

    # --- the body ----------------------------------------------------------------------------------------------

    def _body(self, body: bytes, index: int) -> None:
        if not self._kind:
            self._kind = self._sniff(body)
        if self._kind == "events":
            for event in self._events.feed(body):
                self._event(event, index)
        elif self._kind == "json" and len(self._json_body) <= MAX_JSON_BODY_BYTES:
            self._json_body += body
        elif len(self._json_body) < MAX_ERROR_BODY_BYTES:
            self._json_body += body[: MAX_ERROR_BODY_BYTES - len(self._json_body)]

    def _sniff(self, body: bytes) -> str:
        """By the first byte, because servers mislabel bodies: an error object under text/event-stream, say."""
        if not self.accepted:
            return "text"
        start = body.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
        if start in (b"{", b"["):
            return "events" if self._dialect.json_lines and self._stream_asked else "json"
        return "text" if start == b"<" else "events"

    def _body_ended(self, index: int) -> None:
        if self._kind == "events":
            for event in self._events.close():
                self._event(event, index)
        elif self._kind == "json" and self._json_body:
            piece = self._dialect.read(bytes(self._json_body))
            self._note(piece)
            if piece.token and self.usage_tokens < 0:
                self.usage_tokens = -2  # a whole answer without a count: flagged as estimated, TTFT not measurable

    def _event(self, event: SseEvent, index: int) -> None:
        said = event.data.strip()
        if said == openai.DONE:
            self.done_marker = True
            return
        self.slow_events += 1
        if not said or event.name in KEEP_ALIVES:
            return
        piece = self._dialect.read(event.data)
        if event.name == b"error" and piece.error is None:
            piece = Piece(error=openai.named_error(event.data))
        if piece.malformed:
            self._lines(event.data.split(b"\n"), index)
        self._note(piece)
        if piece.token:
            self.slow_token_events += 1
            if self.first_token_event < 0:
                self.first_token_event = self.slow_events - 1
            self.event_reads.append(index)
            if piece.answer and self.first_answer_read < 0:
                self.first_answer_read = index
            if piece.reasoning:
                self.reasoning_events += 1

    def _lines(self, lines: list[bytes], index: int) -> None:
        """Events that a server ended with one line end: joined they are no JSON, each for itself it is."""
        if len(lines) > 1 and not self._dialect.read(lines[0]).malformed:
            self.slow_events -= 1
            for line in lines:
                self._event(SseEvent(b"", line), index)

    def _note(self, piece: Piece) -> None:
        if piece.malformed:
            self.malformed_events += 1
        if piece.error is not None and self.error is None:
            self.error = error_text(piece.error)
        if piece.finish_reason:
            self.finish_reason = piece.finish_reason
            self._finished.update(piece.finished)
        if piece.done:
            self.done_marker = True
        if 0 <= piece.completion_tokens <= MAX_TOKENS:
            self.usage_tokens = piece.completion_tokens
        if 0 <= piece.prompt_tokens <= MAX_TOKENS:
            self.prompt_tokens = piece.prompt_tokens
        if 0 < piece.cached_tokens <= MAX_TOKENS:
            self.cached_tokens = piece.cached_tokens
        if 0 < piece.reasoning_tokens <= MAX_TOKENS:
            self.reasoning_tokens = piece.reasoning_tokens
        if piece.spans is not None:
            self.spans = piece.spans
        if self.text_parts is not None:
            self.text_parts[0].append(piece.text)
            self.text_parts[1].append(piece.reasoning)

    # --- the end -----------------------------------------------------------------------------------------------

    @property
    def status(self) -> int:
        return self._parser.status

    @property
    def accepted(self) -> bool:
        """A status of success: mostly 200, but frameworks answer a POST with 201 and proxies with 203."""
        return 200 <= self.status < 300

    @property
    def headers(self) -> dict[str, str]:
        return self._parser.headers

    @property
    def complete(self) -> bool:
        """The framing says that the response is over."""
        return self._parser.state == State.DONE

    @property
    def said_all(self) -> bool:
        """Nothing of the answer is missing, whatever the framing says: it was [DONE], or all choices asked for end."""
        ended = len(self._finished) >= self._choices or self._choices == 1 or self._kind != "events"
        return self.done_marker or (self.finish_reason is not None and ended)

    @property
    def in_steady_stream(self) -> bool:
        """Chunked events are coming in: nothing that could not wait until their last chunk."""
        return self._kind == "events" and self._parser.chunked and not self.done_marker

    @property
    def reusable(self) -> bool:
        """The connection can carry another request."""
        return self.complete and self._parser.keep_alive and not self._parser.surplus and not self.closed

    @property
    def phase(self) -> Phase:
        """Where the answer stands, for a request that ends now."""
        if not self.status:
            return Phase.HEADERS
        return Phase.STREAM if self.event_reads else Phase.FIRST_TOKEN

    @property
    def streamed(self) -> bool:
        return self._kind != "json"

    @property
    def data_events(self) -> int:
        """Events with data, [DONE] left out; those taken the quick way are all token events."""
        return self.slow_events + len(self.event_reads) - self.slow_token_events

    @property
    def text(self) -> str:
        return joined(self.text_parts[0]) if self.text_parts else ""

    @property
    def reasoning_text(self) -> str:
        return joined(self.text_parts[1]) if self.text_parts else ""

    @property
    def retry_after_s(self) -> float | None:
        """Seconds the server asked to wait; None when it did not say."""
        return wire.retry_after_s(self.headers)

    @property
    def counted(self) -> bool:
        """The server counted the tokens; a count of none where some came is no count."""
        return self.usage_tokens > 0 or (self.usage_tokens == 0 and not self.event_reads)

    @property
    def output_tokens(self) -> int:
        """The server's count, else the token events (flagged TOKENS_ESTIMATED)."""
        return self.usage_tokens if self.counted else len(self.event_reads)

    @property
    def hidden_tokens(self) -> int:
        """Reasoning tokens that the server counted and never streamed."""
        hidden = self.reasoning_tokens if not self.reasoning_events else 0
        return min(hidden, max(self.usage_tokens, 0))

    def document(self) -> object:
        """The body as one JSON document; None when it is none."""
        try:
            return msgspec.json.decode(bytes(self._json_body))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def error_message(self) -> str:
        """The error text to keep: the in-band one, else the body of an error status, capped."""
        if self.error is not None or not self._json_body:
            return self.error or ""
        document = self.document()
        message = openai.error_text(document) if isinstance(document, dict) else None
        return error_text(message or self._json_body.decode("utf-8", "replace"))

    def outcome(self) -> Outcome:
        """How a response whose body has ended is to be counted."""
        if self.status and not self.accepted:
            return Outcome.HTTP_ERROR
        if self.error is not None:
            return Outcome.IN_BAND_ERROR
        if self.said_all:
            return Outcome.OK
        return Outcome.TRUNCATED_STREAM if self.status in (0, 200) else Outcome.HTTP_ERROR

    def flags(self, max_tokens: int) -> Flag:
        """What went along with the answer (docs/definitions.md)."""
        flags = Flag(0)
        events = len(self.event_reads)
        ok = self.outcome() == Outcome.OK
        if events >= 8 and 2 * self.shared_read_events >= events:
            flags |= Flag.BUFFERED
        if self.coalesced_reads:
            flags |= Flag.COALESCED
        if self.malformed_events:
            flags |= Flag.MALFORMED_EVENTS
        if not self.counted and (events or ok):
            flags |= Flag.TOKENS_ESTIMATED
        if self.hidden_tokens:
            flags |= Flag.HIDDEN_TOKENS
        if not ok:
            return flags
        if not self.streamed:
            flags |= Flag.NOT_STREAMED
        elif not self.done_marker:
            flags |= Flag.MISSING_DONE
        if not self.finish_reason:
            flags |= Flag.MISSING_FINISH_REASON
        if not self.complete:
            flags |= Flag.UNCLEAN_CLOSE
        if not self.output_tokens:
            flags |= Flag.EMPTY_OUTPUT
        if 0 <= self.output_tokens < max_tokens:
            flags |= Flag.SHORT_OUTPUT
        return flags


__all__ = ["Answer", "EventTooLargeError", "FramingError"]
