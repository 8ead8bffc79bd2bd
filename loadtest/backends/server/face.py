"""The OpenAI face: HTTP in, tokens out.

Built on aiohttp's low-level server: no router, no middleware. A stream's tokens go straight to its
transport, one write per token, from the engine's callback; the handler only waits for the last one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.streams import StreamReader

import loadtest
from loadtest import clock
from loadtest.backends.server.arrivals import Arrival, ArrivalLog
from loadtest.backends.server.engine import Engine, Page, Refused, Spans, TextEngine
from loadtest.backends.server.frames import Answer, Api, StreamFrames, whole_answer
from loadtest.backends.server.meters import EXPOSITION, Meters, MetricsPage
from loadtest.backends.server.protocol import ApiError, Ask, answer_id, read_ask, read_tokenize

_MAX_BODY_BYTES = 64 << 20
_RETRY_AFTER_S = 1
_STREAM_HEADERS = {"Content-Type": "text/event-stream; charset=utf-8"}
_GENERATE: dict[str, Api] = {"/v1/completions": "completions", "/v1/chat/completions": "chat"}


class Face(web.Server):
    """An aiohttp server in front of one engine; `arrivals` also logs when each POST came."""

    def __init__(self, engine: Engine | TextEngine, arrivals: ArrivalLog | None = None) -> None:
        super().__init__(self._answer, handler_cancellation=True, access_log=None)
        self.draining = False  # finish what is under way, take nothing new
        self._open = 0
        self._engine = engine
        self._pages: Mapping[str, Page] = engine.pages if isinstance(engine, TextEngine) else {}
        self._arrivals = arrivals
        self._meters = Meters()
        self._page = MetricsPage(engine, self._meters)
        self._created = clock.realtime_ns() // 1_000_000_000
        self._gets: dict[str, Callable[[], web.Response]] = {
            "/health": web.Response,
            "/ping": web.Response,
            "/version": lambda: _json({"version": f"goodput-{loadtest.__version__}"}),
            "/v1/models": self._models,
            "/metrics": lambda: web.Response(body=self._page.render(), headers={"Content-Type": EXPOSITION}),
        }

    @property
    def busy(self) -> bool:
        """Is any answer under way?"""
        return self._open > 0

    def __call__(self) -> web.RequestHandler:
        """One protocol object per connection (aiohttp's hook), ours to stamp arrivals."""
        return _StampingHandler(self, loop=self._loop, **self._kwargs)

    def _make_request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        return web.BaseRequest(message, payload, protocol, writer, task, self._loop, client_max_size=_MAX_BODY_BYTES)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        protocol = request.protocol
        assert isinstance(protocol, _StampingHandler)
        arrived_ns = protocol.take_stamp()  # of every request, so that none inherits another's
        path = request.path
        if api := _GENERATE.get(path):
            return await _only("POST", request, lambda: self._generate(api, request, protocol, arrived_ns))
        if path == "/tokenize" and isinstance(engine := self._engine, TextEngine):
            return await _only("POST", request, lambda: self._tokenize(engine, request))
        if page := self._pages.get(path):
            return await _only("GET", request, lambda: _immediately(_page(page, request)))
        if get := self._gets.get(path):
            return await _only("GET", request, lambda: _immediately(get()))
        return _json({"detail": "Not Found"}, status=404)

    def _models(self) -> web.Response:
        model = {
            "id": self._engine.model,
            "object": "model",
            "created": self._created,
            "owned_by": "goodput",
            "root": self._engine.model,
            "parent": None,
            "max_model_len": self._engine.max_model_len,
        }
        return _json({"object": "list", "data": [model]})

    async def _generate(
        self, api: Api, request: web.BaseRequest, protocol: _StampingHandler, arrived_ns: int
    ) -> web.StreamResponse:
        name = answer_id(api, request.headers.get("X-Request-Id"))
        if request.headers.get("Expect", "").lower() == "100-continue" and request.transport is not None:
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await request.read()
        protocol.take_stamp()  # the body's later pieces are no arrival
        try:
            ask = self._read(api, request, body)
        except ApiError as error:
            self._log(Arrival(arrived_ns, name, None, None))
            return _refusal(error)
        self._log(Arrival(arrived_ns, name, ask.prompt_tokens, ask.max_tokens))
        try:
            return await self._serve(name, ask, request)
        except ApiError as error:
            return _refusal(error)

    def _log(self, arrival: Arrival) -> None:
        if self._arrivals is not None:
            self._arrivals.add(arrival)

    def _read(self, api: Api, request: web.BaseRequest, body: bytes) -> Ask:
        if request.content_type != "application/json":
            sentence = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
            raise ApiError(400, sentence, kind="Bad Request")
        engine = self._engine
        encode = encode_chat = None
        if isinstance(engine, TextEngine):
            encode, encode_chat = engine.encode, engine.encode_chat
        return read_ask(
            api,
            body,
            model=engine.model,
            max_model_len=engine.max_model_len,
            encode=encode,
            encode_chat=encode_chat,
        )

    async def _tokenize(self, engine: TextEngine, request: web.BaseRequest) -> web.StreamResponse:
        try:
            tokens = read_tokenize(await request.read(), engine.encode, engine.encode_chat)
        except ApiError as error:
            return _refusal(error)
        return _json({"count": len(tokens), "max_model_len": engine.max_model_len, "tokens": tokens})

    async def _serve(self, name: str, ask: Ask, request: web.BaseRequest) -> web.StreamResponse:
        created = clock.realtime_ns() // 1_000_000_000
        prompt = ask.prompt if ask.return_token_ids else None
        answer = Answer(ask.api, name, self._engine.model, created, ask.prompt_tokens, prompt)
        if not ask.stream:
            reply = _Reply(self._engine.now, self._meters, self._loop)
            await self._run(ask, reply)
            if reply.failure:
                raise ApiError(500, reply.failure, kind="InternalServerError")
            text = "".join(reply.pieces) if isinstance(self._engine, TextEngine) else None
            body = whole_answer(answer, reply.tokens, text, reply.reason, reply.ids)
            return web.Response(body=body, content_type="application/json")
        chunked = request.version >= HttpVersion11
        frames = StreamFrames(
            answer, include_usage=ask.include_usage, continuous_usage=ask.continuous_usage, chunked=chunked
        )
        stream = _Stream(self._engine.now, self._meters, self._loop, frames)
        response = web.StreamResponse(headers=_STREAM_HEADERS)
        await self._run(ask, stream, lambda: _open(stream, response, request))
        await response.write_eof()
        return response

    async def _run(self, ask: Ask, reply: _Reply, on_accepted: Callable[[], Awaitable[None]] | None = None) -> None:
        """Queue the request and wait for its last token; a client that goes away cancels us."""
        request_id = self._submit(ask, reply)
        self._open += 1
        try:
            if on_accepted is not None:
                await on_accepted()
            await reply.done
        except BaseException:  # the client has gone, mostly; whatever it was, nobody waits for the tokens
            self._engine.abort(request_id)
            self._meters.aborted += 1
            raise
        finally:
            self._open -= 1
        if reply.failure:
            return
        self._meters.finished[reply.reason] += 1
        self._meters.prompt.observe(ask.prompt_tokens)
        self._meters.output.observe(reply.tokens)

    def _submit(self, ask: Ask, reply: _Reply) -> int:
        try:
            if self.draining:
                raise Refused(503, "The server is shutting down.", retry_after_s=_RETRY_AFTER_S)
            if isinstance(self._engine, TextEngine):
                request_id = self._engine.generate(ask.prompt, ask.max_tokens, ask.wish, reply)
            else:
                request_id = self._engine.submit(ask.prompt_tokens, ask.max_tokens, reply)
        except Refused as refusal:
            raise self._as_api_error(refusal) from None
        self._meters.prompt_tokens += ask.prompt_tokens
        return request_id

    def _as_api_error(self, refusal: Refused) -> ApiError:
        if refusal.retry_after_s is None:
            return ApiError(refusal.status, refusal.message)
        kind = "ServiceUnavailableError" if refusal.status == 503 else "TooManyRequestsError"
        self._meters.rejected += refusal.status == 429
        error = ApiError(refusal.status, refusal.message, kind=kind)
        error.headers["Retry-After"] = str(refusal.retry_after_s)
        return error


class _StampingHandler(web.RequestHandler):
    """A connection that remembers when the bytes it has not accounted for began to come."""

    __slots__ = ("_first_byte_ns",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._first_byte_ns = 0

    def data_received(self, data: bytes) -> None:
        if not self._first_byte_ns:
            self._first_byte_ns = clock.monotonic_ns()
        super().data_received(data)

    def take_stamp(self) -> int:
        """Monotonic nanoseconds of the first byte since the last call; now, when there was none."""
        stamp, self._first_byte_ns = self._first_byte_ns, 0
        return stamp or clock.monotonic_ns()


class _Reply:
    """Listens to one request's tokens and measures them; `done` is set by the last."""

    def __init__(self, now: Callable[[], float], meters: Meters, loop: asyncio.AbstractEventLoop) -> None:
        self.done: asyncio.Future[None] = loop.create_future()
        self._now = now
        self._meters = meters
        self._submitted_s = self._first_s = self._last_s = now()
        self._spans: Spans | None = None
        self.tokens = 0
        self.pieces: list[str] = []
        self.ids: list[int] = []
        self.reason = "length"
        self.failure = ""

    def token(self, time_s: float, finished: bool) -> None:
        self._send(self.tokens, finished)
        self._measure(time_s, finished)

    def text(self, time_s: float, text: str, reason: str, token: int) -> None:
        self._write_text(self.tokens, text, reason, token)
        self.reason = reason
        self._measure(time_s, bool(reason))

    def fail(self, message: str) -> None:
        self.failure = message
        self._end()

    def _measure(self, time_s: float, finished: bool) -> None:
        index = self.tokens
        self.tokens = index + 1
        meters = self._meters
        meters.lateness.observe(self._now() - time_s)
        meters.generation_tokens += 1
        if index:
            meters.gap.observe(time_s - self._last_s)
        else:
            self._first_s = time_s
            meters.ttft.observe(time_s - self._submitted_s)
        self._last_s = time_s
        if finished:
            self._finish(time_s)

    def spans(self, spans: Spans) -> None:
        self._spans = spans
        self._meters.spans(spans)

    def _send(self, index: int, finished: bool) -> None:
        """An answer in one piece has nothing to send before its end."""

    def _write_text(self, index: int, text: str, reason: str, token: int) -> None:  # noqa: ARG002
        self.pieces.append(text)
        self.ids.append(token)

    def _finish(self, time_s: float) -> None:
        self._meters.e2e.observe(time_s - self._submitted_s)
        if self.tokens > 1:
            self._meters.tpot.observe((time_s - self._first_s) / (self.tokens - 1))
        self._end()

    def _end(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class _Stream(_Reply):
    """A reply whose tokens are written as they come."""

    def __init__(
        self, now: Callable[[], float], meters: Meters, loop: asyncio.AbstractEventLoop, frames: StreamFrames
    ) -> None:
        super().__init__(now, meters, loop)
        self._frames = frames
        self._early: list[bytes] = []  # tokens before the headers are out
        self._write: Callable[[bytes], object] = self._early.append
        self._closing: Callable[[], bool] = bool  # False

    def open(self, transport: asyncio.Transport) -> None:
        """The headers are on their way: write to `transport` from now on."""
        self._write, self._closing = transport.write, transport.is_closing
        if self._early:
            transport.write(b"".join(self._early))

    def _send(self, index: int, finished: bool) -> None:
        if not self._closing():  # the client went away, and the abort is on its way here
            self._write(self._frames.last(index, self._spans) if finished else self._frames.token(index))

    def _write_text(self, index: int, text: str, reason: str, token: int) -> None:
        if not self._closing():
            self._write(self._frames.text(index, text, reason or None, self._spans, token))

    def fail(self, message: str) -> None:
        if not self._closing():
            self._write(self._frames.error(ApiError(500, message, kind="InternalServerError").body()))
        super().fail(message)


async def _open(stream: _Stream, response: web.StreamResponse, request: web.BaseRequest) -> None:
    """Send status and headers at once, as vLLM does, long before the first token."""
    if request.version >= HttpVersion11:
        response.enable_chunked_encoding()
    await response.prepare(request)
    if not isinstance(request.transport, asyncio.Transport):
        raise ConnectionResetError("the client went away")
    stream.open(request.transport)


async def _only(
    method: str, request: web.BaseRequest, answer: Callable[[], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    if request.method == method or (method == "GET" and request.method == "HEAD"):
        return await answer()
    return _json({"detail": "Method Not Allowed"}, status=405, headers={"Allow": method})


def _refusal(error: ApiError) -> web.Response:
    return web.Response(status=error.status, body=error.body(), content_type="application/json", headers=error.headers)


async def _immediately(response: web.Response) -> web.Response:
    return response


def _page(page: Page, request: web.BaseRequest) -> web.Response:
    status, document = page(request.query)
    return _json(document, status=status)


def _json(value: object, *, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        status=status, body=msgspec.json.encode(value), content_type="application/json", headers=headers
    )
