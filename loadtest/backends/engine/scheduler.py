"""The shared policies and `Instance` on measured instead of modelled time, with real tokens and blocks.

An iteration's duration is what the forward pass took: `plan` composes it, the worker computes it, `complete` ends it.
"""

from __future__ import annotations

from sys import maxsize
from typing import NamedTuple

from loadtest.backends.engine.kvcache import BlockPool, Blocks
from loadtest.backends.engine.messages import Add, Expect, Levels
from loadtest.backends.engine.settings import Role, Settings
from loadtest.backends.instance import Finished, Instance
from loadtest.backends.memory import Limits
from loadtest.backends.perfmodel import DecodeFit, Model, PerfModel, PrefillFit, Profile
from loadtest.backends.policies import Chunked, Colocated, ColocatedPrefillFirst, Policy
from loadtest.backends.request import Request


class Sequence:
    """A request in a worker: its tokens, its blocks, and the shared scheduler's view of it."""

    def __init__(self, request: Request, message: Add | Expect, tokens: list[int]) -> None:
        """`tokens` is the prompt, empty where another worker computes it."""
        self.request = request
        self.generation = message.generation
        self.tokens = tokens
        self._elsewhere = request.prompt_tokens - len(tokens)
        self.sampling = message.sampling
        self.answered = message.generated  # tokens of the answer so far, those of earlier attempts included
        self.blocks: Blocks | None = None

    @property
    def length(self) -> int:
        """Tokens of prompt and answer so far."""
        return self._elsewhere + len(self.tokens)

    def append(self, token: int) -> bool:
        """Take the next token; True when it ends the answer early."""
        self.tokens.append(token)
        self.answered += 1
        return token in self.sampling.stop_tokens and self.answered >= self.sampling.min_tokens


class Plan(NamedTuple):
    """An iteration: who decodes, and which pieces of whose prompts."""

    decodes: list[Sequence]
    pieces: list[tuple[Sequence, int]]


class Scheduler:
    """The requests of one worker."""

    def __init__(self, settings: Settings, role: Role) -> None:
        limits = Limits(
            num_blocks=settings.num_blocks,
            block_size=settings.block_size,
            watermark_blocks=0,
            max_num_seqs=settings.max_num_seqs,
            reserve_output=True,
        )
        self.instance = Instance(
            _measured(), policy(settings), limits, hands_off=role == "prefill", decodes=role != "prefill"
        )
        self.pool = BlockPool(settings.num_blocks, settings.block_size)
        self.sequences: dict[int, Sequence] = {}
        self._answers = role != "prefill"

    def add(self, message: Add, now: float) -> None:
        """Queue a prompt."""
        request = Request(message.request_id, len(message.prompt), message.max_tokens, now)
        self._keep(Sequence(request, message, message.prompt))
        self.instance.add(request)

    def expect(self, message: Expect, now: float) -> None:
        """Queue a request whose prompt is computed elsewhere; its first token will come with its KV."""
        request = Request(message.request_id, message.prompt_tokens, message.max_tokens, now)
        request.prefilled, request.generated = message.prompt_tokens, 1
        request.source = self.instance  # anything but None: its KV is still to come
        self._keep(Sequence(request, message, []))
        self.instance.add(request)

    def reserve(self) -> list[Sequence]:
        """Blocks for expected requests at the head of the queue."""
        reserved = [self.sequences[request.request_id] for request in self.instance.pull()]
        for sequence in reserved:
            self._take_blocks(sequence)
        return reserved

    def land(self, sequence: Sequence, token: int) -> None:
        """Its KV is in its blocks: it decodes from the next iteration on."""
        sequence.append(token)
        sequence.request.source = None
        self.instance.land(sequence.request)

    def plan(self, now: float) -> Plan | None:
        """What to compute next; None when there is nothing."""
        step = self.instance.start(now)
        if step is None:
            return None
        of = self.sequences
        decodes = [of[request.request_id] for request in self.instance.decodes.members] if step.decodes else []
        pieces = [(of[request.request_id], tokens) for request, tokens in step.chunks]
        for sequence, _ in pieces:
            if sequence.blocks is None:
                self._take_blocks(sequence)
        return Plan(decodes, pieces)

    def complete(self, now: float) -> Finished:
        """The planned iteration is computed; requests that have all their tokens are forgotten."""
        finished = self.instance.finish(now)
        for request in finished.ended:
            self._drop(request)
        return finished

    def remove(self, request_id: int) -> None:
        """Forget a request, wherever it is; harmless when it has ended."""
        sequence = self.sequences.get(request_id)
        if sequence is None:
            return
        if sequence.request in self.instance.outgoing:
            self.instance.release(sequence.request)
        else:
            self.instance.remove(sequence.request)
        self._drop(sequence.request)

    def levels(self) -> Levels:
        """What is held now."""
        instance = self.instance
        used = instance.limits.num_blocks - self.pool.free
        waiting = len(instance.waiting) + len(instance.reserved)
        return Levels(len(instance.running), waiting, used, instance.limits.num_blocks)

    def _keep(self, sequence: Sequence) -> None:
        self.sequences[sequence.request.request_id] = sequence

    def _take_blocks(self, sequence: Sequence) -> None:
        request = sequence.request
        tokens = request.prompt_tokens + (request.output_tokens if self._answers else 0)
        sequence.blocks = self.pool.take(-(-tokens // self.pool.block_size))

    def _drop(self, request: Request) -> None:
        sequence = self.sequences.pop(request.request_id)
        if sequence.blocks is not None:
            self.pool.give_back(sequence.blocks)


def policy(settings: Settings) -> Policy:
    """The scheduling policy of an arrangement; each phase of a disaggregated one runs whole prompts, or decodes."""
    budget = settings.max_num_batched_tokens
    if settings.arrangement == "chunked":
        return Chunked(budget, settings.long_prefill_token_threshold)
    if settings.arrangement == "colocated_prefill_first":
        return ColocatedPrefillFirst(budget)
    return Colocated(budget)


def _measured() -> PerfModel:
    """Stands where the emulated instance has a model of time: it predicts nothing, and nothing is out of its range."""
    model = Model("", "measured", 0, 0.0, 0, 0, 1, calibrated_batch=maxsize, calibrated_context=maxsize, profiles=())
    profile = Profile("", 1, PrefillFit(0.0, 0.0, 0.0, 0.0, 0.0), DecodeFit(0.0, 0.0, 0.0, 0.0, 0.0, 0.0))
    return PerfModel(model, profile)
