"""`--abort-on`: a rule that ends a hopeless run early, judged by each worker over its own requests.

`failed > 20%`, `ttft.p90 > 5s`, `e2e.max >= 2m`. A request that still waits counts as soon as it has waited longer
than the limit, so a server that answers nothing any more is noticed.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from loadtest.errors import UsageError
from loadtest.replay.exchange import Exchange
from loadtest.replay.rowpacker import Row
from metrics.hopeless import allowed_misses
from metrics.judge import Verdict, judge_row, measured_of, overdue
from metrics.records import Outcome
from metrics.slo import SLO

LEAST_REQUESTS = 20
HOPELESS = "attainment of "  # what a search asks for: `attainment of ttft=1s,tpot=45ms,share=90%`
LOOK_BACK = 10_000  # the most recent requests a percentile is taken over: it must not cost the loop a millisecond
_UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0}
_RULE = re.compile(
    r"\s*(?:(?P<share>failed)|(?P<metric>ttft|ttft_from_sent|tpot|e2e)\.(?P<stat>mean|p50|p90|p99|max))"
    r"\s*(?P<op>>=|>)\s*(?P<limit>\d+(?:\.\d+)?)\s*(?P<unit>%|ms|s|m)?\s*"
)
_WAITING = ("ttft", "ttft_from_sent", "e2e")


@dataclass(frozen=True)
class AbortRule:
    """A parsed rule: `limit` is a share or seconds; `stat` is empty for the share of failed requests."""

    text: str
    metric: str
    stat: str
    limit: float
    or_equal: bool

    @staticmethod
    def parse(text: str) -> AbortRule:
        """Read a rule; UsageError says what one looks like."""
        found = _RULE.fullmatch(text)
        unit = found["unit"] if found else None
        known = found is not None and ((unit in (None, "%")) if found["share"] else unit in _UNITS_S)
        if found is None or not known:
            raise UsageError(
                f"{text!r} is not a rule to abort on",
                hint="write 'failed > 20%' or METRIC.STAT > TIME, like 'ttft.p90 > 5s' (ttft, ttft_from_sent, tpot, "
                "e2e; mean, p50, p90, p99, max)",
                code="bad_rule",
            )
        scale = 0.01 if unit == "%" else _UNITS_S.get(unit or "", 1.0)
        return AbortRule(
            text=" ".join(text.split()),
            metric=found["share"] or found["metric"],
            stat=found["stat"] or "",
            limit=float(found["limit"]) * scale,
            or_equal=found["op"] == ">=",
        )

    def broken_by(self, value: float) -> bool:
        """True when `value` is beyond the limit."""
        return value > self.limit or (self.or_equal and value == self.limit)


class Watch(Protocol):
    """Hears of every finished request and says when it is enough."""

    def finished(self, index: int, row: Row) -> None: ...

    def verdict(self, now: int, live: Iterable[Exchange]) -> str: ...


def watch(rule: str, warmup: Sequence[bool] | NDArray[np.bool_], due_ns: Callable[[int], int]) -> Watch:
    """The watch for a rule of `--abort-on`, or for the search's own `attainment of SLO`."""
    slo = rule.removeprefix(HOPELESS)
    return AbortWatch(rule, warmup, due_ns) if slo == rule else HopelessWatch(SLO.parse(slo), warmup, due_ns)


