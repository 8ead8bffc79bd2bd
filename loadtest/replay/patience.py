"""How long to wait for an answer: for ever while it makes progress, and else no longer than was said.

Progress is a token event on the way to the tokens that were asked for. Comments, blank lines and interim answers are
none, nor are tokens beyond those asked for: a server that never ends would keep the run from ending.
"""

from __future__ import annotations

from loadtest.replay.exchange import Exchange
from loadtest.replay.options import SenderOptions
from workloads.schedule import Schedule

DONE_GRACE_NS = 1_000_000_000  # a server that said [DONE] and neither ends the body nor closes
# A part of the live streams each tick: all at once would hold up the reads of all; and each seldom, many reads at a
# time, because what a stream needs for its decoding has left the CPU's caches since.
LOOK_AFTER_TICKS = 32


class Patience:
    """Which requests to look after on a tick, and whether one of them has been waited for long enough."""

    def __init__(self, options: SenderOptions, shard: Schedule) -> None:
        self._max_tokens = shard.max_tokens
        self._queue: list[Exchange] = []
        self._idle_ns = round(options.idle_timeout_s * 1e9)
        self._silent_drain_ns = round(options.drain_limit_s * 1e9)
        total_s = options.drain_total_s
        self._total_drain_ns = None if total_s is None else round(total_s * 1e9)
        self._total_text = "" if total_s is None else f"cut off {total_s:g} s after the last request was due (--drain)"

    def next_few(self, live: set[Exchange]) -> list[Exchange]:
        """Those that are looked at now; all are within LOOK_AFTER_TICKS calls."""
        self._queue = self._queue or list(live)
        share = -(-len(live) // LOOK_AFTER_TICKS)
        few, self._queue = self._queue[:share], self._queue[share:]
        return few

    def why_end(self, exchange: Exchange, end_ns: int, now: int) -> str:
        """Why to end this exchange now; "" to wait on. An answer that has said all is to be taken as it is.

        `end_ns` is the last instant of the schedule.
        """
        answer = exchange.answer
        if self._total_drain_ns is not None and now > end_ns + self._total_drain_ns:
            return self._total_text
        tokens = len(answer.event_reads)
        silent_drained = now > end_ns + self._silent_drain_ns
        if answer.said_all:
            grace_ns = min(DONE_GRACE_NS, self._idle_ns) if answer.done_marker else self._idle_ns
            since_ns = answer.user_ns[answer.last_body_read] if answer.done_marker else progress_ns(exchange)
            return "ended" if silent_drained or now - since_ns > grace_ns else ""
        if not tokens:
            return "timed out waiting for the first token" if silent_drained else ""
        if now - progress_ns(exchange) > self._idle_ns:
            return "timed out waiting between tokens"
        if silent_drained and tokens > self._max_tokens[exchange.index]:
            asked = self._max_tokens[exchange.index]
            return f"cut off: {tokens} tokens came where {asked} were asked for, and no end"
        return ""


def progress_ns(exchange: Exchange) -> int:
    """When the last token came, or the request was sent."""
    answer = exchange.answer
    return answer.user_ns[answer.event_reads[-1]] if answer.event_reads else exchange.sent_ns
