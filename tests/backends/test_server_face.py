"""The face over real loopback sockets, in front of an engine whose tokens the test hands out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiohttp import web

from loadtest import clock
from loadtest.backends.server.arrivals import ArrivalLog
from loadtest.backends.server.engine import Listener, Load, Refused, Spans
from loadtest.backends.server.face import Face

NAN = float("nan")


class HandEngine:
    """Holds submitted requests until the test gives them tokens."""

    model = "tiny"
    max_model_len = 8192

    def __init__(self) -> None:
        self.submitted: list[tuple[int, int]] = []
        self.listeners: dict[int, Listener] = {}
        self.aborted: list[int] = []
        self.refusal: Refused | None = None
        self.at_once = False
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def submit(self, prompt_tokens: int, output_tokens: int, listener: Listener) -> int:
        if self.refusal is not None:
            raise self.refusal
        request_id = len(self.submitted)
        self.submitted.append((prompt_tokens, output_tokens))
        self.listeners[request_id] = listener
        if self.at_once:
            self.give(request_id, output_tokens)
        return request_id

    def give(self, request_id: int, count: int, *, finish: bool = True) -> None:
        """Hand out `count` tokens, 10 ms apart, the last one final."""
        listener = self.listeners[request_id]
        for index in range(count):
            self.time += 0.010
            finished = finish and index == count - 1
            if finished:
                listener.spans(Spans(0.001, 0.002, NAN, 0.003))
            listener.token(self.time, finished)

    def abort(self, request_id: int) -> None:
        self.aborted.append(request_id)

    def load(self) -> Load:
        return Load(len(self.listeners), 4, 0.25, 2, 1000)


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """One raw connection, so that the tests see the wire and not a library's view of it."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def connect(self) -> None:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()

    def send(self, method: str, path: str, body: bytes = b"", *, cut: str = "", **headers: str) -> None:
        """Write a request, but keep `cut`, the end of its body, back."""
        lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body.removesuffix(cut.encode()))

    def post(self, path: str = "/v1/completions", *, request_id: str = "r", **body: Any) -> None:
        payload = json.dumps(body).encode()
        self.send("POST", path, payload, Content_Type="application/json", X_Request_Id=request_id)

    async def head(self) -> tuple[int, dict[str, str]]:
        first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        return int(first.split()[1]), headers

    async def chunk(self) -> bytes:
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        data = await self.reader.readexactly(size + 2)
        assert data.endswith(b"\r\n")
        return data[:-2]

    async def answer(self) -> Answer:
        """A whole answer, chunked or with a length."""
        status, headers = await self.head()
        if "chunked" not in headers.get("transfer-encoding", ""):
            return Answer(status, headers, await self.reader.readexactly(int(headers["content-length"])))
        body = b""
        while piece := await self.chunk():
            body += piece
        return Answer(status, headers, body)


class Scene(NamedTuple):
    engine: HandEngine
    client: Client


