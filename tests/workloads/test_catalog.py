"""The catalogue: complete, unambiguous, honest about what is pinned."""

from __future__ import annotations

import re

import pytest

from workloads import catalog
from workloads.errors import WorkloadError
from workloads.model import BUILTIN


def test_every_entry_is_complete() -> None:
    """A name of its own, https, licence, citation, a hash or an admitted lack of one."""
    names = catalog.names()
    assert len(names) == len(set(names)) > 10
    assert not set(names) & set(BUILTIN)
    for entry in catalog.entries():
        assert entry.url.startswith("https://")
        assert entry.licence in ("CC-BY-4.0", "Apache-2.0", "MIT")
        assert len(entry.citation) > 20
        assert entry.sha256 is None or re.fullmatch("[0-9a-f]{64}", entry.sha256)
        assert (entry.sha256 is None) == (entry.bytes is None)
        assert re.fullmatch(r"[a-z0-9-]+\.(csv|jsonl)", entry.file_name)


def test_azure_hashes() -> None:
    """The two hashes that the description of the traces prints."""
    assert "54e9a6d2a4bd06ba1e060304b900abbc74cbea53de96506e60fe5bb4f2277fb6" == catalog.entry("azure-2023-code").sha256
    assert "2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8" == catalog.entry("azure-2023-conv").sha256


def test_a_misspelt_name() -> None:
    """The nearest one is offered."""
    with pytest.raises(WorkloadError) as caught:
        catalog.entry("azure-2023-codd")
    assert "azure-2023-code" in caught.value.hint
