"""The C server that logs the true send time of every token: build it, run it on a CPU of its own, read its log."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
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
    """A running mock; `collect` writes and reads its log and empties it.

    `url` is its https side when it was started with TLS, whose certificate is in `ca_file`.
    """

    url: str
    plain_url: str
    log: Path
    ca_file: Path | None = None

    def collect(self) -> list[Truth]:
        """Every request since the last call, by time of arrival."""
        with urllib.request.urlopen(f"{self.plain_url}/__dump", timeout=60):
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
def build(*, tls: bool = False) -> Path:
    """Compile the server once; SystemExit with a sentence when there is no compiler, or no OpenSSL for `tls`."""
    if shutil.which("gcc") is None:
        raise SystemExit("bench: the mock server is written in C and there is no gcc to compile it with")
    folder = tempfile.mkdtemp(prefix="goodput-mock-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    binary = Path(folder) / "mock_server"
    command = ["gcc", "-O2", "-w", *(["-DTLS"] if tls else []), "-o", str(binary), str(SOURCE), "-lm"]
    done = subprocess.run([*command, *(["-lssl", "-lcrypto"] if tls else [])], capture_output=True, text=True)
    if done.returncode:
        hint = "; TLS needs OpenSSL's headers (libssl-dev)" if tls else ""
        raise SystemExit(f"bench: the mock server did not compile{hint}: {done.stderr[:300]}")
    return binary


@contextmanager
def mock_server(*options: str, cpu: int, tls: bool = False) -> Iterator[MockServer]:
    """The server with `options`, pinned to one CPU."""
    port, tls_port = _free_ports(2)
    with tempfile.TemporaryDirectory() as folder:
        log, cert = Path(folder) / "truth.bin", Path(folder) / "cert.pem"
        command = [*pinned(cpu), str(build(tls=tls)), "--port", str(port), "--log", str(log), *options]
        plain = f"http://127.0.0.1:{port}"
        server = MockServer(plain, plain, log)
        if tls:
            key = _certificate(cert)
            command += ["--tls-port", str(tls_port), "--tls-cert", str(cert), "--tls-key", str(key)]
            server = MockServer(f"https://127.0.0.1:{tls_port}", plain, log, cert)
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                _wait(port)
                yield server
            finally:
                process.kill()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        return [held.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(count)]


def _certificate(cert: Path) -> Path:
    """A self-signed one on an elliptic curve, as servers have them today; the path of its key."""
    key = cert.with_suffix(".key")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return key


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
