"""Texts of an exact number of a model's own tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workloads.errors import WorkloadError
from workloads.prompts import Prompts
from workloads.schedule import plan
from workloads.tokenizer import count_tokens, file_hash, words_of
from workloads.trace import Prefix, Trace
from workloads.words import WORDS


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A byte-level BPE like GPT-2's and Llama 3's, trained on half of the words: the others are several tokens."""
    tokenizers: Any = pytest.importorskip("tokenizers", reason="the tokenizers extra is not installed")
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=4000, initial_alphabet=alphabet, show_progress=False)
    some = WORDS[: len(WORDS) // 2]
    made.train_from_iterator([" ".join(some), *some] * 20, trainer)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    made.save(str(path))
    return str(path)


def schedule(tokenizer: str, template_tokens: int = 0) -> Any:
    trace = Trace(
        "t",
        np.array([0, 1, 2]),
        np.array([1, 37, 900]),
        np.ones(3),
        prefix=Prefix(np.array([0, 0, 1, 2]), np.array([5, 5]), 16),
    )
    return plan(trace, seed=1, salt="aa", tokenizer=tokenizer, template_tokens=template_tokens)


def test_exact_counts(tokenizer: str) -> None:
    """Every prompt has exactly its tokens by the model's own count; the template's are left to the server."""
    for template in (0, 7):
        plan_ = schedule(tokenizer, template)
        prompts = Prompts.of(plan_)
        texts = [prompts.text(i, int(plan_.prompt_tokens[i]), plan_.blocks(i)) for i in range(3)]
        expected = [max(count - template, 1) for count in (1, 37, 900)]
        assert expected == [count_tokens(tokenizer, text) for text in texts]
    assert texts[1].split()[:16] == texts[2].split()[:16]
    assert texts[1].split()[16:] != texts[2].split()[16:30]


def test_only_words_of_one_token(tokenizer: str) -> None:
    """Words that are several tokens are left out, here most of those that the tokenizer was not trained on."""
    words = words_of(tokenizer)
    assert {1} == {count_tokens(tokenizer, word) for word in words}
    assert {2} == {count_tokens(tokenizer, f"{word} {word}") for word in words}
    assert set(WORDS) - set(words)


def test_bad_files(tokenizer: str, tmp_path: Path) -> None:  # noqa: ARG001  needs the package
    """Absent, or no tokenizer: a sentence."""
    broken = tmp_path / "t.json"
    broken.write_text("{}")
    for path, code in ((tmp_path / "absent", "file"), (broken, "tokenizer")):
        with pytest.raises(WorkloadError) as caught:
            words_of(str(path))
        assert code == caught.value.code


def test_the_file_is_part_of_the_recipe(tmp_path: Path) -> None:
    """Another tokenizer is another plan, the same bytes elsewhere are not."""
    for name, text in (("a", "1"), ("b", "1"), ("c", "2")):
        (tmp_path / name).write_text(text)
    hashes = [schedule(str(tmp_path / name)).recipe_hash for name in "abc"]
    assert hashes[0] == hashes[1] != hashes[2]
    assert file_hash(str(tmp_path / "a")) == file_hash(str(tmp_path / "b"))


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Says what to install."""
    import sys

    monkeypatch.setitem(sys.modules, "tokenizers", None)
    (tmp_path / "t.json").write_text("{}")
    with pytest.raises(WorkloadError) as caught:
        words_of(str(tmp_path / "t.json"))
    assert "slo-goodput[tokenizers]" in caught.value.hint
