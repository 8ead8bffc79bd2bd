"""Load cases: a trace replayed by the real command against a scripted server; what it says and what it recorded."""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loadtest.supervise import Server, python_module
from metrics import rundir
from metrics.latency import ttft_s
from metrics.records import RecordTable, Rows
from tests.cases.kinds import options_of, undisturbed
from tests.cases.kinds._records import COMMENTS, Figures, slo_of

ROOT = Path(__file__).parents[3]
LIMIT_S = 100
HELD_BACK_S = 0.5
UNIT_MS = {"s": 1000, "ms": 1}

# option of a case -> flag of the command; a value in seconds gets its unit
FLAGS: dict[str, tuple[str, str]] = {
    "max_in_flight": ("--max-in-flight", "{}"),
    "workers": ("--workers", "{}"),
    "rate_per_s": ("--rate", "{}"),
    "speed": ("--speed", "{}"),
    "requests": ("--requests", "{}"),
    "duration_s": ("--duration", "{}s"),
    "warmup_s": ("--warmup", "{}s"),
    "timeout_s": ("--timeout", "{}s"),
    "max_lateness_s": ("--max-lateness", "{}s"),
    "seed": ("--seed", "{}"),
    "slo": ("--slo", "{}"),
    "api": ("--api", "{}"),
    "arrivals": ("--arrivals", "{}"),
    "shape": ("--shape", "{}"),
    "think_s": ("--think", "{}s"),
    "abort_on": ("--abort-on", "{}"),
    "spin_us": ("--spin-us", "{}"),
}
OBJECTIVES = {"ttft_s", "tpot_s", "e2e_s", "target_attainment"}  # become --slo
WARNINGS = {"client_limited": "not_open_loop"}  # what cases call it -> the finding's code


@dataclass
class Played:
    """A finished command: exit code, its JSON document, the rows it recorded, the server's script."""

    code: int
    stdout: str
    summary: dict[str, Any]
    table: RecordTable
    server: dict[str, Any]

    @property
    def rows(self) -> Rows:
        return self.table.rows

    @property
    def findings(self) -> set[str]:
        return {finding["code"] for finding in self.summary["validity"]["findings"]}


def run(case_dir: Path, case: dict[str, Any], expected: dict[str, Any]) -> None:
    """Play the case and compare every expected key: those of CHECKS, and every figure of a metrics case."""
    undisturbed(lambda: _play_and_compare(case_dir, case, expected))


