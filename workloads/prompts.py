"""Prompts of an exact length whose content nobody has seen: a pure function of (seed, salt, request id).

A fresh salt per run defeats the server's prefix cache; the same salt repeats the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from workloads.errors import WorkloadError
from workloads.schedule import Schedule
from workloads.tokenizer import words_of
from workloads.words import WORDS

_REQUEST, _BLOCK = 0, 1
# What a piece of a long prompt may cost: some 0.3 ms, so that whoever makes one in pieces holds up nobody.
PIECE_TOKENS = 4096
PIECE_BLOCKS = 16


class Prompts:
    """Makes the prompts of a run.

    Token ids are drawn from [vocabulary[0], vocabulary[1]). `blocks` names shared prompt blocks of `block_tokens`
    tokens (`Schedule.blocks`): requests that name the same block start with the same tokens. Texts are made of `words`,
    each one token; `template_tokens` is what the server adds to a text (chat template, special tokens), measured once.
    """

    def __init__(
        self,
        seed: int,
        salt: str,
        vocabulary: tuple[int, int] = (256, 2000),
        block_tokens: int = 512,
        words: Sequence[str] = WORDS,
        template_tokens: int = 0,
    ) -> None:
        if not 0 <= vocabulary[0] < vocabulary[1]:
            raise WorkloadError(
                f"The vocabulary {vocabulary} holds no token id.", code="vocabulary", hint="Give first < end, from 0."
            )
        self.seed = seed
        self.salt = salt
        self.vocabulary = vocabulary
        self.block_tokens = block_tokens
        self._words, self._template_tokens = words, template_tokens
        self._key = np.frombuffer(hashlib.sha256(f"{seed}:{salt}".encode()).digest()[:16], dtype=np.uint64)

    @staticmethod
    def of(schedule: Schedule, vocabulary: tuple[int, int] = (256, 2000)) -> Prompts:
        """The prompts of a schedule; its tokenizer file must be readable here."""
        block_tokens = 512 if schedule.prefix is None else schedule.prefix.block_tokens
        words = words_of(schedule.tokenizer) if schedule.tokenizer else WORDS
        return Prompts(schedule.seed, schedule.salt, vocabulary, block_tokens, words, schedule.template_tokens)

    def token_ids(self, request_id: int, count: int, blocks: Sequence[int] = ()) -> NDArray[np.int64]:
        """Exactly `count` token ids."""
        low, high = self.vocabulary
        return low + np.concatenate([*self._draws(request_id, count, high - low, blocks)])

    def ids_json(self, request_id: int, count: int, blocks: Sequence[int] = ()) -> bytes:
        """The same token ids as the text of a JSON array, without spaces."""
        return b"".join(self.json_pieces(request_id, count, blocks, as_ids=True))

    def text(self, request_id: int, count: int, blocks: Sequence[int] = ()) -> str:
        """Words of one token each with one space between them: `count` tokens together with the template's."""
        return " ".join(filter(None, self._texts(request_id, count, blocks)))

    def json_pieces(self, request_id: int, count: int, blocks: Sequence[int], *, as_ids: bool) -> Iterator[bytes]:
        """`ids_json`, or `text` as a JSON string, in pieces of about PIECE_TOKENS tokens; a short one is one piece."""
        if as_ids:
            low, high = self.vocabulary
            cells = (self._ids[drawn].tobytes() for drawn in self._draws(request_id, count, high - low, blocks))
            return _delimited(b"[", b",", b"]", (cell.replace(b"\0", b"")[:-1] for cell in cells))
        encode = msgspec.json.encode
        return _delimited(b'"', b" ", b'"', (encode(text)[1:-1] for text in self._texts(request_id, count, blocks)))

    def _texts(self, request_id: int, count: int, blocks: Sequence[int]) -> Iterator[str]:
        count = max(count - self._template_tokens, 1) if self._template_tokens else count
        word = self._words.__getitem__
        return (
            " ".join(map(word, drawn.tolist())) for drawn in self._draws(request_id, count, len(self._words), blocks)
        )

    @cached_property
    def _ids(self) -> NDArray[np.bytes_]:
        # One fixed-width cell per id ("1234,"): numpy pads with NUL, which `ids_json` then squeezes out.
        return np.array([b"%d," % token for token in range(*self.vocabulary)])

    def _draws(self, request_id: int, count: int, choices: int, blocks: Sequence[int]) -> Iterator[NDArray[np.int64]]:
        """Numbers below `choices`, `count` in all, in pieces; at least one piece, be it empty."""
        parts: list[NDArray[np.int64]] = []
        tokens = 0
        for block in blocks[: -(-count // self.block_tokens)]:
            if tokens >= PIECE_TOKENS or len(parts) >= PIECE_BLOCKS:
                yield np.concatenate(parts)
                parts, tokens = [], 0
            length = min(self.block_tokens, count)
            parts.append(self._stream(_BLOCK, block).integers(0, choices, length))
            tokens, count = tokens + length, count - length
        own = self._stream(_REQUEST, request_id)
        first = max(min(PIECE_TOKENS - tokens, count), 0)
        parts.append(own.integers(0, choices, first))
        yield np.concatenate(parts) if len(parts) > 1 else parts[0]
        for start in range(first, count, PIECE_TOKENS):
            yield own.integers(0, choices, min(PIECE_TOKENS, count - start))

    def _stream(self, kind: int, number: int) -> np.random.Generator:
        # Philox is counter-based: the number picks a stream of 2**128 draws, without the cost of seeding.
        counter = np.array([0, 0, number & 0xFFFF_FFFF_FFFF_FFFF, kind], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=self._key, counter=counter))


def _delimited(start: bytes, between: bytes, end: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces with what stands around and between them; empty ones need nothing between."""
    made, separator = start, b""
    for number, piece in enumerate(pieces):
        if number:
            yield made
            made = b""
        if piece:
            made += separator + piece
            separator = between
    yield made + end
