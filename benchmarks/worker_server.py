"""A server of a few workers, each of which serves one connection at a time, as gunicorn's sync workers do.

    python -m benchmarks.worker_server WORKERS KEEP_S TTFT_MS GAP_MS

With KEEP_S = 0 a worker closes after each answer; else it waits that long on the connection for another request,
as llama.cpp's HTTP threads do. Prints its port.
"""

from __future__ import annotations

import contextlib
import re
import socket
import sys
import threading

from benchmarks.targets import say
from loadtest import clock

MODELS = b'{"object":"list","data":[{"id":"m","object":"model"}]}'
PATIENCE_S = 30.0  # gunicorn's --timeout


def main() -> int:
    """Serve until killed."""
    workers, keep_s, ttft_ms, gap_ms = (float(word) for word in sys.argv[1:])
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    say(str(listener.getsockname()[1]))
    threads = [
        threading.Thread(target=_work, args=(listener, keep_s, ttft_ms / 1e3, gap_ms / 1e3))
        for _ in range(int(workers))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 0


def _work(listener: socket.socket, keep_s: float, ttft_s: float, gap_s: float) -> None:
    while True:
        sock, _ = listener.accept()
        with contextlib.suppress(OSError), sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(PATIENCE_S)
            while request := _read(sock):
                _answer(sock, request, keep_s, ttft_s, gap_s)
                if not keep_s:
                    break
                sock.settimeout(keep_s)


def _read(sock: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(65536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: *(\d+)", head.lower())
    left = int(length[1]) - len(body) if length else 0
    while left > 0:
        piece = sock.recv(65536)
        body, left = body + piece, left - len(piece)
    return head + b"\r\n\r\n" + body


def _answer(sock: socket.socket, request: bytes, keep_s: float, ttft_s: float, gap_s: float) -> None:
    kept = b"" if keep_s else b"Connection: close\r\n"
    if request.startswith(b"GET"):
        sock.sendall(
            b"HTTP/1.1 200 OK\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
            % (kept, len(MODELS), MODELS)
        )
        return
    asked = re.search(rb'"max_tokens":(\d+)', request)
    clock.sleep(ttft_s)
    head = b"HTTP/1.1 200 OK\r\n%sContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" % kept
    for number in range(int(asked[1]) if asked else 1):
        if number:
            clock.sleep(gap_s)
        sock.sendall(head + _chunk(b'{"choices":[{"index":0,"text":" a","finish_reason":null}]}'))
        head = b""
    end = _chunk(b'{"choices":[{"index":0,"text":"","finish_reason":"length"}]}')
    sock.sendall(end + _chunk(b"[DONE]") + b"0\r\n\r\n")


def _chunk(data: bytes) -> bytes:
    event = b"data: " + data + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(event), event)


if __name__ == "__main__":
    sys.exit(main())
