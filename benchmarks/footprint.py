"""What the product costs to have: packages, disk, start-up, and the memory of a thousand streams."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.targets import Target, conclude, say
from loadtest import clock
from loadtest.errors import ExitCode

ROOT = Path(__file__).parent.parent
PACKAGES = ("loadtest", "metrics", "reports", "workloads")
SHIPPED = (*PACKAGES, "scripts", "setup.cfg", "pyproject.toml", "README.md", "LICENSE")
MB = 1e6
HELP_RUNS = 15
START_RUNS = 5
STREAMS, TOKENS = 1_000, 200
ARRIVE_WITHIN_S = 5.0


@dataclass
class Loaded:
    """What one run of the client showed, from outside."""

    start_s: float  # from the start of the process to its first request's arrival at the server
    streaming_mb: float  # peak resident memory until the table of the run was written
    whole_mb: float  # peak resident memory of the whole process, report included
    ok: int
    peak_streams: int


def install(directory: Path) -> Path:
    """Install a copy of this tree as a newcomer would; the folder of its virtual environment."""
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in SHIPPED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, directory / name, ignore=ignore)
        elif source.exists():
            shutil.copy2(source, directory / name)
    before_ns = clock.monotonic_ns()
    subprocess.run([directory / "scripts" / "install"], check=True, stdout=subprocess.DEVNULL)
    say(f"scripts/install took {(clock.monotonic_ns() - before_ns) / 1e9:.0f} s")
    return directory / ".venv"


def packages(venv: Path) -> list[str]:
    """Names of the installed distributions, pip left out."""
    command = [str(venv / "bin" / "python"), "-m", "pip", "list", "--format=json", "--disable-pip-version-check"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return sorted(package["name"] for package in found if package["name"] != "pip")


def size_mb(venv: Path) -> float:
    """Bytes of all files below, pip left out, in 10^6."""
    files = (path for path in venv.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files if not {"pip"} & set(path.parts)) / MB


def help_s(venv: Path) -> float:
    """Median wall time of `goodput --help`, its files in the page cache."""
    times = []
    for _ in range(HELP_RUNS + 1):
        before_ns = clock.monotonic_ns()
        subprocess.run([venv / "bin" / "goodput", "--help"], check=True, stdout=subprocess.DEVNULL)
        times.append((clock.monotonic_ns() - before_ns) / 1e9)
    return statistics.median(times[1:])


@contextmanager
def steady_server(tokens: int) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Its URL and process; killed when the block is left and it still runs."""
    command = [sys.executable, "-m", "benchmarks.steady_server", str(tokens)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield str(answer(server)["url"]), server
        finally:
            server.kill()


def answer(server: subprocess.Popen[str]) -> dict[str, object]:
    """The next line of the server, which is a JSON object."""
    assert server.stdout is not None
    document = json.loads(server.stdout.readline())
    assert isinstance(document, dict)
    return document


def write_trace(path: Path, requests: int, within_s: float, tokens: int) -> None:
    """A trace of equal requests, evenly spread over `within_s`."""
    rows = (f"{index * within_s / requests:.6f},32,{tokens}" for index in range(requests))
    path.write_text("\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens", *rows]) + "\n")


def load(venv: Path, folder: Path, requests: int, within_s: float, tokens: int) -> Loaded:
    """Run the client once against the steady server; raises SystemExit with its last words when it fails."""
    folder.mkdir()
    write_trace(folder / "trace.csv", requests, within_s, tokens)
    command = [str(venv / "bin" / "goodput"), "run", "--trace", "trace.csv", "--out", "run", "--json", "--target"]
    with steady_server(tokens) as (url, server), open(folder / "out", "wb") as out, open(folder / "err", "wb") as err:
        start_ns = clock.monotonic_ns()
        client = subprocess.Popen([*command, url], cwd=folder, stdout=out, stderr=err)
        streaming_mb, whole_mb = watch(client, folder / "run" / "records.npz")
        server.terminate()
        seen = answer(server)
    first_ns = seen["first_ns"]
    # INVALID is about times, which a busy machine spoils; packages and memory are counted all the same.
    if client.returncode not in (ExitCode.OK, ExitCode.INVALID) or not isinstance(first_ns, int):
        raise SystemExit(f"goodput run ended with {client.returncode}: {(folder / 'err').read_text()[-800:]}")
    ok = json.loads((folder / "out").read_bytes())["requests"]["by_outcome"].get("ok", 0)
    return Loaded((first_ns - start_ns) / 1e9, streaming_mb, whole_mb, ok, int(str(seen["peak"])))


def watch(client: subprocess.Popen[bytes], table: Path) -> tuple[float, float]:
    """Peak resident memory in MB until `table` is there, and until the process ends."""
    streaming_mb = whole_mb = 0.0
    while client.poll() is None:
        whole_mb = max(whole_mb, peak_mb(client.pid))
        if not table.exists():
            streaming_mb = whole_mb
        clock.sleep(0.05)
    return streaming_mb, whole_mb


def peak_mb(pid: int) -> float:
    """VmHWM of a process; 0 once it has none."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    kib = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")]
    return sum(kib) * 1024 / MB


def main() -> int:
    """Measure everything in one fresh installation."""
    with tempfile.TemporaryDirectory(prefix="goodput-footprint-") as name:
        folder = Path(name)
        venv = install(folder)
        names = packages(venv)
        disk_mb, answer_s = size_mb(venv), help_s(venv)
        starts = [load(venv, folder / f"start-{run}", 3, 0.3, 3).start_s for run in range(START_RUNS)]
        say(f"process start to first request, {START_RUNS} runs: {', '.join(f'{start:.2f}' for start in starts)} s")
        busy = load(venv, folder / "busy", STREAMS, ARRIVE_WITHIN_S, TOKENS)
        say(f"{busy.ok} of {STREAMS} requests ok, {busy.peak_streams} streams at once, {TOKENS} tokens each")
        say(f"peak memory of the process, report included: {busy.whole_mb:.0f} MB")
    complete = busy.ok == STREAMS and busy.peak_streams == STREAMS
    return conclude(
        "footprint",
        [
            Target("packages", len(names), 62, "packages"),
            Target("torch", sum(name.startswith("torch") for name in names), 0, "packages"),
            Target("disk", disk_mb, 400, "MB"),
            Target("help", answer_s, 0.3, "s"),
            Target("first_request", statistics.median(starts), 2.0, "s"),
            Target("memory_1000_streams", busy.streaming_mb if complete else None, 120, "MB"),
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
