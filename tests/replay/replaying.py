"""Runs a real `Sender` on a bare epoll loop, or the gevent hub, against a server, and reads its journal back."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from loadtest import clock
from loadtest.record import with_cache_hits
from loadtest.replay.endpoint import Endpoint
from loadtest.replay.exchange import Exchange
from loadtest.replay.ledger import OnRequest
from loadtest.replay.options import Progress
from loadtest.replay.reactor import EpollReactor, HubReactor
from loadtest.replay.recorder import Recorder
from loadtest.replay.sender import Sender, SenderOptions
from metrics.journal import JournalContents, JournalWriter, read_journal
from metrics.merge import merge
from metrics.records import PLANNED_COLUMNS, Flag, Outcome, Rows, outcome_name, planned_rows
from metrics.rundir import Run
from metrics.runinfo import RunInfo
from metrics.slo import SLO
from metrics.validity import Finding, assess
from workloads.prompts import Prompts
from workloads.schedule import Schedule, unrelated


@dataclass
class Replayed:
    """What a replay left behind, rows in schedule order."""

    rows: Rows
    journal: JournalContents
    exchanges: list[Exchange]
    t0_ns: int
    shard: Schedule
    progress: Progress

    def event_ns(self, row: int) -> np.ndarray:
        """Monotonic instants of a row's token events."""
        written = int(np.flatnonzero(self.journal.rows["request_id"] == self.rows["request_id"][row])[0])
        events, start = self.journal.events, self.journal.events.start
        us = events.us[start[written] : start[written + 1]].astype(np.int64)
        return us * 1000 + round(float(self.rows["sent_s"][row]) * 1e9) + self.t0_ns

    def outcome(self, row: int) -> str:
        return outcome_name(int(self.rows["outcome"][row]), int(self.rows["http_status"][row]))

    def flags(self, row: int) -> set[str]:
        return {flag.name.lower() for flag in Flag if flag & int(self.rows["flags"][row]) and flag.name}

    def error(self, row: int) -> str:
        written = int(np.flatnonzero(self.journal.rows["request_id"] == self.rows["request_id"][row])[0])
        return self.journal.errors[written]

    def answer_of(self, row: int):  # type: ignore[no-untyped-def]
        return next(e.answer for e in self.exchanges if e.index == row)


def schedule(scheduled_s: list[float], *, prompt_tokens: int = 4, max_tokens: int = 16) -> Schedule:
    """A schedule of equal requests."""
    return unrelated(scheduled_s, prompt_tokens, max_tokens, salt="test", name="test")


def replay(
    url: str,
    shard: Schedule,
    *,
    lead_s: float = 0.05,
    limit_s: float = 60.0,
    reactor: str = "epoll",
    on_request: OnRequest | None = None,
    stop_when: Callable[[Progress], bool] | None = None,
    slo: str = "",
    **changes: object,
) -> Replayed:
    """Replay `shard` against `url`, as far as `stop_when` lets it; keywords of SenderOptions and Endpoint go to
    whichever knows them."""
    own = {k: v for k, v in changes.items() if k in SenderOptions.__struct_fields__}
    endpoint = Endpoint.parse(url, api=changes.pop("api", None))  # type: ignore[arg-type]
    endpoint = msgspec.structs.replace(endpoint, **{k: v for k, v in changes.items() if k not in own})
    if endpoint.prompt_form == "auto":
        endpoint = msgspec.structs.replace(endpoint, prompt_form="ids")
    options = SenderOptions(**{"keep_text": True, **own})  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records-0.bin"
        loop = HubReactor() if reactor == "hub" else EpollReactor()
        recorder = Recorder(JournalWriter(path, 0), shard, 0, slo)
        sender = Sender(endpoint, shard, Prompts.of(shard), options, recorder, loop, on_request)
        t0_ns = clock.monotonic_ns() + int(lead_s * 1e9)
        sender.start(t0_ns)
        give_up_ns = clock.monotonic_ns() + int(limit_s * 1e9)
        if stop_when is not None:
            _drive(loop, lambda: stop_when(sender.progress()))
            sender.stop()
        _drive(loop, lambda: sender.done or loop.failure is not None or clock.monotonic_ns() > give_up_ns)
        loop.close()
        assert loop.failure is None, loop.failure
        assert sender.done, "the replay did not end"
        journal = read_journal(path)
    order = np.argsort(journal.rows["request_id"], kind="stable")
    exchanges = sender.finished_exchanges or []
    return Replayed(journal.rows[order], journal, exchanges, t0_ns, shard, sender.progress())


def _drive(loop: EpollReactor | HubReactor, finished: Callable[[], bool]) -> None:
    if isinstance(loop, EpollReactor):
        loop.run_until(finished)
        return
    import gevent

    while not finished():
        gevent.sleep(0.02)


def run_of(replayed: Replayed, **info: object) -> Run:
    """The run a command would have recorded: every planned row, with what the worker said of itself."""
    columns = {name: getattr(replayed.shard, name) for name in ("request_id", *PLANNED_COLUMNS)}
    table = merge([replayed.journal], planned_rows(columns))
    about = RunInfo(state="complete", **info)  # type: ignore[arg-type]
    return Run(msgspec.structs.replace(about, server=with_cache_hits(about.server, table)), table)


def findings(replayed: Replayed, slo: str = "ttft=1s,tpot=100ms", **info: object) -> dict[str, Finding]:
    """The trust verdict's findings by code; the evidence of two with one code is put together."""
    found: dict[str, Finding] = {}
    for finding in assess(run_of(replayed, **info), SLO.parse(slo)).findings:
        before = found.get(finding.code)
        evidence = finding.evidence if before is None else {**finding.evidence, **before.evidence}
        found[finding.code] = msgspec.structs.replace(finding, evidence=evidence)
    return found


OK = Outcome.OK
