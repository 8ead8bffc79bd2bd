"""How many tokens an answer had: the server's count held against what its events showed (docs/definitions.md)."""

from __future__ import annotations

from typing import NamedTuple

from loadtest.replay.dialects.usage import Usage
from loadtest.replay.shown import Shown
from metrics.records import Flag


class TokenCount(NamedTuple):
    """One answer's, as far as it has come."""

    events: int  # token events
    said: int  # the server's count of output tokens; -1 where it gave none
    output: int  # that count, else the token events
    hidden: int  # of the output, counted and never streamed
    first_event: int  # up to and with the first token event, the hidden ones left out; 0 where nothing tells
    text_bytes: int  # of the text, reasoning and calls of its events, about
    over_text: bool  # the server counts more than the text can hold, besides what it names as hidden
    contradicts_itself: bool  # the server's total is no sum of its parts

    @property
    def counted(self) -> bool:
        """The server counted the tokens; a count of none where some came is no count."""
        return self.said > 0 or (self.said == 0 and not self.events)

    def flags(self) -> Flag:
        """What the count gives away about itself."""
        if not self.counted:
            return Flag.TOKENS_ESTIMATED if self.events else Flag(0)
        flags = Flag.HIDDEN_TOKENS if self.hidden else Flag(0)
        if self.over_text:
            flags |= Flag.USAGE_OVER_TEXT
        if self.contradicts_itself:
            flags |= Flag.USAGE_CONTRADICTION
        if self.events > 1 and 1 < self.first_event < self.output - self.hidden:
            flags |= Flag.FIRST_EVENT_TOKENS
        return flags


def count_tokens(usage: Usage, shown: Shown, events: int, quick_bytes: int, *, streamed: bool) -> TokenCount:
    """Of an answer with so many token events; `quick_bytes` is the text of those that `shown` did not see.

    One that is not streamed has no token times that could be wrong, and is not held against its text.
    """
    said, text_bytes = usage.output_tokens(events), shown.text_bytes + quick_bytes
    if said < 0 or (said == 0 and events):
        return TokenCount(events, said, events, 0, shown.first_told, text_bytes, False, False)
    hidden = min(shown.hidden_reasoning(usage.reasoning) + usage.rejected, said)
    most = shown.most_tokens(max(events - shown.token_events, 0), quick_bytes)
    over_text = streamed and said - hidden > most
    if over_text:
        hidden = said - events
    first = shown.first_told
    if not first and shown.first_usage > 0:
        first = max(shown.first_usage - hidden, 1)
    return TokenCount(events, said, said, hidden, first, text_bytes, over_text, usage.contradicts_itself)
