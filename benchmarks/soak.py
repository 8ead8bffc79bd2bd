"""Runs one after the other under random faults: workers killed and frozen, connections reset, disks full for a while.

Each run has a master and three workers, which write to folders of their own. Afterwards the journals of all workers are
merged into it, as docs/distributed.md tells, and counted: every planned request once, none sent twice, no row of any
journal lost. The master must not grow while it runs, and nothing may be left: no process, no descriptor.
Faults come from --seed; a run can be repeated by its number (--first).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np

from benchmarks.targets import Target, conclude, say
from loadtest import clock
from metrics import rundir
from metrics.journal import read_journal
from metrics.records import Outcome

WORKERS = 3
TOKENS = 100  # at ten a second: an answer takes ten seconds
PROMPT = 100
ANSWER_S = 10.0
END_S = 240.0  # for a master to end by itself behind the last planned instant
GOODPUT = [sys.executable, "-P", "-m", "loadtest.cli.main"]


@dataclass(frozen=True)
class Fault:
    """What happens to one process of a run: worker 0 to 2, or the master (-1)."""

    at_s: float
    kind: str  # kill, freeze, full_disk
    process: int
    lasts_s: float = 0.0


@dataclass
class Counted:
    """What became of one run."""

    run: int
    planned: int = 0
    accounted: int = 0
    ok: int = 0
    twice: int = 0
    rows_lost: int = 0  # that a journal holds, and the merged run does not
    full_disks: int = 0  # that the master or a worker spoke of
    exit_code: int = 0
    grown_mib: float = 0.0
    descriptors: int = 0  # that the master, or the server, has more of
    processes: int = 0  # that are left
    faults: str = ""
    outcomes: dict[str, int] = field(default_factory=dict)


def main() -> int:
    """Run for so many minutes, print a line a run and a table, judge the targets."""
    options = _options()
    until_ns = clock.monotonic_ns() + round(options.minutes * 60e9)
    run_s = min(options.run_seconds, options.minutes * 60 / 3)
    counted: list[Counted] = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder, _server(Path(folder), options) as server:
        number = options.first
        while not counted or clock.monotonic_ns() + round(run_s * 1e9) < until_ns:
            place = Path(folder) / f"run-{number}"
            place.mkdir()
            counted.append(Soak(number, place, server, run_s, options).counted())
            say(_line(counted[-1]))
            number += 1
    _table(counted)
    return conclude("soak", targets(counted))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--streams", type=int, default=500, help="at once, in the middle of a run")
    parser.add_argument("--run-seconds", type=float, default=180.0, help="of load, at most a third of all")
    parser.add_argument("--resets", type=float, default=0.005, help="share of answers that the server resets")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=1, help="number of the first run, which decides its faults")
    parser.add_argument("--folder", help="where to write, on the disk that is to be tried")
    return parser.parse_args()


def faults_of(run: int, seed: int, run_s: float) -> list[Fault]:
    """What happens in this run, in order: freezes and full disks, and in every other run a death."""
    rng = np.random.default_rng([seed, run])
    longest = min(8.0, run_s / 4)
    found = [
        Fault(rng.uniform(0.15, 0.75) * run_s, kind, int(rng.integers(first, WORKERS)), rng.uniform(0.5, 1) * longest)
        for kind, first in (("freeze", 0), ("full_disk", -1))
        for _ in range(int(rng.integers(1, 4)))
    ]
    if run % 2:
        found.append(Fault(rng.uniform(0.2, 0.8) * run_s, "kill", int(rng.integers(WORKERS))))
    return sorted(found, key=lambda fault: fault.at_s)


@dataclass
class _Server:
    url: str
    notes: Path
    pid: int


@contextmanager
def _server(folder: Path, options: argparse.Namespace) -> Iterator[_Server]:
    notes = folder / "bodies"
    chance = [str(options.resets), str(options.seed)]
    command = [sys.executable, "-m", "benchmarks.soak_server", str(notes), str(TOKENS), *chance]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield _Server(json.loads(process.stdout.readline())["url"], notes, process.pid)
    finally:
        process.kill()
        process.communicate()


class Soak:
    """One run: its processes, what happens to them, and what is counted."""

    def __init__(self, run: int, folder: Path, server: _Server, run_s: float, options: argparse.Namespace) -> None:
        self._run, self._folder, self._server, self._run_s = run, folder, server, run_s
        self._faults = faults_of(run, options.seed, run_s)
        self._rate = options.streams / ANSWER_S
        self._planned = round(self._rate * run_s)
        self._processes: list[subprocess.Popen[bytes]] = []  # the workers, then the master

    def counted(self) -> Counted:
        """Make the run, count, clean up."""
        found = Counted(self._run, planned=self._planned)
        noted_before, open_before = len(_lines(self._server.notes)), _descriptors(self._server.pid)
        self._start()
        try:
            self._watch(found)
        finally:
            found.processes = self._clean_up()
        found.exit_code = self._processes[-1].returncode
        logs = (log.read_text(errors="replace") for log in self._folder.glob("*.log"))
        found.full_disks = sum(log.count(" is full (") for log in logs)
        found.faults = " ".join(f"{n} {kind}" for kind, n in Counter(fault.kind for fault in self._faults).items())
        self._count(found, _lines(self._server.notes)[noted_before:])
        clock.sleep(0.5)  # connections that the last worker closed
        found.descriptors = max(found.descriptors, _descriptors(self._server.pid) - open_before)
        return found

    def _start(self) -> None:
        folder, port = self._folder, _free_port()
        row = '{{"timestamp": {}, "input_length": {}, "output_length": {}}}\n'
        rows = (row.format(round(1000 * i / self._rate), PROMPT, TOKENS) for i in range(self._planned))
        (folder / "trace.jsonl").write_text("".join(rows))
        (folder / "token").write_text("the-token-of-the-soak-benchmark")
        token = ["--token-file", str(folder / "token")]
        for worker in range(WORKERS):
            words = ["worker", "--master-port", str(port), *token, "--out", str(folder / f"w{worker}")]
            self._spawn(words, f"w{worker}.log")
        words = ["run", "--target", self._server.url, "--trace", str(folder / "trace.jsonl"), "--json"]
        words += ["--master", "--expect-workers", str(WORKERS), "--master-bind", f"127.0.0.1:{port}", *token]
        self._spawn([*words, "--out", str(folder / "run"), "--max-lateness", "2s"], "master.log")

    def _spawn(self, words: list[str], log: str) -> None:
        with (self._folder / log).open("wb") as out:
            self._processes.append(
                subprocess.Popen([*GOODPUT, *words], cwd=self._folder, stdout=out, stderr=out, start_new_session=True)
            )

    def _watch(self, found: Counted) -> None:
        """Do what is due until the master ends; look at its memory and its descriptors while there is load."""
        master, noted = self._processes[-1], len(_lines(self._server.notes))
        begun_ns = 0
        undo: list[tuple[float, Fault]] = []
        due = list(self._faults)
        memory: list[tuple[float, float, int]] = []
        give_up_ns = clock.monotonic_ns() + round((self._run_s + END_S) * 1e9)
        while master.poll() is None and clock.monotonic_ns() < give_up_ns:
            clock.sleep(0.1)
            if not begun_ns:
                begun_ns = clock.monotonic_ns() if len(_lines(self._server.notes)) > noted else 0
                continue
            now_s = (clock.monotonic_ns() - begun_ns) / 1e9
            while due and due[0].at_s <= now_s:
                undo.append((now_s + due[0].lasts_s, due[0]))
                self._hurt(due.pop(0))
            for over in [each for each in undo if each[0] <= now_s]:
                undo.remove(over)
                self._heal(over[1])
            if now_s < self._run_s:
                memory.append((now_s, _resident_mib(master.pid), _descriptors(master.pid)))
        if len(memory) > 8:
            early, late = (memory[len(memory) // 4 : len(memory) // 2], memory[-len(memory) // 4 :])
            found.grown_mib = statistics.median(m for _, m, _ in late) - statistics.median(m for _, m, _ in early)
            found.descriptors = max(0, min(n for _, _, n in late) - max(n for _, _, n in early))

    def _hurt(self, fault: Fault) -> None:
        process = self._processes[fault.process]
        if process.poll() is not None:
            return
        if fault.kind == "full_disk":
            largest = max((file.stat().st_size for file in self._written(fault.process)), default=0)
            _limit_files(process.pid, largest)
        else:
            process.send_signal(signal.SIGKILL if fault.kind == "kill" else signal.SIGSTOP)

    def _heal(self, fault: Fault) -> None:
        process = self._processes[fault.process]
        if process.poll() is not None:
            return
        if fault.kind == "full_disk":
            _limit_files(process.pid, resource.RLIM_INFINITY)
        elif fault.kind == "freeze":
            process.send_signal(signal.SIGCONT)

    def _written(self, process: int) -> list[Path]:
        return _journals(self._folder / ("run" if process < 0 else f"w{process}"))

    def _clean_up(self) -> int:
        """End what is left; how many processes were, but for workers that wait for their master."""
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
        left = int(self._processes[-1].poll() is None)
        for process in self._processes:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                left += process is not self._processes[-1]
            left += _end_group(process)
        return left

    def _count(self, found: Counted, bodies: list[str]) -> None:
        """Merge the workers' journals, and hold the run against them and against what the server noted."""
        run = self._folder / "run"
        journals = [file for folder in sorted(self._folder.glob("w?")) for file in _journals(folder)]
        merge = [word for journal in journals for word in ("--merge", str(journal))]
        done = subprocess.run(
            [*GOODPUT, "report", str(run), *merge, "--format", "json"], capture_output=True, text=True, check=False
        )
        found.twice = len(bodies) - len(set(bodies))
        if done.returncode:
            say(f"run {self._run}: report ended with {done.returncode}: {done.stderr[-500:]}")
            found.rows_lost = self._planned
            return
        rows = rundir.load(run).table.rows
        ids = rows["request_id"].tolist()
        found.accounted = len(set(ids) & set(range(self._planned))) - (len(ids) - len(set(ids)))
        outcome = dict(zip(ids, rows["outcome"].tolist(), strict=True))
        journalled = {
            (int(row["request_id"]), int(row["outcome"])) for journal in journals for row in read_journal(journal).rows
        }
        found.rows_lost = sum(outcome.get(request) != told for request, told in journalled)
        found.outcomes = {Outcome(value).name.lower(): n for value, n in sorted(Counter(outcome.values()).items())}
        found.ok = found.outcomes.get("ok", 0)


