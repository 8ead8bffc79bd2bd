"""Shared prefixes: the published hit ratios, wanted ones, and what the prompts then really share."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import traces
from workloads.errors import WorkloadError
from workloads.formats import read_trace
from workloads.prompts import Prompts
from workloads.schedule import plan
from workloads.sharing import BLOCK_TOKENS, hit_ratio, share_in_sessions, share_prefix, token_hit_ratio
from workloads.trace import Prefix, Trace

REAL = Path(__file__).parents[3] / "shared" / "traces"


def brute_force(trace: Trace) -> float:
    """Tokens of whole leading blocks that some row before had in the same place, of all prompt tokens."""
    assert trace.prefix is not None
    seen: set[int] = set()
    hits = 0
    for row in range(len(trace)):
        for place, block in enumerate(trace.prefix.row(row)):
            whole = (place + 1) * trace.prefix.block_tokens <= trace.prompt_tokens[row]
            hits += trace.prefix.block_tokens * (block in seen and whole)
            seen.add(block)
    return hits / int(trace.prompt_tokens.sum())


def reachable(trace: Trace, seed: int) -> float:
    """The ratio when each row shares all of its prompt with its group."""
    group = np.random.default_rng(seed).integers(8, size=len(trace))
    known: dict[int, int] = {}
    hits = 0
    for which, tokens in zip(group.tolist(), trace.prompt_tokens.tolist(), strict=True):
        blocks = tokens // BLOCK_TOKENS
        hits += min(blocks, known.get(which, 0))
        known[which] = max(blocks, known.get(which, 0))
    return hits * BLOCK_TOKENS / int(trace.prompt_tokens.sum())


def flat(rows: int, prompt: int = 1000) -> Trace:
    return Trace("t", np.arange(rows) * 10**9, np.full(rows, prompt), np.ones(rows))


@pytest.mark.skipif(not REAL.is_dir(), reason="the Mooncake traces are not beside the project")
@pytest.mark.parametrize(("name", "expected"), [("conversation", 0.366), ("synthetic", 0.640)])
def test_published_hit_ratios(name: str, expected: float) -> None:
    """As the description of the two traces says, to three digits."""
    assert expected == pytest.approx(hit_ratio(read_trace(REAL / f"mooncake_{name}_trace.jsonl.gz")), abs=5e-4)


@given(st.lists(st.integers(1, 3000), min_size=20, max_size=80), st.floats(0, 0.6), st.integers(0, 99))
def test_a_wanted_ratio(prompts: list[int], ratio: float, seed: int) -> None:
    """At least the wanted share and at most a block a row more, counted by brute force; or a clear refusal."""
    trace = Trace("t", np.arange(len(prompts)) * 10**9, np.array(prompts), np.ones(len(prompts)))
    refused = (
        pytest.raises(WorkloadError, match="reach a hit ratio") if ratio > reachable(trace, seed) else nullcontext()
    )
    with refused:
        shared = share_prefix(trace, ratio, np.random.default_rng(seed))
    if ratio > reachable(trace, seed):
        return
    found = brute_force(shared)
    assert found == pytest.approx(token_hit_ratio(shared))
    assert ratio - 1e-9 <= found <= ratio + 2 * BLOCK_TOKENS * len(prompts) / sum(prompts)


def test_prompts_share_what_was_wanted() -> None:
    """Real token ids: a row's longest common beginning with a row before adds up to the ratio."""
    trace = share_prefix(flat(60), 0.4, np.random.default_rng(1))
    schedule = plan(trace, seed=1, salt="aa")
    prompts = Prompts.of(schedule)
    ids = [prompts.token_ids(i, 1000, schedule.blocks(i)).tolist() for i in range(60)]
    hits = 0
    for i, mine in enumerate(ids):
        common = [
            next((k for k, (a, b) in enumerate(zip(mine, ids[j], strict=True)) if a != b), 1000) for j in range(i)
        ]
        hits += max(common, default=0) // BLOCK_TOKENS * BLOCK_TOKENS
    assert 0.4 == pytest.approx(hits / 60_000, abs=0.02)


@pytest.mark.parametrize("ratio", [-0.1, 1.0, 0.999, float("nan")])
def test_ratios_that_cannot_be(ratio: float) -> None:
    """Outside 0 to 1, or more than so few prompts can have."""
    with pytest.raises(WorkloadError) as caught:
        share_prefix(flat(20), ratio, np.random.default_rng(1))
    assert "hit_ratio" == caught.value.code


def test_conversations() -> None:
    """A turn begins with the whole prompt before it; other sessions share nothing; lone rows have no blocks."""
    trace = Trace("t", np.arange(4) * 10**9, np.array([100, 50, 200, 60]), np.ones(4), session=np.array([3, -1, 3, 5]))
    shared = share_in_sessions(trace)
    assert shared.prefix is not None
    rows = [shared.prefix.row(i) for i in range(4)]
    assert ([], rows[0]) == (rows[1], rows[2][:7])
    assert [7, 0, 13, 4] == [len(row) for row in rows]
    assert not set(rows[2]) & set(rows[3])


def test_no_sessions() -> None:
    """Nothing to share in."""
    with pytest.raises(WorkloadError, match="no sessions"):
        share_in_sessions(flat(3))


@given(traces())
def test_ratios_of_any_trace(trace: Trace) -> None:
    """None without blocks, else a share."""
    found = hit_ratio(trace)
    if trace.prefix is None or not len(trace.prefix.ids):
        assert found is None
    else:
        assert 0 <= (found or 0) < 1
        assert brute_force(trace) == pytest.approx(token_hit_ratio(trace))


def test_blocks_beyond_the_prompt_hit_nothing() -> None:
    """A last block that the prompt cuts is not a whole one."""
    trace = Trace(
        "t",
        np.array([0, 1]),
        np.array([20, 20]),
        np.ones(2),
        prefix=Prefix(np.array([0, 2, 4]), np.array([1, 2, 1, 2]), 16),
    )
    assert 16 / 40 == token_hit_ratio(trace)
