"""Machines with a network between them: namespaces where the system allows it, a slow relay everywhere.

Delay and loss are the kernel's (netem) and, as most small kernels lack that, those of a cable of ours.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import pytest

from loadtest import clock
from loadtest.errors import TargetError
from loadtest.supervise import Server, python_module
from tests.swarm.crew import FIRST_LENGTH, ROOT, Crew, end

pytestmark = [pytest.mark.live, pytest.mark.faults]


def ip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


# Tests that run at one time have networks of their own.
NET = 213 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))


class Host:
    """A namespace with one cable to us: we are `10.NET.N.1`, it is `10.NET.N.2`."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = f"goodput-{os.getpid()}-{number}"
        self.cable = f"gp{os.getpid() % 100000}x{number}"
        self.prefix = ("ip", "netns", "exec", self.name)
        self._carrier: Server | None = None

    def build(self, folder: Path, way: dict[str, float] | None = None) -> str:
        """Set it up, with a cable of ours when there is a `way`; why that is not possible, else nothing."""
        inside, net = f"{self.cable}i", f"10.{NET}.{self.number}"
        cable = ("link", "add", self.cable, "type", "veth", "peer", "name", inside)
        if way is not None:
            argv = python_module("tests.swarm.cable", self.cable, inside, json.dumps(way))
            self._carrier = Server(argv, log=folder / f"{self.cable}.log", env={"PYTHONPATH": str(ROOT)})
            try:
                self._carrier.start()
            except TargetError as error:
                return error.message
            cable = ("link", "show", self.cable)
        steps = (
            cable,
            ("netns", "add", self.name),
            ("link", "set", inside, "netns", self.name),
            ("addr", "add", f"{net}.1/24", "dev", self.cable),
            ("link", "set", self.cable, "up"),
            ("-n", self.name, "addr", "add", f"{net}.2/24", "dev", inside),
            ("-n", self.name, "link", "set", inside, "up"),
            ("-n", self.name, "link", "set", "lo", "up"),
            ("-n", self.name, "route", "add", "default", "via", f"{net}.1"),
        )
        for step in steps:
            done = ip(*step)
            if done.returncode:
                return f"ip {' '.join(step)}: {done.stderr.strip()}"
        return ""

    def unplug(self, seconds: float) -> None:
        ip("link", "set", self.cable, "down")
        clock.sleep(seconds)
        ip("link", "set", self.cable, "up")

    def impair(self, *words: str) -> str:
        """Delay and loss on the cable; why that is not possible, else nothing."""
        command = ["tc", "qdisc", "add", "dev", self.cable, "root", "netem", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stderr.strip()

    def remove(self) -> None:
        if self._carrier is not None:
            self._carrier.stop()
        ip("link", "del", self.cable)
        ip("netns", "del", self.name)


@contextmanager
def two_hosts(folder: Path, way: dict[str, float] | None = None) -> Iterator[list[Host]]:
    """Two machines; skips where they cannot be made."""
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip` command to make network namespaces with")
    made = [Host(1), Host(2)]
    try:
        for host in made:
            if why := host.build(folder, way):
                pytest.skip(f"network namespaces cannot be made here: {why}")
        yield made
    finally:
        for host in made:
            host.remove()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[Host]]:
    with two_hosts(tmp_path) as made:
        yield made


def test_a_partition_of_five_seconds(tmp_path: Path, hosts: list[Host]) -> None:
    """One of two machines is cut off from server and master, and comes back: nothing is lost or sent twice.

    What fell into the partition is late, failed or not sent, and the run says so.
    """
    crew = Crew(tmp_path, rate=20, seconds=9.0, host=f"10.{NET}.1.1")
    try:
        workers = [crew.worker(*host.prefix) for host in hosts]
        master = crew.master(2)
        crew.await_arrivals(40)
        hosts[1].unplug(5.0)
        code, errors = end(master)
        outcomes = crew.account()
        assert 4 == code, (errors, outcomes)
        assert [0, 0] == [end(worker)[0] for worker in workers]
        assert "LOST_WORKER" not in outcomes
        assert crew.findings() & {"limited_by_client", "schedule_not_offered"}
    finally:
        crew.close()


def test_delay_and_loss_of_the_kernel(tmp_path: Path, hosts: list[Host]) -> None:
    """40 ms and 2 % lost packets on each cable by netem: every request once, a common start all the same."""
    for host in hosts:
        if why := host.impair("delay", "40ms", "loss", "2%"):
            pytest.skip(f"this kernel has no netem: {why}")
    _offer_over(tmp_path, hosts)


def test_delay_and_loss(tmp_path: Path) -> None:
    """The same 40 ms each way and 2 % of the packets, by a cable of ours that carries them late or never."""
    with two_hosts(tmp_path, {"delay_ms": 40, "loss": 0.02}) as hosts:
        took = subprocess.run([*hosts[0].prefix, *CONNECT, f"10.{NET}.1.1", "1"], capture_output=True, text=True)
        assert float(took.stdout) > 0.08, "the cable does not delay"
        _offer_over(tmp_path, hosts)


# Prints how long it takes to be refused by a port that nobody listens at: once there and back.
CONNECT = (
    sys.executable,
    "-c",
    "import socket, sys, time; a = time.perf_counter(); "
    "socket.socket().connect_ex((sys.argv[1], int(sys.argv[2]))); print(time.perf_counter() - a)",
)


def _offer_over(folder: Path, hosts: list[Host]) -> None:
    crew = Crew(folder, rate=20, seconds=4.0, host=f"10.{NET}.1.1")
    try:
        workers = [crew.worker(*host.prefix) for host in hosts]
        master = crew.master(2)
        end(master)
        assert [0, 0] == [end(worker)[0] for worker in workers]
        assert {"OK": crew.planned} == crew.account()
    finally:
        crew.close()


def test_a_long_and_lossy_way_to_the_master(tmp_path: Path) -> None:
    """One worker is 30 ms away and every 20th piece takes 300 ms more: all is delivered, and both start at one instant.

    The quickest request of each worker tells when its schedule began; they must agree within 20 ms.
    """
    crew = Crew(tmp_path, rate=60, seconds=4.0)
    way = {"delay_ms": 30, "stall_every": 20, "stall_ms": 300}
    argv = python_module("tests.swarm.slow_way", str(crew.port), json.dumps(way))
    try:
        with Server(argv, log=tmp_path / "way.log", env={"PYTHONPATH": str(ROOT)}) as relay:
            master = crew.master(2)
            near = crew.worker()
            direct, crew.port = crew.port, int(relay.ready["port"])
            far = crew.worker()
            crew.port = direct
            code, errors = end(master)
            assert code in (0, 4), errors  # 4 where the machine was too busy to send on time
            assert [0, 0] == [end(worker)[0] for worker in (near, far)]
        assert {"OK": crew.planned} == crew.account()
        assert abs(np.diff(_beginnings(crew))[0]) < 0.020
    finally:
        crew.close()


def _beginnings(crew: Crew) -> list[float]:
    """For each worker the server's clock at scheduled_s == 0, seconds, as its quickest request shows it."""
    rows = crew.rows()
    lines = [msgspec.json.decode(line) for line in (crew.folder / "arrivals.jsonl").read_text().splitlines()]
    arrived_s = {line["prompt"] - FIRST_LENGTH: line["mono_ns"] / 1e9 for line in lines}
    zero = np.array([arrived_s[int(row["request_id"])] - row["scheduled_s"] for row in rows])
    return [float(zero[rows["worker"] == worker].min()) for worker in (0, 1)]
