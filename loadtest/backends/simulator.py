"""A cluster on a virtual clock: what a run against the emulated server would record, in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from loadtest.backends import quick
from loadtest.backends.cluster import Cluster, ClusterStats, PoolWork
from loadtest.backends.instance import Instance
from loadtest.backends.offer import Offer
from loadtest.backends.request import Request
from loadtest.backends.spec import ClusterSpec, resolve
from loadtest.backends.stretch import Stretch
from loadtest.deployment import Deployment
from loadtest.errors import UsageError
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


def run_simulation(
    deployment: Deployment, schedule: Schedule, *, events: bool = True, quickly: bool = True
) -> Simulation:
    """Offer `schedule` to an emulated deployment; every accepted request runs to its end.

    Rows are those of a real run without a network: sent when scheduled, stamped SIMULATED; a request that does not
    fit the context is an `http_400`, one beyond `max_queue` an `http_429`. Without `events` no token times are kept.
    A turn that waits is due when the one before it has ended, however that ended, and its user has thought.
    `quickly` takes the short cut of quick.py where it gives the same.
    """
    spec = resolve(deployment)
    rows = _planned(schedule)
    fitting = schedule.prompt_tokens + schedule.max_tokens <= spec.max_model_len
    accepted = np.flatnonzero(fitting)
    served = None
    if quickly and quick.applies(spec) and not schedule.waits.any():
        served = _serve_quickly(spec, schedule, accepted, events)
    if served is None:
        accepted, served = _serve(spec, schedule, rows)
    _refuse(rows, np.flatnonzero(~fitting), status=400, error_id=0)
    _fill(rows, accepted, served.instants)
    table = RecordTable(rows, _event_times(rows, accepted, served.token_times()) if events else None, list(_ERRORS))
    return Simulation(table, served.stats)


class Served(NamedTuple):
    """What became of the accepted rows: their instants (see `_fill`), their token times on demand, the cluster."""

    instants: NDArray[np.float64]
    token_times: Callable[[], list[NDArray[np.float64]]]
    stats: ClusterStats


def _serve_quickly(spec: ClusterSpec, schedule: Schedule, accepted: NDArray[np.int64], events: bool) -> Served | None:
    """One loop over all requests; None where memory might matter."""
    arrive, prompts, outputs = (
        column[accepted].tolist() for column in (schedule.scheduled_s, schedule.prompt_tokens, schedule.max_tokens)
    )
    found = quick.serve(spec.pools[0], arrive, prompts, outputs, events=events)
    if found is None:
        return None
    first = found.first_token
    work = found.work
    work.prompt_tokens, work.generated_tokens = sum(prompts), sum(outputs)
    counters = (work.prompt_tokens, work.generated_tokens, work.busy_s, work.extrapolated_s)
    stats = ClusterStats(0, 0, 0.0, 0, 0, *counters, pools=(PoolWork.of("", [work]),))

    def token_times() -> list[NDArray[np.float64]]:
        ticks = tick_times(found.stretches)
        runs = zip(first, found.joined, outputs, strict=True)
        return [np.concatenate([(one,), ticks[begin : begin + output - 1]]) for one, begin, output in runs]

    return Served(np.array([arrive, found.started, first, first, first, found.done]), token_times, stats)


def _serve(spec: ClusterSpec, schedule: Schedule, rows: Rows) -> tuple[NDArray[np.int64], Served]:
    """Every instance, block and transfer; the rows taken, which a full queue makes fewer."""
    cluster = Cluster(spec, every_token=False)
    offer = Offer(cluster, schedule, _prefixes(spec, schedule))
    requests = offer.serve()
    rows["scheduled_s"] = rows["sent_s"] = offer.due_s
    _refuse(rows, np.array(offer.refused, dtype=np.int64), status=429, error_id=1)
    taken = np.array([request.request_id for request in requests], dtype=np.int64)
    instants = [(r.arrived, r.prefill_started, r.prefill_ended, r.landed, r.first_token, r.done) for r in requests]
    return taken, Served(np.array(instants).reshape(-1, 6).T, lambda: token_times(requests), cluster.stats())


def _planned(schedule: Schedule) -> Rows:
    rows = empty_rows(len(schedule))
    for column in ("request_id", "session", "slo_class", "warmup", "scheduled_s", "prompt_tokens", "max_tokens"):
        rows[column] = getattr(schedule, column)
    rows["sent_s"] = rows["scheduled_s"]
    rows["worker"] = 0
    rows["attempts"] = 1
    rows["stamp_source"] = StampSource.SIMULATED
    return rows


def _prefixes(spec: ClusterSpec, schedule: Schedule) -> Sequence[Sequence[int]]:
    """The block hashes of each row's prompt, where there is a cache to look them up in."""
    block = spec.prefix_block
    if block is None or schedule.prefix is None:
        return [()] * len(schedule)
    if schedule.prefix.block_tokens != block:
        raise UsageError(
            f"the trace hashes blocks of {schedule.prefix.block_tokens} tokens, the prefix cache blocks of {block}",
            hint=f"write prefix_block_tokens={schedule.prefix.block_tokens} in the deployment",
            code="prefix_block",
        )
    return [schedule.blocks(row) for row in range(len(schedule))]