class HopelessWatch:
    """Ends a run once more of its requests have missed the SLO than its share allows: exact, for one worker.

    A late first token (or end) is known while the request still waits, a slow answer when it is over.
    """

    def __init__(self, slo: SLO, warmup: Sequence[bool] | NDArray[np.bool_], due_ns: Callable[[int], int]) -> None:
        self._slo, self._warmup, self._due_ns = slo, warmup, due_ns
        self._limits = slo.limits
        self._allowed = allowed_misses(int(len(warmup) - np.sum(warmup)), slo.share)
        self._missed: set[int] = set()

    def finished(self, index: int, row: Row) -> None:
        """A request is over, well or not. What could not be measured may still decide, so it is no miss yet."""
        if self._warmup[index]:
            return
        if judge_row(row, self._limits) >= Verdict.MISSED:
            self._missed.add(index)
        else:
            self._missed.discard(index)  # its token had come in time and was only read late

    def verdict(self, now: int, live: Iterable[Exchange]) -> str:
        """Why the run is lost, "" while it is not."""
        for exchange in live:
            if exchange.index not in self._missed and not self._warmup[exchange.index] and self._overdue(exchange, now):
                self._missed.add(exchange.index)
        if len(self._missed) <= self._allowed:
            return ""
        return f"{self._slo} is out of reach: {len(self._missed)} requests missed, {self._allowed} may"

    def _overdue(self, exchange: Exchange, now: int) -> bool:
        """Late by the wait alone; what was read and is not decoded yet may hold the first token, or the end."""
        if exchange.connection is not None and exchange.connection.reads:
            return False
        waited_s = (now - self._due_ns(exchange.index)) / 1e9
        return overdue(self._limits, waited_s, started=bool(exchange.answer.event_reads))


class AbortWatch:
    """Collects what the rule is about; requests of the warm-up do not count."""

    def __init__(self, rule: str, warmup: Sequence[bool] | NDArray[np.bool_], due_ns: Callable[[int], int]) -> None:
        self.rule = AbortRule.parse(rule)
        self._warmup, self._due_ns = warmup, due_ns
        self._values = array("d")
        self._finished = self._failed = 0

    def finished(self, index: int, row: Row) -> None:
        """A request is over; only answers that came through have latencies."""
        if self._warmup[index]:
            return
        ok = row["outcome"] == Outcome.OK
        self._finished += 1
        self._failed += not ok
        value_s = self._latency_s(row) if ok else None
        if value_s is not None:
            self._values.append(value_s)

    def verdict(self, now: int, live: Iterable[Exchange]) -> str:
        """Why to abort now, "" when not; requests in `live` without a token count by how long they have waited."""
        rule = self.rule
        if rule.metric == "failed":
            share = self._failed / max(self._finished, 1)
            broken = self._finished >= LEAST_REQUESTS and rule.broken_by(share)
            return f"{rule.text}: {self._failed} of {self._finished} requests failed" if broken else ""
        waiting = self._waiting_s(now, live) if rule.metric in _WAITING else []
        values = np.array(self._values[-LOOK_BACK:] + array("d", (wait for wait in waiting if wait > rule.limit)))
        if len(values) < LEAST_REQUESTS:
            return ""
        found = _stat(values, rule.stat)
        return f"{rule.text}: {found:.3g} s over {len(values)} requests" if rule.broken_by(found) else ""

    def _waiting_s(self, now: int, live: Iterable[Exchange]) -> list[float]:
        """How long each request has waited for what the rule is about: its end, or its first token."""
        to_end, from_sent = self.rule.metric == "e2e", self.rule.metric == "ttft_from_sent"
        return [
            (now - ((exchange.sent_ns or now) if from_sent else self._due_ns(exchange.index))) / 1e9
            for exchange in live
            if (to_end or not exchange.answer.event_reads) and not self._warmup[exchange.index]
        ]

    def _latency_s(self, row: Row) -> float | None:
        """The rule's metric of one answer, as the judge takes it; None where it has none."""
        metric = self.rule.metric
        if metric == "failed":
            return None
        if metric == "ttft_from_sent":
            value_s = measured_of(row, "ttft") - (row["sent_s"] - row["scheduled_s"])
        else:
            value_s = measured_of(row, metric)
        return value_s if isfinite(value_s) else None


def _stat(values: NDArray[np.float64], stat: str) -> float:
    match stat:
        case "mean":
            return float(values.mean())
        case "max":
            return float(values.max())
        case _:
            return float(np.percentile(values, float(stat[1:])))
