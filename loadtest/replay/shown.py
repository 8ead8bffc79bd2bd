"""What the events of one answer showed, against which the server's count of tokens is held."""

from __future__ import annotations

from loadtest.replay.dialects.dialect import Piece

# Tokens without text: end of sequence, marks of reasoning and of channels; more of them around a tool call.
UNSEEN_TOKENS = 8
UNSEEN_TOKENS_OF_A_CALL = 16


class Shown:
    """Output that was seen, as far as it went the careful way; what went the quick way is added by who asks."""

    __slots__ = (
        "blank_events",
        "calls",
        "first_told",
        "first_usage",
        "reasoning_bytes",
        "reasoning_events",
        "text_bytes",
        "token_events",
        "told_events",
        "told_tokens",
    )

    def __init__(self) -> None:
        self.token_events = self.reasoning_events = self.blank_events = self.calls = 0
        self.text_bytes = self.reasoning_bytes = 0  # UTF-8; reasoning is part of the text
        self.told_tokens = self.told_events = 0  # by token ids or logprobs; the token events that have them
        self.first_told = 0  # tokens of the first token event
        self.first_usage = 0  # the server's count in the first token event: all that was generated until then

    def event(self, piece: Piece) -> None:
        """An event of known output, or of none."""
        self.told_tokens += piece.tokens
        if not piece.token:
            self.blank_events += piece.blank
            return
        self.told_events += piece.tokens > 0
        if piece.call:
            self.calls += 1
            self.text_bytes += utf8_bytes(piece.call)
        self.text_bytes += utf8_bytes(piece.text)
        if not self.token_events:
            self.first_told = piece.tokens
            self.first_usage = piece.usage.completion if piece.usage is not None else 0
        self._token_event(piece.reasoning, bool(piece.reasoning))

    def strange(self, text: str, *, reasoning: bool) -> None:
        """An event whose output stood in a place nobody knew."""
        if reasoning:
            self._token_event(text, True)
        else:
            self.text_bytes += utf8_bytes(text)
            self._token_event("", False)

    def most_tokens(self, quick_events: int, quick_bytes: int) -> int:
        """The answer cannot hold more: those told of, else one for each byte of text and each blank event."""
        unseen = UNSEEN_TOKENS + UNSEEN_TOKENS_OF_A_CALL * self.calls
        if self.told_events and self.told_events == self.token_events and not quick_events:
            return self.told_tokens + unseen
        return self.text_bytes + quick_bytes + self.blank_events + unseen

    def hidden_reasoning(self, reasoning_tokens: int) -> int:
        """Of so many reasoning tokens those that were never streamed: all, or, of a summary, those it cannot hold."""
        if not self.reasoning_events:
            return reasoning_tokens
        can_hold = self.reasoning_bytes + UNSEEN_TOKENS
        return 0 if reasoning_tokens <= can_hold else reasoning_tokens - self.reasoning_events

    def _token_event(self, reasoning: str, is_reasoning: bool) -> None:
        self.token_events += 1
        if is_reasoning:
            self.reasoning_events += 1
            size = utf8_bytes(reasoning)
            self.reasoning_bytes += size
            self.text_bytes += size


def utf8_bytes(text: str) -> int:
    """Length in UTF-8; halves of characters count as what they are."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