def play(scene: Callable[[Scene], Awaitable[None]], *, log: Path | None = None) -> None:
    """Run `scene` against a face on a free port."""

    async def run() -> None:
        engine = HandEngine()
        arrivals = ArrivalLog(log, asyncio.get_running_loop()) if log else None
        runner = web.ServerRunner(Face(engine, arrivals), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        client = Client(int(runner.addresses[0][1]))
        await client.connect()
        try:
            await scene(Scene(engine, client))
        finally:
            await client.close()
            await runner.cleanup()
            if arrivals is not None:
                arrivals.close()

    asyncio.run(run())


async def until(condition: Callable[[], object]) -> None:
    """Let the loop turn until the condition holds (pytest's time-out bounds it)."""
    while not condition():
        await asyncio.sleep(0.001)


def test_headers_come_before_the_first_token() -> None:
    """As vLLM: first byte is not first token."""

    async def scene(s: Scene) -> None:
        s.client.post(prompt=[1, 2, 3], max_tokens=2, stream=True)
        status, headers = await s.client.head()
        assert (200, "text/event-stream; charset=utf-8") == (status, headers["content-type"])
        assert [(3, 2)] == s.engine.submitted
        s.engine.give(0, 1, finish=False)
        assert b'"text":" bala"' in await s.client.chunk()

    play(scene)


def test_one_event_per_token_then_usage_and_done() -> None:
    """Three tokens, three token events in three chunks, one usage event, [DONE], end of body."""

    async def scene(s: Scene) -> None:
        s.client.post(prompt=[1], max_tokens=3, stream=True, stream_options={"include_usage": True})
        await s.client.head()
        s.engine.give(0, 3)
        chunks = []
        while piece := await s.client.chunk():
            chunks.append(piece)
        assert 5 == len(chunks)
        assert [b'"text":" bala"' in chunks[0], b'"text":" bali"' in chunks[2]] == [True, True]
        assert b'"usage":{"prompt_tokens":1,"total_tokens":4,"completion_tokens":3}' in chunks[3]
        assert b"data: [DONE]\n\n" == chunks[4]

    play(scene)


def test_tokens_that_come_while_submitting_wait_for_the_headers() -> None:
    """An engine may answer at once; the wire still begins with the status line."""

    async def scene(s: Scene) -> None:
        s.engine.at_once = True
        s.client.post(prompt=[1], max_tokens=2, stream=True)
        answer = await s.client.answer()
        assert 200 == answer.status
        assert 2 == answer.body.count(b'"text":')

    play(scene)


def test_a_connection_serves_many_requests() -> None:
    """Keep-alive, streamed and whole answers, chat and completions, in turn."""

    async def scene(s: Scene) -> None:
        s.engine.at_once = True
        for index, path in enumerate(["/v1/completions", "/v1/chat/completions"] * 2):
            s.client.post(
                path, prompt="a b", messages=[{"role": "user", "content": "a b"}], max_tokens=2, stream=index < 2
            )
            answer = await s.client.answer()
            assert 200 == answer.status
            if index >= 2:
                assert {"prompt_tokens": 2, "total_tokens": 4, "completion_tokens": 2} == answer.json["usage"]
        assert [(2, 2)] * 4 == s.engine.submitted

    play(scene)


def test_client_that_expects_100_continue_is_told_to() -> None:
    """curl holds larger bodies back for a second otherwise."""

    async def scene(s: Scene) -> None:
        s.engine.at_once = True
        body = json.dumps({"prompt": [1], "max_tokens": 1}).encode()
        s.client.send(
            "POST", "/v1/completions", body, cut=body.decode(), Content_Type="application/json", Expect="100-continue"
        )
        assert (100, {}) == await s.client.head()
        s.client.writer.write(body)
        assert 200 == (await s.client.answer()).status

    play(scene)


def test_http_1_0_client_gets_a_stream_that_ends_with_the_connection() -> None:
    """Without chunked encoding the events are bare."""

    async def scene(s: Scene) -> None:
        s.engine.at_once = True
        body = json.dumps({"prompt": [1], "max_tokens": 2, "stream": True}).encode()
        head = f"POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        s.client.writer.write(head.encode() + body)
        _, headers = await s.client.head()
        assert "transfer-encoding" not in headers
        events = (await s.client.reader.read()).split(b"\n\n")
        assert b"data: [DONE]" == events[-2]
        assert all(event.startswith(b"data: ") for event in events[:-1])

    play(scene)


@pytest.mark.parametrize("stream", [True, False])
def test_client_that_goes_away_is_aborted(stream: bool) -> None:
    """Its memory must be freed, whether it was reading a stream or waiting for the whole."""

    async def scene(s: Scene) -> None:
        s.client.post(prompt=[1], max_tokens=100, stream=stream)
        await until(lambda: s.engine.submitted)
        s.engine.give(0, 1, finish=False)
        await s.client.close()
        await until(lambda: s.engine.aborted)
        assert [0] == s.engine.aborted
        other = Client(s.client.port)
        await other.connect()
        other.send("GET", "/metrics")
        page = (await other.answer()).body.decode()
        assert 'vllm:request_success_total{engine="0",finished_reason="abort",model_name="tiny"} 1.0' in page
        await other.close()

    play(scene)


def test_tokens_for_a_client_that_went_away_are_dropped_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    """A server that catches up hands a dead connection many tokens before it hears of the loss."""

    async def scene(s: Scene) -> None:
        s.client.post(prompt=[1], max_tokens=100, stream=True)
        await s.client.head()
        s.client.writer.transport.abort()
        for _ in range(50):
            s.engine.give(0, 1, finish=False)
            await asyncio.sleep(0)
        await until(lambda: s.engine.aborted)
        s.engine.give(0, 50)

    play(scene)
    assert [] == caplog.records


def test_client_that_closes_after_the_last_token_is_not_aborted() -> None:
    """Reading up to [DONE] and closing is a success."""

    async def scene(s: Scene) -> None:
        s.client.post(prompt=[1], max_tokens=1, stream=True)
        await s.client.head()
        s.engine.give(0, 1)
        await s.client.chunk()
        await s.client.close()
        await asyncio.sleep(0.02)
        assert [] == s.engine.aborted

    play(scene)


def test_full_queue_is_429_with_retry_after() -> None:
    """The client learns when to come back."""

    async def scene(s: Scene) -> None:
        s.engine.refusal = Refused(429, "the queue is full: 5 requests are waiting", retry_after_s=1)
        s.client.post(prompt=[1], stream=True)
        answer = await s.client.answer()
        assert (429, "1") == (answer.status, answer.headers["retry-after"])
        assert answer.json["error"]["message"].startswith("the queue is full")
        s.client.send("GET", "/metrics")
        assert b'reason="max_num_queued_reqs"} 1.0' in (await s.client.answer()).body

    play(scene)


def test_prompt_the_engine_refuses_is_400() -> None:
    """Over the context, or over the KV memory: before the stream begins."""

    async def scene(s: Scene) -> None:
        s.engine.refusal = Refused(400, "does not fit")
        s.client.post(prompt=[1], stream=True)
        answer = await s.client.answer()
        assert (400, "does not fit") == (answer.status, answer.json["error"]["message"])

    play(scene)


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status"),
    [
        ("POST", "/v1/completions", {"Content_Type": "application/json"}, b'{"prompt": ', 400),
        ("POST", "/v1/completions", {"Content_Type": "text/plain"}, b'{"prompt": [1]}', 400),
        ("POST", "/v1/completions", {}, b'{"prompt": [1]}', 400),
        ("POST", "/v1/completions", {"Content_Type": "application/json"}, b'{"prompt": [1], "model": "x"}', 404),
        ("POST", "/v1/nope", {}, b"{}", 404),
        ("GET", "/v1/completions", {}, b"", 405),
        ("POST", "/health", {}, b"", 405),
    ],
)
def test_errors_have_a_status_and_json(
    method: str, path: str, headers: dict[str, str], body: bytes, status: int
) -> None:
    """Nothing a client sends is a 500, and the connection stays usable."""

    async def scene(s: Scene) -> None:
        s.client.send(method, path, body, **headers)
        answer = await s.client.answer()
        assert status == answer.status
        assert answer.json
        s.client.send("GET", "/health")
        assert (200, b"") == (await s.client.answer())[::2]

    play(scene)


