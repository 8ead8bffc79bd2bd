"""The server of a command case, in a thread: the case's server.py answers, every request is logged.

server.py   async def answer(exchange, *arguments): what comes back; the arguments are case.json's
            MODELS = ["m"]: the list of models that the base gives; [] leaves that to `answer` too
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

TTFT_S, GAP_S = 0.02, 0.002
LIMIT_BYTES = 2**20

Answer = Callable[..., Awaitable[None]]


@dataclass
class Exchange:
    """A request, and the way back; `log` is what expected.json may ask for."""

    method: str
    path: str
    headers: dict[str, str]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    log: dict[str, Any] = field(default_factory=dict)

    @property
    def length(self) -> int:
        return int(self.headers.get("content-length", 0))

    async def document(self) -> dict[str, Any]:
        """The request's body, read when it is asked for: a proxy may answer before."""
        if "document" not in self.log:
            self.log["document"] = json.loads(await self.reader.readexactly(self.length) or b"{}")
        document: dict[str, Any] = self.log["document"]
        return document

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def head(self, status: int, *lines: str) -> None:
        """The status line and header lines."""
        self.log["status"] = status
        await self.say("\r\n".join([f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", *lines, "", ""]).encode())

    async def page(self, content: Any, status: int = 200, *lines: str) -> None:
        """A whole answer: a document as JSON, a text as it is."""
        kind, body = ("text/plain", content) if isinstance(content, str) else ("application/json", json.dumps(content))
        if not self.log.get("document"):
            await self.document()
        await self.head(status, f"Content-Type: {kind}", f"Content-Length: {len(body)}", *lines)
        await self.say(body.encode())

    async def refuse(self, status: int, message: str, **more: Any) -> None:
        """An error as OpenAI words it."""
        await self.page({"error": {"message": message, "type": "invalid_request_error", **more}}, status)

    async def event(self, document: Any) -> None:
        """One server-sent event, in a chunk of its own."""
        text = document if isinstance(document, str) else json.dumps(document)
        await self.chunk(f"data: {text}\n\n".encode())

    async def chunk(self, data: bytes) -> None:
        await self.say(b"%x\r\n%s\r\n" % (len(data), data))

    async def token(self, text: str, finish: str | None = None) -> None:
        """A token of the endpoint that was asked, or with a finish reason the end of the text."""
        piece = {"delta": {"content": text}} if "/chat/" in self.path else {"text": text}
        await self.event({"choices": [{"index": 0, "finish_reason": finish, **piece}]})

    async def stream(
        self,
        *headers: str,
        tokens: int | None = None,
        usage: dict[str, Any] | None = None,
        error: str = "",
        gap_s: float = GAP_S,
    ) -> None:
        """A well-behaved stream of the tokens asked for; `usage` adds to the counts, `error` stands for the end."""
        document = await self.document()
        asked = document.get("max_tokens") or document.get("max_completion_tokens") or 4
        tokens = asked if tokens is None else tokens
        await self.head(200, "Content-Type: text/event-stream", "Transfer-Encoding: chunked", *headers)
        await asyncio.sleep(TTFT_S)
        for index in range(tokens):
            await self.token(" tok")
            await asyncio.sleep(gap_s if index < tokens - 1 else 0)
        if error:
            await self.event({"error": {"message": error, "type": "BadRequestError", "code": 400}})
        else:
            prompt = prompt_tokens(document)
            counts = {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
            await self.token("", "length" if tokens == asked else "stop")
            await self.event({"choices": [], "usage": {**counts, **(usage or {})}})
        await self.event("[DONE]")
        await self.say(b"0\r\n\r\n")


def prompt_tokens(document: dict[str, Any]) -> int:
    """Token ids, or words."""
    prompt = document.get("prompt")
    if prompt is None:
        prompt = " ".join(message["content"] for message in document.get("messages", []))
    return len(prompt) if isinstance(prompt, list) else len(prompt.split())


class CaseServer:
    """Listens on loopback while it is entered; `requests` is what came, in its order."""

    def __init__(self, script: Path, arguments: list[str], *, port: int = 0) -> None:
        spec = importlib.util.spec_from_file_location(f"case_server_{script.parent.name}", script)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self._answer: Answer = module.answer
        self._models: list[str] = getattr(module, "MODELS", ["m"])
        self._arguments, self._port = arguments, port
        self.requests: list[dict[str, Any]] = []
        self._connections = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> CaseServer:
        starting = asyncio.start_server(self._serve, "127.0.0.1", self._port, limit=LIMIT_BYTES)
        try:
            self._server = self._loop.run_until_complete(starting)
        except OSError:
            self._loop.close()
            raise
        self.port: int = self._server.sockets[0].getsockname()[1]
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        serving = asyncio.all_tasks() - {asyncio.current_task()}
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, request after request."""
        self._connections += 1
        number = self._connections
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while not writer.is_closing():
                exchange = await self._exchange(reader, writer)
                exchange.log["connection"] = number
                self.requests.append(exchange.log)
                if exchange.method == "GET" and exchange.path.endswith("/models") and self._models:
                    await exchange.page({"object": "list", "data": [{"id": name} for name in self._models]})
                else:
                    await self._answer(exchange, *self._arguments)
        writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Exchange:
        line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
        method, path, _ = line.split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
        return Exchange(
            method, path, headers, reader, writer, {"method": method, "path": path, "headers": headers, "status": None}
        )
