"""The C server that logs the true send time of every token: build it, run it on a CPU of its own, read its log."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from loadtest import clock

SOURCE = Path(__file__).parent / "mock_server.c"
_HEADER_WORDS = 8


@dataclass(frozen=True)
class Truth:
    """One request as the server saw it, CLOCK_MONOTONIC nanoseconds: the kernel's receive stamp, each token's send."""

    received_ns: int
    status: int
    tokens_ns: NDArray[np.int64]


@dataclass
class MockServer:
    """A running mock; `collect` writes and reads its log and empties it."""

    url: str
    log: Path

    def collect(self) -> list[Truth]:
        """Every request since the last call, by time of arrival."""
        with urllib.request.urlopen(f"{self.url}/__dump", timeout=60):
            return sorted(read_log(self.log), key=lambda truth: truth.received_ns)


def read_log(path: Path) -> list[Truth]:
    """Requests in the log: eight 64-bit words of header, then a send time per token."""
    words = np.fromfile(path, dtype=np.uint64)
    found, at = [], 0
    while at + _HEADER_WORDS <= len(words):
        header = words[at : at + _HEADER_WORDS]
        sent = int(header[3]) & 0xFFFF_FFFF
        at += _HEADER_WORDS
        found.append(Truth(int(header[0]), int(header[6]) >> 32, words[at : at + sent].astype(np.int64)))
        at += sent
    return found


@cache
def build() -> Path:
    """Compile the server once; SystemExit with a sentence when there is no compiler."""
    if shutil.which("gcc") is None:
        raise SystemExit("bench: the mock server is written in C and there is no gcc to compile it with")
    binary = Path(tempfile.mkdtemp(prefix="goodput-mock-")) / "mock_server"
    subprocess.run(["gcc", "-O2", "-w", "-o", binary, SOURCE, "-lm"], check=True)
    return binary


@contextmanager
def mock_server(*options: str, cpu: int) -> Iterator[MockServer]:
    """The server with `options`, pinned to one CPU."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "truth.bin"
        command = [*pinned(cpu), str(build()), "--port", str(port), "--log", str(log), *options]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                _wait(port)
                yield MockServer(f"http://127.0.0.1:{port}", log)
            finally:
                process.kill()


def pinned(cpu: int) -> list[str]:
    """The command prefix that keeps a process on one CPU, where the machine has more than one."""
    available = sorted(os.sched_getaffinity(0))
    return ["taskset", "-c", str(available[cpu % len(available)])] if len(available) > 1 else []


def _wait(port: int) -> None:
    for _ in range(500):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            clock.sleep(0.01)
        else:
            return
    raise SystemExit("bench: the mock server did not come up")
