"""The bytes of each request, built seconds ahead of its instant so that dispatch only hands them to the kernel."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from loadtest.replay.endpoint import Endpoint
from workloads.prompts import Prompts
from workloads.schedule import Schedule

USER_AGENT = "goodput"


class Bodies:
    """HTTP requests for the rows of a shard; `prepare` builds the next one, `take` hands one out.

    At most `budget` bytes wait, so a burst of long prompts costs time at its instant rather than memory.
    """

    def __init__(self, endpoint: Endpoint, shard: Schedule, prompts: Prompts, *, budget: int = 64 * 2**20) -> None:
        self._shard, self._request = shard, RequestBuilder(endpoint, prompts)
        self._ready: dict[int, bytes] = {}
        self._budget, self._waiting_bytes = budget, 0
        self.next_row = 0

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

    def take(self, row: int) -> bytes:
        """The request of `row`, built now if its turn had not come."""
        request = self._ready.pop(row, None)
        if request is None:
            self.next_row = max(self.next_row, row + 1)
            return self._build(row)
        self._waiting_bytes -= len(request)
        return request

    def _build(self, row: int) -> bytes:
        shard = self._shard
        return self._request.build(
            int(shard.request_id[row]), int(shard.prompt_tokens[row]), int(shard.max_tokens[row]), shard.blocks(row)
        )


class RequestBuilder:
    """One endpoint's requests as bytes: everything that is the same for all of them is made once."""

    def __init__(self, endpoint: Endpoint, prompts: Prompts) -> None:
        self._prompts = prompts
        self._as_ids, self._chat = endpoint.prompts_as_ids, endpoint.api == "chat"
        self._head = request_head(endpoint, "POST", endpoint.request_path)
        self._fixed_fields = msgspec.json.encode(_fixed_fields(endpoint))[1:]  # without the opening brace
        self._length_fields = _length_fields(endpoint)

    def build(self, request_id: int, prompt_tokens: int, max_tokens: int, blocks: Sequence[int] = ()) -> bytes:
        """The whole HTTP request."""
        body = b'{"%s":%s,%s,%s' % (
            b"messages" if self._chat else b"prompt",
            self._prompt(request_id, prompt_tokens, blocks),
            b",".join(b'"%s":%d' % (name, max_tokens) for name in self._length_fields),
            self._fixed_fields,
        )
        return b"%sContent-Length: %d\r\n\r\n%s" % (self._head, len(body), body)

    def _prompt(self, request_id: int, tokens: int, blocks: Sequence[int]) -> bytes:
        if self._as_ids:
            return self._prompts.ids_json(request_id, tokens, blocks)
        text = msgspec.json.encode(self._prompts.text(request_id, tokens, blocks))
        return b'[{"role":"user","content":%s}]' % text if self._chat else text


def request_head(endpoint: Endpoint, method: str, path: str) -> bytes:
    """Request line and headers, up to where a Content-Length would stand."""
    host = endpoint.origin.partition("://")[2]
    headers = [("Host", host), ("User-Agent", USER_AGENT), ("Accept-Encoding", "identity")]
    if method == "POST":
        headers.append(("Content-Type", "application/json"))
    key = endpoint.api_key()
    if key:
        headers.append(("Authorization", f"Bearer {key}"))
    own = {name.lower() for name, _ in endpoint.headers}
    headers = [(name, value) for name, value in headers if name.lower() not in own] + endpoint.headers
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    return ("\r\n".join(lines) + "\r\n").encode("utf-8")


def _fixed_fields(endpoint: Endpoint) -> dict[str, object]:
    fields: dict[str, object] = {"model": endpoint.model} if endpoint.model else {}
    fields |= {"stream": True, "stream_options": {"include_usage": True}, "ignore_eos": True, "temperature": 0.0}
    fields |= endpoint.extra_body
    return {name: value for name, value in fields.items() if name not in endpoint.leave_out}


def _length_fields(endpoint: Endpoint) -> list[bytes]:
    """`min_tokens` beside `max_tokens`, where it is taken: the trace says how long an answer is."""
    return [name.encode() for name in ("max_tokens", "min_tokens") if name not in endpoint.leave_out]
