from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.backends.simulator import run_simulation, simulate
from loadtest.deployment import Deployment
from workloads.schedule import Schedule

SMALL = "model=demo-8b,max_model_len=600,num_gpu_blocks=80"
NAN = float("nan")


def sessions(due: list[float], think: list[float], session: list[int], lengths: list[tuple[int, int]]) -> Schedule:
    prompts, outputs = zip(*lengths, strict=True)
    count = len(due)
    return Schedule(
        request_id=np.arange(count),
        scheduled_s=np.array(due),
        prompt_tokens=np.array(prompts),
        max_tokens=np.array(outputs),
        session=np.array(session),
        slo_class=np.zeros(count, dtype=np.uint8),
        warmup=np.zeros(count, dtype=bool),
        seed=0,
        salt="",
        trace_name="",
        trace_hash="",
        think_s=np.array(think),
    )


def test_a_turn_comes_when_the_answer_ended_and_its_user_has_thought() -> None:
    """Three turns, thinking 2 s and 0 s; on an idle machine each takes as long as the first."""
    planned = sessions([1.0, NAN, NAN], [0.0, 2.0, 0.0], [7, 7, 7], [(100, 10)] * 3)
    rows = simulate(Deployment.parse(f"emulated:chunked,{SMALL}"), planned).rows
    took_s = rows["done_s"][0] - 1.0
    assert took_s > 0
    assert [1.0, 1.0 + took_s + 2.0, 1.0 + 2 * took_s + 2.0] == pytest.approx(rows["scheduled_s"])
    assert np.array_equal(rows["scheduled_s"], rows["sent_s"])
    assert [took_s] * 3 == pytest.approx(rows["done_s"] - rows["scheduled_s"])


def test_a_refused_turn_is_an_end_too() -> None:
    """The second turn does not fit the context and ends at once; the third comes 3 s after it."""
    planned = sessions([0.0, NAN, NAN], [0.0, 1.0, 3.0], [0, 0, 0], [(100, 10), (900, 10), (100, 10)])
    rows = simulate(Deployment.parse(f"emulated:chunked,{SMALL}"), planned).rows
    ended = rows["done_s"][0]
    assert [200, 400, 200] == rows["http_status"].tolist()
    assert [0.0, ended + 1.0, ended + 4.0] == pytest.approx(rows["scheduled_s"])
    assert rows["done_s"][1] == rows["sent_s"][1]


shapes = st.sampled_from(["chunked,instances=2", "colocated", "disaggregated", "chunked,pp=2", "chunked,max_queue=1"])
turns = st.lists(
    st.tuples(st.floats(0, 2), st.sampled_from([0.0, 0.01, 1.0]), st.integers(1, 350), st.integers(1, 250)),
    min_size=1,
    max_size=25,
)


@settings(max_examples=60)
@given(shapes, turns, st.integers(1, 4))
def test_the_instants_found_give_the_same_answers_as_if_they_had_been_planned(
    shape: str, drawn: list[tuple[float, float, int, int]], users: int
) -> None:
    """Waiting changes when requests are due, nothing else: replayed at those instants, every row is the same."""
    name, *options = shape.split(",")
    deployment = Deployment.parse(",".join([f"emulated:{name}", SMALL, *options]))
    session = [number % users for number in range(len(drawn))]
    first = np.cumsum([gap for gap, *_ in drawn[:users]])
    due = [first[number] if number < users else NAN for number in range(len(drawn))]
    waiting = sessions(due, [d[1] for d in drawn], session, [(d[2], d[3]) for d in drawn])
    found = run_simulation(deployment, waiting).table
    order = np.argsort(found.rows["scheduled_s"], kind="stable")
    planned = replace(waiting.rows(order), scheduled_s=found.rows["scheduled_s"][order], think_s=np.zeros(len(order)))
    again = run_simulation(deployment, planned, quickly=False).table
    for column in ("outcome", "done_s", "first_token_s", "queue_s"):
        assert np.allclose(found.rows[column][order], again.rows[column], atol=1e-9, rtol=0, equal_nan=True), column
    later = found.rows["scheduled_s"][users:] - found.rows["done_s"][:-users]
    assert np.allclose(later, waiting.think_s[users:], atol=1e-9)
