"""What went along with an answer without making it fail (docs/definitions.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadtest.replay.tokencount import TokenCount
from metrics.records import Flag, Outcome

if TYPE_CHECKING:
    from loadtest.replay.answer import Answer

BUFFERED_EVENTS = 8  # fewer say little about how they came


def flags_of(answer: Answer, count: TokenCount, max_tokens: int) -> Flag:
    """The flags of an answer that was asked for `max_tokens`."""
    flags = count.flags()
    if count.events >= BUFFERED_EVENTS and 2 * answer.shared_read_events >= count.events:
        flags |= Flag.BUFFERED
    if answer.coalesced_reads:
        flags |= Flag.COALESCED
    if answer.malformed_events:
        flags |= Flag.MALFORMED_EVENTS
    if answer.strange_keys:
        flags |= Flag.UNKNOWN_TEXT_KEY
    if answer.outcome() != Outcome.OK:
        return flags
    if not answer.streamed:
        flags |= Flag.NOT_STREAMED
    elif not answer.done_marker:
        flags |= Flag.MISSING_DONE
    if not answer.finish_reason:
        flags |= Flag.MISSING_FINISH_REASON
    if not answer.complete:
        flags |= Flag.UNCLEAN_CLOSE
    if not count.counted:
        flags |= Flag.TOKENS_ESTIMATED
    if not count.output:
        flags |= Flag.EMPTY_OUTPUT
    if 0 <= count.output < max_tokens:
        flags |= Flag.SHORT_OUTPUT
    return flags
