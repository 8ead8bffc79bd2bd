"""A master, its workers and a server as real processes, each worker with a disk of its own; what became of each row.

Every request has a prompt of a length of its own, so the server's log tells which of them arrived, and how often.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from loadtest import clock
from loadtest.supervise import Server, python_module
from metrics import rundir
from metrics.records import Outcome, Rows

ROOT = Path(__file__).parents[2]
FIRST_LENGTH = 100
PATIENCE_S = 100.0

# The constants a test may shorten, so that it need not wait as long as a real network deserves. Drawing the page takes
# two seconds of a core and tells nothing here that summary.json, which it is made from, does not.
WORKER = """
import sys
import loadtest.swarm.remote as remote
remote.MASTER_SILENCE_NS = int(float(sys.argv[1]) * 1e9)
from loadtest.cli.main import main
main(["worker", *sys.argv[2:]])
"""
MASTER = """
import sys
import loadtest.swarm.coordinator as coordinator
import reports.page
coordinator.LIVENESS_NS = int(float(sys.argv[1]) * 1e9)
if sys.argv.pop(2) == "undrawn":
    reports.page.render_html = lambda _: ""
from loadtest.cli.main import main
main(["run", *sys.argv[2:]])
"""


class Crew:
    """Starts them, hurts them, and counts."""

    def __init__(self, folder: Path, *, rate: int = 60, seconds: float = 4.0, host: str = "127.0.0.1") -> None:
        self.folder = folder
        self.planned = int(rate * seconds)
        self.run = folder / "run"
        self.token = folder / "token"
        self.token.write_text("the-secret-of-this-crew")
        self.port = free_port()
        self._host = host
        self._arrivals = folder / "arrivals.jsonl"
        self._processes: list[subprocess.Popen[str]] = []
        row = '{{"timestamp": {}, "input_length": {}, "output_length": 2}}\n'
        (folder / "trace.jsonl").write_text(
            "".join(row.format(1000 * i // rate, FIRST_LENGTH + i) for i in range(self.planned))
        )
        script = {"service_ms": 200, "log": str(self._arrivals), "host": "0.0.0.0"}
        self.server = Server(
            python_module("tests.load_server", json.dumps(script)), log=folder / "s.log", env={"PYTHONPATH": str(ROOT)}
        ).start()

    def close(self) -> None:
        """End whatever is left."""
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.communicate()
        self.server.stop()

    def master(self, workers: int, *words: str, silence_s: float = 10.0, drawn: bool = False) -> subprocess.Popen[str]:
        """`goodput run --master`, to which a worker is lost after `silence_s`; it draws its page only when asked."""
        url = self.server.url.replace("127.0.0.1", self._host)
        return self._spawn(
            [sys.executable, "-P", "-c", MASTER, str(silence_s), "drawn" if drawn else "undrawn"],
            ["--target", url, "--trace", str(self.folder / "trace.jsonl")],
            ["--master", "--expect-workers", str(workers), "--master-bind", f"0.0.0.0:{self.port}"],
            ["--token-file", str(self.token), "--out", str(self.run), *words],
        )

    def worker(self, *prefix: str, silence_s: float = 60.0, wait: str = "60s") -> subprocess.Popen[str]:
        """`goodput worker`, after `prefix` (as in `ip netns exec NAME`)."""
        name = f"w{len(self._processes)}"
        return self._spawn(
            [*prefix, sys.executable, "-P", "-c", WORKER, str(silence_s)],
            ["--master-host", self._host, "--master-port", str(self.port), "--wait", wait],
            ["--token-file", str(self.token), "--out", str(self.folder / name)],
        )

    def _spawn(self, *words: list[str]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [word for part in words for word in part],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        return process

    def await_arrivals(self, count: int) -> None:
        """Until the server has seen so many requests."""
        await_true(lambda: len(self.arrived()) >= count, "the load did not start")

    def arrived(self) -> list[int]:
        """The requests that reached the server, by number, in the order of their arrival."""
        lines = self._arrivals.read_text().splitlines() if self._arrivals.exists() else []
        return [msgspec.json.decode(line)["prompt"] - FIRST_LENGTH for line in lines]

    def rows(self) -> Rows:
        return rundir.load(self.run).table.rows

    def workers_folders(self) -> list[Path]:
        """Where the workers keep their journals."""
        return sorted(self.folder.glob("w*/*_worker-*"))

    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.json.decode((self.run / "summary.json").read_bytes())
        return found

    def findings(self) -> set[str]:
        """Codes of what the report has against the run."""
        return {finding["code"] for finding in self.summary()["validity"]["findings"]}

    def account(self) -> dict[str, int]:
        """Counts by outcome, after checking that every planned request is there once and none was sent twice.

        Printed before (`pytest -m faults -rP`): docs/distributed.md has the table.
        """
        rows, arrived = self.rows(), self.arrived()
        twice = len(arrived) - len(set(arrived))
        print(f"planned {self.planned}, accounted {len(rows)}, reached the server {len(arrived)}, twice {twice}")
        assert list(range(self.planned)) == rows["request_id"].tolist()
        assert len(arrived) == len(set(arrived)), "a request was sent twice"
        ok = rows["request_id"][rows["outcome"] == Outcome.OK].tolist()
        assert set(ok) <= set(arrived)
        values, counts = np.unique(rows["outcome"], return_counts=True)
        outcomes = {Outcome(value).name: int(count) for value, count in zip(values, counts, strict=True)}
        print(outcomes)
        return outcomes


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code and stderr, once it ends by itself."""
    _, errors = process.communicate(timeout=PATIENCE_S)
    return process.returncode, errors


def await_true(condition: Any, otherwise: str) -> None:
    """Look every 20 ms, for as long as a slow machine may need."""
    give_up = clock.monotonic_ns() + int(PATIENCE_S * 1e9)
    while not condition():
        assert clock.monotonic_ns() < give_up, otherwise
        clock.sleep(0.02)


def free_port() -> int:
    """A port that nobody has now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
