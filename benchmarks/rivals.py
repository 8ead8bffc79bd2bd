"""Other simulators beside ours, outside this repository and in an interpreter of their own.

Each driver is a program for that interpreter: it reads requests, runs one instance of the other simulator on them, and
prints the CPU seconds of the simulation proper (imports, files and reports are not counted) and the requests it
finished.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

Requests = list[tuple[float, int, int]]  # arrival in seconds, prompt tokens, output tokens

# splitwise-sim: one DGX-H100, its mixed continuous batching with JSQ, its measured table
SPLITWISE_SIM = """
import csv, json, logging, os, pathlib, shutil, sys, time
home, requests = sys.argv[1], json.load(open(sys.argv[2]))
work = os.getcwd(); sys.path.insert(0, home)
import hydra.utils
hydra.utils.get_original_cwd = lambda: home
from hydra import compose, initialize_config_dir
import run
os.makedirs(os.path.join(work, "detailed"), exist_ok=True)
with open("trace.csv", "w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow("request_id request_type application_id arrival_timestamp batch_size prompt_size token_size".split())
    rows.writerows([i, 2, 0, at + 1, 1, prompt, output] for i, (at, prompt, output) in enumerate(requests))
shutil.copytree(os.path.join(home, "configs"), "configs")
main = pathlib.Path("configs/config.yaml")  # without the launcher that needs Ray, and what only Hydra's own main knows
lines = main.read_text().partition("choices:")[0].splitlines()
main.write_text("\\n".join(line for line in lines if "launcher" not in line))
overrides = ["applications.0.scheduler=token_jsq", "cluster=half_half",
    "cluster.servers.0.count=0", "cluster.servers.1.count=1", "start_state=baseline", "performance_model=db",
    "applications.0.model_architecture=llama2-70b", "applications.0.model_size=llama2-70b-fp16",
    "trace.path=" + os.path.join(work, "trace.csv")]
with initialize_config_dir(os.path.abspath("configs"), version_base=None):
    config = compose("config", overrides=overrides)
logging.disable(logging.CRITICAL)
taken, finished, whole = [], [], run.TraceSimulator.run
def timed(self):
    import simulator
    start = time.process_time()
    simulator.Simulator.run(self)
    taken.append(time.process_time() - start)
    finished.append(sum(len(s.completed_queue) for a in self.applications.values() for s in [a.scheduler]))
run.TraceSimulator.run = timed
run.run_simulation(config)
print(json.dumps({"seconds": taken[0], "finished": finished[0]}))
"""

# DistServe's simulator: arguments are its backend, model, tensor parallelism of prefill or of all, TTFT and TPOT (ms)
DISTSERVE = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[1])
requests = json.load(open(sys.argv[2]))
with open("workload.json", "w") as file:
    json.dump([{"start_time": at, "prompt_len": p, "output_len": o} for at, p, o in requests], file)
import simpy
from simdistserve.benchmarks import simulate_dist
taken, whole = [], simpy.Environment.run
def timed(self, until=None):
    start = time.process_time()
    whole(self, until)
    taken.append(time.process_time() - start)
simpy.Environment.run = timed
arguments = ["--backend", sys.argv[3], "--model", sys.argv[4], "--N", str(len(requests)), "--rate", "1",
    "--workload", "workload.json", "--tp-prefill", sys.argv[5], "--pp-prefill", "1",
    "--tp-decode", "2", "--pp-decode", "2",
    "--prefill-target", sys.argv[6], "--decode-target", sys.argv[7], "--slo-scales", "[1.0]"]
outputs = {}
_, _, table = simulate_dist.main(simulate_dist.parse_args(arguments), outputs)
both = table[table.pd == "both"].attainment.iloc[0]
print(json.dumps({"seconds": taken[0], "finished": len(outputs["per_request_latency_df"]), "attainment": both / 100}))
"""

# The mocker of NVIDIA Dynamo (package ai-dynamo-runtime), offline: Rust, one vLLM-like worker without prefix sharing
DYNAMO = """
import json, math, sys, time
requests = json.load(open(sys.argv[2]))
fresh = 0
with open("trace.jsonl", "w") as file:
    for at, prompt, output in requests:
        blocks = math.ceil(prompt / 512)
        row = {"timestamp": at * 1000, "input_length": prompt, "output_length": output,
               "hash_ids": list(range(fresh, fresh + blocks))}
        fresh += blocks
        file.write(json.dumps(row) + "\\n")
from dynamo._core import run_mocker_trace_replay
start = time.process_time()
report = run_mocker_trace_replay(["trace.jsonl"], trace_block_size=512)
seconds = time.process_time() - start
print(json.dumps({"seconds": seconds, "finished": int(dict(report.summary)["completed_requests"])}))
"""


class Outcome(NamedTuple):
    """What a driver printed, or why it printed nothing."""

    seconds: float | None
    finished: int = 0
    attainment: float | None = None
    error: str = ""


def simulate(driver: str, python: str, home: str, requests: Requests, *arguments: str) -> Outcome:
    """Run a driver in `python` on the simulator in folder `home`; an Outcome without seconds says what went wrong."""
    with tempfile.TemporaryDirectory(prefix="goodput-rival-") as folder:
        (Path(folder) / "requests.json").write_text(json.dumps(requests))
        done = subprocess.run(
            [python, "-c", driver, home, str(Path(folder) / "requests.json"), *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    try:
        found = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return Outcome(None, error=(done.stderr.strip().splitlines() or ["it printed nothing"])[-1])
    return Outcome(found["seconds"], found["finished"], found.get("attainment"))
