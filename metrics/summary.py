"""The summary of one run: what `--json` prints and every report is made from (schema: docs/definitions.md)."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from metrics import latency, rates, validity
from metrics import slo as objectives
from metrics.counts import Counts
from metrics.energy import Economy, told_economy
from metrics.latency import Mask, counted, is_ok, select
from metrics.rates import Rates
from metrics.records import Outcome, RecordTable, Rows, outcome_name, requests_by_address
from metrics.rundir import Run
from metrics.runinfo import RunInfo
from metrics.slo import SLO, Attainment
from metrics.stats import Stat, describe
from metrics.tokengaps import gaps_us
from metrics.validity import Validity

SCHEMA = "goodput.summary/1"


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """Where all planned requests went; `by_outcome` sums to `planned`."""

    planned: int
    by_outcome: dict[str, int]
    sent: int
    in_warmup: int
    counted: int  # after the warm-up and before a stop: what results are about


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of the counted requests: planned and asked of all, served and got of answers that came through."""

    prompt_planned: int
    prompt_served: int | None  # None when the server never said
    output_asked: int
    output_got: int
    events: int


class Connections(msgspec.Struct, frozen=True, kw_only=True):
    """How requests reached the server."""

    opened: int
    reused: int
    idle_most: int  # at one time, open and carrying nothing
    requests_by_address: dict[str, int]  # of each part of the target; empty where nothing was sent
    reconnected: int
    connect_s: Stat | None


class ErrorCount(msgspec.Struct, frozen=True, kw_only=True):
    """One distinct error of the counted requests."""

    outcome: str
    text: str
    count: int


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a report says about one run in numbers; latencies are of counted answers that came through."""

    schema: str = SCHEMA
    run: RunInfo
    requests: Requests
    attainment: Attainment | None  # None without an SLO
    attainment_by_class: dict[str, Attainment]  # by SLO class, empty where all rows have one
    ttft_s: Stat | None
    ttft_from_sent_s: Stat | None
    tpot_s: Stat | None
    itl_s: Stat | None
    second_token_gap_s: Stat | None
    e2e_s: Stat | None
    rates: Rates
    tokens: Tokens
    connections: Connections
    validity: Validity
    errors: list[ErrorCount]
    economy: Economy | None = None  # of a run that tells what it cost: a simulation does


def summarise(run: Run, slo: SLO | None = None) -> Summary:
    """Summarise a run against an SLO, or without one."""
    table, info = run.table, run.info
    rows, events = table.rows, table.events
    of = counted(rows, info.stopped_at_s)
    mine = select(rows, of)
    attainment = None if slo is None else objectives.attain(table, slo, info.stopped_at_s)
    measured = of & is_ok(rows)
    return Summary(
        run=info,
        requests=_requests(rows, of),
        attainment=attainment,
        attainment_by_class=_by_class(table, slo, info.stopped_at_s),
        ttft_s=describe(latency.ttft_s(mine)),
        ttft_from_sent_s=describe(latency.ttft_from_sent_s(mine)),
        tpot_s=describe(latency.tpot_s(mine)),
        itl_s=None if events is None else Counts(gaps_us(events, measured)).stat(),
        second_token_gap_s=None if events is None else describe(latency.second_token_gap_s(events)[measured]),
        e2e_s=describe(latency.e2e_s(mine)),
        rates=rates.rates(rows, events, of, attainment.good if attainment else None, info.gpus),
        tokens=_tokens(mine),
        connections=_connections(mine, table),
        validity=validity.assess(run, slo),
        errors=_errors(mine, table.errors),
        economy=_economy(rows, info, attainment),
    )


def _economy(rows: Rows, info: RunInfo, attainment: Attainment | None) -> Economy | None:
    """The whole run's cost; where part of it was warm-up, its requests are taken to be as good as the others."""
    share = None if attainment is None else attainment.share
    return told_economy(info.server, int(is_ok(rows).sum()), None if share is None else share * len(rows))


def summary_schema() -> dict[str, Any]:
    """The JSON schema of a summary."""
    return msgspec.json.schema(Summary)


def _by_class(table: RecordTable, slo: SLO | None, stopped_at_s: float | None) -> dict[str, Attainment]:
    if slo is None or not (table.rows["slo_class"] != table.rows["slo_class"][:1]).any():
        return {}
    found = objectives.attain_by_class(table, slo, stopped_at_s)
    return {str(number): attainment for number, attainment in found.items()}


def _requests(rows: Rows, of: Mask) -> Requests:
    outcomes = _count_outcomes(rows, np.full(len(rows), -1, dtype=np.int32))
    return Requests(
        planned=len(rows),
        by_outcome={name: count for (name, _), count in outcomes.items()},
        sent=int((~np.isnan(rows["sent_s"])).sum()),
        in_warmup=int(rows["warmup"].sum()),
        counted=int(of.sum()),
    )


def _tokens(rows: Rows) -> Tokens:
    ok = is_ok(rows)
    told = ok & (rows["served_prompt_tokens"] >= 0)
    return Tokens(
        prompt_planned=int(rows["prompt_tokens"].sum()),
        prompt_served=int(rows["served_prompt_tokens"][told].sum()) if told.any() else None,
        output_asked=int(rows["max_tokens"].sum()),
        output_got=int(rows["output_tokens"][ok].sum()),
        events=int(rows["token_events"][ok].sum()),
    )


def _connections(rows: Rows, table: RecordTable) -> Connections:
    return Connections(
        opened=sum(worker.connections_opened for worker in table.workers),
        reused=sum(worker.connections_reused for worker in table.workers),
        idle_most=sum(worker.connections_idle_most for worker in table.workers),
        requests_by_address=requests_by_address(table.workers),
        reconnected=int((rows["reconnects"] > 0).sum()),
        connect_s=describe(rows["connect_s"]),
    )


def _errors(rows: Rows, texts: list[str]) -> list[ErrorCount]:
    """Distinct errors, the most frequent first."""
    bad = rows[rows["outcome"] != Outcome.OK]
    counts = _count_outcomes(bad, bad["error_id"])
    errors = [
        ErrorCount(outcome=name, text=texts[error] if 0 <= error < len(texts) else "", count=count)
        for (name, error), count in counts.items()
    ]
    return sorted(errors, key=lambda e: (-e.count, e.outcome, e.text))


def _count_outcomes(rows: Rows, key: NDArray[np.int32]) -> dict[tuple[str, int], int]:
    """How often each (outcome name, key) occurs; keys are -1 or above."""
    # One integer per row sorts an order of magnitude faster than rows of three.
    packed = (key.astype(np.int64) + 1) << 24 | rows["http_status"].astype(np.int64) << 8 | rows["outcome"]
    counts: dict[tuple[str, int], int] = {}
    for code, count in zip(*(a.tolist() for a in np.unique(packed, return_counts=True)), strict=True):
        name = (outcome_name(code & 0xFF, code >> 8 & 0xFFFF), (code >> 24) - 1)
        counts[name] = counts.get(name, 0) + count
    return counts
