"""The tokenizer of the small random models, made, not trained: the 256 bytes, then pairs of letters."""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterator


def byte_alphabet() -> list[str]:
    """GPT-2's printable stand-in for each of the 256 bytes."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    table = {byte: chr(byte) for byte in plain} | {byte: chr(256 + rank) for rank, byte in enumerate(others)}
    return [table[byte] for byte in range(256)]


def merges() -> Iterator[tuple[str, str]]:
    """Pairs that become one token, in order of their rank."""
    space = byte_alphabet()[ord(" ")]
    lower, upper = string.ascii_lowercase, string.ascii_uppercase
    yield from itertools.product(lower, lower)
    yield from ((space, letter) for letter in lower)
    yield from ((space, first + second) for first, second in itertools.product(lower, lower))
    yield from itertools.product(upper, upper)
