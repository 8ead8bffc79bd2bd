"""What a long prompt does to running decodes, on deployments of anybody's: rounds of 4 decodes, then one long prompt.

Each launch file is started once, loaded through Locust workers, and stopped. A gap is *quiet* when it ended before the
round's long prompt was sent and all decodes had begun; it is *during* when it overlaps the time from that prompt's
sending to its first token. Figures are medians over the rounds. With files called `*colocated*`, `*chunked*` and
`*disaggregated*` the seed's direction is judged: a whole prefill stalls most, separate instances least.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.targets import Target, conclude, say
from metrics import rundir
from metrics.records import Outcome
from metrics.rundir import Run
from metrics.summary import summarise

ORDER = ("colocated", "chunked", "disaggregated")
DECODES, DECODE_PROMPT, LONG_OUTPUT = 4, 20, 4
STAGGER_MS = 50  # between the decodes, so that their prompts do not share an iteration


@dataclass(frozen=True)
class Rounds:
    """One deployment's rounds; milliseconds."""

    quiet_p50: float
    worst: float
    ttft: float
    cores: int  # the launch file's `gpus`
    validity: str

    @property
    def ratio(self) -> float:
        """How much longer than usual the worst gap is."""
        return self.worst / self.quiet_p50


def main() -> int:
    """Measure each, print the table, judge the direction."""
    options = _options()
    found: dict[str, Rounds] = {}
    with tempfile.TemporaryDirectory() as folder:
        out = options.out or Path(folder)
        out.mkdir(parents=True, exist_ok=True)
        trace = out / "interference.jsonl"
        trace.write_text("".join(_requests(options)))
        for file in options.files:
            found[file.stem] = measured(_run(file, trace, out / file.stem, options), options.rounds)
            say(f"{file.stem}: {_line(found[file.stem])}")
    return conclude("interference", _targets(found))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+", help="launch files")
    parser.add_argument("--set", action="append", default=[], metavar="K=V", help="value for {K} in the launch files")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--every-s", type=float, default=14.0, help="a round's length; its decodes must end in it")
    parser.add_argument("--after-s", type=float, default=2.5, help="the long prompt, after the decodes")
    parser.add_argument("--prompt", type=int, default=2000, help="tokens of the long prompt")
    parser.add_argument("--tokens", type=int, default=160, help="of each decode")
    parser.add_argument("--workers", type=int, default=2, help="Locust workers")
    parser.add_argument("--out", type=Path, help="keep the runs there")
    return parser.parse_args()


def _requests(options: argparse.Namespace) -> list[str]:
    """The trace: decodes and long prompt of every round."""
    row = '{{"timestamp": {}, "input_length": {}, "output_length": {}}}\n'
    lines = []
    for number in range(options.rounds):
        start_ms = round(1000 * options.every_s * number)
        lines += [row.format(start_ms + STAGGER_MS * i, DECODE_PROMPT, options.tokens) for i in range(DECODES)]
        lines.append(row.format(start_ms + round(1000 * options.after_s), options.prompt, LONG_OUTPUT))
    return lines


def _run(file: Path, trace: Path, out: Path, options: argparse.Namespace) -> Run:
    command = [sys.executable, "-P", "-m", "loadtest.cli.main", "launch", str(file), "--json"]
    command += ["--trace", str(trace), "--workers", str(options.workers), "--out", str(out)]
    command += [word for setting in options.set for word in ("--set", setting)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 4) or not (out / rundir.RECORDS).exists():
        raise SystemExit(f"bench: goodput launch {file} ended with {done.returncode}: {done.stderr[-800:]}")
    return rundir.load(out)


def measured(run: Run, rounds: int) -> Rounds:
    """Quiet gaps, the worst during the long prompt, its TTFT; SystemExit when a request was not answered."""
    rows = run.table.rows
    if (rows["outcome"] != Outcome.OK).any() or len(rows) != rounds * (DECODES + 1):
        raise SystemExit(f"bench: not every request of {run.info.name} was answered")
    times = _token_times(run)
    quiet: list[float] = []
    worst, ttft = [], []
    for number in range(rounds):
        *decodes, prompt = range(number * (DECODES + 1), (number + 1) * (DECODES + 1))
        sent, first = float(rows["sent_s"][prompt]), float(times[prompt][0])
        begun = max(float(times[row][0]) for row in decodes)
        gaps = [(a, b) for row in decodes for a, b in pairwise(times[row].tolist())]
        quiet += [b - a for a, b in gaps if a >= begun and b <= sent]
        during = [b - a for a, b in gaps if a < first and b > sent]
        if not during or not quiet:
            raise SystemExit(f"bench: round {number + 1} of {run.info.name}: no decode ran beside the long prompt")
        worst.append(max(during))
        ttft.append(first - sent)
    quiet_ms, worst_ms, ttft_ms = (1e3 * float(np.median(values)) for values in (quiet, worst, ttft))
    validity = summarise(run, None).validity
    codes = ", ".join(finding.code for finding in validity.findings)
    return Rounds(quiet_ms, worst_ms, ttft_ms, run.info.gpus or 1, f"{validity.verdict} {codes}".strip())


def _token_times(run: Run) -> list[NDArray[np.float64]]:
    """Each row's token events on the run's clock, in seconds."""
    events = run.table.events
    assert events is not None
    return [
        row["sent_s"] + 1e-6 * events.us[begin:end].astype(np.float64)
        for row, (begin, end) in zip(run.table.rows, pairwise(events.start), strict=True)
    ]


def _line(rounds: Rounds) -> str:
    return (
        f"{rounds.cores} core{'s' * (rounds.cores > 1)}, quiet gap p50 {rounds.quiet_p50:.1f} ms, "
        f"worst gap while the prompt is prefilled {rounds.worst:.0f} ms, ratio {rounds.ratio:.1f}, "
        f"long prompt's TTFT {rounds.ttft:.0f} ms; validity {rounds.validity}"
    )


def _targets(found: dict[str, Rounds]) -> list[Target]:
    """The ratio of each arrangement over that of the one before it in ORDER, where both were measured."""
    ratios = {name: rounds.ratio for name in ORDER for stem, rounds in found.items() if name in stem}
    return [
        Target(f"ratio of {less} over {more}", ratios[less] / ratios[more], 1.0, "") for more, less in pairwise(ratios)
    ]


if __name__ == "__main__":
    raise SystemExit(main())
