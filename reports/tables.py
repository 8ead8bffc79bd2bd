"""The tables of a page: headers and rows of text, ready to be printed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from metrics.decision import Decision, DecisionRow, Pair
from metrics.goodput import GoodputEstimate
from metrics.stats import Stat
from metrics.summary import Connections, Summary
from metrics.validity import Validity
from reports.numbers import NOTHING, count, digits, of, percent, rate, seconds, span, target

if TYPE_CHECKING:
    from reports.page import RunView

BLANK = ("", NOTHING)
NUMBER = re.compile(
    r"[<\u2265+\u2212-]? ?[\d.,]+( ?\(.*\)|[ \N{NO-BREAK SPACE}]?(%|pp|s|ms|\N{MICRO SIGN}s|min|/s|[kMG]?B)?\*?)$"
)
LATENCIES = {
    "ttft_s": "time to first token (TTFT)",
    "ttft_from_sent_s": "TTFT from the actual send",
    "tpot_s": "time per output token (TPOT)",
    "itl_s": "token gap (ITL)",
    "second_token_gap_s": "gap before the second token",
    "e2e_s": "end to end",
}


@dataclass(frozen=True)
class Table:
    """A table of text."""

    headers: list[str]
    rows: list[list[str]]
    note: str = ""

    @property
    def numeric(self) -> set[int]:
        """The columns that hold nothing but numbers: they are aligned right."""
        columns = zip(*self.rows, strict=False)
        return {i for i, cells in enumerate(columns) if all(c in BLANK or NUMBER.match(c) for c in cells)}


@dataclass(frozen=True)
class Card:
    """A figure to read first: what, how much, next to what; `fill` and `tick` (0..1) draw a meter."""

    name: str
    value: str
    note: str
    tone: str = ""
    fill: float | None = None
    tick: float | None = None


def cards(run: RunView) -> list[Card]:
    """The figures of a single run."""
    summary = run.summary
    limits = summary.attainment.limits_s if summary.attainment else {}
    made = [
        _attainment_card(summary),
        _latency_card("First token, p90", summary.ttft_s, limits.get("ttft")),
        _latency_card("Per output token, p90", summary.tpot_s, limits.get("tpot")),
        _gap_card(summary.itl_s),
        _tokens_card(summary),
        _load_card(summary),
    ]
    return [card for card in made if card is not None]


def _attainment_card(summary: Summary) -> Card | None:
    attained = summary.attainment
    if attained is None:
        return None
    if attained.share is None or attained.good is None:
        return Card("Within targets", NOTHING, (attained.reason or "not measured").replace("_", " "))
    return Card(
        "Within targets",
        percent(attained.share, attained.target_share),
        f"{of(attained.good, attained.total)} good; target {target(attained.target_share)}"
        + (f"; {count(attained.undecided)} undecided" if attained.undecided else ""),
        "good" if attained.meets else "bad",
        attained.share,
        attained.target_share,
    )


def _latency_card(name: str, stat: Stat | None, limit_s: float | None) -> Card | None:
    if stat is None:
        return None
    limit = f"target {seconds(limit_s, trim=True)}" if limit_s is not None else f"p50 {seconds(stat.p50)}"
    return Card(name, seconds(stat.p90), f"{limit}; p99 {seconds(stat.p99)}")


def _gap_card(stat: Stat | None) -> Card | None:
    if stat is None:
        return None
    return Card("Longest token gap", seconds(stat.max), f"p50 {seconds(stat.p50)}; p99 {seconds(stat.p99)}")


def _tokens_card(summary: Summary) -> Card | None:
    rates = summary.rates
    if rates.output_tokens_per_s is None:
        return None
    per_gpu = rates.output_tokens_per_s_per_gpu
    note = "output tokens per second" + (f"; {digits(per_gpu)} per GPU" if per_gpu is not None else "")
    return Card("Tokens", rate(rates.output_tokens_per_s), note)


def _load_card(summary: Summary) -> Card:
    done = summary.requests.by_outcome.get("ok", 0)
    offered = f"{rate(summary.rates.offered_per_s)} offered" if summary.rates.offered_per_s else "at once"
    return Card("Answered", count(done), f"of {count(summary.requests.planned)} planned; {offered}")


@dataclass(frozen=True)
class DecisionView:
    """The decision table; `measured` when live runs stand behind it, else it would be dashes."""

    rows: list[DecisionLine]
    note: str
    measured: bool


@dataclass(frozen=True)
class DecisionLine:
    """One row of it."""

    label: str
    deployment: str
    leads: bool
    gpus: str
    goodput: str
    interval: str
    live: str
    predicted: str
    ttft: str
    tpot: str
    validity: str


def decision(found: Decision) -> DecisionView:
    """The decision as a table, best first."""
    apart = len(found.leaders) < len(found.rows)  # a mark on every row would mark nothing
    lines = [_line(row, apart and row.label in found.leaders) for row in found.rows]
    measured = any(row.live_attainment is not None or row.ttft_s is not None for row in found.rows)
    return DecisionView(lines, _decision_note(found), measured)


def _decision_note(found: Decision) -> str:
    """Where the figures come from: a goodput of the simulator must not pass for a measured one."""
    how = "by simulation" if all(row.goodput_from == "virtual clock" for row in found.rows) else "from live runs"
    return f"Goodput with its 95 % interval was found {how}; shares within targets and latencies are of one run each."


def _line(row: DecisionRow, leads: bool) -> DecisionLine:
    return DecisionLine(
        label=row.label,
        deployment=row.deployment,
        leads=leads,
        gpus=NOTHING if row.gpus is None else str(row.gpus),
        goodput=goodput(row.goodput_per_gpu),
        interval=interval(row.goodput_per_gpu),
        live=percent(row.live_attainment),
        predicted=percent(row.predicted_attainment),
        ttft=_pair(row.ttft_s),
        tpot=_pair(row.tpot_s),
        validity=row.validity,
    )


def goodput(found: GoodputEstimate | None) -> str:
    """`3.12`, `at least 4`, `below 1`."""
    if found is None:
        return NOTHING
    return {"estimate": "", "at_least": "at least ", "below": "below "}[found.bound] + digits(found.rate)


def interval(found: GoodputEstimate | None) -> str:
    """`2.9 to 3.3`, nothing when the search hit an end."""
    if found is None or found.bound != "estimate" or found.low is None or found.high is None:
        return ""
    return f"{digits(found.low)} to {digits(found.high)}"


def _pair(pair: Pair | None) -> str:
    return NOTHING if pair is None else span(pair.p50, pair.p90, " / ")


def latencies(runs: Sequence[RunView]) -> Table:
    """Every latency of every run."""
    several = len(runs) > 1
    rows, few = [], False
    for run in runs:
        for name, title in LATENCIES.items():
            stat: Stat | None = getattr(run.summary, name)
            if stat is None:
                continue
            few = few or bool(stat.few)
            rows.append([*([run.label] if several else []), title, *_stat_cells(stat)])
    headers = [*(["run"] if several else []), "latency", "n", "mean", "p50", "p90", "p99", "max"]
    return Table(headers, rows, "* too few samples stand behind this percentile" if few else "")


def _stat_cells(stat: Stat) -> list[str]:
    marked = [f"{seconds(getattr(stat, name))}{'*' if name in stat.few else ''}" for name in ("p50", "p90", "p99")]
    return [count(stat.n), seconds(stat.mean), *marked, seconds(stat.max)]


def connections(found: Connections) -> str:
    """How requests reached the server, in a line: set-up and reuse stand apart from TTFT."""
    total = found.opened + found.reused
    if not total:
        return ""
    told = [f"{count(found.opened)} opened", f"{count(found.reused)} reused", f"at most {count(found.idle_most)} idle"]
    if found.connect_s is not None:
        told.append(f"set-up p50 {seconds(found.connect_s.p50)}, p99 {seconds(found.connect_s.p99)}")
    if len(found.requests_by_address) > 1:
        least, most = min(found.requests_by_address.values()), max(found.requests_by_address.values())
        told.append(f"{count(len(found.requests_by_address))} addresses, {count(least)} to {count(most)} requests each")
    if found.reconnected:
        told.append(f"{count(found.reconnected)} sent again on a new one")
    return " · ".join(told)


def stamps(validity: Validity) -> str:
    """How well the client kept time, in a line."""
    lag, loop = validity.client_lag_s, validity.loop_lag_s
    told = []
    if lag is not None:
        told.append(f"client lag p50 {seconds(lag.p50)}, p99 {seconds(lag.p99)}, max {seconds(lag.max)}")
    if loop is not None:
        told.append(f"reading lag p99 {seconds(loop.p99)}, max {seconds(loop.max)}")
    if validity.kernel_stamped_share is not None:
        told.append(f"{percent(validity.kernel_stamped_share)} of reads stamped by the kernel")
    if validity.coalesced_share is not None:
        told.append(f"{percent(validity.coalesced_share)} held several tokens")
    return " · ".join(told)
