"""Splitwise's tables beside ours: machines, phases, KV transfer, batching on one machine (clusters: clusters.py)."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from benchmarks.targets import Target, say
from loadtest.backends.hardware import hardware
from loadtest.backends.instance import Instance
from loadtest.backends.perfmodel import load_perf_model
from loadtest.backends.request import Request
from loadtest.backends.simulator import simulate
from loadtest.backends.spec import resolve
from loadtest.deployment import Deployment
from metrics.energy import alone_usd, alone_wh
from metrics.latency import e2e_s, ttft_s
from metrics.records import Rows
from workloads.formats import read_trace
from workloads.schedule import plan

MACHINE_W: Final = {"a100": 5750.0, "h100": 10_000.0}  # what the energy cells of its table amount to
BAND: Final = 0.25  # other medians of trace and machine
APART_S: Final = 1000.0  # so that every request has the machine to itself


class Cell(NamedTuple):
    """A cell of the table of Llama2-70B on one machine, no batching, medians."""

    trace: str
    gpu: str
    ttft_ms: float
    tbt_ms: float
    e2e_ms: float
    cents: float
    wh: float


MACHINES: Final = (
    Cell("code", "a100", 185, 52, 856, 0.42, 1.37),
    Cell("code", "h100", 95, 31, 493, 0.52, 1.37),
    Cell("conv", "a100", 155, 40, 4957, 2.4, 7.9),
    Cell("conv", "h100", 84, 28, 3387, 3.6, 9.4),
)
ACTIVE_S: Final = 1200.0  # the paper looks at 20 minutes
ACTIVE_RATE: Final = 2.0


def targets(traces: Path) -> list[Target]:
    """Print the tables and judge them."""
    return [*_machines(traces), *_phases(traces), *_transfer(traces), *_active_tokens(traces)]


def lengths_of(traces: Path, name: str) -> np.ndarray:
    """Prompt and output tokens of an Azure trace, row by row."""
    trace = read_trace(traces / f"AzureLLMInferenceTrace_{name}.csv")
    return np.stack([trace.prompt_tokens, trace.output_tokens], axis=1)


def _alone(traces: Path, name: str, text: str) -> Rows:
    """The rows of a trace, each request with all machines to itself."""
    schedule = plan(read_trace(traces / f"AzureLLMInferenceTrace_{name}.csv"), seed=0, salt="")
    apart = dataclasses.replace(schedule, scheduled_s=np.arange(len(schedule), dtype=np.float64) * APART_S)
    return simulate(Deployment.parse(text), apart, events=False).rows


def _gaps_s(rows: Rows) -> np.ndarray:
    many = rows["output_tokens"] > 1
    return np.asarray((rows["last_token_s"] - rows["first_token_s"])[many] / (rows["output_tokens"][many] - 1))


def _machines(traces: Path) -> list[Target]:
    say(f"\n{'Splitwise, Llama2-70B':<24} {'TTFT ms':>16} {'TBT ms':>14} {'E2E ms':>16} {'cents':>14} {'Wh':>14}")
    found = []
    for cell in MACHINES:
        rows = _alone(traces, cell.trace, f"emulated:colocated,hardware={cell.gpu}")
        e2e = float(np.median(e2e_s(rows)))
        cents = 100 * alone_usd(e2e, 8 * hardware(cell.gpu).gpu_hour_usd)
        times = [1e3 * float(np.median(ttft_s(rows))), 1e3 * float(np.median(_gaps_s(rows))), 1e3 * e2e]
        ours = [*times, cents, alone_wh(e2e, MACHINE_W[cell.gpu])]
        pairs = "  ".join(f"{mine:7.4g}/{theirs:<7.4g}" for mine, theirs in zip(ours, cell[2:], strict=True))
        say(f"{cell.trace} {cell.gpu:<19} {pairs}   (ours/published)")
        for name, mine, theirs in zip(("ttft", "tbt", "e2e", "cost", "energy"), ours, cell[2:], strict=True):
            found.append(Target(f"Splitwise {cell.trace} {cell.gpu} {name}", abs(mine / theirs - 1), BAND, "off"))
    return found


def _phases(traces: Path) -> list[Target]:
    """Claims that follow from the performance model alone, and how much of a request is decoding."""
    bloom = load_perf_model("bloom-176b", "h100", 8)
    six = bloom.prefill_s(1500, 1500**2) / bloom.decode_s(1, 1500)
    batch = bloom.decode_s(64, 64 * 576) / bloom.decode_s(1, 576)
    speed = {n: n / bloom.prefill_s(n, n * 512) for n in (512, 1024, 1536, 2048, 2560, 3072, 4096, 8192)}
    knee = max(speed, key=lambda n: speed[n])
    say(f"\nBLOOM H100: a prompt of 1,500 tokens = {six:.1f} output tokens (6); batch 64 costs {batch:.2f} x (below 2)")
    lower = 1 - speed[8192] / speed[knee]
    say(f"prompt tokens/s, in prompts of 512: peak at {knee:,} tokens (2,048), {lower:.0%} lower at 8,192 (falls)")
    found = [
        Target("BLOOM prompt in output tokens, off", abs(six / 6 - 1), 0.25, ""),
        Target("BLOOM batch 64", batch, 2.0, "x"),
        Target("prompt throughput peaks at 2,048 tokens, off", abs(knee / 2048 - 1), 0.25, ""),
    ]
    for name in ("code", "conv"):
        rows = _alone(traces, name, "emulated:colocated,hardware=h100")
        share = float(rows["decode_s"].sum() / e2e_s(rows).sum())
        say(f"Llama2-70B H100, {name}: {share:.0%} of the time is decoding (most of it)")
        found.append(Target(f"time that is not decoding, {name}", 1 - share, 0.5, "of all"))
    return found


def _transfer(traces: Path) -> list[Target]:
    """One prompt and one token machine, no batching, coding: what crossing the link adds to a request."""
    text = "emulated:disaggregated,hardware=h100,kv_transfer={}"
    whole = _alone(traces, "code", "emulated:colocated,hardware=h100")
    many = whole["max_tokens"] > 1
    say("\nKV transfer, Llama2-70B, H100, 400 Gb/s, coding, alone (published: layer by layer, serial)")
    added = {}
    for mode in ("layerwise", "serial"):
        rows = _alone(traces, "code", text.format(mode))
        added[mode] = ((e2e_s(rows) - e2e_s(whole)) / e2e_s(whole))[many]
        of_prompt = (rows["transfer_s"] / rows["prefill_s"])[many]
        say(
            f"{mode:<10} E2E {added[mode].mean():+.1%} on average, {np.quantile(added[mode], 0.99):+.1%} at P99 "
            f"(+0.8 %, up to +3 %); of prompt time {np.median(of_prompt):.1%} (below 7 %)"
        )
    llama = load_perf_model("llama2-70b", "h100", 8)
    wire_s = llama.model.kv_bytes_per_token / 50e9
    serial = 3000 * wire_s / llama.decode_s(1, 3000)
    layered = (1500 * wire_s / llama.model.layers + 0.005) / llama.decode_s(1, 1500)
    say(f"second token: serial +{serial:.0%} at 3,000 tokens (64 %), layer by layer +{layered:.1%} at 1,500 (16.5 %)")
    mean = {mode: 100 * float(values.mean()) for mode, values in added.items()}
    return [
        Target("second token serial, points off", 100 * abs(serial - 0.64), 2.0, "points"),
        Target("second token layerwise, points off", 100 * abs(layered - 0.165), 2.0, "points"),
        Target("E2E layer by layer, points off +0.8", abs(mean["layerwise"] - 0.8), 1.0, "points"),
        Target("E2E serial, points off +3", abs(mean["serial"] - 3.0), 1.0, "points"),
    ]


def _active_tokens(traces: Path) -> list[Target]:
    """Share of a machine's busy time by the tokens of the iteration: mixed batching, 2 requests/s, Poisson."""
    say("\nActive tokens, one DGX-H100 at 2 requests/s (published: conversation 60-70 % of the time at most 20, coding")
    say("more than 20 % of the time one)")
    found = []
    for name, most, low, high in (("conv", 20, 0.60, 0.70), ("code", 1, 0.20, 1.0)):
        for model in ("llama2-70b", "bloom-176b"):
            share = _share_of_time(lengths_of(traces, name), model, most)
            off = max(low - share, share - high, 0.0)
            say(f"{name} {model:<12} {share:6.1%} of the time at most {most} token{'s' if most > 1 else ''}")
            found.append(Target(f"active tokens, {name}, {model}: points off", 100 * off, 10.0, "points"))
    return found


def _share_of_time(lengths: np.ndarray, model: str, most: int) -> float:
    pool = resolve(Deployment.parse(f"emulated:colocated,model={model},hardware=h100,max_num_seqs=512")).pools[0]
    instance = Instance(pool.perf, pool.policy, pool.limits)
    rng = np.random.default_rng(0)
    count = int(ACTIVE_RATE * ACTIVE_S)
    drawn = lengths[rng.integers(0, len(lengths), count)].tolist()
    due = np.cumsum(rng.exponential(1 / ACTIVE_RATE, count)).tolist()
    now, arrived, few_s, busy_s = 0.0, 0, 0.0, 0.0
    while arrived < count:
        step = instance.start(now)
        if step is None:
            now = due[arrived]
        else:
            now = step.time.end(1)
            busy_s += step.time.first_s
            few_s += step.time.first_s * (step.decodes + sum(tokens for _, tokens in step.chunks) <= most)
        while arrived < count and due[arrived] <= now:
            prompt, output = drawn[arrived]
            instance.add(Request(arrived, prompt, output, due[arrived]))
            arrived += 1
        if step is not None:
            instance.finish(now)
    return few_s / busy_s
