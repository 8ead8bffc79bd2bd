"""The two workers of disaggregated serving: one computes prompts and pushes their KV, the other decodes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from loadtest.backends.engine.kvcache import Blocks
from loadtest.backends.engine.link import Inbox, Transfer
from loadtest.backends.engine.messages import (
    Abort,
    DropLink,
    Dropped,
    Expect,
    Land,
    Landed,
    Release,
    Reserved,
    Stopped,
    ToWorker,
)
from loadtest.backends.engine.pusher import Pusher
from loadtest.backends.engine.runner import Runner
from loadtest.backends.engine.scheduler import Plan, Sequence
from loadtest.backends.engine.settings import Role, Settings
from loadtest.backends.engine.worker import ToServer, Worker
from loadtest.clock import Clock


class PrefillWorker(Worker):
    """Whole prompts; their blocks stay until the decode worker has the KV."""

    role: Role = "prefill"

    def __init__(self, settings: Settings, channel: ToServer, runner: Runner, clock: Clock, pusher: Pusher) -> None:
        super().__init__(settings, channel, runner, clock)
        self._pusher = pusher
        self._places: dict[int, Blocks] = {}  # reserved in the decode worker's memory
        self._transfers: dict[int, Transfer] = {}  # begun, not yet released
        self._put_off: list[ToWorker] = []
        self._still: deque[int] = deque()  # aborted requests of which nothing is being written any more

    def handle(self, message: ToWorker) -> None:
        """A reservation lets a transfer begin as soon as there is something to send."""
        if isinstance(message, Reserved):
            self._reserved(message)
        elif isinstance(message, Release):
            self._cancel(message.request_id)
            self.scheduler.remove(message.request_id)
        elif isinstance(message, Abort):
            self._abort(message.request_id)
        elif isinstance(message, DropLink):
            for request_id in [*self._places, *self._transfers]:
                self._cancel(request_id)
            self._pusher.reset(message.address)
            self._pusher.barrier(partial(self.channel.send, Dropped(message.epoch)))
        else:
            super().handle(message)

    def prepare(self) -> None:
        """Free what the pusher has let go of."""
        while self._still:
            request_id = self._still.popleft()
            self.scheduler.remove(request_id)
            self.channel.send(Stopped(request_id))

    def watcher(self, plan: Plan) -> Callable[[int], None]:
        """Layers of long prompts leave as they are computed, from when there is a place for them."""
        long = [sequence for sequence, _ in plan.pieces if self.settings.overlaps(sequence.request.prompt_tokens)]

        def after(layer: int) -> None:
            self._look_for_places()
            for sequence in long:
                first = layer
                transfer = self._transfers.get(sequence.request.request_id)
                if transfer is None:
                    first, transfer = 0, self._begin(sequence)
                if transfer is not None:
                    for number in range(first, layer + 1):
                        self._pusher.layer(transfer, number)

        return after

    def incoming(self, timeout_s: float | None) -> list[ToWorker]:
        """First what came while a prompt was being computed."""
        put_off, self._put_off = self._put_off, []
        return put_off + self.channel.receive(0 if put_off else timeout_s)

    def _look_for_places(self) -> None:
        """A prompt begins as it arrives, and its reservation comes moments later: not after the whole of it."""
        for message in self.channel.receive(0):
            if isinstance(message, Reserved) and message.request_id in self.scheduler.sequences:
                self._reserved(message)
            else:  # the reservation of a prompt that is put off itself waits behind it
                self._put_off.append(message)

    def hand_off(self, sequence: Sequence, *, over: bool) -> None:
        """All its layers are here: send them, if they have not left."""
        request_id = sequence.request.request_id
        if over:
            self._cancel(request_id)
            self.scheduler.remove(request_id)
        elif request_id not in self._transfers:
            self._send(sequence)

    def _reserved(self, message: Reserved) -> None:
        sequence = self.scheduler.sequences.get(message.request_id)
        if sequence is None or message.generation < sequence.generation:
            return
        sequence.generation = message.generation
        self._places[message.request_id] = Blocks(message.blocks, self.settings.block_size)
        if sequence.request in self.scheduler.instance.outgoing:
            self._send(sequence)

    def _begin(self, sequence: Sequence) -> Transfer | None:
        """Its transfer, when it has a place to go to."""
        request_id = sequence.request.request_id
        place = self._places.pop(request_id, None)
        if place is None or sequence.blocks is None:
            return None
        transfer = Transfer(request_id, sequence.generation, sequence.blocks, place)
        self._transfers[request_id] = transfer
        return transfer

    def _send(self, sequence: Sequence) -> None:
        if transfer := self._begin(sequence):
            self._pusher.whole(transfer)

    def _abort(self, request_id: int) -> None:
        self._cancel(request_id)
        self._pusher.barrier(partial(self._stopped, request_id))

    def _cancel(self, request_id: int) -> None:
        self._places.pop(request_id, None)
        if transfer := self._transfers.pop(request_id, None):
            transfer.cancelled = True

    def _stopped(self, request_id: int) -> None:
        self._still.append(request_id)
        self.channel.wake()


class DecodeWorker(Worker):
    """Decodes alone; blocks are reserved before KV comes."""

    role: Role = "decode"

    def __init__(
        self, settings: Settings, channel: ToServer, runner: Runner, clock: Clock, inbox: Inbox | None
    ) -> None:
        """Without `inbox` the KV is written into our memory by the prefill worker itself."""
        super().__init__(settings, channel, runner, clock)
        self._inbox = inbox
        self._landing: dict[int, Land] = {}

    def patience(self) -> float | None:
        """Until the next KV becomes visible; what is still on its way wakes us."""
        now = self.clock.now()
        waits = [land.visible_s - now for land in self._landing.values() if land.visible_s > now]
        return min(waits, default=None)

    def handle(self, message: ToWorker) -> None:
        """Expectations reserve, landings decode."""
        if isinstance(message, Expect):
            self._expect(message)
        elif isinstance(message, Land):
            sequence = self.scheduler.sequences.get(message.request_id)
            if sequence is not None and sequence.generation == message.generation:
                self._landing[message.request_id] = message
        else:
            if isinstance(message, Abort):
                self._forget(message.request_id)
            super().handle(message)

    def prepare(self) -> None:
        """Whatever KV has become visible decodes; whoever fits gets blocks."""
        now = self.clock.now()
        for land in [land for land in self._landing.values() if land.visible_s <= now and self._is_here(land)]:
            self._forget(land.request_id)
            self.scheduler.land(self.scheduler.sequences[land.request_id], land.token)
            self.channel.send(Landed(land.request_id, land.generation, now))
        for sequence in self.scheduler.reserve():
            self._offer(sequence)

    def _expect(self, message: Expect) -> None:
        sequence = self.scheduler.sequences.get(message.request_id)
        if sequence is None:
            self.scheduler.expect(message, self.clock.now())
            return
        sequence.generation = message.generation  # another attempt, into the blocks it has
        if sequence.request.source is None:  # the last one landed after all
            self.channel.send(Landed(message.request_id, message.generation, self.clock.now()))
            return
        self._landing.pop(message.request_id, None)
        if sequence.blocks is not None:
            self._offer(sequence)

    def _offer(self, sequence: Sequence) -> None:
        assert sequence.blocks is not None
        request_id = sequence.request.request_id
        if self._inbox is not None:
            self._inbox.expect(request_id, sequence.generation, sequence.blocks)
        self.channel.send(Reserved(request_id, sequence.generation, sequence.blocks.ids))

    def _is_here(self, land: Land) -> bool:
        return self._inbox is None or self._inbox.arrived(land.request_id)

    def _forget(self, request_id: int) -> None:
        self._landing.pop(request_id, None)
        if self._inbox is not None:
            self._inbox.forget(request_id)
