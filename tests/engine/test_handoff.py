"""Disaggregated serving when things go wrong: nothing leaks, nothing lands where it must not, every client hears."""

from __future__ import annotations

import socket

import msgspec
import numpy as np
import pytest

from loadtest.backends.engine.messages import Abort, Add, FromWorker, Reserved, Sampling, Stopped
from loadtest.backends.server.engine import Refused
from tests.engine.stage import PICO, Ear, Stage, ask_many, on_stage

SHM = "torch:disaggregated,model=nano,kv_transfer=layerwise"
TCP = SHM + ",kv_link=tcp"
PROMPT = list(range(100))


def undisturbed(prompt: list[int], max_tokens: int) -> list[str]:
    """What the model answers when nothing goes wrong."""
    answers: list[list[str]] = []

    def play(stage: Stage) -> None:
        ear = stage.ask(prompt, max_tokens)[1]
        stage.run(ear)
        answers.append(ear.texts)

    on_stage("torch:chunked,model=nano", play)
    return answers[0]


def until(stage: Stage, tokens: int, ear: Ear) -> None:
    """Let a client receive so many tokens."""
    for _ in range(1000):
        if len(ear.texts) >= tokens:
            return
        stage.turn()
    raise AssertionError(f"{len(ear.texts)} tokens came")


def test_blocks_of_an_aborted_transfer_wait_for_the_writer() -> None:
    """A late layer must never land in blocks that are somebody else's by then."""

    def play(stage: Stage) -> None:
        decode = stage.members[1].worker
        assert decode is not None
        stage.pushing = False
        request_id, ear = stage.ask(PROMPT, 10)
        until(stage, 1, ear)
        stage.engine.abort(request_id)
        for _ in range(5):
            stage.turn()
        assert 7 == stage.settings.num_blocks - decode.scheduler.pool.free  # ceil(110 / 16)
        stage.pushing = True
        for _ in range(5):
            stage.turn()
        assert [] == stage.leaks()

    on_stage(SHM, play)
    on_stage(TCP, play)


def test_an_abort_at_any_moment_leaves_nothing() -> None:
    """Queued, computed, on the wire, landed, decoding, over."""

    def play(stage: Stage) -> None:
        for turns in range(16):
            request_id, _ = stage.ask(PROMPT, 8)
            for _ in range(turns):
                stage.turn()
            stage.engine.abort(request_id)
        for _ in range(30):
            stage.turn()
        assert [] == stage.leaks()

    for deployment in (SHM, TCP, SHM + ",kv_link_gbps=0.01", "torch:chunked,model=nano"):
        on_stage(deployment, play)


@pytest.mark.parametrize("deployment", [SHM, TCP])
def test_prompts_of_a_dead_prefill_worker_are_computed_again(deployment: str) -> None:
    """Once; those whose KV has landed do not notice."""
    expected = undisturbed(PROMPT, 30)

    def play(stage: Stage) -> None:
        landed = stage.ask(PROMPT, 30)[1]
        until(stage, 3, landed)
        stage.held.add("prefill")
        queued = stage.ask(PROMPT, 30)[1]
        stage.turn()
        stage.kill(stage.members[0])
        with pytest.raises(Refused, match="restarted"):
            stage.ask(PROMPT, 30)
        until(stage, 8, landed)
        stage.held.clear()
        stage.start(stage.members[0])
        stage.run(landed, queued)
        assert [expected, expected] == [landed.texts, queued.texts]
        assert [] == stage.leaks()

    on_stage(deployment, play)


def test_a_prefill_worker_that_dies_while_sending() -> None:
    """The first token is out and its KV is lost: computed again only where that is asked for, and said otherwise."""

    def play(stage: Stage) -> None:
        stage.pushing = False
        ear = stage.ask(PROMPT, 10)[1]
        until(stage, 1, ear)
        stage.kill(stage.members[0])
        stage.pushing = True
        stage.start(stage.members[0])
        stage.run(ear)
        if stage.settings.on_worker_failure == "recompute":
            assert expected == ear.texts
        else:
            assert "The worker that computed this request died." == ear.failure
        assert [] == stage.leaks()

    expected = undisturbed(PROMPT, 10)
    for deployment in (SHM, TCP):
        on_stage(deployment, play)
        on_stage(deployment + ",on_worker_failure=recompute", play)


