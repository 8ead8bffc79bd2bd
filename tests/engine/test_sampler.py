"""Greedy and seeded sampling: what is drawn depends on the request alone, and follows the distribution."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.stage import torch

# isort: split
from loadtest.backends.engine.messages import Sampling
from loadtest.backends.engine.sampler import sample, uniform


def test_greedy_takes_the_most_likely() -> None:
    """Row by row."""
    logits = torch.tensor([[0.0, 3.0, 1.0], [2.0, 0.0, 1.0]])
    assert [1, 0] == sample(logits, [(Sampling(), 5), (Sampling(), 9)])


def test_a_draw_depends_on_seed_and_position_alone() -> None:
    """Not on the batch around it."""
    logits = torch.randn(1, 50, generator=torch.Generator().manual_seed(0))
    hot = Sampling(temperature=1.0, seed=4)
    alone = [sample(logits, [(hot, position)])[0] for position in range(30)]
    crowd = torch.cat([torch.randn(3, 50), logits])
    assert alone == [sample(crowd, [(Sampling(), 0)] * 3 + [(hot, position)])[-1] for position in range(30)]
    other = Sampling(temperature=1.0, seed=5)
    assert alone != [sample(logits, [(other, position)])[0] for position in range(30)]


def test_draws_follow_the_distribution() -> None:
    """Softmax with temperature; top_k and top_p leave out what they should."""
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    expected = np.exp([4.0, 2.0, 0.0, -2.0]) / np.exp([4.0, 2.0, 0.0, -2.0]).sum()
    drawn = [sample(logits, [(Sampling(temperature=0.5, seed=1), n)])[0] for n in range(4000)]
    assert expected == pytest.approx(np.bincount(drawn, minlength=4) / 4000, abs=0.02)
    assert {0, 1} == {sample(logits, [(Sampling(1.0, 1.0, 2, 1), n)])[0] for n in range(200)}
    assert {0} == {sample(logits, [(Sampling(1.0, 0.6, 0, 1), n)])[0] for n in range(200)}
    assert {0, 1} == {sample(logits, [(Sampling(1.0, 0.7, 0, 1), n)])[0] for n in range(200)}


def test_random_numbers_are_spread() -> None:
    """Neighbouring seeds and positions have nothing in common."""
    numbers = np.array([[uniform(seed, position) for position in range(100)] for seed in range(100)])
    assert 0.5 == pytest.approx(numbers.mean(), abs=0.02)
    assert 1 / 12 == pytest.approx(numbers.var(), abs=0.005)
    assert abs(np.corrcoef(numbers[:-1].ravel(), numbers[1:].ravel())[0, 1]) < 0.05
    assert 0 <= numbers.min() <= numbers.max() < 1
