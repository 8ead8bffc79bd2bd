"""What an adapter is: a tool's command line for N closed-loop streams, and the reading of what it reports."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from typing import Any, NamedTuple


class Ask(NamedTuple):
    """`requests` chat requests of `tokens` tokens each, `streams` at a time; the tool may use `folder`."""

    url: str
    model: str
    streams: int
    requests: int
    prompt_tokens: int
    tokens: int
    folder: Path
    tokenizer: Path


class Reported(NamedTuple):
    """What a tool says itself, milliseconds; NaN where it does not say."""

    requests: int
    ttft_p50_ms: float = nan
    ttft_p99_ms: float = nan
    itl_p99_ms: float = nan


@dataclass(frozen=True)
class Peer:
    """One tool: `command` gets its interpreter, `read` the request and what the tool printed."""

    name: str
    title: str
    command: Callable[[Path, Ask], list[str]]
    read: Callable[[Ask, str], Reported]
    python: tuple[int, int] = (3, 11)
    no_deps: bool = False  # the one package alone, where its dependencies are not part of the client
    rounds: int = 1
    here: bool = False  # part of this checkout: nothing to install
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def requirements(self) -> Path:
        """The pinned versions."""
        return Path(__file__).parent / "requirements" / f"{self.name}.txt"


def document(path: Path) -> Any:
    """A JSON file that a tool wrote; SystemExit when it did not."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SystemExit(f"bench: the tool left no report: {error}") from None


def only(folder: Path, pattern: str) -> Path:
    """The newest file that matches; SystemExit when none does."""
    found = sorted(folder.rglob(pattern), key=lambda path: path.stat().st_mtime)
    if not found:
        raise SystemExit(f"bench: the tool left no {pattern}")
    return found[-1]
