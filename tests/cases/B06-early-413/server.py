"""A proxy with a body limit of 1 MiB: its 413 comes while the body is still on its way."""

from __future__ import annotations

import asyncio
import contextlib

from tests.cases.kinds._server import Exchange

LIMIT = 2**20
PAGE = "<html><body><center><h1>413 Request Entity Too Large</h1></center><hr><center>nginx</center></body></html>"


async def answer(exchange: Exchange, end: str) -> None:
    """`linger` reads on for a while after the 413 (nginx), `abrupt` resets at once."""
    if exchange.length <= LIMIT:
        return await exchange.stream()
    await exchange.head(413, "Content-Type: text/html", f"Content-Length: {len(PAGE)}", "Connection: close")
    await exchange.say(PAGE.encode())
    if end == "abrupt":
        return exchange.writer.transport.abort()
    exchange.writer.write_eof()
    with contextlib.suppress(TimeoutError, OSError):
        async with asyncio.timeout(2):
            while await exchange.reader.read(2**16):
                pass
    return exchange.writer.close()
