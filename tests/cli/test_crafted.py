"""Run directories from a stranger: more than five hundred, each read or refused in one sentence, in bounded memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.crafted.cases import cases

ROOT = Path(__file__).parents[2]
MIB = 1024  # of address space, the interpreter and its libraries included


def test_no_crafted_run_is_a_bug_of_ours(tmp_path: Path) -> None:
    """Through the loader and `goodput report`: a figure or exit 2, never exit 6, and never more than a gigabyte."""
    child = subprocess.run(
        [sys.executable, "-m", "tests.crafted", str(tmp_path), str(MIB), "text"],
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert 0 == child.returncode, child.stderr
    *wrong, count = map(json.loads, child.stdout.splitlines())
    assert [] == wrong
    assert len(cases()) == count["read"] + count["refused"] > 500
    assert count["refused"] > 100 < count["read"]
