"""The catalogue of public traces: where each is, under which licence, and what its bytes must be.

The traces themselves are never part of this program; loadtest/fetch.py brings one into the user's cache.
"""

from __future__ import annotations

import difflib
from functools import cache
from importlib import resources

import msgspec

from workloads.errors import WorkloadError


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A public trace; `sha256` is None for a file whose bytes nobody has pinned yet."""

    name: str
    about: str
    url: str
    licence: str
    citation: str
    sha256: str | None = None
    bytes: int | None = None
    rows: int | None = None

    @property
    def file_name(self) -> str:
        """The name in the cache: ours, with the ending of the source's."""
        return f"{self.name}.{self.url.rsplit('.', 1)[-1]}"


@cache
def entries() -> tuple[Entry, ...]:
    """All of the catalogue."""
    text = resources.files("workloads").joinpath("data", "catalog.json").read_bytes()
    return msgspec.json.decode(text, type=tuple[Entry, ...])


def names() -> list[str]:
    """The names of all entries."""
    return [entry.name for entry in entries()]


def entry(name: str) -> Entry:
    """The entry of this name; WorkloadError `unknown_trace` with the nearest one."""
    for found in entries():
        if found.name == name:
            return found
    near = difflib.get_close_matches(name, names(), n=1)
    raise WorkloadError(
        f"The catalogue has no trace {name!r}.",
        code="unknown_trace",
        hint=f"Did you mean {near[0]}?" if near else "`goodput trace list` shows all of them.",
    )
