"""From a finished exchange to its row, journalled before anybody is told of it."""

from __future__ import annotations

from math import nan

import numpy as np
from numpy.typing import NDArray

from loadtest import secrets
from loadtest.replay.exchange import Exchange
from loadtest.replay.flags import flags_of
from loadtest.replay.rowpacker import Row, blank_row, pack
from loadtest.replay.stamps import ReadTimes
from loadtest.replay.tally import Tally
from loadtest.replay.texts import error_text
from loadtest.replay.tokencount import TokenCount
from metrics.journal import ERROR_CHARACTERS, JournalWriter
from metrics.records import NO_KERNEL_STAMP, Flag, Outcome, Phase, StampSource, WorkerStats
from metrics.runinfo import DISK_FULL
from workloads.schedule import Schedule

MAX_KEYS = 10  # of unknown places of text: a server has one or two
_LOOKED_AT = 4 * ERROR_CHARACTERS  # of an error text: the journal keeps less, and a secret may lie across its end
_U4_MAX, _U2_MAX = 2**32 - 1, 2**16 - 1


class Recorder:
    """Writes one worker's rows; times become seconds since `stats.zero_ns`, the schedule's zero."""

    def __init__(self, journal: JournalWriter, shard: Schedule, worker: int, slo: str = "") -> None:
        self._journal, self._shard = journal, shard
        self.tally = Tally(slo)
        self._blank = blank_row() | {"worker": worker}
        self.stats = WorkerStats(worker=worker)
        self._closing = False
        self.waited_s: dict[int, float] = {}  # the instants of rows that waited for another

    def unsent(self, index: int, outcome: Outcome, now_ns: int, error: str = "") -> None:
        """A row that was never put on the wire (skipped because it was too late, say)."""
        row = self._begin(index)
        row["outcome"] = outcome
        row["done_s"] = self._seconds(now_ns)
        self._journal.record(pack(row), error=_masked(error))

    def finished(
        self, exchange: Exchange, times: ReadTimes, outcome: Outcome, phase: Phase, done_ns: int, error: str = ""
    ) -> Row:
        """A row that was sent, however it ended; `times` are those of the answer's reads."""
        row, answer = self._begin(exchange.index), exchange.answer
        count = answer.count
        event_reads = np.frombuffer(answer.event_reads, dtype=np.uint32)
        events_ns = times.ns[event_reads]
        lag_us = times.lag_ns[event_reads] // 1000
        row["outcome"], row["phase"], row["http_status"] = outcome, phase, answer.status
        for column, stamp in (
            ("sent_s", exchange.sent_ns),
            ("headers_s", times.at(answer.headers_read)),
            ("first_token_s", int(events_ns[0]) if len(events_ns) else 0),
            ("first_answer_s", times.at(answer.first_answer_read)),
            ("last_token_s", int(events_ns[-1]) if len(events_ns) else 0),
            ("done_s", done_ns),
        ):
            row[column] = self._seconds(stamp)
        row["connect_s"] = exchange.connect_ns / 1e9 if exchange.connect_ns >= 0 else nan
        row["client_queue_s"] = exchange.queue_ns / 1e9
        row["served_prompt_tokens"] = answer.prompt_tokens
        row["output_tokens"], row["hidden_tokens"] = count.output, count.hidden
        row["token_events"] = len(events_ns)
        row["flags"] = self._flags(exchange, count, int(row["max_tokens"]), outcome, times.stepped)
        row["attempts"], row["reconnects"] = exchange.attempts, exchange.reconnects
        reads, kernel_reads = len(times.ns), int(np.count_nonzero(times.lag_ns >= 0))
        row["stamp_source"] = _source(reads, kernel_reads)
        row["reads"], row["kernel_reads"] = reads, kernel_reads
        row["coalesced_reads"] = answer.coalesced_reads
        if answer.spans is not None:
            row["queue_s"], row["prefill_s"], row["transfer_s"], row["decode_s"] = answer.spans
        row["loop_lag_max_us"] = max(int(times.lag_ns.max(initial=0)), 0) / 1e3
        self.stats.reads += reads
        self.stats.kernel_reads += kernel_reads
        self.stats.cached_prompt_tokens += answer.cached_tokens
        if answer.strange_keys:
            self._remember(answer.strange_keys)
        us = np.clip((events_ns - exchange.sent_ns + 500) // 1000, 0, _U4_MAX).astype("<u4")
        tokens = _tokens_per_event(count.events, count.output - count.hidden, count.first_event)
        lags = np.where(lag_us < 0, NO_KERNEL_STAMP, np.minimum(lag_us, NO_KERNEL_STAMP - 1)).astype("<u2")
        self._journal.record(pack(row), us.tobytes(), tokens.tobytes(), lags.tobytes(), _masked(error))
        self.tally.add(row)
        return row

    def flush(self) -> None:
        """Once a second; rows that a full disk does not take wait in memory for the next time."""
        self._journal.flush()

    @property
    def trouble(self) -> str:
        """Why rows are waiting for the disk; empty when they are not."""
        return self._journal.trouble

    def must_end(self) -> str:
        """Why the run cannot go on: more rows wait for the disk than may; empty while it can."""
        return f"{DISK_FULL}: {self.trouble}" if self.trouble and self._journal.overflowing else ""

    def close(self) -> bool:
        """Write what the worker says of itself and mark the journal as ended; False while the disk takes no more."""
        if not self._closing:
            self._closing = True
            self._journal.stats(self.stats)
        return self._journal.close()

    def abandon(self) -> None:
        """Give up what the disk did not take: the journal stays without an end."""
        self._journal.abandon()

    def _remember(self, keys: list[str]) -> None:
        """They come from the server: made fit to be printed, and not more than somebody would read."""
        known = self.stats.unknown_text_keys
        new = [key for key in map(error_text, keys) if key not in known]
        self.stats.unknown_text_keys = [*known, *new][:MAX_KEYS]

    def _begin(self, index: int) -> Row:
        row, shard = self._blank.copy(), self._shard
        row["request_id"] = shard.request_id.item(index)
        row["session"] = shard.session.item(index)
        row["slo_class"] = shard.slo_class.item(index)
        row["warmup"] = shard.warmup.item(index)
        row["scheduled_s"] = self.waited_s.get(index, shard.scheduled_s.item(index))
        row["prompt_tokens"] = shard.prompt_tokens.item(index)
        row["max_tokens"] = shard.max_tokens.item(index)
        return row

    def _seconds(self, stamp_ns: int) -> float:
        return (stamp_ns - self.stats.zero_ns) / 1e9 if stamp_ns else nan

    def _flags(self, exchange: Exchange, count: TokenCount, max_tokens: int, outcome: Outcome, stepped: bool) -> Flag:
        flags = flags_of(exchange.answer, count, max_tokens)
        if exchange.reconnects:
            flags |= Flag.RECONNECTED
        if exchange.redirects:
            flags |= Flag.REDIRECTED
        if stepped:
            flags |= Flag.CLOCK_STEP
        if outcome != Outcome.OK:
            flags &= ~(Flag.EMPTY_OUTPUT | Flag.SHORT_OUTPUT | Flag.MISSING_DONE | Flag.MISSING_FINISH_REASON)
        return flags


def _masked(error: str) -> str:
    """What a server said, without a secret that it was sent and says again."""
    return secrets.mask(error[:_LOOKED_AT]) if error else ""


def _source(reads: int, kernel_reads: int) -> StampSource:
    if not reads:
        return StampSource.NONE
    if kernel_reads == reads:
        return StampSource.KERNEL
    return StampSource.MIXED if kernel_reads else StampSource.USER


def _tokens_per_event(events: int, total: int, first: int) -> NDArray[np.uint16]:
    """The token count spread evenly over the events, 1 each at least; where it is known, the first has `first`."""
    if 1 < first < total and events > 1:
        return np.concatenate([np.array([min(first, _U2_MAX)], dtype="<u2"), _spread(events - 1, total - first)])
    return _spread(events, total)


def _spread(events: int, total: int) -> NDArray[np.uint16]:
    tokens = np.ones(events, dtype="<u2")
    if total > events > 0:
        each, more = divmod(total, events)
        tokens[:] = min(each, _U2_MAX - 1)
        tokens[:more] += 1
    return tokens