@pytest.mark.parametrize("deployment", [SHM, TCP])
def test_answers_of_a_dead_decode_worker_fail_or_are_computed_again(deployment: str) -> None:
    """`recompute` goes on with the very token that would have been next."""
    expected = undisturbed(PROMPT, 20)

    def play(stage: Stage) -> None:
        ear = stage.ask(PROMPT, 20)[1]
        until(stage, 7, ear)
        stage.held.add("decode")
        computed = stage.ask(PROMPT, 20)[1]
        until(stage, 1, computed)
        stage.kill(stage.members[1])
        for _ in range(5):
            stage.turn()
        stage.held.clear()
        stage.start(stage.members[1])
        stage.run(ear, computed)
        assert expected == computed.texts  # its prompt was still with the prefill worker
        if stage.settings.on_worker_failure == "recompute":
            assert expected == ear.texts
        else:
            assert (expected[:7], "The worker that computed this request died.") == (ear.texts[:7], ear.failure)
        assert [] == stage.leaks()

    on_stage(deployment, play)
    on_stage(deployment + ",on_worker_failure=recompute", play)


def test_a_stalled_link_is_dropped_and_begun_again() -> None:
    """After a lease without progress the same blocks are filled by another attempt."""
    expected = undisturbed(PROMPT, 10)

    def play(stage: Stage) -> None:
        stage.pushing = False
        ears = [stage.ask(PROMPT, 10)[1] for _ in range(3)]
        for _ in range(80):
            stage.turn()
        stage.pushing = True
        stage.run(*ears)
        assert [expected] * 3 == [ear.texts for ear in ears]
        assert [] == stage.leaks()

    on_stage(SHM + ",kv_lease_s=0.05", play)
    on_stage(TCP + ",kv_lease_s=0.05", play)


def test_a_link_into_a_black_hole_fails_the_request_and_heals() -> None:
    """Three attempts, then the client hears; with the address put right the next request is answered."""

    def play(stage: Stage) -> None:
        decode = stage.members[1]
        assert decode.hello is not None
        right = decode.hello
        with socket.create_server(("127.0.0.1", 0)) as hole:
            decode.hello = msgspec.structs.replace(right, address=f"127.0.0.1:{hole.getsockname()[1]}")
            stage.engine.member_ready(decode)
            stage.turn()
            lost = stage.ask(PROMPT, 10)[1]
            stage.run(lost)
            assert "Its KV did not reach the decode worker." == lost.failure
        decode.hello = right
        stage.engine.member_ready(decode)
        for _ in range(5):
            stage.turn()
        assert [] == stage.leaks()
        ear = stage.ask(PROMPT, 10)[1]
        stage.run(ear)
        assert expected == ear.texts

    expected = undisturbed(PROMPT, 10)
    on_stage(TCP + ",kv_lease_s=0.02", play)


def test_a_full_decode_worker_holds_back_the_prefill_worker_and_then_the_client() -> None:
    """Prompts are computed ahead while memory lasts, then they wait, then new ones are refused; all are answered."""

    def play(stage: Stage) -> None:
        ears = []
        for _ in range(7):  # two decode (10 of 20 blocks each), two are computed (7 each), three wait
            ears.append(stage.ask(PROMPT, 60)[1])
            for _ in range(4):
                stage.turn()
        assert (4, 3) == (stage.engine.load().running, stage.engine.load().waiting)
        with pytest.raises(Refused, match="3 requests are waiting already") as raised:
            stage.ask(PROMPT, 60)
        assert 429 == raised.value.status
        stage.run(*ears)
        assert {60} == {len(ear.texts) for ear in ears}
        assert [] == stage.leaks()

    on_stage(SHM + ",num_gpu_blocks=20,max_model_len=320,max_queue=3", play)


