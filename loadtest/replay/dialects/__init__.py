"""What servers put into an event, one module per dialect; each turns event data into a `Piece`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Piece:
    """What one event says. `text` and `reasoning` are joined over the event's choices."""

    token: bool = False  # it carries generated output of any channel
    answer: bool = False  # it carries output other than reasoning
    text: str = ""
    reasoning: str = ""
    finish_reason: str | None = None
    completion_tokens: int = -1
    prompt_tokens: int = -1
    reasoning_tokens: int = 0
    error: str | None = None
    malformed: bool = False
