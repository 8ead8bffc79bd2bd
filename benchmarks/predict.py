"""Is a calibration worth its file? A server, calibrated over sockets, against the simulator on what it has not seen.

    calibrate a server with whole prompts   ->  a model file
    simulate a chunk size and a rate that the calibration has not seen; the SLO is the predicted 90th percentiles
    run the same requests against the server with that chunk size
    calibrate again, and so on

The server is the reference engine, or anybody's of one core and one instance: `--launch examples/vllm-chunked.toml
--model CONFIG.json`; its file must have a `{chunk}`. A machine's speed drifts: what is judged is the mean of the
predictions by the calibrations before and after each run. Real commands throughout: `goodput launch --keep`,
`goodput calibrate`, `goodput run --virtual`, `goodput run --target`.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.targets import Target, conclude, say
from loadtest import clock
from loadtest.backends.server import command
from loadtest.supervise import Server, python_module

TRACE = Path(__file__).parents[1] / "examples" / "short-prompts.json"
WHOLE_PROMPTS = 8192
POINTS, PERCENT = 5.0, 10.0  # what the prediction may be off by: attainment, medians


class Case(NamedTuple):
    """A chunk size and a rate."""

    chunk: int
    rate_per_s: float


class Seen(NamedTuple):
    """What a run shows, live or simulated."""

    attainment: float
    ttft_s: float
    tpot_s: float


def main() -> int:
    """Measure, predict, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="tiny", help="of the engine; with --launch the server's config.json")
    parser.add_argument("--launch", type=Path, metavar="FILE", help="another server than the engine")
    parser.add_argument("--set", action="append", default=[], metavar="K=V", help="value for {K} in the launch file")
    parser.add_argument("--cases", default="128@2,256@3", help="chunk@rate,...")
    parser.add_argument("--requests", type=int, default=120)
    parser.add_argument("--repeats", type=int, default=0, help="of a whole star; 0: calibrate --quick")
    parser.add_argument("--out", type=Path, help="keep runs and calibrations here")
    options = parser.parse_args()
    cases = [Case(int(chunk), float(rate)) for chunk, _, rate in (t.partition("@") for t in options.cases.split(","))]
    with TemporaryDirectory(prefix="goodput-predict-") as scratch:
        folder = options.out or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        server = Launched(options.launch, options.set, options.model) if options.launch else Engine(options.model)
        return conclude("predict", Bench(folder, server, options.requests, options.repeats).run(cases))


class Engine:
    """The reference engine on one thread: the other core is the client's."""

    memory = "max_num_seqs=32,kv_policy=reserve_output,watermark=0,num_gpu_blocks=4096,max_model_len=2200"
    known: tuple[str, ...] = ()

    def __init__(self, model: str) -> None:
        self.model = model

    @contextmanager
    def serving(self, chunk: int, log: Path) -> Iterator[str]:
        """Its URL, with prefills in chunks of that many tokens."""
        text = f"torch:chunked,model={self.model},threads=1,max_model_len=2200,max_num_seqs=32"
        with Server(command(f"{text},max_num_batched_tokens={chunk}"), log=log, ready_timeout_s=100) as server:
            yield server.url


