"""Which text in unknown places is generated output: what changes from event to event, and stands beside no known text.

A label repeats itself or comes along with the tokens; output does neither. So a place is output from its second
different text on, or from its third event (a server may repeat one token), unless the first event with known output
holds it too. The events before that are token events as well, and are handed out late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

MAX_KEYS = 32
REPEATS = 3  # events with one and the same text; the first and the last of a stream often hold the same labels


class Waiting(NamedTuple):
    """An event without known output: the read it came in, its number, and its strings by path."""

    read: int
    number: int
    strings: dict[str, str]


class Strangers:
    """The unknown places of one answer."""

    __slots__ = ("_beside_known", "_first", "_times", "_waiting", "keys")

    def __init__(self, beside_known: Callable[[], dict[str, str]]) -> None:
        self.keys: list[str] = []  # paths found to be generated output
        self._beside_known = beside_known  # the strings of an event with known output
        self._first: dict[str, str] = {}
        self._times: dict[str, int] = {}
        self._waiting: list[Waiting] = []

    def take(self, event: Waiting) -> list[Waiting]:
        """The events that are now known to be token events, in order: this one, and earlier ones it explains."""
        for path, text in event.strings.items():
            if path in self.keys or (path not in self._first and len(self._first) >= MAX_KEYS):
                continue
            first = self._first.setdefault(path, text)
            self._times[path] = times = self._times.get(path, 0) + 1
            if (text != first or times >= REPEATS) and path not in self._beside_known():
                self.keys.append(path)
        events = [*self._waiting[-MAX_KEYS:], event]
        self._waiting = [waiting for waiting in events if waiting.strings.keys().isdisjoint(self.keys)]
        return [waiting for waiting in events if waiting not in self._waiting]

    def text(self, event: Waiting) -> str:
        """What of the event's strings is output."""
        return "".join(text for path, text in event.strings.items() if path in self.keys)

    def reasons(self, event: Waiting) -> bool:
        """By its keys the output of this event is reasoning."""
        paths = [path.lower() for path in event.strings if path in self.keys]
        return all(any(word in path for word in ("reason", "think", "thought")) for path in paths)