def _end_group(process: subprocess.Popen[bytes]) -> int:
    """Kill what is left of a process's session; 1 when something was."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return 0
    finally:
        process.wait()
    return 1


def _limit_files(pid: int, size: int) -> None:
    """No file of the process grows beyond this: for its journal the disk is full."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard))


def _journals(folder: Path) -> list[Path]:
    return sorted(folder.rglob("records-*.bin"))


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="ascii").splitlines() if path.exists() else []


def _resident_mib(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * resource.getpagesize() / (1 << 20)


def _descriptors(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _line(found: Counted) -> str:
    told = ", ".join(f"{n} {name}" for name, n in found.outcomes.items())
    return f"run {found.run}: {found.faults}; exit {found.exit_code}; {told}"


def _table(counted: list[Counted]) -> None:
    columns = [each.name for each in fields(Counted) if each.name not in ("faults", "outcomes")]
    rows = [columns, *([f"{getattr(each, name):g}" for name in columns] for each in counted)]
    for row in rows:
        say("  ".join(f"{cell:>{len(name)}}" for cell, name in zip(row, columns, strict=True)))


def targets(counted: list[Counted]) -> list[Target]:
    """Nothing lost, nothing twice, nothing left."""
    wrong = sum(each.exit_code not in (0, 4) for each in counted)  # 4: the run is not valid, and its report says why
    return [
        Target("planned requests not accounted for", sum(c.planned - c.accounted for c in counted), 0, "requests"),
        Target("requests sent twice", sum(c.twice for c in counted), 0, "requests"),
        Target("journalled rows lost", sum(c.rows_lost for c in counted), 0, "rows"),
        Target("runs that answered nothing", sum(not c.ok for c in counted), 0, "runs"),
        Target("runs with another exit code than 0 or 4", wrong, 0, "runs"),
        Target("growth of a master during a run", max(c.grown_mib for c in counted), 32.0, "MiB"),
        Target("descriptors left", max(c.descriptors for c in counted), 0, "descriptors"),
        Target("processes left", sum(c.processes for c in counted), 0, "processes"),
    ]


if __name__ == "__main__":
    raise SystemExit(main())
