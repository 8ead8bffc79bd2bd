"""A cluster on a virtual clock: what a run against the emulated server would record, in milliseconds."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadtest.backends.cluster import Cluster, ClusterStats, PromptTooLong, QueueFull
from loadtest.backends.request import Request
from loadtest.deployment import Deployment
from metrics.records import EventTimes, Outcome, RecordTable, Rows, StampSource, empty_rows
from workloads.schedule import Schedule

_LATEST_US: Final = np.iinfo(np.uint32).max
_ERRORS: Final = ("the request does not fit the model's context", "the server's queue is full")


class Simulation(NamedTuple):
    """What happened to every request, and what the cluster says of itself at the end."""

    table: RecordTable
    stats: ClusterStats


def simulate(deployment: Deployment, schedule: Schedule, *, events: bool = True) -> RecordTable:
    """The rows that `run_simulation` gives."""
    return run_simulation(deployment, schedule, events=events).table


def run_simulation(deployment: Deployment, schedule: Schedule, *, events: bool = True) -> Simulation:
    """Offer `schedule` to an emulated deployment; every accepted request runs to its end.

    Rows are those of a real run without a network: sent when scheduled, stamped SIMULATED; a request that does not
    fit the context is an `http_400`, one beyond `max_queue` an `http_429`. Without `events` no token times are kept.
    """
    cluster = Cluster(deployment, every_token=False)
    rows = _planned(schedule)
    accepted, requests = _offer(cluster, schedule, rows)
    while (deadline := cluster.next_deadline()) is not None:
        cluster.advance(deadline)
    times = [_token_times(request) for request in requests]
    _fill(rows, accepted, requests, times)
    table = RecordTable(rows, _event_times(rows, accepted, times) if events else None, list(_ERRORS))
    return Simulation(table, cluster.stats())


def _planned(schedule: Schedule) -> Rows:
    rows = empty_rows(len(schedule))
    for column in ("request_id", "session", "slo_class", "warmup", "scheduled_s", "prompt_tokens", "max_tokens"):
        rows[column] = getattr(schedule, column)
    rows["sent_s"] = rows["scheduled_s"]
    rows["worker"] = 0
    rows["attempts"] = 1
    rows["stamp_source"] = StampSource.SIMULATED
    return rows


def _offer(cluster: Cluster, schedule: Schedule, rows: Rows) -> tuple[NDArray[np.int64], list[Request]]:
    """Submit every row at its instant; the rows taken, and their requests."""
    taken, requests = [], []
    arrivals = zip(
        schedule.scheduled_s.tolist(), schedule.prompt_tokens.tolist(), schedule.max_tokens.tolist(), strict=True
    )
    for row, (now, prompt_tokens, output_tokens) in enumerate(arrivals):
        try:
            requests.append(cluster.submit(row, prompt_tokens, output_tokens, now))
            taken.append(row)
        except PromptTooLong:
            _refuse(rows, row, status=400, error_id=0)
        except QueueFull:
            _refuse(rows, row, status=429, error_id=1)
    return np.array(taken, dtype=np.int64), requests


def _refuse(rows: Rows, row: int, *, status: int, error_id: int) -> None:
    rows["outcome"][row] = Outcome.HTTP_ERROR
    rows["http_status"][row] = status
    rows["error_id"][row] = error_id
    rows["done_s"][row] = rows["headers_s"][row] = rows["sent_s"][row]


def _token_times(request: Request) -> NDArray[np.float64]:
    """Absolute times of all its tokens, from the instants and the runs of decode ticks that made them."""
    parts = [
        np.array([piece]) if isinstance(piece, float) else np.frombuffer(piece[0].tick_times)[piece[1] : piece[2]]
        for piece in request.pieces
    ]
    return np.concatenate(parts)


def _fill(rows: Rows, accepted: NDArray[np.int64], requests: list[Request], times: list[NDArray[np.float64]]) -> None:
    first = [float(t[0]) for t in times]
    for column in ("headers_s", "first_token_s", "first_answer_s"):
        rows[column][accepted] = first
    for column in ("last_token_s", "done_s"):
        rows[column][accepted] = [request.done for request in requests]
    for column in ("queue_s", "prefill_s", "transfer_s", "decode_s"):
        rows[column][accepted] = [getattr(request.spans, column) for request in requests]
    for column in ("output_tokens", "token_events"):
        rows[column][accepted] = rows["max_tokens"][accepted]
    rows["served_prompt_tokens"][accepted] = rows["prompt_tokens"][accepted]
    rows["outcome"][accepted] = Outcome.OK
    rows["http_status"][accepted] = 200


def _event_times(rows: Rows, accepted: NDArray[np.int64], times: list[NDArray[np.float64]]) -> EventTimes:
    counts = np.zeros(len(rows) + 1, dtype=np.int64)
    counts[accepted + 1] = [len(t) for t in times]
    start = np.cumsum(counts)
    total = int(start[-1])
    since_sent = np.concatenate(times) - np.repeat(rows["sent_s"], counts[1:]) if total else np.zeros(0)
    us = np.minimum(np.rint(since_sent * 1e6), _LATEST_US).astype(np.uint32)
    return EventTimes(start, us, np.ones(total, dtype=np.uint16), np.zeros(total, dtype=np.uint16))
