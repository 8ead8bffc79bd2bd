"""A TCP relay for tests, run as a program: `python -m tests.swarm.slow_way PORT '{"delay_ms": 30}'`.

What a long and lossy way looks like to TCP's users: every piece comes `delay_ms` later, and one in `stall_every`
pieces, with all that follow it, `stall_ms` later still.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys

from loadtest.supervise import announce_ready, die_with_parent


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: dict[str, int]) -> None:
    """Pieces in order, each not before its time."""
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def write() -> None:
        while True:
            due, data = await queue.get()
            await asyncio.sleep(max(due - loop.time(), 0))
            if not data:
                writer.close()
                return
            writer.write(data)

    task = asyncio.create_task(write())
    held = 0.0
    for number in itertools.count(1):
        try:
            data = await reader.read(65536)
        except OSError:
            data = b""
        if number % way.get("stall_every", 1 << 60) == 0:
            held = loop.time() + way["stall_ms"] / 1000
        await queue.put((max(loop.time() + way["delay_ms"] / 1000, held), data))
        if not data:
            break
    await task


async def main(port: int, way: dict[str, int]) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, back, way), pump(there, writer, way), return_exceptions=True)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    announce_ready(port=server.sockets[0].getsockname()[1])
    await server.serve_forever()


if __name__ == "__main__":
    die_with_parent()
    asyncio.run(main(int(sys.argv[1]), json.loads(sys.argv[2])))
