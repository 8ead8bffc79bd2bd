"""Servers of one, two and four workers, each serving one connection at a time: TTFT beside a plain client's.

The plain client opens a connection for each request and closes it after the answer, as `requests` without a session
does. Both replay the same rows against the same server: one whose workers close after each answer (gunicorn sync), and
one whose workers wait on a kept connection (llama.cpp's HTTP threads).
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.targets import Target, conclude, say
from loadtest import clock
from metrics import rundir
from metrics.latency import ttft_s

TTFT_MS, GAP_MS, TOKENS = 20, 5, 6  # 45 ms of work
KEPT_S = 5.0
SHARE = 0.5  # of what the workers can serve
ALLOWED_MS = 5.0
START_S = 0.3


def main() -> int:
    """Interleaved rounds; medians of the mean and the 90th percentile of TTFT."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=150)
    parser.add_argument("--workers", default="1,2,4")
    options = parser.parse_args()
    targets = []
    for workers in map(int, options.workers.split(",")):
        due_s = _instants(workers, options.requests)
        for name, keep_s in (("sync", 0.0), ("kept", KEPT_S)):
            found: dict[str, list[tuple[float, float]]] = {"plain": [], "ours": []}
            for _ in range(options.rounds):
                for client, measure in (("plain", _plain), ("ours", _ours)):
                    with _server(workers, keep_s) as port:
                        ttft_ms = measure(port, due_s)
                    found[client].append((float(ttft_ms.mean()), float(np.percentile(ttft_ms, 90))))
            mean, p90 = (
                {client: statistics.median(figures[i] for figures in rounds) for client, rounds in found.items()}
                for i in range(2)
            )
            say(f"{workers} workers {name}: TTFT mean {mean}, p90 {p90} ms")
            targets.append(
                Target(f"ttft_mean_above_plain_ms.{name}.{workers}", mean["ours"] - mean["plain"], ALLOWED_MS, "ms")
            )
            targets.append(
                Target(f"ttft_p90_above_plain_ms.{name}.{workers}", p90["ours"] - p90["plain"], ALLOWED_MS, "ms")
            )
    return conclude("workers", targets)


def _instants(workers: int, requests: int) -> list[float]:
    """Poisson arrivals at SHARE of what `workers` can serve."""
    rate = SHARE * workers * 1e3 / (TTFT_MS + GAP_MS * (TOKENS - 1))
    gaps = np.random.default_rng(7).exponential(1 / rate, requests)
    return [round(float(at), 4) for at in np.cumsum(gaps)]


@contextmanager
def _server(workers: int, keep_s: float) -> Iterator[int]:
    command = [sys.executable, "-m", "benchmarks.worker_server", *map(str, (workers, keep_s, TTFT_MS, GAP_MS))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


def _ours(port: int, due_s: list[float]) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        trace, out = Path(folder) / "trace.csv", Path(folder) / "run"
        rows = (f"{at - due_s[0]:.4f},16,{TOKENS}" for at in due_s)
        trace.write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens", *rows]) + "\n")
        command = [sys.executable, "-P", "-m", "loadtest.cli.main", "run", "--target", f"http://127.0.0.1:{port}"]
        command += ["--trace", str(trace), "--out", str(out), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not (out / "records.npz").exists():
            raise SystemExit(f"bench: goodput run ended with {done.returncode}: {done.stderr[-500:]}")
        say(f"  ours: {json.loads(done.stdout)['connections']}")
        return ttft_s(rundir.load(out).table.rows) * 1e3


def _plain(port: int, due_s: list[float]) -> np.ndarray:
    found = np.zeros(len(due_s))
    t0_ns = clock.monotonic_ns() + int(START_S * 1e9)

    def ask(row: int, due_ns: int) -> None:
        body = b'{"model":"m","prompt":"a","max_tokens":%d,"stream":true}' % TOKENS
        head = b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(
            body
        )
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(head + body)
            data = b""
            while b'"text":" a"' not in data:
                data += sock.recv(65536)
            found[row] = (clock.monotonic_ns() - due_ns) / 1e6
            while b"0\r\n\r\n" not in data[-5:]:
                data = sock.recv(65536)

    threads = []
    for row, at in enumerate(due_s):
        due_ns = t0_ns + int((at - due_s[0]) * 1e9)
        clock.sleep(max((due_ns - clock.monotonic_ns()) / 1e9, 0.0))
        threads.append(threading.Thread(target=ask, args=(row, due_ns)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    return found


if __name__ == "__main__":
    sys.exit(main())
