"""Disaggregated serving: prompts to one worker, their KV and the rest of the answer to the other.

    Add -> prefill    Expect -> decode    Reserved: decode -> prefill    Sent: prefill -> decode (Land)    Landed: done

The first token comes from the prefill worker; the transfer shows in the gap before the second. A reservation comes
before a transfer, so a full decode worker holds back the prefill worker's memory, and then the queue grows. Nothing
that another worker may still write to is given to anybody else: an aborted request's blocks are freed when the prefill
worker says that it has stopped, and after a restart of the decode worker, when it has dropped all it had begun.
"""

from __future__ import annotations

import asyncio
from collections import deque
from math import inf
from typing import Any

from loadtest.backends.engine.chat import Template
from loadtest.backends.engine.coordinator import Coordinator, Job
from loadtest.backends.engine.crew import Crew, Member
from loadtest.backends.engine.messages import (
    Abort,
    DropLink,
    Dropped,
    Expect,
    FromWorker,
    Land,
    Landed,
    Moving,
    Release,
    Reserved,
    Sent,
    Stopped,
    Token,
)
from loadtest.backends.engine.settings import Settings
from loadtest.backends.engine.tokenizer import Tokenizer
from loadtest.clock import Clock

_MAX_TRANSFERS = 3
_LEASE_CHECKS = 8  # in the length of a lease
_LONGEST_CHECK_S = 1.0
_EXPECTED_BUDGETS = 2  # prompts for which room is reserved before they are computed, in iterations


class Passage:
    """Where the KV of one attempt is on its way from prefill to decode."""

    def __init__(self) -> None:
        self.at_prefill = True  # it has the request, and will until the KV has landed
        self.expected = False  # the decode worker has the request
        self.reserved = False
        self.computed = False
        self.landed = False
        self.sent: Sent | None = None
        self.lease_ends_s = inf
        self.transfers = 1


