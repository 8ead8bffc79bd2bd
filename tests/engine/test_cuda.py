"""On a GPU the same code gives the same answers; skipped where there is none."""

from __future__ import annotations

import pytest

from tests.engine.stage import PICO, torch

# isort: split
from loadtest.backends.engine.kvcache import Blocks, KvCache, kv_shape
from loadtest.backends.engine.messages import Sampling
from loadtest.backends.engine.model import Model
from loadtest.backends.engine.runner import Piece, Runner
from loadtest.backends.engine.weights import load_weights

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")


def test_a_mixed_batch_gives_the_tokens_of_the_cpu() -> None:
    """A piece of a prompt, a whole one and a decode, in float32."""
    tokens = []
    for name in ("cpu", "cuda"):
        device = torch.device(name)
        model = Model(PICO, load_weights("nano", PICO, torch.float32, device), 256)
        size = kv_shape(PICO.layers, 32, 16, PICO.kv_heads, PICO.head_dim)
        runner = Runner(model, KvCache(torch.zeros(size, device=device)))
        places = [Blocks([0, 1, 2, 3], 16), Blocks([9, 5, 7], 16), Blocks([10, 11], 16)]
        prompt = [(7 * n) % 512 for n in range(60)]
        runner.run([Piece(prompt[:30], 0, places[0], None), Piece(prompt[:20], 0, places[2], Sampling())])
        pieces = [
            Piece(prompt[30:], 30, places[0], Sampling()),
            Piece(prompt[:40], 0, places[1], Sampling(0.7, seed=3)),
            Piece([5], 20, places[2], Sampling()),
        ]
        tokens.append(runner.run(pieces))
    assert tokens[0] == tokens[1]
