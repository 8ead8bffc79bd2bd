"""A scripted OpenAI server for tests, run as a program: `python -m tests.load_server '{"service_ms": 10}'`.

It prints a readiness line like the bundled servers and ends with its parent. What it is told to do:

    service_ms   time to the answer (its first token); default 0; also ttft_ms
    first_ms     that of the very first load request
    gap_ms       time between tokens; default 0; also tpot_ms
    tokens       how many an answer has; default as asked
    freeze       {"from_s", "to_s"} since the first load request: nothing is answered in that window
    always       "reset", "close" (before a byte), "hang", or an HTTP status
    fail_every   N: every N-th load request is answered like that, with `always` or, without it, status 500
    fail         {"from_s", "to_s"}: the same for those that come in that window
    exit_at_s    the server ends
    slots        requests served at a time; the others wait
    model        the only model it knows; default "scripted"
    max_model_len
    log          file that gets one JSON line per load request
    host         address to listen at; default 127.0.0.1

The preflight's probe, told by its lengths, is no load request: it neither starts the clock nor is logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import sys
import time
from typing import Any

from loadtest.replay.negotiation import OUTPUT_TOKENS
from loadtest.replay.preflight import PROBE_PROMPT_TOKENS
from loadtest.supervise import announce_ready, die_with_parent

KEYS = {
    *("service_ms", "first_ms", "gap_ms", "tokens", "freeze", "always", "fail_every", "fail", "exit_at_s"),
    *("slots", "model", "max_model_len", "log", "host"),
}
ALIASES = {"ttft_ms": "service_ms", "tpot_ms": "gap_ms"}


class Script:
    """What the server does, and since when."""

    def __init__(self, settings: dict[str, Any]) -> None:
        settings = {ALIASES.get(key, key): value for key, value in settings.items()}
        unknown = settings.keys() - KEYS
        if unknown:
            raise SystemExit(f"the scripted server does not know {sorted(unknown)}")
        self.settings = settings
        self.slots = asyncio.Semaphore(settings.get("slots", 1_000_000))
        self.first_s: float | None = None
        self.requests = 0

    def failure(self, probe: bool) -> str | int | None:
        """What becomes of the request that has just come; None for an answer."""
        every, window = self.settings.get("fail_every"), self.settings.get("fail")
        if every is None and window is None:
            always: str | int | None = self.settings.get("always")
            return always
        since_s = time.monotonic() - (self.first_s or 0.0)
        now = window is not None and window["from_s"] <= since_s < window["to_s"]
        hit = now or (every is not None and self.requests % every == 0)
        return self.settings.get("always", 500) if hit and not probe else None

    @property
    def service_s(self) -> float:
        """Time to the first token of the load request that has just come."""
        service_ms: float = self.settings.get("service_ms", 0)
        return (self.settings.get("first_ms", service_ms) if self.requests == 1 else service_ms) / 1000

    async def thawed(self) -> None:
        """Wait out the freeze."""
        freeze = self.settings.get("freeze")
        if freeze is None or self.first_s is None:
            return
        now = time.monotonic() - self.first_s
        if freeze["from_s"] <= now < freeze["to_s"]:
            await asyncio.sleep(freeze["to_s"] - now)

    def log(self, body: dict[str, Any]) -> None:
        self.first_s = self.first_s or time.monotonic()
        self.requests += 1
        if "exit_at_s" in self.settings and self.requests == 1:
            asyncio.get_running_loop().call_later(self.settings["exit_at_s"], os._exit, 1)
        if "log" in self.settings:
            line = {"mono_ns": time.monotonic_ns(), "max_tokens": _max_tokens(body), "prompt": _prompt_length(body)}
            with open(self.settings["log"], "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


def _max_tokens(body: dict[str, Any]) -> int:
    return int(body.get("max_completion_tokens", body.get("max_tokens", 1)))


def _prompt_length(body: dict[str, Any]) -> int:
    prompt = body.get("prompt", "")
    return len(prompt) if isinstance(prompt, list) else len(prompt.split())


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, script: Script) -> None:
    """One connection, request after request."""
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while head := await _head(reader):
            line, headers = head
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            if line.startswith("GET"):
                _get(writer, line.split()[1], script)
            elif not await _post(writer, json.loads(body), script):
                break
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


async def _head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]] | None:
    try:
        text = (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return None
    line, *rest = text.split("\r\n")
    pairs = (item.partition(":") for item in rest if item)
    return line, {name.lower(): value.strip() for name, _, value in pairs}


def _get(writer: asyncio.StreamWriter, path: str, script: Script) -> None:
    model = {"id": script.settings.get("model", "scripted"), "object": "model"}
    if "max_model_len" in script.settings:
        model["max_model_len"] = script.settings["max_model_len"]
    known = path.rstrip("/").endswith(("/models", "/health"))
    _answer(writer, 200 if known else 404, {"object": "list", "data": [model]} if known else {"error": "no such page"})


def _answer(writer: asyncio.StreamWriter, status: int, document: dict[str, Any]) -> None:
    body = json.dumps(document).encode()
    head = f"HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)


async def _post(writer: asyncio.StreamWriter, body: dict[str, Any], script: Script) -> bool:
    """Answer; False ends the connection."""
    probe = _is_probe(body)
    if not probe:
        script.log(body)
    always = script.failure(probe)
    if always == "reset":
        handle = writer.get_extra_info("socket")
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False
    if always == "close":
        return False
    if always == "hang":
        await asyncio.sleep(3600)
    if isinstance(always, int):
        _answer(writer, always, {"error": {"message": f"scripted {always}", "type": "scripted"}})
        return True
    service_s = 0.0 if probe else script.service_s
    async with script.slots:
        await _stream(writer, body, script, service_s)
    return True


def _is_probe(body: dict[str, Any]) -> bool:
    return (PROBE_PROMPT_TOKENS, OUTPUT_TOKENS) == (_prompt_length(body), _max_tokens(body))


async def _stream(writer: asyncio.StreamWriter, body: dict[str, Any], script: Script, service_s: float) -> None:
    """Server-sent events, a token each, then the usage and [DONE]."""
    tokens = script.settings.get("tokens", _max_tokens(body))
    chat = "messages" in body
    await asyncio.sleep(service_s)
    await script.thawed()
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for index in range(tokens):
        if index:
            await asyncio.sleep(script.settings.get("gap_ms", 0) / 1000)
            await script.thawed()
        reason = "length" if index == tokens - 1 else None
        piece = {"delta": {"content": " a"}} if chat else {"text": " a"}
        _event(writer, {"choices": [{"index": 0, "finish_reason": reason, **piece}]})
    usage = {"prompt_tokens": _prompt_length(body), "completion_tokens": tokens}
    _event(writer, {"choices": [], "usage": usage})
    _chunk(writer, b"data: [DONE]\n\n")
    writer.write(b"0\r\n\r\n")


def _event(writer: asyncio.StreamWriter, document: dict[str, Any]) -> None:
    _chunk(writer, b"data: " + json.dumps(document).encode() + b"\n\n")


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


async def main(settings: dict[str, Any]) -> None:
    script = Script(settings)
    host = settings.get("host", "127.0.0.1")
    server = await asyncio.start_server(lambda r, w: serve(r, w, script), host, 0, backlog=1024)
    port = server.sockets[0].getsockname()[1]
    announce_ready(url=f"http://127.0.0.1:{port}", model=settings.get("model", "scripted"))
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    die_with_parent()
    asyncio.run(main(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}))
