"""What servers understand and what they answer: one module per family, one `Dialect` per API."""

from __future__ import annotations

from typing import Literal, get_args

from loadtest.replay.dialects import llamacpp, ollama, openai
from loadtest.replay.dialects.dialect import Ask, Dialect, Piece

Api = Literal["completions", "chat", "llamacpp", "ollama", "ollama-chat"]
APIS: tuple[Api, ...] = get_args(Api)
DIALECTS: dict[Api, Dialect] = {
    "completions": openai.COMPLETIONS,
    "chat": openai.CHAT,
    "llamacpp": llamacpp.COMPLETION,
    "ollama": ollama.GENERATE,
    "ollama-chat": ollama.CHAT,
}

__all__ = ["APIS", "DIALECTS", "Api", "Ask", "Dialect", "Piece"]
