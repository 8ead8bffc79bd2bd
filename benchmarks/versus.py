"""Our client beside other tools' own, N streams at 40 tokens/s on one CPU each: what a token costs, what TTFT is said.

Every tool runs closed loop against the C mock server, which logs the truth. CPU is that of the whole process tree, less
that of a run of eight requests. Install the tools first: `scripts/bench versus --install --cache FOLDER`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
from math import isnan
from pathlib import Path

import numpy as np

from benchmarks.mock import Truth, mock_server, pinned
from benchmarks.peers import PEERS, tokenizer
from benchmarks.peers.peer import Ask, Peer, Reported
from benchmarks.peers.venvs import UnavailableError, install, interpreter
from benchmarks.targets import Target, conclude, say

SERVER_CPU, CLIENT_CPU = 1, 0
SERVER = ("--ttft", "200", "--ttft-jitter", "0.5", "--itl", "25")
SMOKE = 8
REQUESTS_PER_STREAM = 1.5
PROMPT_TOKENS = 16
LIMIT_S = 300
RUST_SHARE, GUIDELLM_SHARE = 0.7, 0.1


@dataclasses.dataclass
class Figures:
    """One round of one tool; milliseconds, NaN where the tool does not say."""

    cpu_us_per_event: float
    peak_streams: int
    events_per_s: float
    ttft_p50_ms: float
    true_ttft_p50_ms: float
    ttft_p99_ms: float
    true_ttft_p99_ms: float
    itl_p99_ms: float
    true_itl_p99_ms: float


def main() -> int:
    """Install, or run the rounds, print the table and judge."""
    options = _options()
    peers = [peer for peer in PEERS if peer.name in options.tools.split(",")]
    if options.install:
        return _install(peers, options.cache)
    found: dict[str, list[Figures]] = {}
    missing: dict[str, str] = {}
    for number in range(options.rounds):
        for peer in peers:
            if number >= peer.rounds or peer.name in missing:
                continue
            try:
                figures = one_round(peer, interpreter(peer, options.cache), options)
            except UnavailableError as error:
                missing[peer.name] = str(error)
                say(f"round {number + 1} {peer.title}: {error}")
                continue
            found.setdefault(peer.name, []).append(figures)
            say(f"round {number + 1} {_row(peer.title, figures)}")
    medians = {name: _median(rounds) for name, rounds in found.items()}
    _table(peers, medians, missing)
    if options.out:
        rows = {name: dataclasses.asdict(figures) for name, figures in medians.items()}
        Path(options.out).write_text(json.dumps({"tools": rows, "missing": missing}, indent=1) + "\n")
    return conclude("versus", targets(medians))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, required=True, help="folder with an environment per tool")
    parser.add_argument("--install", action="store_true", help="install the tools into --cache and end")
    parser.add_argument("--tools", default=",".join(peer.name for peer in PEERS), help="with commas")
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=200, help="per answer")
    parser.add_argument("--rounds", type=int, default=3, help="at most; the slow tools have one")
    parser.add_argument("--out", help="file for the medians, as JSON")
    return parser.parse_args()


def _install(peers: list[Peer], cache: Path) -> int:
    failed = 0
    for peer in peers:
        try:
            say(f"{peer.title}: {install(peer, cache)}")
        except UnavailableError as error:
            failed += 1
            say(f"{peer.title}: {error}")
    return 1 if failed else 0


def one_round(peer: Peer, python: Path, options: argparse.Namespace) -> Figures:
    """A run of eight requests and the run proper, each against a fresh server."""
    requests = round(options.streams * REQUESTS_PER_STREAM)
    small_cpu_s, small, _ = _run(peer, python, SMOKE, SMOKE, options.tokens)
    cpu_s, truth, reported = _run(peer, python, options.streams, requests, options.tokens)
    return compare(cpu_s - small_cpu_s, _events(truth) - _events(small), truth, reported)


def _run(peer: Peer, python: Path, streams: int, requests: int, tokens: int) -> tuple[float, list[Truth], Reported]:
    """CPU seconds of the tool's process tree, what the server saw of it, and what it says itself."""
    with mock_server(*SERVER, cpu=SERVER_CPU) as server, tempfile.TemporaryDirectory(prefix="goodput-peer-") as name:
        folder = Path(name)
        words = tokenizer.write(folder / "words")
        ask = Ask(server.url, "mock", streams, requests, PROMPT_TOKENS, tokens, folder, words)
        cpu_s = _start(peer, python, ask)
        printed, errors = ((folder / name).read_text(errors="replace") for name in ("stdout", "stderr"))
        try:
            return cpu_s, server.collect(), peer.read(ask, printed)
        except (KeyError, ValueError, SystemExit) as error:
            raise UnavailableError(f"it gave no figures ({error!r}): {printed[-200:]} {errors[-400:]}") from None


