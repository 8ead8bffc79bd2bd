"""Runs a real `Sender` on a bare epoll loop against a server, and reads its journal back."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from loadtest import clock
from loadtest.replay.endpoint import Endpoint
from loadtest.replay.exchange import Exchange
from loadtest.replay.reactor import EpollReactor
from loadtest.replay.recorder import Recorder
from loadtest.replay.sender import Sender, SenderOptions
from metrics.journal import JournalContents, JournalWriter, read_journal
from metrics.records import Flag, Outcome, Rows, outcome_name
from workloads.prompts import Prompts
from workloads.schedule import Schedule


@dataclass
class Replayed:
    """What a replay left behind, rows in schedule order."""

    rows: Rows
    journal: JournalContents
    exchanges: list[Exchange]
    t0_ns: int

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
    n = len(scheduled_s)
    return Schedule(
        request_id=np.arange(n),
        scheduled_s=np.array(scheduled_s, dtype=np.float64),
        prompt_tokens=np.full(n, prompt_tokens),
        max_tokens=np.full(n, max_tokens),
        session=np.full(n, -1),
        slo_class=np.zeros(n),
        warmup=np.zeros(n, dtype=bool),
        seed=1,
        salt="test",
        trace_name="test",
        trace_hash="",
    )


def replay(url: str, shard: Schedule, *, lead_s: float = 0.05, limit_s: float = 60.0, **changes: object) -> Replayed:
    """Replay `shard` against `url`; keywords of SenderOptions and Endpoint go to whichever knows them."""
    own = {k: v for k, v in changes.items() if k in SenderOptions.__struct_fields__}
    endpoint = Endpoint.parse(url)
    endpoint = msgspec.structs.replace(endpoint, **{k: v for k, v in changes.items() if k not in own})
    if endpoint.prompt_form == "auto":
        endpoint = msgspec.structs.replace(endpoint, prompt_form="ids")
    options = SenderOptions(**{"keep_text": True, **own})  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records-0.bin"
        reactor = EpollReactor()
        recorder = Recorder(JournalWriter(path, 0), shard, 0)
        sender = Sender(endpoint, shard, Prompts.of(shard), options, recorder, reactor)
        t0_ns = clock.monotonic_ns() + int(lead_s * 1e9)
        sender.start(t0_ns)
        give_up_ns = clock.monotonic_ns() + int(limit_s * 1e9)
        reactor.run_until(lambda: sender.done or clock.monotonic_ns() > give_up_ns)
        assert sender.done, "the replay did not end"
        reactor.close()
        journal = read_journal(path)
    order = np.argsort(journal.rows["request_id"], kind="stable")
    return Replayed(journal.rows[order], journal, sender.finished_exchanges or [], t0_ns)


OK = Outcome.OK
