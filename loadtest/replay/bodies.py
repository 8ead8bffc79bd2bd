"""The bytes of each request, built seconds ahead of its instant so that dispatch only hands them to the kernel."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from loadtest.replay.dialects import Ask
from loadtest.replay.endpoint import Endpoint
from loadtest.replay.fields import Body, merged, shaped
from workloads.prompts import Prompts
from workloads.schedule import Schedule

USER_AGENT = "goodput"
PROMPT, LENGTH = "\0prompt", "\0length"  # marks that no JSON of a user's holds


class Bodies:
    """HTTP requests for the rows of a shard; `prepare` builds the next one, `take` hands one out.

    At most `budget` bytes wait, so a burst of long prompts costs time at its instant rather than memory.
    """

    def __init__(self, endpoint: Endpoint, shard: Schedule, prompts: Prompts, *, budget: int = 64 * 2**20) -> None:
        self._shard, self._request = shard, RequestBuilder(endpoint, prompts)
        self._ready: dict[int, bytes] = {}
        self._budget, self._waiting_bytes = budget, 0
        self._waits = shard.waits.tolist()
        self.next_row = 0
        self._pass_waiting()

    @property
    def full(self) -> bool:
        """Nothing more should be prepared now."""
        return self._waiting_bytes >= self._budget or self.next_row >= len(self._shard)

    def prepare(self) -> None:
        """Build the next row's request."""
        request = self._build(self.next_row)
        self._ready[self.next_row] = request
        self._waiting_bytes += len(request)
        self.next_row += 1
        self._pass_waiting()

    def take(self, row: int) -> bytes:
        """The request of `row`, built now if its turn had not come."""
        request = self._ready.pop(row, None)
        if request is None:
            if not self._waits[row]:
                self.next_row = max(self.next_row, row + 1)
                self._pass_waiting()
            return self._build(row)
        self._waiting_bytes -= len(request)
        return request

    def _pass_waiting(self) -> None:
        """Turns whose instant nobody knows are built when it comes."""
        while self.next_row < len(self._waits) and self._waits[self.next_row]:
            self.next_row += 1

    def _build(self, row: int) -> bytes:
        shard = self._shard
        return self._request.build(
            int(shard.request_id[row]), int(shard.prompt_tokens[row]), int(shard.max_tokens[row]), shard.blocks(row)
        )


class RequestBuilder:
    """One endpoint's requests as bytes: everything that is the same for all of them is made once."""

    def __init__(self, endpoint: Endpoint, prompts: Prompts) -> None:
        self._prompts, self._as_ids = prompts, endpoint.prompts_as_ids
        self._head = request_head(endpoint, "POST", endpoint.request_path)
        self._template = _template(endpoint)

    def build(self, request_id: int, prompt_tokens: int, max_tokens: int, blocks: Sequence[int] = ()) -> bytes:
        """The whole HTTP request."""
        prompt = self._prompt(request_id, prompt_tokens, blocks)
        body = self._template % {b"prompt": prompt, b"length": b"%d" % max_tokens}
        return b"%sContent-Length: %d\r\n\r\n%s" % (self._head, len(body), body)

    def _prompt(self, request_id: int, tokens: int, blocks: Sequence[int]) -> bytes:
        if self._as_ids:
            return self._prompts.ids_json(request_id, tokens, blocks)
        return msgspec.json.encode(self._prompts.text(request_id, tokens, blocks))


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