def _start(peer: Peer, python: Path, ask: Ask) -> float:
    """Run the tool to its end; CPU seconds of it and of all children that it waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = {"HOME": str(ask.folder), "PATH": f"{python.parent}:{os.environ['PATH']}"}
    with (ask.folder / "stdout").open("wb") as out, (ask.folder / "stderr").open("wb") as errors:
        command = [*pinned(CLIENT_CPU), *peer.command(python, ask)]
        tool = subprocess.Popen(
            command,
            cwd=ask.folder,
            env=os.environ | own | peer.environment,
            stdout=out,
            stderr=errors,
            start_new_session=True,
        )
        try:
            tool.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"it was not through after {LIMIT_S} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):  # what it left behind would disturb the next
                os.killpg(tool.pid, signal.SIGKILL)
            tool.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare(cpu_s: float, events: int, truth: list[Truth], reported: Reported) -> Figures:
    """What the tool said beside what the server logged; `events` and `cpu_s` without the small run's."""
    answers = [true for true in truth if len(true.tokens_ns)]
    ttft_ms = np.array([true.tokens_ns[0] - true.received_ns for true in answers]) / 1e6
    gaps_ms = np.concatenate([np.diff(true.tokens_ns) for true in answers]) / 1e6
    sent_ns = np.sort(np.concatenate([true.tokens_ns for true in answers]))
    return Figures(
        cpu_us_per_event=cpu_s * 1e6 / events,
        peak_streams=_peak(answers),
        events_per_s=len(sent_ns) / float(sent_ns[-1] - sent_ns[0]) * 1e9,
        ttft_p50_ms=reported.ttft_p50_ms,
        true_ttft_p50_ms=float(np.percentile(ttft_ms, 50)),
        ttft_p99_ms=reported.ttft_p99_ms,
        true_ttft_p99_ms=float(np.percentile(ttft_ms, 99)),
        itl_p99_ms=reported.itl_p99_ms,
        true_itl_p99_ms=float(np.percentile(gaps_ms, 99)),
    )


def _events(truth: list[Truth]) -> int:
    return sum(len(true.tokens_ns) for true in truth)


def _peak(answers: list[Truth]) -> int:
    """The largest number of answers under way at once."""
    instants = [(true.received_ns, 1) for true in answers] + [(int(true.tokens_ns[-1]), -1) for true in answers]
    return int(np.cumsum([change for _, change in sorted(instants)]).max())


def targets(medians: dict[str, Figures]) -> list[Target]:
    """Our CPU per event as a share of the Rust client's and of GuideLLM's, where those ran."""
    ours = medians.get("ours")
    limits = {"sglang_rust": RUST_SHARE, "guidellm": GUIDELLM_SHARE}
    return [
        Target(f"cpu_share_of.{name}", ours.cpu_us_per_event / medians[name].cpu_us_per_event, limit, "")
        for name, limit in limits.items()
        if ours is not None and name in medians
    ]


def _median(rounds: list[Figures]) -> Figures:
    names = [field.name for field in dataclasses.fields(Figures)]
    return Figures(**{name: statistics.median(getattr(figures, name) for figures in rounds) for name in names})


def _row(title: str, figures: Figures) -> str:
    def both(said: float, true: float) -> str:
        return f"{'-' if isnan(said) else f'{said:,.1f}'} / {true:,.1f}"

    return (
        f"| {title} | {figures.peak_streams:,.0f} | {figures.events_per_s:,.0f} | {figures.cpu_us_per_event:.1f} | "
        f"{both(figures.ttft_p50_ms, figures.true_ttft_p50_ms)} | {both(figures.ttft_p99_ms, figures.true_ttft_p99_ms)}"
        f" | {both(figures.itl_p99_ms, figures.true_itl_p99_ms)} |"
    )


def _table(peers: list[Peer], medians: dict[str, Figures], missing: dict[str, str]) -> None:
    say("\n| client | streams reached | events/s | CPU us/event | TTFT p50 said / true ms | p99 | ITL p99 |")
    say("|---|---|---|---|---|---|---|")
    for peer in peers:
        if peer.name in medians:
            say(_row(peer.title, medians[peer.name]))
        else:
            say(f"| {peer.title} | {missing.get(peer.name, 'not run')} | | | | | |")


if __name__ == "__main__":
    sys.exit(main())
