"""The whole engine in one thread: real coordinator, workers, links and memory, no processes and no waiting."""

# ruff: noqa: E402  without torch there is nothing to import
from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the engine needs the torch extra")
pytest.importorskip("safetensors", reason="the engine needs the torch extra")

from loadtest import clock
from loadtest.backends.engine.coordinator import Coordinator
from loadtest.backends.engine.handoff import Handoff
from loadtest.backends.engine.kvcache import KvCache, kv_shape
from loadtest.backends.engine.link import Inbox, SharedLink, TcpLink, Transfer, VirtualWire
from loadtest.backends.engine.messages import FromWorker, Hello, StepRecord, ToWorker
from loadtest.backends.engine.model import Model
from loadtest.backends.engine.phases import DecodeWorker, PrefillWorker
from loadtest.backends.engine.pusher import Pusher
from loadtest.backends.engine.runner import Runner
from loadtest.backends.engine.settings import Role, Settings, resolve
from loadtest.backends.engine.shapes import Shape
from loadtest.backends.engine.tokenizer import ByteTokenizer
from loadtest.backends.engine.weights import load_weights
from loadtest.backends.engine.worker import Worker
from loadtest.backends.server.engine import Spans, Wish
from loadtest.clock import VirtualClock
from loadtest.deployment import Deployment

torch.set_num_threads(1)  # threads of a team wait for each other, and these matrices are tiny

PICO = Shape(2, 32, 64, 4, 2, 8, 512)
TURN_S = 0.001


def model_of(shape: Shape, max_model_len: int = 1024) -> Model:
    """Random weights, the same every time."""
    return Model(shape, load_weights("nano", shape, torch.float32, torch.device("cpu")), max_model_len)


def cache_of(shape: Shape, blocks: int, block_size: int = 16) -> KvCache:
    return KvCache(torch.zeros(kv_shape(shape.layers, blocks, block_size, shape.kv_heads, shape.head_dim)))


class Ear:
    """A client: its tokens, how they ended, and its spans."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.times: list[float] = []
        self.reason = ""
        self.failure = ""
        self.told: Spans | None = None

    def token(self, time_s: float, finished: bool) -> None:  # noqa: ARG002
        raise AssertionError("an engine with texts hands them over")

    def text(self, time_s: float, text: str, reason: str, token: int) -> None:  # noqa: ARG002
        assert not self.reason, "a token after the last"
        self.texts.append(text)
        self.times.append(time_s)
        self.reason = reason

    def fail(self, message: str) -> None:
        self.failure = message

    def spans(self, spans: Spans) -> None:
        self.told = spans

    @property
    def over(self) -> bool:
        return bool(self.reason or self.failure)


class StageChannel:
    """A worker's end; messages cross as the bytes they would be."""

    def __init__(self) -> None:
        self.incoming: deque[bytes] = deque()
        self.outgoing: deque[bytes] = deque()

    def send(self, message: object) -> None:
        self.outgoing.append(msgspec.msgpack.encode(message))

    def receive(self, timeout_s: float | None) -> list[ToWorker]:  # noqa: ARG002
        found = [msgspec.msgpack.decode(data, type=ToWorker) for data in self.incoming]
        self.incoming.clear()
        return found

    def wake(self) -> None:
        """Nobody sleeps."""


class StageMember:
    """A place in the crew, with a worker that runs when the stage says so."""

    def __init__(self, role: Role, number: int) -> None:
        self.role = role
        self.number = number
        self.starts = 0
        self.hello: Hello | None = None
        self.channel = StageChannel()
        self.worker: Worker | None = None
        self.pusher: Pusher | None = None
        self.inbox: Inbox | None = None

    @property
    def ready(self) -> bool:
        return self.hello is not None

    def send(self, message: object) -> None:
        if self.ready:
            self.channel.incoming.append(msgspec.msgpack.encode(message))


class CountingLink(TcpLink):
    """Knows how many layers it has written."""

    written = 0

    def write(self, transfer: Transfer, layer: int) -> int:
        size = super().write(transfer, layer)
        self.written += 1
        return size


