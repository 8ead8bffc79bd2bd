"""The engine behind the OpenAI face: requests to workers, tokens back to their clients."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from loadtest.backends.engine.chat import Template, load_template
from loadtest.backends.engine.crew import Crew, Member
from loadtest.backends.engine.messages import (
    Abort,
    Add,
    FromWorker,
    Held,
    Levels,
    Sampling,
    StepDone,
    StepRecord,
    Token,
)
from loadtest.backends.engine.settings import Settings, resolve
from loadtest.backends.engine.tokenizer import Tokenizer, load_tokenizer
from loadtest.backends.server.engine import Load, Page, Refused, Spans, TextListener, Wish
from loadtest.backends.server.meters import StepMeters
from loadtest.clock import Clock, MonotonicClock
from loadtest.deployment import Deployment

_RETRY_AFTER_S = 1
_MAX_ATTEMPTS = 3
_STEPS_KEPT = 50_000
_REQUESTS_KEPT = 20_000


class Job:
    """A request on its way: what was asked, what came, and which attempt is under way."""

    def __init__(
        self,
        request_id: int,
        prompt: list[int],
        max_tokens: int,
        sampling: Sampling,
        listener: TextListener,
        write: Callable[[int], str],
        stops: tuple[str, ...],
        now: float,
    ) -> None:
        self.request_id = request_id
        self.prompt = prompt
        self.max_tokens = max_tokens
        self.sampling = sampling
        self.listener = listener
        self.arrived_s = now
        self.started_s = self.first_s = self.landed_s = float("nan")
        self.tokens: list[int] = []
        self.base = 0  # tokens there were when the attempt began: part of its prompt
        self.generation = 0
        self.attempts = 0
        self.member: Member | None = None
        self.write = write
        self.stops = stops
        self.tail = ""

    @property
    def waiting(self) -> bool:
        """Has no worker begun with it yet?"""
        return self.started_s != self.started_s

    def add(self) -> Add:
        """The message that begins an attempt: what is out already becomes part of the prompt."""
        self.base = len(self.tokens)
        left = self.max_tokens - self.base
        return Add(self.request_id, self.generation, self.prompt + self.tokens, left, self.sampling, self.base)

    def stopped_by(self, text: str) -> bool:
        """Does the answer contain a stop string with this text?"""
        if not self.stops:
            return False
        self.tail = (self.tail + text)[-2 * max(map(len, self.stops)) - len(text) :]
        return any(stop in self.tail for stop in self.stops)

    def spans(self, done_s: float) -> Spans:
        """Where its time went; without a hand-over the transfer takes none."""
        landed_s = self.first_s if self.landed_s != self.landed_s else self.landed_s
        return Spans(
            self.started_s - self.arrived_s, self.first_s - self.started_s, landed_s - self.first_s, done_s - landed_s
        )


class RequestRecord(msgspec.Struct):
    """What the engine knows of a finished request, for /ref/trace; seconds on the monotonic clock."""

    request_id: int
    prompt_tokens: int
    output_tokens: int
    arrived_s: float
    first_token_s: float
    done_s: float
    queue_s: float
    prefill_s: float
    transfer_s: float
    decode_s: float


class Coordinator:
    """Any number of workers that do both phases; `handoff.py` has the one for two phases."""

    def __init__(
        self, settings: Settings, crew: Crew, tokenizer: Tokenizer, clock: Clock, template: Template | None = None
    ) -> None:
        self.settings = settings
        self.crew = crew
        self.jobs: dict[int, Job] = {}
        self.transferred_bytes = 0
        self.steps = StepMeters()
        self._tokenizer = tokenizer
        self._template = template
        self._clock = clock
        self._ids = itertools.count()
        self._held: deque[Job] = deque()  # while there is no worker to take them
        self._levels: dict[int, Levels] = {}
        self._steps: deque[tuple[int, StepRecord]] = deque(maxlen=_STEPS_KEPT)
        self._finished: deque[RequestRecord] = deque(maxlen=_REQUESTS_KEPT)

    @property
    def model(self) -> str:
        return self.settings.name

    @property
    def max_model_len(self) -> int:
        return self.settings.max_model_len

    @property
    def pages(self) -> Mapping[str, Page]:
        return {"/health": self._health, "/ref/config": self._config, "/ref/trace": self._trace}

    def now(self) -> float:
        return self._clock.now()

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text)

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        if self._template is None:
            return self._tokenizer.encode(" ".join(message["content"] for message in messages))
        return self._tokenizer.encode(self._template(messages), special=False)

    def generate(self, prompt: list[int], output_tokens: int, wish: Wish, listener: TextListener) -> int:
        self._check(prompt)
        stop_tokens = wish.stop_token_ids if wish.ignore_eos else wish.stop_token_ids + self.settings.shape.stop_tokens
        sampling = Sampling(wish.temperature, wish.top_p, wish.top_k, wish.seed, stop_tokens, wish.min_tokens)
        write, now = self._tokenizer.writer(), self._clock.now()
        job = Job(next(self._ids), prompt, output_tokens, sampling, listener, write, wish.stop, now)
        self.jobs[job.request_id] = job
        try:
            self.place(job)
        except BaseException:
            self.abort(job.request_id)  # nobody would ever end it
            raise
        return job.request_id

    def abort(self, request_id: int) -> None:
        if job := self.jobs.pop(request_id, None):
            self.withdraw(job)

    def load(self) -> Load:
        used = sum(levels.used_blocks for levels in self._levels.values())
        total = sum(levels.num_blocks for levels in self._levels.values())
        waiting = sum(job.waiting for job in self.jobs.values())
        return Load(len(self.jobs) - waiting, waiting, used / total if total else 0.0, 0, self.transferred_bytes)

    def close(self) -> None:
        """End the workers."""
        self.crew.close()

    # --- what differs with two phases --------------------------------------------------------------------

    @property
    def serving(self) -> bool:
        """Can a new request be answered?"""
        return any(member.ready for member in self.crew.members)

    def place(self, job: Job) -> None:
        """Give a request to a worker, or keep it until there is one."""
        ready = [member for member in self.crew.members if member.ready]
        if not ready:
            self._held.append(job)
            return
        held = {member.number: 0 for member in ready}
        for other in self.jobs.values():
            if other.member is not None and other.member.number in held:
                held[other.member.number] += len(other.prompt) + other.max_tokens
        job.member = min(ready, key=lambda member: held[member.number])
        job.member.send(job.add())

    def withdraw(self, job: Job) -> None:
        """Make the workers forget a request; idempotent."""
        if job.member is not None:
            job.member.send(Abort(job.request_id))

    def member_ready(self, member: Member) -> None:  # noqa: ARG002
        """A worker is there: what was kept has somewhere to go."""
        held, self._held = self._held, deque()
        for job in held:
            if job.request_id in self.jobs:
                self.place_again(job)

    def member_gone(self, member: Member) -> None:
        """A worker died, and what it held with it."""
        self._levels.pop(member.number, None)
        lost = [job for job in self.jobs.values() if job.member is member]
        for job in lost:
            job.member = None
            self.lost(job)

    def heard(self, member: Member, message: FromWorker) -> None:
        """React to what a worker says."""
        if isinstance(message, Held):
            self._levels[member.number] = message.levels
        elif isinstance(message, StepDone):
            self._levels[member.number] = message.levels
            record = message.record
            self._steps.append((member.number, record))
            self.steps.observe(record.ended_s - record.began_s, record.prompt_tokens, record.decodes)
            for request_id in message.started:
                if (job := self.jobs.get(request_id)) and job.waiting:
                    job.started_s = message.record.began_s
            for token in message.tokens:
                if job := self.jobs.get(token.request_id):
                    self.token(job, token, message.record.ended_s)

    # --- common ------------------------------------------------------------------------------------------

    def token(self, job: Job, token: Token, now: float) -> None:
        """Hand a token to the client, and end the request with its last."""
        if not job.tokens:
            job.first_s = now
        job.tokens.append(token.token)
        text = job.write(token.token)
        reason = token.reason
        if not reason and job.stopped_by(text) and len(job.tokens) >= job.sampling.min_tokens:
            reason = "stop"
        if reason:
            del self.jobs[job.request_id]
            if reason == "stop":
                self.withdraw(job)
            self._record(job, now)
        job.listener.text(now, text, reason, token.token)

    def lost(self, job: Job) -> None:
        """A worker took this request with it: once more from the start if that shows nowhere, or as configured."""
        job.attempts += 1
        job.generation += 1
        unseen = not job.tokens and job.attempts == 1
        if unseen or (self.settings.on_worker_failure == "recompute" and job.attempts <= _MAX_ATTEMPTS):
            self.place_again(job)
        else:
            self.fail(job, "The worker that computed this request died.")

    def place_again(self, job: Job) -> None:
        """As `place`, for one of many: what is wrong with it fails it alone, and the others go on."""
        try:
            self.place(job)
        except Exception as error:
            self.withdraw(job)
            self.fail(job, f"The request could not be handed to a worker: {error}")

    def fail(self, job: Job, message: str) -> None:
        """End a request without its tokens."""
        self.jobs.pop(job.request_id, None)
        job.listener.fail(message)

    def _check(self, prompt: Iterable[int]) -> None:
        vocabulary = self.settings.shape.vocab
        if not all(0 <= token < vocabulary for token in prompt):
            raise Refused(400, f"Token ids must be in the range [0, {vocabulary - 1}].")
        if not self.serving:
            raise Refused(503, "A worker is being restarted.", retry_after_s=_RETRY_AFTER_S)
        limit = self.settings.max_queue
        if limit is not None and sum(job.waiting for job in self.jobs.values()) >= limit:
            raise Refused(429, f"{limit} requests are waiting already", retry_after_s=_RETRY_AFTER_S)

    def _record(self, job: Job, now: float) -> None:
        spans = job.spans(now)
        job.listener.spans(spans)
        self._finished.append(
            RequestRecord(job.request_id, len(job.prompt), len(job.tokens), job.arrived_s, job.first_s, now, *spans)
        )

    def _health(self, query: Mapping[str, str]) -> tuple[int, object]:  # noqa: ARG002
        if self.crew.ready:
            return 200, {"status": "ok"}
        down = [f"{member.role} {member.number}" for member in self.crew.members if not member.ready]
        return 503, {"status": "starting", "down": down}

    def _config(self, query: Mapping[str, str]) -> tuple[int, object]:  # noqa: ARG002
        """What a report should say of this server."""
        workers = [
            {**member.hello.facts, "starts": member.starts, "blocks": member.hello.num_blocks}
            for member in self.crew.members
            if member.hello is not None
        ]
        held = {str(number): msgspec.to_builtins(_named(levels)) for number, levels in self._levels.items()}
        return 200, {
            "settings": msgspec.to_builtins(self.settings),
            "placement": self.crew.placement,
            "workers": workers,
            "levels": held,
            **self.link_facts(),
        }

    def link_facts(self) -> dict[str, Any]:
        """What there is to say of a link between workers."""
        return {}

    def _trace(self, query: Mapping[str, str]) -> tuple[int, object]:
        """Finished requests and iterations that ended after `since` (monotonic seconds)."""
        try:
            since = float(query.get("since", "-inf"))
        except ValueError:
            return 400, {"detail": "since must be a number of seconds"}
        requests = [msgspec.to_builtins(record) for record in self._finished if record.done_s > since]
        steps = [{"worker": worker, **_named(step)} for worker, step in self._steps if step.ended_s > since]
        return 200, {"now_s": self._clock.now(), "requests": requests, "steps": steps}


def _named(struct: msgspec.Struct) -> dict[str, Any]:
    """Field names and values: on the wire these are arrays."""
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


async def reference_engine(deployment: Deployment, loop: asyncio.AbstractEventLoop) -> Coordinator:  # noqa: ARG001
    """The engine of a `torch:` deployment with its workers ready; raises UsageError when it cannot be built."""
    from loadtest.backends.engine.handoff import Handoff

    settings = resolve(deployment)
    tokenizer = load_tokenizer(settings.model)
    clock = MonotonicClock()
    crew = Crew(settings, clock)
    kind = Handoff if settings.arrangement == "disaggregated" else Coordinator
    engine = kind(settings, crew, tokenizer, clock, load_template(settings.model))
    try:
        await crew.start(engine)
    except BaseException:
        crew.close()
        raise
    return engine
