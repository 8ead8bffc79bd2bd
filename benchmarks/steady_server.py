"""A server for the footprint benchmark: one token every tenth of a second on any number of streams.

`python -m benchmarks.steady_server TOKENS` counts the requests for TOKENS tokens; others are the client's probes.
On SIGTERM it prints one JSON line: when the first counted request came (CLOCK_MONOTONIC, one for all processes),
and how many streams there were in all and at once.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys

from aiohttp import web

from loadtest import clock

STEP_S = 0.1
EVENT = b'data: {"id":"c","object":"text_completion","choices":[{"index":0,"text":" a","finish_reason":%s}]}\n\n'
TOKEN, LAST = EVENT % b"null", EVENT % b'"length"'


class Streams:
    """The counters, and the handlers that move them."""

    def __init__(self, counted_tokens: int) -> None:
        self.counted_tokens = counted_tokens
        self.first_ns: int | None = None
        self.total = self.live = self.peak = 0

    async def models(self, _: web.Request) -> web.Response:
        """One model with room for anything."""
        return web.json_response({"object": "list", "data": [{"id": "steady", "max_model_len": 131072}]})

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """Stream as many tokens as asked for."""
        arrived_ns = clock.monotonic_ns()
        asked = await request.json()
        tokens, prompt = int(asked.get("max_tokens", 16)), asked.get("prompt", "")
        words = len(prompt) if isinstance(prompt, list) else len(str(prompt).split())
        usage = {"prompt_tokens": words, "completion_tokens": tokens, "total_tokens": words + tokens}
        if tokens != self.counted_tokens:
            return await self._stream(request, tokens, usage)
        self.first_ns = self.first_ns or arrived_ns
        self.total, self.live = self.total + 1, self.live + 1
        self.peak = max(self.peak, self.live)
        try:
            return await self._stream(request, tokens, usage)
        finally:
            self.live -= 1

    async def _stream(self, request: web.Request, tokens: int, usage: dict[str, int]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        loop = asyncio.get_running_loop()
        start = loop.time()
        for count in range(1, tokens + 1):
            await asyncio.sleep(start + count * STEP_S - loop.time())
            await response.write(LAST if count == tokens else TOKEN)
        await response.write(b"data: " + json.dumps({"id": "c", "choices": [], "usage": usage}).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response


async def serve(counted_tokens: int) -> None:
    """Listen on a free port of the loopback, say which, and count until SIGTERM."""
    streams = Streams(counted_tokens)
    app = web.Application()
    app.router.add_get("/v1/models", streams.models)
    app.router.add_post("/v1/completions", streams.complete)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    await web.SockSite(runner, listener).start()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    say({"url": f"http://127.0.0.1:{listener.getsockname()[1]}"})
    await stop.wait()
    say({"first_ns": streams.first_ns, "total": streams.total, "peak": streams.peak})


def say(document: dict[str, object]) -> None:
    """One JSON line for the parent."""
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
