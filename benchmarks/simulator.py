"""How fast the simulator is: requests a second beside other simulators, and how the time grows.

2,000 requests of each Azure trace, stretched 2.5 times, one instance of Llama2-70B on 8 H100. Ours by the short cut
that counts tokens and with every KV block; splitwise-sim, DistServe's simulator and the mocker of NVIDIA Dynamo where
they are given. One interleaved run, medians of the rounds, CPU seconds (all are single processes; others may want the
machine too); only simulating is timed, not reading or starting.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks import rivals
from benchmarks.targets import Target, conclude, say
from loadtest.backends.simulator import run_simulation
from loadtest.deployment import Deployment
from workloads.formats import read_trace
from workloads.schedule import Schedule, plan
from workloads.shape import head, speed
from workloads.synth import generate

TRACES = Path(__file__).parents[2] / "shared" / "traces"
FILES = {"conv": "AzureLLMInferenceTrace_conv.csv", "code": "AzureLLMInferenceTrace_code.csv"}
REQUESTS, STRETCH = 2000, 2.5
OURS = "emulated:colocated"
SUBJECTS = ("ours", "ours, KV blocks", "splitwise-sim", "DistServe", "Dynamo mocker")
RATE_PER_INSTANCE = 2.0
LONGEST_ROUNDS = 3


def main() -> int:
    """Run the rounds, print tables, judge the targets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, default=TRACES, help="folder with the Azure traces")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--splitwise-sim", default="", help="a checkout of Mutinifni/splitwise-sim")
    parser.add_argument("--distserve", default="", help="a checkout of LLMServe/DistServe")
    parser.add_argument("--python", default="", help="interpreter with their requirements and ai-dynamo-runtime")
    parser.add_argument("--most-requests", type=int, default=1_000_000)
    options = parser.parse_args()
    targets: list[Target] = []
    for name, file in FILES.items():
        schedule = _schedule(options.traces / file)
        rates = {subject: statistics.median(found) for subject, found in _rounds(schedule, options).items() if found}
        targets += _judge(name, rates)
    targets += _growth(options.most_requests)
    return conclude("simulator", targets)


def _schedule(path: Path) -> Schedule:
    return plan(speed(head(read_trace(path), REQUESTS), 1 / STRETCH), seed=0, salt="")


def _rounds(schedule: Schedule, options: argparse.Namespace) -> dict[str, list[float]]:
    """Requests per second of each subject, a figure per round; none for one that is not given or fails."""
    columns = (schedule.scheduled_s, schedule.prompt_tokens, schedule.max_tokens)
    requests: rivals.Requests = list(zip(*(column.tolist() for column in columns), strict=True))
    found: dict[str, list[float]] = {subject: [] for subject in SUBJECTS}
    for number in range(options.rounds):
        found["ours"].append(_timed(OURS, schedule))
        found["ours, KV blocks"].append(_timed(OURS, schedule, quickly=False))
        for subject, run in _rivals(options, requests).items():
            if number >= LONGEST_ROUNDS and subject != "Dynamo mocker":
                continue
            outcome = run()
            if outcome.seconds is None:
                say(f"{subject} does not run: {outcome.error}")
            else:
                found[subject].append(outcome.finished / outcome.seconds)
    return found


def _rivals(options: argparse.Namespace, requests: rivals.Requests) -> dict[str, Callable[[], rivals.Outcome]]:
    runs: dict[str, Callable[[], rivals.Outcome]] = {}
    if options.python and options.splitwise_sim:
        home = options.splitwise_sim
        runs["splitwise-sim"] = lambda: rivals.simulate(rivals.SPLITWISE_SIM, options.python, home, requests)
    if options.python and options.distserve:
        limits = ("vllm", "opt_13b", "4", "400", "100")  # keeps up with both traces, as ours does
        runs["DistServe"] = lambda: rivals.simulate(
            rivals.DISTSERVE, options.python, options.distserve, requests, *limits
        )
    if options.python:
        runs["Dynamo mocker"] = lambda: rivals.simulate(rivals.DYNAMO, options.python, "", requests)
    return runs


def _timed(text: str, schedule: Schedule, *, quickly: bool = True) -> float:
    """Requests per CPU second of one simulation, its table included."""
    deployment = Deployment.parse(text)
    start = time.process_time()
    run_simulation(deployment, schedule, events=False, quickly=quickly)
    return len(schedule) / (time.process_time() - start)


def _judge(name: str, rates: dict[str, float]) -> list[Target]:
    ours = rates["ours"]
    say(f"\n{name}: {'simulator':<18} {'requests/s':>12}   ours is")
    for subject in SUBJECTS:
        figure = f"{rates[subject]:12,.0f} {ours / rates[subject]:9.1f} x" if subject in rates else "  not run"
        say(f"      {subject:<18} {figure}")

    def behind(subject: str, factor: float) -> Target:
        """As a share of what it may reach at most, so that less is better."""
        share = factor * rates[subject] / ours if subject in rates else None
        return Target(f"{name}.{subject} x {factor:g} / ours", share, 1.0, "")

    return [
        Target(f"{name}.us_per_request", 1e6 / ours, 10.0, "us"),
        behind("splitwise-sim", 50),
        behind("DistServe", 50),
        behind("Dynamo mocker", 3),
    ]


def _growth(most_requests: int) -> list[Target]:
    """Time per request over instances and over requests: near linear when it hardly changes."""
    say(f"\n{'requests':>10} {'instances':>10} {'us/request':>11}")
    over_instances = [_us_per_request(20_000, instances, quickly=False) for instances in (1, 8, 64)]
    sizes = [size for size in (10_000, 100_000, 1_000_000) if size <= most_requests]
    over_requests = [_us_per_request(size, 1) for size in sizes]
    with_blocks = [_us_per_request(size, 1, quickly=False) for size in sizes[:2]]
    return [
        Target("growth over instances 1..64", max(over_instances) / over_instances[0], 2.0, "x per request"),
        Target(f"growth over requests {sizes[0]}..{sizes[-1]}", _worst(over_requests), 1.5, "x per request"),
        Target("growth over requests, KV blocks", _worst(with_blocks), 1.5, "x per request"),
    ]


def _worst(figures: Sequence[float]) -> float:
    return max(figures) / figures[0]


def _us_per_request(requests: int, instances: int, *, quickly: bool = True) -> float:
    trace = generate(
        "azure-conv", requests=requests, rate_per_s=RATE_PER_INSTANCE * instances, rng=np.random.default_rng(0)
    )
    schedule = plan(trace, seed=0, salt="")
    repeats = 3 if requests <= 20_000 else 1
    rate = max(_timed(f"{OURS},instances={instances}", schedule, quickly=quickly) for _ in range(repeats))
    say(f"{requests:>10,} {instances:>10} {1e6 / rate:>11.1f}{'' if quickly else '  KV blocks'}")
    return 1e6 / rate


if __name__ == "__main__":
    sys.exit(main())
