"""Disaggregated serving of the engine: what the link adds to the second token, and how soon it is whole after a death.

link     prompts alone, through `goodput run`: gap between first and second token less an ordinary token gap
deaths   kill -9 of a worker, of both, of one just replaced, and a stopped one, amid requests: until one is answered
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from benchmarks.targets import Target, conclude, say
from loadtest import clock
from loadtest.backends.server import command
from loadtest.supervise import Server, python_module
from metrics import rundir

RATES_GBPS = (0.5, 2.0, 8.0)
PROMPT, OUTPUT, PROMPTS, EVERY_S = 1500, 8, 6, 2.5
CLIENTS, RECOVERY_S = 40, 5.0
BODY = {"prompt": [300] * 60, "max_tokens": 60, "ignore_eos": True}


def main() -> int:
    """Measure both, judge recovery and that layers overlap."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--only", choices=("link", "deaths"))
    options = parser.parse_args()
    targets: list[Target] = []
    with TemporaryDirectory(prefix="goodput-handover-") as scratch:
        if options.only != "deaths":
            targets += links(options.model, Path(scratch))
        if options.only != "link":
            targets += deaths(options.model, Path(scratch))
    return conclude("handover", targets)


@contextmanager
def served(model: str, folder: Path, more: str = "") -> Iterator[Server]:
    """One prefill and one decode worker with a thread each."""
    text = f"torch:disaggregated,model={model},threads=1{more}"
    with Server(command(text), log=folder / "server.log", ready_timeout_s=120) as server:
        yield server


def links(model: str, folder: Path) -> list[Target]:
    """The overhead at each rate, serial and layer by layer."""
    trace = folder / "alone.jsonl"
    row = '{{"timestamp": {}, "input_length": {}, "output_length": {}}}\n'
    trace.write_text("".join(row.format(round(1000 * EVERY_S * n), PROMPT, OUTPUT) for n in range(PROMPTS)))
    found: dict[tuple[float, str], float] = {}
    for gbps in RATES_GBPS:
        for mode in ("serial", "layerwise"):
            with served(model, folder, f",kv_link_gbps={gbps},kv_transfer={mode}") as server:
                found[gbps, mode] = overhead_ms(server.url, trace, folder / f"{gbps}-{mode}")
            say(f"{gbps:g} Gb/s {mode}: second token {found[gbps, mode]:.1f} ms later than any other")
    return [
        Target(f"{gbps:g} Gb/s: layerwise over serial", found[gbps, "layerwise"] / found[gbps, "serial"], 1.0, "x")
        for gbps in RATES_GBPS[:2]
    ]


def overhead_ms(url: str, trace: Path, out: Path) -> float:
    """Median over requests of second gap minus the median of the later ones; the first request is not counted."""
    words = ["run", "--target", url, "--trace", str(trace), "--workers", "2", "--out", str(out), "--json"]
    done = subprocess.run(python_module("loadtest.cli.main", *words), capture_output=True, text=True, check=False)
    if not (out / rundir.RECORDS).exists():
        raise SystemExit(f"bench: goodput run ended with {done.returncode}: {done.stderr[-800:]}")
    events = rundir.load(out).table.events
    assert events is not None
    gaps = [np.diff(events.us[a:b]) * 1e-3 for a, b in zip(events.start[1:-1], events.start[2:], strict=True)]
    return median(float(each[0] - np.median(each[1:])) for each in gaps)


def deaths(model: str, folder: Path) -> list[Target]:
    """Seconds until the server is whole again, after each kind of loss."""
    targets = []
    with served(model, folder) as server:
        for name, (deaths_of_it, blow) in LOSSES.items():
            until(lambda: call(server, "GET", "/health")[0] == 200)
            clock.sleep(5.0)  # spares have imported torch by then
            seconds, outcomes = recovery(server, deaths_of_it, blow)
            say(f"{name}: whole again after {seconds:.1f} s; {dict(outcomes)}")
            targets.append(Target(f"{name}: recovery", seconds, RECOVERY_S, "s"))
            targets.append(Target(f"{name}: clients without an answer", float(CLIENTS - outcomes.total()), 0.0, ""))
            until(lambda: held(server) == 0)
            targets.append(Target(f"{name}: blocks held afterwards", float(held(server)), 0.0, ""))
    return targets


def recovery(server: Server, lost: int, blow: Callable[[Server], None]) -> tuple[float, Counter[str]]:
    """Strike amid requests; seconds until `lost` workers are replaced, and what became of the requests."""
    expected = starts(server) + lost
    outcomes: Counter[str] = Counter()
    clients = [threading.Thread(target=lambda: outcomes.update([ask(server)])) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    clock.sleep(0.5)
    blow(server)
    struck = clock.monotonic_ns()
    until(lambda: starts(server) == expected)
    seconds = (clock.monotonic_ns() - struck) * 1e-9
    until(lambda: ask(server, 2) == "whole")
    for client in clients:
        client.join()
    return seconds, outcomes


def starts(server: Server) -> int:
    """How often a worker has begun, of those that are there now; 0 while one is missing."""
    healthy = call(server, "GET", "/health")[0] == 200
    return sum(worker["starts"] for worker in config(server)["workers"]) if healthy else 0


def ask(server: Server, tokens: int = 60) -> str:
    """One request; what became of it."""
    status, answer = call(server, "POST", "/v1/completions", {**BODY, "max_tokens": tokens})
    if status == 200:
        return "whole" if json.loads(answer)["usage"]["completion_tokens"] == tokens else "short"
    return f"http {status}"


def strike(*roles: str, number: signal.Signals = signal.SIGKILL) -> Callable[[Server], None]:
    """Send a signal to the workers with these roles."""

    def blow(server: Server) -> None:
        pids = {worker["role"]: worker["pid"] for worker in config(server)["workers"]}
        for role in roles:
            os.kill(pids[role], number)

    return blow


def twice(role: str) -> Callable[[Server], None]:
    """Kill it, and its successor as soon as that is ready."""

    def blow(server: Server) -> None:
        once = starts(server) + 1
        strike(role)(server)
        until(lambda: starts(server) == once)
        strike(role)(server)

    return blow


LOSSES = {
    "prefill killed": (1, strike("prefill")),
    "decode killed": (1, strike("decode")),
    "both killed": (2, strike("prefill", "decode")),
    "decode killed twice": (2, twice("decode")),
    "decode stopped": (1, strike("decode", number=signal.SIGSTOP)),
}


def config(server: Server) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(call(server, "GET", "/ref/config")[1])
    return found


def held(server: Server) -> int:
    """KV blocks in use, of all workers."""
    return sum(levels["used_blocks"] for levels in config(server)["levels"].values())


def call(server: Server, method: str, path: str, body: object = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=100)
    headers = {"Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    return response.status, answer


def until(holds: Callable[[], bool], limit_s: float = 60.0) -> None:
    """Look again and again; SystemExit when it does not come."""
    ends = clock.monotonic_ns() + int(limit_s * 1e9)
    while not holds():
        if clock.monotonic_ns() > ends:
            raise SystemExit("bench: the server did not recover")
        clock.sleep(0.02)


if __name__ == "__main__":
    raise SystemExit(main())
