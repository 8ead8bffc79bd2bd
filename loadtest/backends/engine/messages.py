"""What the server and its workers tell each other, as MessagePack.

    pooled:         server -Add-> worker -StepDone-> server
    disaggregated:  server -Add-> prefill, -Expect-> decode
                    decode -Reserved-> server -Reserved-> prefill     blocks to push into
                    prefill -StepDone-> server                        the first token
                    prefill -Sent-> server -Land-> decode             all layers are on their way, or there
                    decode -Landed-> server -Release-> prefill        the source blocks may go

`generation` counts the attempts at one request: whatever carries an old one is dropped.
"""

from __future__ import annotations

import msgspec


class Sampling(msgspec.Struct, frozen=True, array_like=True):
    """How tokens are chosen, and which end an answer early; temperature 0 is greedy."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0  # 0: all
    seed: int = 0
    stop_tokens: tuple[int, ...] = ()
    min_tokens: int = 0


class StepRecord(msgspec.Struct, frozen=True, array_like=True):
    """One iteration: when it began and ended (monotonic seconds), and what was in it."""

    began_s: float
    ended_s: float
    prompt_tokens: int
    prompts: int
    decodes: int


class Levels(msgspec.Struct, frozen=True, array_like=True):
    """What a worker holds."""

    running: int = 0
    waiting: int = 0
    used_blocks: int = 0
    num_blocks: int = 1


class _Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """Anything sent."""


# --- to a worker -----------------------------------------------------------------------------------------


class Begin(_Message, frozen=True):
    """The first message: what to be, and on which processors (none named: on all)."""

    role: str
    cores: list[int]


class Add(_Message, frozen=True):
    """Compute this prompt; `generated` of its last tokens are an answer begun elsewhere."""

    request_id: int
    generation: int
    prompt: list[int]
    max_tokens: int
    sampling: Sampling
    generated: int = 0


class Expect(_Message, frozen=True):
    """Make room for a prompt that another worker computes."""

    request_id: int
    generation: int
    prompt_tokens: int
    max_tokens: int
    sampling: Sampling
    generated: int = 0


class Land(_Message, frozen=True):
    """Its KV is in your memory from `visible_s` on; decode behind its first token."""

    request_id: int
    generation: int
    token: int
    visible_s: float


class Release(_Message, frozen=True):
    """Its KV has been copied: free the source."""

    request_id: int


class Abort(_Message, frozen=True):
    """Forget a request; a prefill worker answers Stopped once nothing of it is written any more."""

    request_id: int


class DropLink(_Message, frozen=True):
    """Push nothing of what you have begun, then use `address`; answered with Dropped."""

    epoch: int
    address: str


# --- from a worker ---------------------------------------------------------------------------------------


class Hello(_Message, frozen=True):
    """Ready to compute."""

    address: str  # where a decode worker takes KV over TCP, else empty
    num_blocks: int
    facts: dict[str, str | int | float]


class Heartbeat(_Message, frozen=True):
    """Still alive, however long the iteration in progress takes."""


class Token(msgspec.Struct, frozen=True, array_like=True):
    """A token of a request; `reason` is length or stop with the last one."""

    request_id: int
    token: int
    reason: str = ""


class StepDone(_Message, frozen=True):
    """An iteration is over; `started` are the requests whose prompt it was the first to touch."""

    record: StepRecord
    tokens: list[Token]
    started: list[int]
    levels: Levels


class Held(_Message, frozen=True):
    """What a worker holds, when that has changed without an iteration."""

    levels: Levels


class Reserved(_Message, frozen=True):
    """These blocks of the decode worker's memory are a request's; also forwarded to the prefill worker."""

    request_id: int
    generation: int
    blocks: list[int]


class Sent(_Message, frozen=True):
    """All layers are written, or handed to the wire; the decode side may use them from `visible_s` on."""

    request_id: int
    generation: int
    first_layer_s: float
    last_layer_s: float
    visible_s: float
    sent_bytes: int
    writing_s: float  # spent writing them


class Moving(_Message, frozen=True):
    """The link moves, though no transfer has ended: long ones are no stall. At most a few in a second."""


class Landed(_Message, frozen=True):
    """A request decodes from the next iteration on."""

    request_id: int
    generation: int
    landed_s: float


class Stopped(_Message, frozen=True):
    """A prefill worker writes nothing of this request any more, and has freed it."""

    request_id: int


class Dropped(_Message, frozen=True):
    """The answer to DropLink."""

    epoch: int


ToWorker = Begin | Add | Expect | Reserved | Land | Release | Abort | DropLink
FromWorker = Hello | Heartbeat | StepDone | Held | Reserved | Sent | Moving | Landed | Stopped | Dropped
