"""How many tokens an answer had: the server's count held against what its events showed (docs/definitions.md)."""

from __future__ import annotations

from typing import NamedTuple

from loadtest.replay.dialects.usage import Usage
from loadtest.replay.shown import Shown
from metrics.records import Flag


class TokenCount(NamedTuple):
    """One answer's, as far as it has come."""

    usage: Usage
    shown: Shown
    events: int  # token events
    quick_bytes: int  # of text in the events that `shown` did not see
    streamed: bool

    @property
    def said(self) -> int:
        """The server's count of output tokens; -1 where it gave none."""
        return self.usage.output_tokens(self.events)

    @property
    def counted(self) -> bool:
        """The server counted the tokens; a count of none where some came is no count."""
        return self.said > 0 or (self.said == 0 and not self.events)

    @property
    def output(self) -> int:
        """The server's count, else the token events (flagged TOKENS_ESTIMATED)."""
        said = self.said
        return said if said > 0 or (said == 0 and not self.events) else self.events

    @property
    def hidden(self) -> int:
        """Tokens counted and never streamed: those the server names, and what no event can have held."""
        if not self.counted:
            return 0
        return self.said - self.events if self._over_text else self._named_hidden

    @property
    def first_event(self) -> int:
        """Tokens up to and with the first token event, those never streamed left out; 0 where nothing tells."""
        if self.shown.first_told or self.shown.first_usage <= 0:
            return self.shown.first_told
        return max(self.shown.first_usage - self.hidden, 1)

    def flags(self) -> Flag:
        """What the count gives away about itself."""
        flags = Flag(0)
        if not self.counted:
            return Flag.TOKENS_ESTIMATED if self.events else flags
        hidden = self.hidden
        if hidden:
            flags |= Flag.HIDDEN_TOKENS
        if self._over_text:
            flags |= Flag.USAGE_OVER_TEXT
        if self.usage.contradicts_itself:
            flags |= Flag.USAGE_CONTRADICTION
        if self.events > 1 and 1 < self.first_event < self.output - hidden:
            flags |= Flag.FIRST_EVENT_TOKENS
        return flags

    @property
    def _named_hidden(self) -> int:
        named = self.shown.hidden_reasoning(self.usage.reasoning) + self.usage.rejected
        return min(named, max(self.said, 0))

    @property
    def _over_text(self) -> bool:
        """The server counts more tokens than the text can hold, whatever it names as hidden.

        Not asked of an answer in one piece: it has no token times that could be wrong.
        """
        if not self.streamed:
            return False
        most = self.shown.most_tokens(max(self.events - self.shown.token_events, 0), self.quick_bytes)
        return self.said - self._named_hidden > most