def test_a_slow_wire_shows_between_the_first_token_and_the_second() -> None:
    """7 blocks of 16 tokens x 2 layers x 32 values x 4 bytes at 1 Mb/s; layers that leave together arrive together."""
    wire_s = 112 * 2 * 32 * 4 * 8 / 1e6

    def gap(transfer: str) -> float:
        gaps: list[float] = []

        def play(stage: Stage) -> None:
            ear = stage.ask(PROMPT, 3)[1]
            stage.run(ear)
            gaps.append(ear.times[1] - ear.times[0])
            assert ear.told is not None
            assert gaps[0] >= ear.told.transfer_s > 0

        on_stage(f"torch:disaggregated,model=nano,kv_link_gbps=0.001,kv_transfer={transfer}", play)
        return gaps[0]

    # on this stage a prompt takes no time, so layers leave together whatever the mode
    assert wire_s == pytest.approx(gap("serial"), abs=0.003)
    assert wire_s == pytest.approx(gap("layerwise"), abs=0.003)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("deployment", [SHM, TCP + ",kv_lease_s=0.03"])
def test_chaos_leaks_nothing(deployment: str, seed: int) -> None:
    """Arrivals, aborts, deaths of either worker and stalls in any order: every client hears, every block is free."""

    def play(stage: Stage) -> None:
        rng = np.random.default_rng(seed)
        ears: dict[int, Ear] = {}
        for _ in range(150):
            event = rng.random()
            if event < 0.35 and stage.ready:
                prompt = rng.integers(0, PICO.vocab, int(rng.integers(1, 120))).tolist()
                request_id, ear = stage.ask(prompt, int(rng.integers(1, 12)))
                ears[request_id] = ear
            elif event < 0.45 and ears:
                victim = int(rng.choice(list(ears)))
                stage.engine.abort(victim)
                del ears[victim]
            elif event < 0.48 and stage.ready:
                stage.kill(stage.members[int(rng.integers(2))])
            elif event < 0.60:
                for member in stage.members:
                    if not member.ready:
                        stage.start(member)
            elif event < 0.64:
                stage.pushing = not stage.pushing
            stage.turn()
        stage.pushing = True
        for member in stage.members:
            if not member.ready:
                stage.start(member)
        stage.run(*ears.values())
        assert [] == stage.leaks()
        assert all(ear.reason == "length" or ear.failure for ear in ears.values())

    on_stage(deployment + ",on_worker_failure=" + ("recompute" if seed % 2 else "fail"), play)


def test_the_same_requests_after_chaos() -> None:
    """Workers that have been through it still compute what new ones do."""

    def play(stage: Stage) -> None:
        for _ in range(3):
            lost = ask_many(stage, 5)
            stage.kill(stage.members[1])
            stage.kill(stage.members[0])
            for member in stage.members:
                stage.start(member)
            stage.run(*lost)
        ear = stage.ask(PROMPT, 10)[1]
        stage.run(ear)
        assert expected == ear.texts

    expected = undisturbed(PROMPT, 10)
    on_stage(SHM, play)


def test_a_place_found_while_a_prompt_is_computed_is_used_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The layers that are ready leave, the others as they come; other messages wait for the end of the iteration."""

    def play(stage: Stage) -> None:
        member = stage.members[0]
        worker, pusher = member.worker, member.pusher
        assert worker is not None
        assert pusher is not None
        pushed: list[int] = []
        coming = [
            [Add(99, 0, PROMPT, 5, Sampling())],
            [Add(100, 0, PROMPT, 5, Sampling()), Reserved(100, 1, list(range(7, 14)))],  # after layer 0
            [Abort(98), Reserved(99, 1, list(range(7)))],  # after layer 1
        ]
        monkeypatch.setattr(pusher, "layer", lambda _, number: pushed.append(number))
        monkeypatch.setattr(member.channel, "receive", lambda _: coming.pop(0) if coming else [])
        worker.turn()
        assert [0, 1] == pushed
        worker.turn()
        assert [0, 1] * 2 == pushed  # its reservation came before it was looked at, and is not lost
        pusher.drain()
        worker.turn()
        sent = [msgspec.msgpack.decode(data, type=FromWorker) for data in member.channel.outgoing]
        assert Stopped(98) in sent

    on_stage(SHM, play)
