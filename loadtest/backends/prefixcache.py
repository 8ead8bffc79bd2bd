"""KV blocks of prompts that later prompts may begin with, found by hash (vLLM's automatic prefix caching).

A hash stands for a block of tokens and everything before it, so the longest run of known hashes at the start of a
prompt need not be computed again. A block in use is shared and counted once; one that nobody uses any more stays until
its memory is wanted, the longest unused first.
"""

from __future__ import annotations

from collections.abc import Sequence


class PrefixCache:
    """Shared blocks of one instance; `unit` is how many KV blocks one of them takes."""

    def __init__(self, block_tokens: int, block_size: int) -> None:
        self.block_tokens = block_tokens
        self.unit = block_tokens // block_size
        self._users: dict[int, int] = {}
        self._idle: dict[int, None] = {}  # used by nobody, the longest unused first
        self.hit_tokens = 0

    def known(self, prefix: Sequence[int]) -> int:
        """How many blocks at the start of a prompt are here."""
        for count, block in enumerate(prefix):
            if block not in self._users and block not in self._idle:
                return count
        return len(prefix)

    def shared(self, prefix: Sequence[int]) -> int:
        """KV blocks of them that are in use, and so cost nothing more."""
        return self.unit * sum(block in self._users for block in prefix)

    def take(self, prefix: Sequence[int]) -> int:
        """Use these blocks, all of them here; returns the KV blocks that were free till now."""
        woken = 0
        for block in prefix:
            if block in self._idle:
                del self._idle[block]
                woken += self.unit
            self._users[block] = self._users.get(block, 0) + 1
        return woken

    def keep(self, prefix: Sequence[int]) -> int:
        """Share blocks just computed, up to the first that somebody else has brought meanwhile; how many."""
        for count, block in enumerate(prefix):
            if block in self._users or block in self._idle:
                return count
            self._users[block] = 1
        return len(prefix)

    def give_back(self, prefix: Sequence[int]) -> int:
        """Use these blocks no more; returns the KV blocks that are free now."""
        freed = 0
        for block in reversed(prefix):  # the end of a prefix is of use to fewer prompts: it goes first
            self._users[block] -= 1
            if not self._users[block]:
                del self._users[block]
                self._idle[block] = None
                freed += self.unit
        return freed

    def shrink(self, free_blocks: int) -> None:
        """Forget unused blocks until those that stay fit into the free ones."""
        while len(self._idle) * self.unit > free_blocks:
            del self._idle[next(iter(self._idle))]
