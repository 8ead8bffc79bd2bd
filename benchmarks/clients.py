"""Other ways to read the same streams, each a whole client in a process of its own.

    python -m benchmarks.clients KIND URL TRACE OUT

`bare` is the floor: epoll and recvmsg with kernel stamps and nothing else, no parsing but counting newlines.
`aiohttp` and `httpx` are what one writes with them by hand: a task per request, JSON per event, the loop's clock.
All send the rows of TRACE at their instants and write `sent_ns`, `start`, `at_ns` and CPU seconds to OUT.
"""

from __future__ import annotations

import asyncio
import csv
import json
import select
import socket
import struct
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from loadtest import clock

START_S = 0.5


class Ask(NamedTuple):
    """One request of the trace."""

    at_s: float
    prompt: list[int]
    tokens: int

    @property
    def document(self) -> dict[str, Any]:
        return {"prompt": self.prompt, "max_tokens": self.tokens, "stream": True, "ignore_eos": True}


class Seen(NamedTuple):
    """When the client sent, and when it says that each token came."""

    sent_ns: list[int]
    tokens_ns: list[list[int]]


def main() -> int:
    """Run one client and write what it saw."""
    kind, url, trace, out = sys.argv[1:]
    with open(trace, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    asks = [
        Ask(float(r["arrived_at"]), [256] * int(r["num_prefill_tokens"]), int(r["num_decode_tokens"])) for r in rows
    ]
    before = clock.process_cpu_s()
    seen = CLIENTS[kind](url, asks)
    cpu_s = clock.process_cpu_s() - before
    start = np.concatenate([[0], np.cumsum([len(tokens) for tokens in seen.tokens_ns])])
    at_ns = np.concatenate([np.array(tokens, dtype=np.int64) for tokens in seen.tokens_ns])
    np.savez(Path(out), sent_ns=np.array(seen.sent_ns), start=start, at_ns=at_ns, cpu_s=cpu_s)
    return 0


# --- the floor -------------------------------------------------------------------------------------------------------


def bare(url: str, asks: list[Ask]) -> Seen:
    """Epoll, recvmsg, a stamp per read; an event is a `data:` in a read."""
    address = urlsplit(url)
    offset = clock.realtime_minus_monotonic_ns()
    seen = Seen([0] * len(asks), [[] for _ in asks])
    socks, owner, epoll = [], {}, select.epoll()
    for index in range(len(asks)):
        sock = socket.create_connection((address.hostname, address.port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, 35, 1)
        sock.setblocking(False)
        epoll.register(sock.fileno(), select.EPOLLIN)
        owner[sock.fileno()] = (sock.recvmsg, seen.tokens_ns[index])
        socks.append(sock)
    requests = [_request(ask) for ask in asks]
    t0, following, open_ = clock.monotonic_ns() + int(START_S * 1e9), 0, len(asks)
    while open_:
        now = clock.monotonic_ns()
        while following < len(asks) and t0 + asks[following].at_s * 1e9 <= now:
            seen.sent_ns[following] = clock.monotonic_ns()
            socks[following].send(requests[following])
            following += 1
        for fd, _ in epoll.poll(0.001):
            receive, tokens = owner[fd]
            data, ancillary, _, _ = receive(65536, 32)
            second, part = struct.unpack("@qq", ancillary[0][2]) if ancillary else divmod(clock.realtime_ns(), 10**9)
            at = second * 1_000_000_000 + part - offset
            events = data.count(b'"text":')
            tokens.extend([at] * events)
            if data.endswith(b"0\r\n\r\n"):
                epoll.unregister(fd)
                open_ -= 1
    return seen


def _request(ask: Ask) -> bytes:
    body = json.dumps(ask.document).encode()
    return b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


# --- clients by hand -------------------------------------------------------------------------------------------------

One = Callable[[Ask, list[int]], Coroutine[Any, Any, int]]


def with_aiohttp(url: str, asks: list[Ask]) -> Seen:
    """aiohttp without its connection limit, lines of the body as they come."""
    import aiohttp

    async def run() -> Seen:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(None)) as session:

            async def one(ask: Ask, tokens: list[int]) -> int:
                sent = clock.monotonic_ns()
                async with session.post(f"{url}/v1/completions", json=ask.document) as response:
                    async for line in response.content:
                        _note(line, tokens)
                return sent

            return await _all(asks, one)

    return asyncio.run(run())


def with_httpx(url: str, asks: list[Ask]) -> Seen:
    """httpx without limits and time-outs."""
    import httpx  # type: ignore[import-not-found, unused-ignore]  # only in the interpreter that --httpx names

    async def run() -> Seen:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(limits=limits, timeout=None) as client:

            async def one(ask: Ask, tokens: list[int]) -> int:
                sent = clock.monotonic_ns()
                async with client.stream("POST", f"{url}/v1/completions", json=ask.document) as response:
                    async for line in response.aiter_lines():
                        _note(line.encode(), tokens)
                return sent

            return await _all(asks, one)

    return asyncio.run(run())


def _note(line: bytes, tokens: list[int]) -> None:
    if line.startswith(b"data: {") and json.loads(line[6:])["choices"][0]["text"]:
        tokens.append(clock.monotonic_ns())


async def _all(asks: list[Ask], one: One) -> Seen:
    seen = Seen([0] * len(asks), [[] for _ in asks])
    t0 = clock.monotonic_ns() + int(START_S * 1e9)

    async def at_its_instant(index: int) -> None:
        await asyncio.sleep((t0 + asks[index].at_s * 1e9 - clock.monotonic_ns()) / 1e9)
        seen.sent_ns[index] = await one(asks[index], seen.tokens_ns[index])

    await asyncio.gather(*map(at_its_instant, range(len(asks))))
    return seen


CLIENTS: dict[str, Callable[[str, list[Ask]], Seen]] = {"bare": bare, "aiohttp": with_aiohttp, "httpx": with_httpx}


if __name__ == "__main__":
    sys.exit(main())