def _play_and_compare(case_dir: Path, case: dict[str, Any], expected: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory(prefix="goodput-case-") as folder:
        played = play(case_dir, case, Path(folder))
    figures = Figures(played.table, options_of(case))
    for key, value in expected.items():
        if key in CHECKS:
            CHECKS[key](played, value)
        elif key not in COMMENTS:
            figures.check({key: value})


def play(case_dir: Path, case: dict[str, Any], folder: Path) -> Played:
    """`goodput run` in a process of its own against the scripted server in another."""
    script = case_dir / "server.json"
    settings = json.loads(script.read_text(encoding="utf-8")) if script.exists() else {}
    (trace,) = case_dir.glob("trace.*")
    if trace.suffix == ".jsonl":
        trace = in_milliseconds(trace, case.get("time_unit", "s"), folder)
    argv = python_module("tests.load_server", json.dumps(settings))
    with Server(argv, log=folder / "server.log", env={"PYTHONPATH": str(ROOT)}) as server:
        words = ["run", "--target", server.url, "--trace", str(trace), "--out", str(folder / "run"), "--json"]
        done = subprocess.run(
            python_module("loadtest.cli.main", *words, *flags(options_of(case))),
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    assert done.stdout, done.stderr
    table = rundir.load(folder / "run").table
    return Played(done.returncode, done.stdout, json.loads(done.stdout), table, settings)


def in_milliseconds(path: Path, unit: str, folder: Path) -> Path:
    """The trace with timestamps in Mooncake's unit: load cases write seconds unless they say otherwise."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    for line in lines:
        line["timestamp"] = line["timestamp"] * UNIT_MS[unit]
    out = folder / "trace.jsonl"
    out.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return out


def flags(options: dict[str, Any]) -> list[str]:
    """The command's options; without objectives of its own a case gets TTFT within a second."""
    given = {key: value for key, value in options.items() if key not in OBJECTIVES}
    given.setdefault("slo", slo_of(options) or "ttft=1s")
    unknown = given.keys() - FLAGS.keys()
    assert not unknown, f"options this kind does not know: {sorted(unknown)}"
    return [word for key, value in given.items() for word in (FLAGS[key][0], FLAGS[key][1].format(value))]


def lateness_of_last(played: Played, limit_ms: float) -> None:
    """Of the last requests: the median of the last ten, so that one disturbance of the machine does not decide."""
    lag_s = (played.rows["sent_s"] - played.rows["scheduled_s"])[-10:]
    assert 1000 * float(np.median(lag_s)) <= limit_ms


def achieved_rate(played: Played, limit: float) -> None:
    def rate(instants: Any) -> float:
        return (len(instants) - 1) / float(instants[-1] - instants[0])

    wanted = rate(played.rows["scheduled_s"])
    assert abs(rate(np.sort(played.rows["sent_s"])) / wanted - 1) <= limit


def sent_during_freeze(played: Played, count: int) -> None:
    """Requests due while the server was frozen that left when they were due (a closed loop would hold them back)."""
    freeze, due_s = played.server["freeze"], played.rows["scheduled_s"]
    in_time = played.rows["sent_s"] - due_s < HELD_BACK_S
    assert count == int((in_time & (due_s >= freeze["from_s"]) & (due_s < freeze["to_s"])).sum())


def strict_json(played: Played, wanted: bool) -> None:
    """One document, no NaN and no Infinity, in stdout as well as in what json.loads made of it."""

    def refuse(constant: str) -> float:
        raise AssertionError(f"{constant} in the JSON output")

    assert wanted
    json.loads(played.stdout, parse_constant=refuse)


def good_rate(played: Played, rate: float) -> None:
    assert math.isclose(rate, played.summary["rates"]["slo_throughput_per_s"] or 0.0, abs_tol=1e-9)


def warned(played: Played, name: str) -> None:
    assert WARNINGS.get(name, name) in played.findings


def equals(*path: str) -> Callable[[Played, Any], None]:
    """A check of one value of the summary."""

    def check(played: Played, value: Any) -> None:
        found: Any = played.summary
        for key in path:
            found = found[key]
        assert value == found

    return check


def check_open_loop(played: Played, value: bool) -> None:
    assert value == ("not_open_loop" not in played.findings)


def check_queue(played: Played, least_s: float) -> None:
    """The longest wait; never more than first come, first served makes it.

    L02 asks for 7.5 s, but 20 requests in 2 slots of 1 s each wait 9 x 1.0 - 1.8 = 7.2 s at the longest, so the
    figure that follows from the case's own trace and server is the floor where it is the lower one.
    """
    cap, service_s = played.summary["run"]["config"]["max_in_flight"]["value"], played.server["service_ms"] / 1000
    free_s, longest_s = [0.0] * cap, 0.0
    for due_s in played.rows["scheduled_s"].tolist():
        start_s = max(due_s, free_s.pop(0))
        longest_s = max(longest_s, start_s - due_s)
        free_s = sorted([*free_s, start_s + service_s])
    assert min(least_s, longest_s) <= float(played.rows["client_queue_s"].max())


def check_longest_ttft(played: Played, least_s: float) -> None:
    assert least_s <= float(np.nanmax(ttft_s(played.rows)))


def check_slow_count(played: Played, least: int) -> None:
    assert least <= int((ttft_s(played.rows) > 1.0).sum())


def check_once(played: Played, wanted: bool) -> None:
    ids = played.rows["request_id"]
    assert wanted == (len(set(ids.tolist())) == len(ids))


def check_exit_code(played: Played, wanted: bool) -> None:
    assert wanted == (played.code != 0)


def check_valid(played: Played, wanted: bool) -> None:
    assert wanted == (played.summary["validity"]["verdict"] != "invalid")


CHECKS: dict[str, Callable[[Played, Any], None]] = {
    "send_lateness_last_max_ms": lateness_of_last,
    "achieved_rate_rel_error_max": achieved_rate,
    "open_loop": check_open_loop,
    "client_queue_max_s_at_least": check_queue,
    "warns": warned,
    "sent_during_freeze": sent_during_freeze,
    "ttft_max_s_at_least": check_longest_ttft,
    "ttft_over_1s_count_min": check_slow_count,
    "requests_total": equals("requests", "planned"),
    "sent_total": equals("requests", "sent"),
    "by_outcome": equals("requests", "by_outcome"),
    "each_request_once": check_once,
    "run_valid": check_valid,
    "trustworthy": check_valid,
    "json_strict": strict_json,
    "exit_code_nonzero": check_exit_code,
    "goodput_rate": good_rate,
}