class Stage:
    """Stands in for the crew, too."""

    def __init__(self, deployment: str, shape: Shape = PICO) -> None:
        settings = resolve(Deployment.parse(deployment))
        blocks = settings.num_blocks if "num_gpu_blocks" in deployment else 256
        self.settings: Settings = msgspec.structs.replace(
            settings, shape=shape, num_blocks=blocks, max_model_len=min(1024, blocks * settings.block_size)
        )
        self.clock = VirtualClock(100.0)
        self.members = [StageMember(role, number) for number, role in enumerate(self.settings.roles)]
        self.placement = "stage"
        self.steps: dict[str, list[StepRecord]] = {member.role: [] for member in self.members}
        self.held: set[str] = set()  # roles that stand still
        self.pushing = True
        self._shared = cache_of(shape, blocks)
        self._link: CountingLink | None = None
        self._model = model_of(shape)
        kind = Handoff if len(self.members) > 1 and self.members[0].role == "prefill" else Coordinator
        self.engine: Any = kind(self.settings, self, ByteTokenizer(), self.clock)  # type: ignore[arg-type]
        for member in self.members:
            self.start(member)

    @property
    def ready(self) -> bool:
        return all(member.ready for member in self.members)

    def close(self) -> None:
        for member in self.members:
            _disconnect(member)

    def start(self, member: StageMember) -> None:
        """A new worker in this place."""
        channel = member.channel = StageChannel()
        shared = self.settings.kv_link == "shm"
        own = self._shared if shared and member.role == "decode" else cache_of(PICO, self.settings.num_blocks)
        runner = Runner(self._model, own)
        address = ""
        if member.role == "prefill":
            self._link = None if shared else CountingLink(own)
            link = SharedLink(own, self._shared) if self._link is None else self._link
            wire = VirtualWire(self.settings.kv_link_gbps, self.settings.kv_link_latency_us)
            member.pusher = Pusher(link, wire, self.settings.shape.layers, self.clock, channel.send)
            member.worker = PrefillWorker(self.settings, channel, runner, self.clock, member.pusher)  # type: ignore[arg-type]
        elif member.role == "decode":
            member.inbox = None if shared else Inbox(own, channel.wake)
            address = member.inbox.address if member.inbox else ""
            if self._link is not None:
                self._link.written = 0
            member.worker = DecodeWorker(self.settings, channel, runner, self.clock, member.inbox)  # type: ignore[arg-type]
        else:
            member.worker = Worker(self.settings, channel, runner, self.clock)  # type: ignore[arg-type]
        member.starts += 1
        member.hello = Hello(address, self.settings.num_blocks, {})
        self.engine.member_ready(member)

    def kill(self, member: StageMember) -> None:
        """The process dies: nothing it has not sent is heard."""
        member.hello = None
        _disconnect(member)
        self.engine.member_gone(member)

    def ask(self, prompt: list[int], max_tokens: int, **wish: Any) -> tuple[int, Ear]:
        """A client's request."""
        ear = Ear()
        return self.engine.generate(prompt, max_tokens, Wish(**wish), ear), ear

    def turn(self) -> None:
        """Every worker once, then what they have to say."""
        self.clock.advance_to(self.clock.now() + TURN_S)
        for member in self.members:
            if member.ready and member.role not in self.held:
                assert member.worker is not None
                member.worker.turn()
                if member.pusher is not None and self.pushing:
                    member.pusher.drain()
                    self._arrive()
        for member in self.members:
            while member.ready and member.channel.outgoing:
                message = msgspec.msgpack.decode(member.channel.outgoing.popleft(), type=FromWorker)
                if hasattr(message, "record"):
                    self.steps[member.role].append(message.record)
                self.engine.heard(member, message)
        if isinstance(self.engine, Handoff):
            self.engine.check_leases()

    def _arrive(self) -> None:
        """What was written to a socket is there a moment later, which on this clock is at once."""
        link, inbox = self._link, self.members[-1].inbox
        if link is None or inbox is None:
            return
        for _ in range(40):
            if inbox.received >= link.written:
                return
            clock.sleep(0.0005)

    def run(self, *ears: Ear, turns: int = 3000) -> None:
        """Until all these have an end."""
        for _ in range(turns):
            if all(ear.over for ear in ears):
                break
            self.turn()
        assert all(ear.over for ear in ears)

    def leaks(self, turns: int = 300) -> list[str]:
        """What is still held when releases and aborts have had time to go round."""
        for _ in range(turns):
            if not self._kept():
                break
            self.turn()
        return self._kept()

    def _kept(self) -> list[str]:
        """Workers that hold anything, and what the coordinator has not forgotten."""
        found = []
        for member in self.members:
            assert member.worker is not None
            scheduler = member.worker.scheduler
            instance = scheduler.instance
            if member.ready and not (scheduler.pool.free == instance.memory.free == self.settings.num_blocks):
                found.append(f"{member.role}: {scheduler.pool.free} {instance.memory.free}")
            if scheduler.sequences:
                found.append(f"{member.role}: {list(scheduler.sequences)}")
        for name in ("jobs", "_passages", "_leaving", "_held"):
            if getattr(self.engine, name, None):
                found.append(name)
        return found


def on_stage(deployment: str, play: Callable[[Stage], None]) -> None:
    """Play on a new stage; timers need a running loop, nothing else does."""

    async def run() -> None:
        stage = Stage(deployment)
        try:
            for _ in range(2):  # until the link is up
                stage.turn()
            play(stage)
        finally:
            stage.close()
            if timer := getattr(stage.engine, "_lease_timer", None):
                timer.cancel()

    asyncio.run(run())


def ask_many(stage: Stage, count: int, seed: int = 7) -> list[Ear]:
    """Requests of mixed lengths; every other one sampled with a seed of its own."""
    rng = np.random.default_rng(seed)
    ears = []
    for number in range(count):
        prompt = rng.integers(0, PICO.vocab, int(rng.integers(1, 150))).tolist()
        sampled = {"temperature": 0.8, "top_p": 0.95, "seed": number} if number % 2 else {}
        ears.append(stage.ask(prompt, int(rng.integers(1, 20)), **sampled)[1])
        if number % 3 == 0:
            stage.turn()
    return ears


def _disconnect(member: StageMember) -> None:
    if member.inbox is not None:
        member.inbox.close()
    if member.pusher is not None:
        member.pusher.reset("")
