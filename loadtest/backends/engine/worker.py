"""A process that computes: take in messages, compose an iteration, compute it, say what came of it."""

from __future__ import annotations

from collections.abc import Callable

from loadtest.backends.engine.channel import Channel
from loadtest.backends.engine.messages import Abort, Add, Held, Levels, StepDone, StepRecord, Token, ToWorker
from loadtest.backends.engine.runner import Piece, Runner
from loadtest.backends.engine.scheduler import Plan, Scheduler, Sequence
from loadtest.backends.engine.settings import Role, Settings
from loadtest.backends.instance import Finished
from loadtest.clock import Clock

ToServer = Channel[ToWorker]


class Worker:
    """Both phases: colocated and chunked serving."""

    role: Role = "both"

    def __init__(self, settings: Settings, channel: ToServer, runner: Runner, clock: Clock) -> None:
        self.settings = settings
        self.channel = channel
        self.runner = runner
        self.clock = clock
        self.scheduler = Scheduler(settings, self.role)
        self._busy = False
        self._told = Levels()

    def run(self) -> None:
        """Work until the server is gone."""
        try:
            while True:
                self.turn()
        except (EOFError, ConnectionError):
            return

    def turn(self) -> None:
        """Messages, then one iteration if there is anything to compute."""
        for message in self.incoming(0 if self._busy else self.patience()):
            self.handle(message)
        self.prepare()
        plan = self.scheduler.plan(self.clock.now())
        self._busy = plan is not None
        if plan is not None:
            self._compute(plan)
        elif (levels := self.scheduler.levels()) != self._told:
            self._told = levels
            self.channel.send(Held(levels))

    def incoming(self, timeout_s: float | None) -> list[ToWorker]:
        """The messages to handle now."""
        return self.channel.receive(timeout_s)

    def patience(self) -> float | None:
        """How long to wait for messages when there is nothing to compute, in seconds; None: for ever."""
        return None

    def handle(self, message: ToWorker) -> None:
        """React to one message."""
        if isinstance(message, Add):
            self.scheduler.add(message, self.clock.now())
        elif isinstance(message, Abort):
            self.scheduler.remove(message.request_id)

    def prepare(self) -> None:
        """What has to happen before the next iteration is composed."""

    def watcher(self, plan: Plan) -> Callable[[int], None] | None:  # noqa: ARG002
        """What to call after each layer of this iteration."""
        return None

    def hand_off(self, sequence: Sequence, *, over: bool) -> None:
        """A prompt is computed whose decoding is not ours; `over` when its first token is its last."""

    def _compute(self, plan: Plan) -> None:
        began_s = self.clock.now()
        started = [sequence.request.request_id for sequence, _ in plan.pieces if not sequence.request.prefilled]
        pieces = [_decode(sequence) for sequence in plan.decodes]
        pieces += [_prompt(sequence, count) for sequence, count in plan.pieces]
        takers = plan.decodes + [sequence for sequence, count in plan.pieces if _completes(sequence, count)]
        drawn = self.runner.run(pieces, self.watcher(plan))
        now = self.clock.now()
        early = {sequence.request for sequence, token in zip(takers, drawn, strict=True) if sequence.append(token)}
        finished = self.scheduler.complete(now)
        tokens = [
            Token(sequence.request.request_id, token, _reason(sequence, finished, stopped=sequence.request in early))
            for sequence, token in zip(takers, drawn, strict=True)
        ]
        for request in finished.handed_off:
            sequence = self.scheduler.sequences[request.request_id]
            self.hand_off(sequence, over=request in early or request.output_tokens == 1)
        for request in early:
            self.scheduler.remove(request.request_id)
        prompt_tokens = sum(count for _, count in plan.pieces)
        record = StepRecord(began_s, now, prompt_tokens, len(plan.pieces), len(plan.decodes))
        self._told = self.scheduler.levels()
        self.channel.send(StepDone(record, tokens, started, self._told))


def _decode(sequence: Sequence) -> Piece:
    assert sequence.blocks is not None
    return Piece(sequence.tokens[-1:], sequence.length - 1, sequence.blocks, sequence.sampling)


def _prompt(sequence: Sequence, count: int) -> Piece:
    assert sequence.blocks is not None
    done = sequence.request.prefilled
    sampling = sequence.sampling if _completes(sequence, count) else None
    return Piece(sequence.tokens[done : done + count], done, sequence.blocks, sampling)


def _completes(sequence: Sequence, count: int) -> bool:
    return count == sequence.request.prefill_left


def _reason(sequence: Sequence, finished: Finished, *, stopped: bool) -> str:
    if stopped:
        return "stop"
    request = sequence.request
    last = request in finished.ended or (request in finished.handed_off and request.output_tokens == 1)
    return "length" if last else ""
