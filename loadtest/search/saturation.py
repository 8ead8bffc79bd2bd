"""What a deployment delivers without any objective: more requests than it can serve, and the middle of the rush.

Requests keep coming faster than they can be served, so that the queue never runs dry; the start (an empty machine)
and the end (nothing left to batch) do not count.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from loadtest.backends.simulator import simulate
from loadtest.backends.spec import resolve
from loadtest.deployment import Deployment
from loadtest.search.windows import Windows, at_once
from metrics.latency import is_ok
from metrics.records import RecordTable
from metrics.search import Saturation
from workloads.schedule import plan

ROUNDS: Final = 6  # times the batch slots of all instances: enough for the middle half to be steady
MOST_REQUESTS: Final = 12_000
START_SHARE: Final = 0.6  # of capacity: where a search begins
QUICK_REQUESTS: Final = 400


def saturation(deployment: Deployment, windows: Windows, requests: int | None = None) -> Saturation:
    """On the virtual clock; requests and tokens per second while the middle half of the requests ended."""
    slots = sum(pool.instances * pool.stages * pool.limits.max_num_seqs for pool in resolve(deployment).pools)
    count = requests or min(ROUNDS * slots, MOST_REQUESTS)
    schedule = plan(at_once(windows.trace(0, 1.0, count)), seed=windows.seed, salt="")
    return saturation_of(simulate(deployment, schedule, events=False), deployment.gpus)


def saturation_of(table: RecordTable, gpus: int | None) -> Saturation:
    """Of the requests that ended between the first and the last quarter of all ends."""
    rows = table.rows[is_ok(table.rows)]
    rows = rows[np.argsort(rows["done_s"], kind="stable")]
    middle = rows[len(rows) // 4 : max(len(rows) * 3 // 4, len(rows) // 4 + 2)]
    seconds = float(middle["done_s"][-1] - middle["done_s"][0]) if len(middle) > 1 else math.nan
    counted = middle[1:]
    output = float(counted["output_tokens"].sum()) / seconds
    return Saturation(
        requests_per_s=len(counted) / seconds,
        output_tokens_per_s=output,
        total_tokens_per_s=output + float(counted["prompt_tokens"].sum()) / seconds,
        output_tokens_per_s_per_gpu=output / gpus if gpus else None,
    )


def start_rate(deployment: Deployment, windows: Windows) -> float:
    """Where to look first: 60 % of what the model can serve, to two digits."""
    return float(f"{START_SHARE * saturation(deployment, windows, QUICK_REQUESTS).requests_per_s:.2g}")