class Handoff(Coordinator):
    """The requests of a prefill and a decode worker."""

    def __init__(
        self, settings: Settings, crew: Crew, tokenizer: Tokenizer, clock: Clock, template: Template | None = None
    ) -> None:
        super().__init__(settings, crew, tokenizer, clock, template)
        self.prefill, self.decode = crew.members
        self._passages: dict[int, Passage] = {}
        self._queue: deque[Job] = deque()  # computed or to be computed, not yet expected
        self._leaving: dict[int, Passage] = {}  # aborted, while the prefill worker may still be writing
        self._epoch = 0
        self._linked = False  # the prefill worker writes to the decode worker that is there now
        self._sent_s = 0.0
        self._lease_timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        if self._lease_timer is not None:
            self._lease_timer.cancel()
        super().close()

    # --- requests ----------------------------------------------------------------------------------------

    @property
    def serving(self) -> bool:
        return self.crew.ready

    def place(self, job: Job) -> None:
        """To the prefill worker; the decode worker will hear of it when its turn is near."""
        if not self.prefill.ready:
            self._held.append(job)
            return
        self._passages[job.request_id] = Passage()
        self.prefill.send(job.add())
        if job.max_tokens - job.base > 1:
            self._queue.append(job)
            self._pump()

    def withdraw(self, job: Job) -> None:
        """The decode worker's blocks are free only when nothing is written to them any more."""
        passage = self._passages.pop(job.request_id, None)
        if passage is None:
            return
        if passage.at_prefill:
            self._leaving[job.request_id] = passage
            self.prefill.send(Abort(job.request_id))
        elif passage.expected:
            self.decode.send(Abort(job.request_id))

    def token(self, job: Job, token: Token, now: float) -> None:
        """The first of an attempt comes from the prefill worker: the KV may land."""
        passage = self._passages[job.request_id]
        first, passage.computed = not passage.computed, True
        super().token(job, token, now)
        if job.request_id not in self.jobs:
            self._passages.pop(job.request_id, None)
        elif first:
            self._land(job, passage)
        if first:
            self._pump()

    def fail(self, job: Job, message: str) -> None:
        """Also where its KV is."""
        self.withdraw(job)
        super().fail(job, message)

    # --- workers -----------------------------------------------------------------------------------------

    def heard(self, member: Member, message: FromWorker) -> None:
        """Follow each request's KV."""
        if isinstance(message, Stopped):
            self._stopped(message.request_id)
        elif isinstance(message, Dropped):
            if message.epoch == self._epoch:
                self._relink()
        elif isinstance(message, Moving):
            self._moves()
        elif isinstance(message, Reserved | Sent | Landed):
            job = self.jobs.get(message.request_id)
            passage = self._passages.get(message.request_id)
            if job is not None and passage is not None and message.generation == job.generation:
                self._progress(job, passage, message)
        else:
            super().heard(member, message)

    def member_ready(self, member: Member) -> None:
        """With both there, the prefill worker is told where to write."""
        super().member_ready(member)
        if self.crew.ready:
            self._drop_link()
            self._watch_leases()

    def member_gone(self, member: Member) -> None:
        """What the dead worker held is computed again or failed; the other one goes on."""
        self._levels.pop(member.number, None)
        self._linked = False
        self._epoch += 1  # an answer to the last DropLink says nothing any more
        if member is self.prefill:
            self._prefill_gone()
        else:
            self._decode_gone()

    def link_facts(self) -> dict[str, Any]:
        """What the wire is said to do, and what copying took."""
        measured = self.transferred_bytes * 8e-9 / self._sent_s if self._sent_s else None
        return {"link": {"emulated_gbps": self.settings.kv_link_gbps or None, "measured_gbps": measured}}

    # --- transfers ---------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Let the decode worker reserve for the next prompts, not for the whole queue."""
        if not self._linked or not self._queue:
            return
        budget = _EXPECTED_BUDGETS * self.settings.max_num_batched_tokens
        ahead = sum(
            len(self.jobs[request_id].prompt)
            for request_id, passage in self._passages.items()
            if passage.expected and not passage.computed
        )
        while self._queue:
            job = self._queue[0]
            passage = self._passages.get(job.request_id)
            if passage is not None and not passage.expected:
                if not passage.computed:
                    if ahead and ahead + len(job.prompt) > budget:
                        return
                    ahead += len(job.prompt)
                self._expect(job, passage)
            self._queue.popleft()

    def _expect(self, job: Job, passage: Passage) -> None:
        passage.expected = True
        passage.reserved, passage.sent, passage.lease_ends_s = False, None, inf
        prompt, left = len(job.prompt) + job.base, job.max_tokens - job.base
        self.decode.send(Expect(job.request_id, job.generation, prompt, left, job.sampling, job.base))

    def _progress(self, job: Job, passage: Passage, message: Reserved | Sent | Landed) -> None:
        if isinstance(message, Reserved):
            passage.reserved = True
            self.prefill.send(message)
            self._renew(passage)
        elif isinstance(message, Sent):
            passage.sent = message
            self.transferred_bytes += message.sent_bytes
            self._sent_s += message.writing_s
            self._moves()
            self._land(job, passage)
        else:
            passage.landed, passage.at_prefill, passage.lease_ends_s = True, False, inf
            job.landed_s = message.landed_s
            self.prefill.send(Release(job.request_id))

    def _land(self, job: Job, passage: Passage) -> None:
        self._renew(passage)
        if passage.sent is not None and passage.computed:
            token = job.tokens[job.base]
            self.decode.send(Land(job.request_id, job.generation, token, passage.sent.visible_s))

    def _renew(self, passage: Passage) -> None:
        """Progress: from now on a lease's time for the rest. Waiting for room is not on the clock."""
        if passage.reserved and passage.computed and not passage.landed:
            visible_s = passage.sent.visible_s if passage.sent else 0.0
            passage.lease_ends_s = max(self.now(), visible_s) + self.settings.kv_lease_s

    def _moves(self) -> None:
        """Transfers share one link, first come first served: one that moves is no stall for those behind it."""
        for passage in self._passages.values():
            if passage.lease_ends_s < inf and passage.sent is None:
                self._renew(passage)

    def _stopped(self, request_id: int) -> None:
        passage = self._leaving.pop(request_id, None)
        if passage is not None and passage.expected:
            self.decode.send(Abort(request_id))

    # --- failures ----------------------------------------------------------------------------------------

    def _drop_link(self) -> None:
        """Everything begun is given up; Dropped will say that nothing of it is written any more."""
        self._linked = False
        if self.prefill.ready and self.decode.hello is not None:
            self._epoch += 1
            self.prefill.send(DropLink(self._epoch, self.decode.hello.address))

    def _relink(self) -> None:
        """Every transfer that has not landed begins anew: into the blocks it has, or those it will get."""
        self._linked = True
        again = [job for job in self.jobs.values() if self._is_under_way(job)]
        for job in again:
            passage = self._passages[job.request_id]
            job.generation += 1
            if passage.expected:
                self._expect(job, passage)
        waiting = [job for job in again if not self._passages[job.request_id].expected]
        self._queue = deque(sorted(waiting, key=lambda job: not self._passages[job.request_id].computed))
        self._pump()

    def _is_under_way(self, job: Job) -> bool:
        passage = self._passages.get(job.request_id)
        return passage is not None and not passage.landed and job.max_tokens - job.base > 1

    def _prefill_gone(self) -> None:
        """Nothing is written any more: what was expected from it is not."""
        leaving, self._leaving = self._leaving, {}
        for request_id, passage in leaving.items():
            if passage.expected:
                self.decode.send(Abort(request_id))
        for job in [job for job in self.jobs.values() if self._at_prefill(job)]:
            if self._passages.pop(job.request_id).expected:
                self.decode.send(Abort(job.request_id))
            self.lost(job)

    def _at_prefill(self, job: Job) -> bool:
        passage = self._passages.get(job.request_id)
        return passage is not None and passage.at_prefill

    def _decode_gone(self) -> None:
        """Answers under way are lost; prompts that have not left wait for its successor."""
        for passage in self._leaving.values():
            passage.expected = False
        for request_id, passage in list(self._passages.items()):
            if passage.landed:
                del self._passages[request_id]
                self.lost(self.jobs[request_id])
            else:
                passage.expected = passage.reserved = False
                passage.sent, passage.lease_ends_s = None, inf

    def _watch_leases(self) -> None:
        """A transfer that makes no progress for a lease's time is late."""
        if self._lease_timer is not None:
            self._lease_timer.cancel()
        pause_s = min(_LONGEST_CHECK_S, self.settings.kv_lease_s / _LEASE_CHECKS)
        self._lease_timer = asyncio.get_running_loop().call_later(pause_s, self._watch_leases)
        self.check_leases()

    def check_leases(self) -> None:
        """Begin late transfers again; fail those that were late too often."""
        now = self.now()
        late = [job for job in self.jobs.values() if self._is_late(job, now)]
        if not late:
            return
        for job in late:
            passage = self._passages[job.request_id]
            passage.transfers += 1
            passage.lease_ends_s = inf
            if passage.transfers > _MAX_TRANSFERS:
                self.fail(job, "Its KV did not reach the decode worker.")
        self._drop_link()

    def _is_late(self, job: Job, now: float) -> bool:
        passage = self._passages.get(job.request_id)
        return passage is not None and passage.lease_ends_s < now
