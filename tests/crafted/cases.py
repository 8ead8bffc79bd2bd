"""The crafted run directories by name, each with the function that spoils a copy of the whole one."""

from __future__ import annotations

from tests.crafted import archives, documents, journals
from tests.crafted.base import Craft

GROUPS = (
    journals.journals,
    journals.headers,
    journals.rows_in_journals,
    archives.archives,
    archives.columns_of_records,
    archives.columns_of_events,
    archives.probes,
    documents.documents,
    documents.flips,
)


def cases() -> dict[str, Craft]:
    """All of them."""
    found: dict[str, Craft] = {}
    for group in GROUPS:
        for name, craft in group():
            assert name not in found, name
            found[name] = craft
    return found