class Launched:
    """A server of anybody's, from a launch file; what it is must be said to `goodput calibrate`."""

    memory = "max_num_seqs=64,max_model_len=8192,num_gpu_blocks=4096"

    def __init__(self, file: Path, settings: list[str], model: str) -> None:
        self.file = file
        self.settings = settings
        self.known = ("--model", model, "--hardware", "cpu")

    @contextmanager
    def serving(self, chunk: int, log: Path) -> Iterator[str]:
        """As for the engine."""
        words = [word for setting in (*self.settings, f"chunk={chunk}") for word in ("--set", setting)]
        launch = python_module("loadtest.cli.main", "launch", str(self.file), "--keep", *words)
        with log.open("ab") as errors:
            process = subprocess.Popen(launch, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert process.stdout is not None
        try:
            found = re.match(r"(\S+) serves ", process.stdout.readline())
            if found is None:
                raise SystemExit(f"bench: {self.file} did not start: {log}")
            yield found[1]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()
            process.stdout.close()


class Bench:
    """One folder with everything that comes of it."""

    def __init__(self, folder: Path, server: Engine | Launched, requests: int, repeats: int) -> None:
        self.folder = folder
        self.server = server
        self.log = folder / "server.log"
        self.requests = requests
        self.repeats = repeats

    def run(self, cases: list[Case]) -> list[Target]:
        """A calibration before every case, and one after the last."""
        model, targets = self.calibration(0), []
        for number, case in enumerate(cases, start=1):
            slo, before, live = self.case(case, model)
            model = self.calibration(number)
            after = self.simulated(case, model, slo, "after")
            say(f"chunk {case.chunk}, {case.rate_per_s:g}/s, {slo}")
            for name, seen in (("predicted before", before), ("measured", live), ("predicted after", after)):
                say(
                    f"  {name:16} attainment {seen.attainment:6.1%}  TTFT {seen.ttft_s * 1e3:7.1f} ms"
                    f"  TPOT {seen.tpot_s * 1e3:6.2f} ms"
                )
            targets += judged(case, Seen(*(sum(pair) / 2 for pair in zip(before, after, strict=True))), live)
        return targets

    def case(self, case: Case, model: Path) -> tuple[str, Seen, Seen]:
        """The SLO, what the simulator says, and what the server does."""
        alone = self.simulate(case, model, "ttft=1s", "slo")
        limits = {name: alone[f"{name}_s"]["p90"] for name in ("ttft", "tpot")}
        slo = ",".join(f"{name}={seconds * 1e3:.0f}ms" for name, seconds in limits.items())
        predicted = self.simulated(case, model, slo, "before")
        with self.server.serving(case.chunk, self.log) as url:
            target = ["--target", url]
            live = seen(self.goodput("run", *target, *self.load(case, slo, f"live-{case.chunk}"), "--json"))
        return slo, predicted, live

    def calibration(self, number: int) -> Path:
        """Measured over sockets, on an idle server that computes whole prompts."""
        path, began = self.folder / f"calibration-{number}.json", clock.monotonic_ns()
        how = ["--repeats", str(self.repeats)] if self.repeats else ["--quick"]
        with self.server.serving(WHOLE_PROMPTS, self.log) as url:
            say(self.goodput("calibrate", "--target", url, *self.server.known, *how, "--out", str(path)))
        say(f"calibrated in {(clock.monotonic_ns() - began) * 1e-9:.0f} s")
        return path

    def simulated(self, case: Case, model: Path, slo: str, name: str) -> Seen:
        return seen(json.dumps(self.simulate(case, model, slo, name)))

    def simulate(self, case: Case, model: Path, slo: str, name: str) -> dict[str, Any]:
        """The same requests on the virtual clock, with the server's rules of memory."""
        text = f"emulated:chunked,model={model},hardware=cpu,max_num_batched_tokens={case.chunk},{self.server.memory}"
        words = ["--virtual", "--backend", text, *self.load(case, slo, f"{name}-{case.chunk}"), "--json"]
        found: dict[str, Any] = json.loads(self.goodput("run", *words))
        return found

    def load(self, case: Case, slo: str, name: str) -> list[str]:
        """What is offered."""
        words = ["--trace", str(TRACE), "--rate", f"{case.rate_per_s:g}", "--requests", str(self.requests)]
        return [*words, "--seed", "1", "--slo", slo, "--out", str(self.folder / name)]

    def goodput(self, *words: str) -> str:
        """One of our own commands; what it prints."""
        done = subprocess.run(python_module("loadtest.cli.main", *words), capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"goodput {' '.join(words)}\n{done.stdout}{done.stderr}")
        return done.stdout


def seen(document: str) -> Seen:
    """From a summary."""
    found = json.loads(document)
    return Seen(found["attainment"]["share"], found["ttft_s"]["p50"], found["tpot_s"]["p50"])


def judged(case: Case, predicted: Seen, live: Seen) -> list[Target]:
    """How far off the prediction is."""
    name = f"chunk {case.chunk} at {case.rate_per_s:g}/s"
    return [
        Target(f"{name}: attainment", 100 * abs(predicted.attainment - live.attainment), POINTS, "points"),
        Target(f"{name}: TTFT median", 100 * abs(predicted.ttft_s / live.ttft_s - 1), PERCENT, "%"),
        Target(f"{name}: TPOT median", 100 * abs(predicted.tpot_s / live.tpot_s - 1), PERCENT, "%"),
    ]


if __name__ == "__main__":
    sys.exit(main())
