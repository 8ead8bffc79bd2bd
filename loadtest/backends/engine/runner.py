"""One iteration: pieces of requests as one flat batch through the model, and a token for those that want one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import NamedTuple

import torch

from loadtest.backends.engine.attention import PagedDecode, Span
from loadtest.backends.engine.kvcache import Blocks, KvCache
from loadtest.backends.engine.messages import Sampling
from loadtest.backends.engine.model import FlatBatch, Model
from loadtest.backends.engine.sampler import sample


class Piece(NamedTuple):
    """New tokens of one request behind `done` that are in the cache; `sampling` when the last asks for the next."""

    ids: Sequence[int]
    done: int
    blocks: Blocks
    sampling: Sampling | None


class Runner:
    """A model and its KV cache; `paged`: decodes go through the Triton kernel."""

    def __init__(self, model: Model, cache: KvCache, *, paged: bool = False) -> None:
        self.model = model
        self.cache = cache
        self.paged = paged

    def run(self, pieces: Sequence[Piece], on_layer: Callable[[int], None] | None = None) -> list[int]:
        """A token for each piece that has `sampling`, in order."""
        logits = self.model.forward(self._flat(pieces), self.cache, on_layer)
        wishes = [(piece.sampling, piece.done + len(piece.ids)) for piece in pieces if piece.sampling is not None]
        return sample(logits, wishes)

    def _flat(self, pieces: Sequence[Piece]) -> FlatBatch:
        ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        wanted: list[int] = []
        spans = []
        for piece in pieces:
            rows = len(piece.ids)
            ids += piece.ids
            positions += range(piece.done, piece.done + rows)
            slots += piece.blocks.slots_of(piece.done, rows)
            spans.append(Span(rows, piece.done, piece.blocks))
            if piece.sampling is not None:
                wanted.append(len(ids) - 1)
        device = self.cache.tensor.device
        rows_of = [torch.tensor(column, device=device) for column in (ids, positions, slots, wanted)]
        return FlatBatch(rows_of[0], rows_of[1], rows_of[2], spans, rows_of[3].long(), self._pages(spans))

    def _pages(self, spans: Sequence[Span]) -> tuple[int, PagedDecode] | None:
        """The decodes at the front of the batch, for the kernel."""
        decodes = [(span.blocks, span.done + 1) for span in takewhile(lambda span: span.rows == 1, spans)]
        if not self.paged or not decodes:
            return None
        from loadtest.backends.engine import pageddecode

        pages, size = pageddecode.pages_of(decodes, self.cache.tensor.device), self.cache.tensor.shape[2]
        return len(decodes), lambda queries, rows: pageddecode.decode(queries, rows, pages, size)
