"""The same requests give the same tokens however they are scheduled, and each arrangement keeps its promise."""

from __future__ import annotations

from typing import Any

import pytest

from loadtest.backends.server.engine import Refused
from tests.engine.stage import PICO, Stage, ask_many, on_stage

MODES = [
    "torch:colocated,model=nano",
    "torch:colocated,model=nano,instances=2",
    "torch:colocated_prefill_first,model=nano",
    "torch:chunked,model=nano,max_num_batched_tokens=32,max_num_seqs=32",
    "torch:disaggregated,model=nano,kv_transfer=serial",
    "torch:disaggregated,model=nano,kv_transfer=layerwise",
    "torch:disaggregated,model=nano,kv_transfer=hybrid,layerwise_min_tokens=60",
    "torch:disaggregated,model=nano,kv_link=tcp,kv_transfer=serial",
    "torch:disaggregated,model=nano,kv_link=tcp,kv_transfer=layerwise,kv_link_gbps=0.1,kv_link_latency_us=500",
]


@pytest.fixture(scope="module")
def reference() -> list[list[str]]:
    answers: list[list[str]] = []

    def play(stage: Stage) -> None:
        ears = ask_many(stage, 40)
        stage.run(*ears)
        answers.extend(ear.texts for ear in ears)

    on_stage("torch:chunked,model=nano", play)
    return answers


@pytest.mark.parametrize("deployment", MODES)
def test_the_same_tokens_in_every_arrangement(deployment: str, reference: list[list[str]]) -> None:
    """40 requests, greedy and sampled; afterwards nothing is held anywhere."""

    def play(stage: Stage) -> None:
        ears = ask_many(stage, 40)
        stage.run(*ears)
        assert reference == [ear.texts for ear in ears]
        assert {"length"} == {ear.reason for ear in ears}
        assert [] == stage.leaks()

    on_stage(deployment, play)


def test_a_chunked_step_keeps_its_budget_and_every_decode() -> None:
    """Stall-free: decodes never wait for a prompt, and a step never exceeds max_num_batched_tokens."""

    def play(stage: Stage) -> None:
        running = [stage.ask([1, 2, 3], 60)[1] for _ in range(4)]
        for _ in range(3):
            stage.turn()
        long = stage.ask(list(range(300)), 2)[1]
        stage.run(long, *running)
        busy = [step for step in stage.steps["both"] if step.prompt_tokens]
        assert max(step.prompt_tokens + step.decodes for step in stage.steps["both"]) <= 32
        assert 300 <= sum(step.prompt_tokens for step in busy[1:])
        assert {4} == {step.decodes for step in busy[1:]}

    on_stage("torch:chunked,model=nano,max_num_batched_tokens=32,max_num_seqs=32", play)


def test_a_colocated_step_holds_a_whole_prompt_beside_the_decodes() -> None:
    """The interference that the other two arrangements remove."""

    def play(stage: Stage) -> None:
        running = [stage.ask([1, 2, 3], 20)[1] for _ in range(4)]
        for _ in range(3):
            stage.turn()
        long = stage.ask(list(range(300)), 2)[1]
        stage.run(long, *running)
        assert [(300, 4)] == [(s.prompt_tokens, s.decodes) for s in stage.steps["both"] if s.prompt_tokens > 3 * 4]

    on_stage("torch:colocated,model=nano", play)


def test_a_decode_worker_never_computes_a_prompt() -> None:
    """And the prefill worker never decodes."""

    def play(stage: Stage) -> None:
        stage.run(*ask_many(stage, 20))
        assert {0} == {step.prompt_tokens for step in stage.steps["decode"]}
        assert {0} == {step.decodes for step in stage.steps["prefill"]}

    on_stage("torch:disaggregated,model=nano", play)


