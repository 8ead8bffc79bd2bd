"""The bytes of each request, built seconds ahead of its instant so that dispatch only hands them to the kernel.

A prompt of a million tokens takes a quarter of a second to make and is 6 MB long. It is made step by step, a fraction
of a millisecond each, and stays in pieces, which are never copied into one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence

import msgspec

from loadtest.replay.dialects import Ask
from loadtest.replay.endpoint import Endpoint
from loadtest.replay.fields import Body, merged, shaped
from workloads.prompts import PIECE_BLOCKS, PIECE_TOKENS, Prompts
from workloads.schedule import Schedule

Request = bytes | tuple[bytes, ...]  # whole, or the pieces of a long one
Steps = Generator[None, None, Request]
WHOLE_BYTES = 64 * 1024
USER_AGENT = "goodput"
PROMPT, LENGTH = "\0prompt", "\0length"  # marks that no JSON of a user's holds


class Bodies:
    """HTTP requests for the rows of a shard; `prepare` builds the next one step by step, `take` hands one out.

    At most `budget` bytes wait, so a burst of long prompts costs time at its instant rather than memory.
    """

    def __init__(self, endpoint: Endpoint, shard: Schedule, prompts: Prompts, *, budget: int = 64 * 2**20) -> None:
        self._shard, self._request = shard, RequestBuilder(endpoint, prompts)
        self._ready: dict[int, Request] = {}
        self._begun: dict[int, Steps] = {}
        self._hurried: deque[int] = deque()
        self._budget, self._waiting_bytes = budget, 0
        self._waits = shard.waits.tolist()
        self.next_row = 0
        self._pass_waiting()

    @property
    def full(self) -> bool:
        """Nothing more should be prepared now."""
        return self._waiting_bytes >= self._budget or self.next_row >= len(self._shard)

    @property
    def hurried(self) -> bool:
        """Somebody waits for a request."""
        return bool(self._hurried)

    def ready(self, row: int) -> bool:
        """`take` will not take long."""
        return row in self._ready or self._is_short(row)

    def hurry(self, row: int) -> None:
        """Prepare this row before all others; when several are hurried, in the order of asking."""
        if not self.ready(row) and row not in self._hurried:
            self._hurried.append(row)
            self._pass(row)

    def prepare(self) -> int:
        """One step for the next row; the number of the row whose request is whole with it, else -1."""
        row = self._hurried[0] if self._hurried else self.next_row
        steps = self._begun.get(row)
        if steps is None:
            steps = self._begun[row] = self._steps(row)
        try:
            next(steps)
        except StopIteration as end:
            del self._begun[row]
            self._ready[row] = end.value
            self._waiting_bytes += size_of(end.value)
            if self._hurried:
                self._hurried.popleft()
            else:
                self._pass(row)
            return row
        return -1

    def take(self, row: int) -> Request:
        """The request of `row`, built now if its turn had not come."""
        request = self._ready.pop(row, None)
        if request is None:
            self._pass(row)
            return _finished(self._begun.pop(row) if row in self._begun else self._steps(row))
        self._waiting_bytes -= size_of(request)
        return request

    def drop(self, row: int) -> None:
        """The request of `row` will not be sent."""
        self._waiting_bytes -= size_of(self._ready.pop(row, b""))
        self._begun.pop(row, None)
        self._pass(row)

    def _is_short(self, row: int) -> bool:
        shard = self._shard
        return bool(shard.prompt_tokens[row] <= PIECE_TOKENS) and len(shard.blocks(row)) <= PIECE_BLOCKS

    def _pass(self, row: int) -> None:
        """This row needs no preparing any more, nor do those before it, which are due before it."""
        if not self._waits[row]:
            self.next_row = max(self.next_row, row + 1)
            self._pass_waiting()

    def _pass_waiting(self) -> None:
        """Turns whose instant nobody knows are built when it comes."""
        while self.next_row < len(self._waits) and self._waits[self.next_row]:
            self.next_row += 1

    def _steps(self, row: int) -> Steps:
        shard = self._shard
        return self._request.steps(
            int(shard.request_id[row]), int(shard.prompt_tokens[row]), int(shard.max_tokens[row]), shard.blocks(row)
        )


class RequestBuilder:
    """One endpoint's requests as bytes: everything that is the same for all of them is made once."""

    def __init__(self, endpoint: Endpoint, prompts: Prompts) -> None:
        self._prompts, self._as_ids = prompts, endpoint.prompts_as_ids
        self._head = request_head(endpoint, "POST", endpoint.request_path)
        self._before, self._after = _template(endpoint).split(b"%(prompt)b")

    def build(self, request_id: int, prompt_tokens: int, max_tokens: int, blocks: Sequence[int] = ()) -> bytes:
        """The whole HTTP request."""
        made = _finished(self.steps(request_id, prompt_tokens, max_tokens, blocks))
        return made if isinstance(made, bytes) else b"".join(made)

    def steps(self, request_id: int, prompt_tokens: int, max_tokens: int, blocks: Sequence[int] = ()) -> Steps:
        """Makes one piece of the prompt at each step; returns the request."""
        pieces: list[bytes] = []
        for piece in self._prompts.json_pieces(request_id, prompt_tokens, blocks, as_ids=self._as_ids):
            if pieces:
                yield
            pieces.append(piece)
        length = {b"length": b"%d" % max_tokens}
        before, after = self._before % length, self._after % length
        size = len(before) + sum(map(len, pieces)) + len(after)
        head = b"%sContent-Length: %d\r\n\r\n%s" % (self._head, size, before)
        if size <= WHOLE_BYTES:
            return b"".join((head, *pieces, after))
        return (head, *pieces, after)


def size_of(request: Request) -> int:
    """Its bytes."""
    return len(request) if isinstance(request, bytes) else sum(map(len, request))


def _finished(steps: Steps) -> Request:
    """The rest of the steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            made: Request = end.value
            return made


def body_fields(endpoint: Endpoint) -> Body:
    """The body's fields with the user's own, and with marks where prompt and length will stand."""
    return merged(endpoint.dialect.fields(Ask(endpoint.model, PROMPT, LENGTH, endpoint.stream)), endpoint.extra_body)


def _template(endpoint: Endpoint) -> bytes:
    """The body with `%(prompt)b` and `%(length)b` where those will stand."""
    body = msgspec.json.encode(shaped(body_fields(endpoint), endpoint.rename, endpoint.leave_out))
    body = body.replace(b"%", b"%%")
    for mark, slot in ((PROMPT, b"%(prompt)b"), (LENGTH, b"%(length)b")):
        body = body.replace(msgspec.json.encode(mark), slot)
    return body


def request_head(endpoint: Endpoint, method: str, path: str) -> bytes:
    """Request line and headers, up to where a Content-Length would stand."""
    headers = [("Host", endpoint.authority), ("User-Agent", USER_AGENT), ("Accept-Encoding", "identity")]
    if method == "POST":
        headers.append(("Content-Type", "application/json"))
    key = endpoint.api_key()
    if key:
        headers.append(("Authorization", f"Bearer {key}"))
    own = {name.lower() for name, _ in endpoint.headers}
    headers = [(name, value) for name, value in headers if name.lower() not in own] + endpoint.headers
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n").encode("utf-8")
