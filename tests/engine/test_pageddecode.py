"""The decode kernel through Triton's interpreter: arithmetic, not speed; skipped where Triton is not installed."""

from __future__ import annotations

import os

import pytest

from tests.engine.stage import PICO, cache_of, model_of, torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
pytest.importorskip("triton", reason="Triton comes with torch for CUDA")

# isort: split
from loadtest.backends.engine.kvcache import Blocks
from loadtest.backends.engine.messages import Sampling
from loadtest.backends.engine.pageddecode import decode, pages_of, plain, probe
from loadtest.backends.engine.runner import Piece, Runner

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("group", [1, 3, 4, 7])
def test_every_length_and_group_is_what_torch_computes(group: int) -> None:
    """One token, a page, a page and one, many pages; pages anywhere; more splits than pages."""
    generator = torch.Generator().manual_seed(group)
    rows = torch.randn(40 * 16, 2, 2, 32, generator=generator).to(DEVICE)
    lengths = [1, 16, 17, 100, 250]
    queries = torch.randn(len(lengths), 2 * group, 32, generator=generator).to(DEVICE)
    held = [Blocks(torch.randperm(40, generator=generator)[: -(-n // 16)].tolist(), 16) for n in lengths]
    found = decode(queries, rows, pages_of(list(zip(held, lengths, strict=True)), DEVICE), 16)
    for query, blocks, length, got in zip(queries, held, lengths, found, strict=True):
        expected = plain(query, rows[blocks.slots[:length].to(DEVICE)])
        assert float((got - expected).abs().max()) < 2e-6


def test_a_batch_gives_the_same_tokens_through_the_kernel() -> None:
    """Decodes, a piece of a prompt and a whole one in one iteration."""
    tokens = []
    for paged in (False, True):
        runner = Runner(model_of(PICO), cache_of(PICO, 32), paged=paged)
        places = [Blocks([0, 1, 2, 3], 16), Blocks([9, 5, 7], 16), Blocks([10, 12], 16), Blocks([20, 21], 16)]
        prompt = [(7 * n) % 512 for n in range(60)]
        runner.run([Piece(prompt[:size], 0, at, None) for size, at in zip((30, 40, 20), places, strict=False)])
        pieces = [
            Piece([5], 40, places[1], Sampling()),
            Piece([9], 20, places[2], Sampling(0.7, seed=3)),
            Piece(prompt[30:], 30, places[0], Sampling()),
            Piece(prompt[:25], 0, places[3], Sampling()),
        ]
        tokens.append(runner.run(pieces))
    assert tokens[0] == tokens[1]


def test_the_probe_knows_what_works() -> None:
    """Powers of two that agree; anything else is left to torch."""
    assert probe(torch.float32, DEVICE, 8, 2, 64, 16)
    assert not probe(torch.float32, DEVICE, 8, 2, 80, 16)
