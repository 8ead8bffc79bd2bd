"""From the reads of one request to what its answer was: events, token times, counts, outcome.

Reads are decoded in batches, off the socket callback: most by the quick way of `template`, the rest through
framing, SSE and JSON.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

from loadtest.replay import wire
from loadtest.replay.body import Body
from loadtest.replay.dialects import Dialect, Piece, openai
from loadtest.replay.dialects.dialect import Spans
from loadtest.replay.dialects.openai import COMPLETIONS
from loadtest.replay.dialects.usage import MAX_TOKENS, Usage
from loadtest.replay.flags import flags_of
from loadtest.replay.jsonlines import LineParser
from loadtest.replay.shown import Shown
from loadtest.replay.sse import EventTooLargeError, SseEvent, SseParser
from loadtest.replay.stamps import NO_STAMP
from loadtest.replay.strangers import Strangers, Waiting
from loadtest.replay.template import KNOWN_TEXTS, TokenTemplate
from loadtest.replay.texts import error_text, joined
from loadtest.replay.tokencount import TokenCount, count_tokens
from loadtest.replay.wire import FramingError, ResponseParser, State
from metrics.records import Flag, Outcome, Phase

Read = tuple[int, bytes, bytes]  # user stamp, kernel stamp (NO_STAMP where none came), what was read
KEEP_ALIVES = (b"ping", b"heartbeat", b"keepalive", b"keep-alive")  # names of events that say nothing
_NOTHING_KNOWN: tuple[dict[int, bytes], bytes, int] = ({}, b"", 0)


class Answer:
    """Everything one response said. Times are indices of reads (-1 = never) until `ReadTimes` makes them instants."""

    __slots__ = (
        "_careful_bytes",
        "_choices",
        "_content",
        "_dialect",
        "_events",
        "_finished",
        "_known_event",
        "_late_events",
        "_parser",
        "_strangers",
        "_stream_asked",
        "_template",
        "bytes_received",
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
        "shared_read_events",
        "shown",
        "slow_events",
        "spans",
        "text_parts",
        "usage",
        "user_ns",
    )

    def __init__(
        self, dialect: Dialect = COMPLETIONS, *, stream_asked: bool = True, choices: int = 1, keep_text: bool = False
    ) -> None:
        self._dialect, self._stream_asked, self._choices = dialect, stream_asked, choices
        self._finished: set[int] = set()  # choices that gave their finish reason
        self._parser = ResponseParser()
        self._events: SseParser | LineParser = LineParser() if dialect.json_lines else SseParser()
        self._content = Body()
        self._template = TokenTemplate()
        self.user_ns = array("q")
        self.kernel = bytearray()
        self.event_reads = array("I")
        self.headers_read = self.first_answer_read = self.last_body_read = -1
        self.finish_reason: str | None = None
        self.done_marker = self.closed = False
        self.error: str | None = None
        self.usage, self.shown = Usage(), Shown()
        self.spans: Spans | None = None
        self.coalesced_reads = self.shared_read_events = self.bytes_received = self._careful_bytes = 0
        self.slow_events = self.malformed_events = 0
        self._known_event = b""  # the first with output in a known place
        self._strangers: Strangers | None = None
        self._late_events = 0  # put in before events that came after them
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
            and not self.done_marker
            and self.text_parts is None
        )

    def _read(self, index: int, data: bytes, quick: bool) -> None:
        """A read that is not simply one plain token event."""
        before = len(self.event_reads) - self._late_events
        rest = self._after_plain_events(index, data) if quick else data
        if rest:
            self._read_carefully(index, rest)
        else:
            self.last_body_read = index
        events = len(self.event_reads) - self._late_events - before
        if events > 1:
            self.coalesced_reads += 1
            self.shared_read_events += events
        elif events == 1 and self._parser.at_chunk_boundary:
            self._template.learn(data, self._quick_events)

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
        self._careful_bytes += len(data)
        in_head = self._parser.state == State.HEAD
        body = self._parser.feed(data)
        if in_head and self._parser.state != State.HEAD:
            self.headers_read = index
        if body:
            if not self.done_marker:
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

    def _body(self, data: bytes, index: int) -> None:
        json_lines = self._dialect.json_lines and self._stream_asked
        events = self._content.take(data, accepted=self.accepted, json_lines=json_lines)
        if events:
            for event in self._events.feed(events):
                self._event(event, index)

    def _body_ended(self, index: int) -> None:
        if self._content.kind == "events":
            for event in self._events.close():
                self._event(event, index)
        elif self._content.kind == "json":
            self._note(self._dialect.piece(self._content.kept))

    def _event(self, event: SseEvent, index: int) -> None:
        if self.done_marker:
            return  # it has ended: nothing after that is part of it
        said = event.data.strip()
        if said == openai.DONE:
            self.done_marker = True
            return
        self.slow_events += 1
        if not said or event.name in KEEP_ALIVES:
            return
        piece = self._dialect.piece(event.data)
        if event.name == b"error" and piece.error is None:
            piece = Piece(error=openai.named_error(event.data))
        if piece.malformed:
            self._lines(event.data.split(b"\n"), index)
        self._note(piece)
        if piece.token:
            self._known_event = self._known_event or event.data
            if self.first_token_event < 0:
                self.first_token_event = self.slow_events - 1
            self.event_reads.append(index)
            if piece.answer and self.first_answer_read < 0:
                self.first_answer_read = index
        elif piece.error is None and (strings := self._dialect.strings(event.data)):
            self._strange(Waiting(index, self.slow_events - 1, strings))

    def _strange(self, event: Waiting) -> None:
        """Text in places nobody knows: this event, and earlier ones, may turn out to be token events."""
        if self._strangers is None:
            self._strangers = Strangers(lambda: self._dialect.strings(self._known_event))
        for found in self._strangers.take(event):
            late = found is not event
            self._late_events += late
            self.event_reads.insert(bisect_right(self.event_reads, found.read), found.read)
            reasons, text = self._strangers.reasons(found), self._strangers.text(found)
            self.shown.strange(text, reasoning=reasons)
            if self.first_token_event < 0 or found.number < self.first_token_event:
                self.first_token_event = found.number
            if not reasons and (self.first_answer_read < 0 or found.read < self.first_answer_read):
                self.first_answer_read = found.read
            if self.text_parts is not None:
                self.text_parts[reasons].append(text)

    def _lines(self, lines: list[bytes], index: int) -> None:
        """Events that a server ended with one line end: joined they are no JSON, each for itself it is."""
        if len(lines) > 1 and not self._dialect.piece(lines[0]).malformed:
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
        self.shown.event(piece)
        if piece.usage is not None:
            self.usage.update(piece.usage)
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
        ended = len(self._finished) >= self._choices or self._choices == 1 or self._content.kind != "events"
        return self.done_marker or (self.finish_reason is not None and ended)

    @property
    def in_steady_stream(self) -> bool:
        """Chunked events are coming in: nothing that could not wait until their last chunk."""
        return self._content.kind == "events" and self._parser.chunked and not self.done_marker

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
        return self._content.kind != "json"

    @property
    def data_events(self) -> int:
        """Events with data, [DONE] left out; those taken the quick way are all token events."""
        return self.slow_events + self._quick_events

    @property
    def _quick_events(self) -> int:
        """Token events that went the quick way."""
        return max(len(self.event_reads) - self.shown.token_events, 0)

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
    def count(self) -> TokenCount:
        """How many tokens there are so far, and what speaks against it."""
        quick_bytes = self.bytes_received - self._careful_bytes - self._template.overhead(self._quick_events)
        return count_tokens(self.usage, self.shown, len(self.event_reads), quick_bytes, streamed=self.streamed)

    @property
    def usage_tokens(self) -> int:
        """The server's count of output tokens; -1 where it gave none."""
        return self.count.said

    @property
    def prompt_tokens(self) -> int:
        """The server's count of prompt tokens; -1 where it gave none."""
        return self.usage.prompt_tokens

    @property
    def cached_tokens(self) -> int:
        """Of the prompt, those that the server did not compute again."""
        return self.usage.cached

    @property
    def output_tokens(self) -> int:
        """The server's count, else the token events."""
        return self.count.output

    @property
    def hidden_tokens(self) -> int:
        """Of the output tokens those that were never streamed."""
        return self.count.hidden

    @property
    def strange_keys(self) -> list[str]:
        """Paths of the keys nobody knew under which generated text stood."""
        return self._strangers.keys if self._strangers is not None else []

    def document(self) -> object:
        """The body as one JSON document; None when it is none."""
        return self._content.document()

    def error_message(self) -> str:
        """The error text to keep: the in-band one, else the body of an error status, capped."""
        return self.error if self.error is not None else error_text(self._content.message())

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
        """What went along with an answer that was asked for `max_tokens`."""
        return flags_of(self, self.count, max_tokens)


__all__ = ["MAX_TOKENS", "Answer", "EventTooLargeError", "FramingError"]