def _refuse(rows: Rows, refused: NDArray[np.int64], *, status: int, error_id: int) -> None:
    rows["outcome"][refused] = Outcome.HTTP_ERROR
    rows["http_status"][refused] = status
    rows["error_id"][refused] = error_id
    rows["done_s"][refused] = rows["headers_s"][refused] = rows["sent_s"][refused]


def _fill(rows: Rows, accepted: NDArray[np.int64], instants: NDArray[np.float64]) -> None:
    """`instants`: arrival, start and end of prefill, KV landed, first token, last token."""
    arrived, started, ended, landed, first, done = instants
    values = {
        "headers_s": first,
        "first_token_s": first,
        "first_answer_s": first,
        "last_token_s": done,
        "done_s": done,
        "queue_s": started - arrived,
        "prefill_s": ended - started,
        "transfer_s": landed - ended,
        "decode_s": done - landed,
        "output_tokens": rows["max_tokens"][accepted],
        "token_events": rows["max_tokens"][accepted],
        "served_prompt_tokens": rows["prompt_tokens"][accepted],
        "outcome": Outcome.OK,
        "http_status": 200,
    }
    for column, value in values.items():
        rows[column][accepted] = value


def _event_times(rows: Rows, accepted: NDArray[np.int64], times: list[NDArray[np.float64]]) -> EventTimes:
    counts = np.zeros(len(rows) + 1, dtype=np.int64)
    counts[accepted + 1] = [len(t) for t in times]
    start = np.cumsum(counts)
    total = int(start[-1])
    since_sent = np.concatenate(times) - np.repeat(rows["sent_s"], counts[1:]) if total else np.zeros(0)
    us = np.minimum(np.rint(since_sent * 1e6), _LATEST_US).astype(np.uint32)
    return EventTimes(start, us, np.ones(total, dtype=np.uint16), np.zeros(total, dtype=np.uint16))


def token_times(requests: Sequence[Request]) -> list[NDArray[np.float64]]:
    """Absolute times of all tokens of each request, from the instants and the runs of decode ticks that made them."""
    ticks: dict[Instance, NDArray[np.float64]] = {}
    return [np.concatenate([_piece_times(piece, ticks) for piece in request.pieces]) for request in requests]


def _piece_times(piece: float | tuple[Instance, int, int], ticks: dict[Instance, NDArray[np.float64]]) -> Any:
    if isinstance(piece, float):
        return (piece,)
    instance, begin, end = piece
    if instance not in ticks:
        ticks[instance] = tick_times(instance.stretches)
    return ticks[instance][begin:end]


def tick_times(stretches: Sequence[Stretch]) -> NDArray[np.float64]:
    """When each decode iteration of an instance ended: every stretch has the closed form of stretch.py."""
    start, first_s, step_s, count = np.array(list(stretches)).reshape(-1, 4).T
    iterations = count.astype(np.int64)
    k = np.arange(1, iterations.sum() + 1) - np.repeat(np.cumsum(iterations) - iterations, iterations)
    start, first_s, step_s = (np.repeat(column, iterations) for column in (start, first_s, step_s))
    return np.asarray(start + k * (first_s + step_s * (k - 1) / 2))
