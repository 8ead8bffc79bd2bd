"""Text in and out: bytes without a tokenizer file, whole characters with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.backends.engine.tokenizer import ByteTokenizer, load_tokenizer
from loadtest.errors import UsageError


def test_bytes() -> None:
    """A text is its UTF-8 bytes; every token has a text of its own."""
    tokenizer = load_tokenizer("tiny")
    assert isinstance(tokenizer, ByteTokenizer)
    assert [72, 195, 169] == tokenizer.encode("Hé")
    write = tokenizer.writer()
    assert "H" == write(72)
    assert all(write(token) for token in range(3000))


def test_a_tokenizer_file(tmp_path: Path) -> None:
    """The pieces of an answer join to its text, though characters are split over tokens."""
    tokenizers = pytest.importorskip("tokenizers", reason="needs the torch extra")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        ["hello world"], tokenizers.trainers.BpeTrainer(initial_alphabet=alphabet, show_progress=False)
    )
    made.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(str(tmp_path))
    text = "hello wörld, naïve 日本語 hello"
    write = tokenizer.writer()
    pieces = [write(token) for token in tokenizer.encode(text)]
    assert text == "".join(pieces)
    assert "" in pieces
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match="is no tokenizer"):
        load_tokenizer(str(tmp_path))