def test_stop_tokens_and_stop_strings_end_an_answer() -> None:
    """At their first occurrence, not before min_tokens; ignore_eos knows only those of the request."""

    def play(stage: Stage) -> None:
        whole = stage.ask(list(range(40)), 12)[1]
        stage.run(whole)
        job_text = "".join(whole.texts[:4])
        stopped = stage.ask(list(range(40)), 12, stop=(whole.texts[3],))[1]
        late = stage.ask(list(range(40)), 12, stop=(whole.texts[3],), min_tokens=12)[1]
        stage.run(stopped, late)
        first = whole.texts.index(whole.texts[3])
        assert (whole.texts[: first + 1], "stop") == (stopped.texts, stopped.reason)
        assert (12, job_text) == (len(late.texts), "".join(late.texts[:4]))
        assert [] == stage.leaks()

    on_stage("torch:disaggregated,model=nano", play)
    on_stage("torch:chunked,model=nano", play)


def test_a_stop_token_with_the_first_token_frees_both_sides() -> None:
    """The decode worker had room reserved for what never came."""

    def play(stage: Stage) -> None:
        stop_at_anything = tuple(range(PICO.vocab))
        ear = stage.ask(list(range(100)), 12, stop_token_ids=stop_at_anything)[1]
        stage.run(ear)
        assert (1, "stop") == (len(ear.texts), ear.reason)
        assert [] == stage.leaks()

    for mode in MODES:
        on_stage(mode, play)


def test_a_dead_instance_leaves_its_requests_to_the_other() -> None:
    """Those without a token; the others fail. New ones are served meanwhile."""

    def play(stage: Stage) -> None:
        stage.held.add("both")
        unseen = [stage.ask([1, 2, 3], 5)[1] for _ in range(4)]
        stage.kill(stage.members[0])
        late = stage.ask([1, 2, 3], 5)[1]
        stage.held.clear()
        stage.run(*unseen, late)
        assert {5} == {len(ear.texts) for ear in [*unseen, late]}
        stage.kill(stage.members[1])
        with pytest.raises(Refused, match="restarted"):
            stage.ask([1], 1)
        for member in stage.members:
            stage.start(member)
        begun = stage.ask([1, 2, 3], 50)[1]
        for _ in range(5):
            stage.turn()
        assert begun.texts
        for member in stage.members:
            stage.kill(member)
        assert "The worker that computed this request died." == begun.failure
        for member in stage.members:
            stage.start(member)
        assert [] == stage.leaks()

    on_stage("torch:chunked,model=nano,instances=2", play)


@pytest.mark.parametrize("deployment", ["torch:chunked,model=nano", "torch:disaggregated,model=nano"])
def test_a_request_that_cannot_be_handed_over_leaves_nothing(deployment: str) -> None:
    """Neither a job that counts as waiting for ever nor a block; the next one is answered."""

    def play(stage: Stage) -> None:
        member = stage.members[0]
        send = member.send

        def refuse(_: object) -> None:
            member.send = send  # type: ignore[method-assign]
            raise OverflowError("too wide for a message")

        for _ in range(3):
            member.send = refuse  # type: ignore[method-assign]
            with pytest.raises(OverflowError):
                stage.ask([1, 2, 3], 5)
            member.send = send  # type: ignore[method-assign]
        assert 0 == stage.engine.load().waiting
        after = stage.ask([1, 2, 3], 5)[1]
        stage.run(after)
        assert "length" == after.reason
        assert [] == stage.leaks()

    on_stage(deployment, play)


def test_one_bad_request_does_not_keep_the_others_from_a_new_worker() -> None:
    """When a worker comes back, what cannot be handed over fails alone; the rest is computed."""

    def play(stage: Stage) -> None:
        member = stage.members[0]
        bad, good = stage.ask([1, 2, 3], 5), stage.ask([4, 5], 5)
        place = stage.engine.place

        def picky(job: Any) -> None:
            if job.request_id == bad[0]:
                raise OverflowError("too wide for a message")
            place(job)

        stage.engine.place = picky
        stage.kill(member)
        stage.start(member)
        stage.run(bad[1], good[1])
        assert "too wide" in bad[1].failure
        assert "length" == good[1].reason
        assert [] == stage.leaks()

    on_stage("torch:chunked,model=nano", play)
