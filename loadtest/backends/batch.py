"""The iteration being composed: all that a policy sees of an instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loadtest.backends.request import Request

if TYPE_CHECKING:
    from loadtest.backends.instance import Instance


class Batch:
    """Decodes and pieces of prompts for one iteration, with the sums the performance model asks for."""

    __slots__ = ("_instance", "_offered", "_preempted", "attended", "chunks", "decodes", "prompt_tokens", "tokens")

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._preempted = self._offered = False
        self.tokens = 0  # scheduled so far: one per decode, and prompt_tokens
        self.prompt_tokens = 0
        self.attended = 0  # sum over the pieces of c (2 done + c)
        self.decodes = 0
        self.chunks: list[tuple[Request, int]] = []

    @property
    def settled(self) -> bool:
        """Would the next iteration be composed the same, as long as nobody arrives, ends or is preempted?

        Decodes alone stay alone: whoever could not be admitted beside them finds even less memory later.
        """
        return not (self.chunks or self._preempted or self._offered)

    def decode_all(self) -> None:
        """Give every running decode its next token; preempts the newest requests if KV blocks run out."""
        instance = self._instance
        if instance.decodes.members:
            self._preempted = instance.grow()
        self.decodes = len(instance.decodes.members)
        self.tokens += self.decodes

    def begun(self) -> list[Request]:
        """Admitted requests whose prompt is not complete, oldest first."""
        return list(self._instance.prefilling)

    def next_waiting(self) -> Request | None:
        """The head of the queue if it can be admitted now (KV blocks, max_num_seqs, nobody preempted), else None."""
        if self._preempted or not self._instance.waiting:
            return None
        request = self._instance.head()
        self._offered |= request is not None
        return request

    def prefill(self, request: Request, tokens: int) -> None:
        """Compute that many more tokens of its prompt; admits it if it was waiting."""
        if request not in self._instance.running:
            self._instance.admit(request)
        self.chunks.append((request, tokens))
        self.tokens += tokens
        self.prompt_tokens += tokens
        self.attended += tokens * (2 * request.prefilled + tokens)