def test_models_page_names_the_context() -> None:
    """A preflight learns the model's name and its context length."""

    async def scene(s: Scene) -> None:
        s.client.send("GET", "/v1/models")
        (model,) = (await s.client.answer()).json["data"]
        assert ("tiny", 8192, "model") == (model["id"], model["max_model_len"], model["object"])

    play(scene)


def test_metrics_page_has_vllms_names_and_the_observed_values() -> None:
    """Two requests of 3 tokens, the first after 10 ms, 10 ms apart."""

    async def scene(s: Scene) -> None:
        s.engine.at_once = True
        for _ in range(2):
            s.client.post(prompt=[1] * 30, max_tokens=3)
            await s.client.answer()
        s.client.send("GET", "/metrics")
        answer = await s.client.answer()
        assert "text/plain; version=0.0.4; charset=utf-8" == answer.headers["content-type"]
        labels = 'engine="0",model_name="tiny"'
        for line in [
            f"vllm:num_requests_waiting{{{labels}}} 4.0",
            f"vllm:kv_cache_usage_perc{{{labels}}} 0.25",
            f"vllm:num_preemptions_total{{{labels}}} 2.0",
            f"vllm:nixl_bytes_transferred_total{{{labels}}} 1000.0",
            f"vllm:prompt_tokens_total{{{labels}}} 60.0",
            f"vllm:generation_tokens_total{{{labels}}} 6.0",
            f"vllm:time_to_first_token_seconds_count{{{labels}}} 2.0",
            f"vllm:inter_token_latency_seconds_count{{{labels}}} 4.0",
            f"vllm:request_time_per_output_token_seconds_count{{{labels}}} 2.0",
            f"vllm:request_queue_time_seconds_count{{{labels}}} 2.0",
            f"vllm:nixl_xfer_time_seconds_count{{{labels}}} 0.0",
            'vllm:request_prompt_tokens_bucket{engine="0",le="20.0",model_name="tiny"} 0.0',
            'vllm:request_prompt_tokens_bucket{engine="0",le="50.0",model_name="tiny"} 2.0',
        ]:
            assert f"\n{line}\n" in answer.body.decode()

    play(scene)


def test_arrivals_are_logged_when_they_come(tmp_path: Path) -> None:
    """A line per POST, in order of arrival, with the first byte's time and what was asked, also when refused."""
    log = tmp_path / "arrivals.jsonl"
    before_ns = clock.monotonic_ns()
    between_ns: list[int] = []

    async def scene(s: Scene) -> None:
        body = json.dumps({"prompt": [1, 2, 3], "max_tokens": 5, "stream": True}).encode()
        s.client.send(
            "POST", "/v1/completions", body, Content_Type="application/json", X_Request_Id="first", cut="true}"
        )
        await s.client.writer.drain()
        await asyncio.sleep(0.02)
        between_ns.append(clock.monotonic_ns())
        s.client.writer.write(b"true}")  # the rest of the body is no second arrival
        await s.client.head()
        s.engine.give(0, 5)
        while await s.client.chunk():
            pass
        s.client.send("GET", "/health")
        await s.client.answer()
        between_ns.append(clock.monotonic_ns())
        s.client.send("POST", "/v1/completions", b"{", Content_Type="application/json", X_Request_Id="second")
        await s.client.answer()

    play(scene, log=log)
    first, second = map(json.loads, log.read_text().splitlines())
    assert ("cmpl-first", 3, 5) == (first["id"], first["prompt_tokens"], first["max_tokens"])
    assert ("cmpl-second", None, None) == (second["id"], second["prompt_tokens"], second["max_tokens"])
    assert before_ns < first["mono_ns"] < between_ns[0] < between_ns[1] < second["mono_ns"] < clock.monotonic_ns()
