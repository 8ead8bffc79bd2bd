"""The size of prompt blocks: the format's or stated, held against the ids; else what they say."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.errors import WorkloadError
from workloads.formats import read_trace
from workloads.formats.blocks import decided
from workloads.formats.columns import Columns
from workloads.formats.goodput import write
from workloads.shape import clip_context
from workloads.trace import Prefix, Trace

MAP = "time=timestamp,unit=ms,prompt=input_length,output=output_length,blocks=hash_ids"


def read(tmp_path: Path, rows: Iterable[tuple[int, int]], columns: str | None = None, **stated: Any) -> Trace:
    """A Mooncake-like file of rows (prompt tokens, number of ids)."""
    path = tmp_path / "trace.jsonl"
    lines = [
        {"timestamp": 900 * i, "input_length": prompt, "output_length": 3, "hash_ids": list(range(ids))}
        for i, (prompt, ids) in enumerate(rows)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return read_trace(path, columns=None if columns is None else Columns.parse(columns), **stated)


def size_of(trace: Trace) -> tuple[int | None, str | None]:
    assert trace.prefix is not None
    assert trace.reading is not None
    assert trace.prefix.block_tokens == trace.reading.block_tokens
    return trace.reading.block_tokens, trace.reading.block_tokens_by


def refused(*asked: Any, **stated: Any) -> tuple[str, str]:
    with pytest.raises(WorkloadError) as caught:
        read(*asked, **stated)
    assert "block_tokens" == caught.value.code
    return caught.value.message, caught.value.hint


PROMPTS = (100, 777, 1024, 2500, 4097, 6000)


def covered(size: int) -> list[tuple[int, int]]:
    return [(prompt, -(-prompt // size)) for prompt in PROMPTS]


def test_the_size_of_a_format(tmp_path: Path) -> None:
    """512 in Mooncake traces, also where only the first blocks of a prompt are named."""
    assert (512, "format") == size_of(read(tmp_path, covered(512)))
    assert (512, "format") == size_of(read(tmp_path, [(6955, 3), (6472, 2), (9000, 1)]))


def test_more_ids_than_the_prompt_holds(tmp_path: Path) -> None:
    """Seven ids for 100 tokens are blocks of 15 or 16, not of 512; so is a size that somebody states."""
    message, hint = refused(tmp_path, [(100, 7)])
    assert "7 ids for 100 tokens" in message
    assert "--block-tokens 16" in hint
    assert (16, "stated") == size_of(read(tmp_path, [(100, 7)], block_tokens=16))
    refused(tmp_path, covered(64), block_tokens=256)


def test_larger_blocks_than_the_format_has(tmp_path: Path) -> None:
    """Ids that cover all prompts at 1,024 tokens a block would cover half of them at 512."""
    assert "--block-tokens 1024" in refused(tmp_path, covered(1024))[1]
    assert (1024, "stated") == size_of(read(tmp_path, covered(1024), block_tokens=1024))


def test_a_size_that_nobody_states(tmp_path: Path) -> None:
    """In a log of one's own the ids decide, where one power of two explains them, the last block cut or left out."""
    assert (16, "evidence") == size_of(read(tmp_path, covered(16), MAP))
    assert (64, "evidence") == size_of(read(tmp_path, [(prompt, prompt // 64) for prompt in PROMPTS], MAP))
    assert (512, "evidence") == size_of(read(tmp_path, covered(512), MAP))
    assert (48, "stated") == size_of(read(tmp_path, covered(48), MAP + ",block=48"))


@pytest.mark.parametrize("rows", [[(9, 1)], [(5000, 2), (700, 2), (90, 2)], [(390, 3), (270, 3)]])
def test_ids_that_do_not_tell(tmp_path: Path, rows: list[tuple[int, int]]) -> None:
    """No block is full, no size explains all rows, or none that a server has."""
    assert "--block-tokens N" in refused(tmp_path, rows, MAP)[1]


def test_our_own_files_say_it(tmp_path: Path) -> None:
    """Prompts that were cut (clip) keep the ids of what is gone."""
    cut = clip_context(read(tmp_path, covered(512)), 300)
    write(cut, tmp_path / "cut.csv")
    assert (512, "column name") == size_of(read_trace(tmp_path / "cut.csv"))


@given(st.integers(0, 14), st.lists(st.integers(1, 20_000), min_size=1, max_size=30))
def test_true_sizes_are_never_contradicted(power: int, prompts: list[int]) -> None:
    """Blocks that cover the prompts fit their true size, and evidence finds it or leaves it open."""
    size = 2**power
    ids = [-(-prompt // size) for prompt in prompts]
    prefix = Prefix(np.concatenate(([0], np.cumsum(ids))), np.zeros(sum(ids), dtype=np.int64), 1)
    rows = np.ones(len(prompts))
    trace = Trace("t", np.zeros(len(prompts)), np.array(prompts), rows, prefix=prefix)
    assert (size, "format") == decided(Path("t"), trace, size, "format")
    with contextlib.suppress(WorkloadError):
        assert size == decided(Path("t"), trace, None, "evidence")[0]
