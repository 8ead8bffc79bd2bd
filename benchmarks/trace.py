"""How fast a large trace is read and what it costs in memory, beside pandas: five million rows of the Azure format.

Each reading is a process of its own: time from the call to the Trace (or DataFrame), peak resident memory above what
the process had before the call. Best of the rounds, since another process only ever makes it slower.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.targets import Target, conclude, say
from workloads.synth import generate

ROOT = Path(__file__).parent.parent
START = np.datetime64("2024-05-10T00:00:00", "ns")
RATE_PER_S = 40.0
CHUNK = 200_000

MEASURE = """
import json, sys, time
{load}
def peak():
    return {{line.split()[0]: int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line[:2] == "Vm"}}
read({small!r})
before, start, cpu = peak()["VmRSS:"], time.perf_counter(), time.process_time()
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
trace = read({path!r})
wall, cpu = time.perf_counter() - start, time.process_time() - cpu
print(json.dumps({{"rows": len(trace), "wall_s": wall, "cpu_s": cpu, "peak": peak()["VmHWM:"] - before}}))
"""
OURS = "from workloads.formats import read_trace as read"
PANDAS = """
import pandas
def read(path):
    table = pandas.read_csv(path)
    table["TIMESTAMP"] = pandas.to_datetime(table["TIMESTAMP"], format="ISO8601")
    return table
"""


@dataclass
class Reading:
    """One reading of the large file."""

    rows: int
    us_per_row: float
    cpu_us_per_row: float
    bytes_per_row: float


def write(path: Path, rows: int) -> None:
    """A week's worth of conversation traffic, with seven fractional digits."""
    trace = generate("azure-conv", requests=rows, rate_per_s=RATE_PER_S, rng=np.random.default_rng(1))
    with open(path, "w", encoding="ascii") as file:
        file.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
        for first in range(0, rows, CHUNK):
            part = slice(first, first + CHUNK)
            times = (START + trace.arrival_ns[part].astype("timedelta64[ns]")).astype(str).tolist()
            columns = zip(times, trace.prompt_tokens[part].tolist(), trace.output_tokens[part].tolist(), strict=True)
            file.writelines(f"{time[:10]} {time[11:27]},{prompt},{output}\n" for time, prompt, output in columns)


def read(python: Path, load: str, path: Path, small: Path) -> Reading | None:
    """One reading in a fresh process; None when it cannot be had there."""
    code = MEASURE.format(load=load, path=str(path), small=str(small))
    done = subprocess.run([python, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        say(f"reading failed: {done.stderr.strip().splitlines()[-1:]}")
        return None
    found = json.loads(done.stdout)
    rows = found["rows"]
    return Reading(rows, found["wall_s"] / rows * 1e6, found["cpu_s"] / rows * 1e6, found["peak"] / rows)


def pandas_python(folder: Path) -> Path | None:
    """An interpreter with pandas in a throw-away environment; None when it cannot be installed."""
    python = folder / "pandas" / "bin" / "python"
    for command in (
        [sys.executable, "-m", "venv", str(folder / "pandas")],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "pandas"],
    ):
        if subprocess.run(command, capture_output=True, check=False).returncode:
            say("pandas cannot be installed here: no comparison")
            return None
    return python


def best(python: Path, load: str, path: Path, small: Path, rounds: int) -> Reading | None:
    """The fastest of some readings."""
    readings = [reading for _ in range(rounds) if (reading := read(python, load, path, small)) is not None]
    return min(readings, key=lambda reading: reading.us_per_row, default=None)


def main() -> int:
    """Write the file, read it both ways, judge ours."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pandas", default="auto", help="interpreter that has pandas; auto installs one; none")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="goodput-trace-") as name:
        folder = Path(name)
        path, small = folder / "large.csv", folder / "small.csv"
        write(path, options.rows)
        write(small, 1000)
        say(f"{options.rows:,} rows, {path.stat().st_size / 1e6:.0f} MB")
        ours = best(Path(sys.executable), OURS, path, small, options.rounds)
        _tell("goodput", ours)
        found = pandas_python(folder) if options.pandas == "auto" else Path(options.pandas)
        if found is not None and options.pandas != "none":
            _tell("pandas", best(found, PANDAS, path, small, options.rounds))
    return conclude(
        "trace",
        [
            Target("read", None if ours is None else ours.us_per_row, 1.0, "us per row"),
            Target("peak_memory", None if ours is None else ours.bytes_per_row, 60, "B per row"),
        ],
    )


def _tell(name: str, reading: Reading | None) -> None:
    if reading is not None:
        say(
            f"{name:<8} {1 / reading.us_per_row:.2f} M rows/s ({1 / reading.cpu_us_per_row:.2f} by CPU time), "
            f"{reading.bytes_per_row:.0f} B per row at the peak"
        )


if __name__ == "__main__":
    sys.exit(main())
