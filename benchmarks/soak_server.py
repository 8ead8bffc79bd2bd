"""A server for the soak benchmark: streams at ten tokens a second, resets some of them, notes every body that came.

`python -m benchmarks.soak_server NOTES TOKENS RESET_SHARE SEED` appends a line with the digest of its body for each
request for TOKENS tokens (others are the client's probes) to the file NOTES, and prints its URL as one JSON line.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import socket
import struct
import sys
from pathlib import Path
from typing import TextIO

import numpy as np

from loadtest.supervise import die_with_parent

STEP_S = 0.1
MODELS = b'{"object":"list","data":[{"id":"soak","max_model_len":131072}]}'
TOKEN = b'data: {"choices":[{"index":0,"text":" a","finish_reason":null}]}\n\n'
LAST = TOKEN.replace(b"null", b'"length"')
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class SoakServer:
    """Its settings, its notes and its chance."""

    def __init__(self, notes: TextIO, tokens: int, reset_share: float, rng: np.random.Generator) -> None:
        self._notes, self._tokens, self._reset_share, self._rng = notes, tokens, reset_share, rng

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, request after request."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
                body = await reader.readexactly(int(length or 0))
                if not body:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(MODELS), MODELS))
                elif not await self._answer(writer, body):
                    break
        with contextlib.suppress(OSError):
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, body: bytes) -> bool:
        """Stream as many tokens as asked for; False after a reset."""
        asked = json.loads(body)
        tokens, prompt = int(asked.get("max_tokens", 1)), asked.get("prompt", "")
        counted = tokens == self._tokens
        ends_at = tokens + 1
        if counted:
            self._notes.write(hashlib.sha1(body, usedforsecurity=False).hexdigest() + "\n")
            self._notes.flush()
            if self._rng.random() < self._reset_share:
                ends_at = int(self._rng.integers(1, tokens + 1))
        writer.write(STREAM)
        loop = asyncio.get_running_loop()
        start = loop.time()
        for count in range(1, tokens + 1):
            if counted:
                await asyncio.sleep(start + count * STEP_S - loop.time())
            if count == ends_at:
                handle = writer.get_extra_info("socket")
                handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
            _chunk(writer, LAST if count == tokens else TOKEN)
            await writer.drain()
        words = len(prompt) if isinstance(prompt, list) else len(str(prompt).split())
        usage = {"prompt_tokens": words, "completion_tokens": tokens, "total_tokens": words + tokens}
        _chunk(writer, b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
        _chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        return True


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


async def run(server: SoakServer) -> None:
    """Listen on a free port of the loopback, say which, and serve until killed."""
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0, backlog=4096)
    port = listening.sockets[0].getsockname()[1]
    sys.stdout.write(json.dumps({"url": f"http://127.0.0.1:{port}"}) + "\n")
    sys.stdout.flush()
    await listening.serve_forever()


if __name__ == "__main__":
    die_with_parent()
    with Path(sys.argv[1]).open("a", encoding="ascii") as notes:
        chance = np.random.default_rng(int(sys.argv[4]))
        asyncio.run(run(SoakServer(notes, int(sys.argv[2]), float(sys.argv[3]), chance)))
