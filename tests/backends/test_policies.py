from __future__ import annotations

import pytest

from loadtest.backends.batch import Batch
from loadtest.backends.instance import Instance, Limits, Step
from loadtest.backends.perfmodel import load_perf_model
from loadtest.backends.policies import Chunked, Colocated, ColocatedPrefillFirst, Policy, load_policy
from loadtest.backends.request import Request
from loadtest.backends.spec import resolve
from loadtest.deployment import Deployment
from loadtest.errors import UsageError

LIMITS = Limits(num_blocks=1000, block_size=16, watermark_blocks=10, max_num_seqs=8, reserve_output=False)


class ShortestFirst:
    """A researcher's own policy: one whole prompt per iteration, and nothing of the decodes meanwhile."""

    def __init__(self, budget: int) -> None:
        self.budget = budget

    def compose(self, batch: Batch) -> None:
        if request := batch.next_waiting():
            batch.prefill(request, request.prefill_left)
        else:
            batch.decode_all()


class NoPolicy:
    def __init__(self, budget: int) -> None:
        self.budget = budget


def steps(policy: Policy, prompts: list[int], decodes: int = 0, count: int = 1) -> list[tuple[int, list[int]]]:
    """(decodes, tokens of each prompt piece) of the next iterations, once `decodes` requests decode."""
    instance = Instance(load_perf_model("demo-8b", "h100", 1), policy, LIMITS)
    for request_id in range(decodes):
        instance.add(Request(request_id, 1, 1000, 0.0))
    while len(instance.decodes.members) < decodes:
        instance.start(0.0)
        instance.finish(0.0)
    for request_id, prompt in enumerate(prompts, start=decodes):
        instance.add(Request(request_id, prompt, 1000, 0.0))
    found = []
    for _ in range(count):
        step = instance.start(0.0)
        assert isinstance(step, Step)
        found.append((step.decodes, [tokens for _, tokens in step.chunks]))
        instance.finish(0.0)
    return found


def test_colocated_runs_whole_prompts_beside_all_decodes() -> None:
    """Three prompts fit the budget together with three decodes, the fourth does not."""
    assert [(3, [30, 40, 20]), (6, [10])] == steps(Colocated(100), [30, 40, 20, 10], decodes=3, count=2)


def test_colocated_runs_a_prompt_beyond_the_budget_alone() -> None:
    """It is not split; no other prompt joins it, before or after."""
    assert [(0, [10]), (1, [500]), (2, [20])] == steps(Colocated(100), [10, 500, 20], count=3)


def test_prefill_first_lets_decodes_wait() -> None:
    """As long as a prompt waits nobody decodes."""
    expected = [(0, [60]), (0, [70]), (4, [])]
    assert expected == steps(ColocatedPrefillFirst(100), [60, 70], decodes=2, count=3)


def test_chunked_fills_the_budget_with_pieces() -> None:
    """Decodes first, then the prompt under way, then the next one."""
    assert [(2, [98]), (2, [52, 46]), (3, [4])] == steps(Chunked(100), [150, 50], decodes=2, count=3)


def test_the_threshold_leaves_room_for_other_prompts() -> None:
    """With long_prefill_token_threshold a long prompt takes only that much of each iteration."""
    assert [(0, [30, 30, 20]), (1, [30, 20])] == steps(Chunked(100, 30), [500, 50, 20], count=2)


def test_max_num_seqs_bounds_the_batch() -> None:
    """Eight requests at most, prompts included."""
    assert [(6, [5, 5])] == steps(Chunked(100), [5, 5, 5, 5], decodes=6)


def test_a_policy_of_ones_own_schedules_a_deployment() -> None:
    """The key `policy=package.module:Class` loads it and gives it the token budget."""
    text = "emulated:colocated,policy=tests.backends.test_policies:ShortestFirst,max_num_batched_tokens=300"
    policy = resolve(Deployment.parse(text)).pools[0].policy
    assert isinstance(policy, ShortestFirst)
    assert 300 == policy.budget
    assert [(0, [30]), (0, [40]), (4, [])] == steps(policy, [30, 40], decodes=2, count=3)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("nowhere.at.all:Policy", "No module named"),
        ("tests.backends.test_policies:Missing", "has no attribute 'Missing'"),
        ("tests.backends.test_policies", "cannot be loaded"),
        ("tests.backends.test_policies:NoPolicy", "has no compose"),
    ],
)
def test_a_policy_that_cannot_be_loaded_is_said_so(path: str, reason: str) -> None:
    """One sentence with the reason."""
    with pytest.raises(UsageError, match=reason):
        load_policy(path, 100)
