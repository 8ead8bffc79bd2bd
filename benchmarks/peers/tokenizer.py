"""A tokenizer that needs no download: every word is one token. Tools that insist on one get this folder."""

from __future__ import annotations

import json
from pathlib import Path

WORDS = 2_000
# What a chat looks like as one text: the tools count prompt tokens with it, the server does not see it.
CHAT = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def write(folder: Path) -> Path:
    """Write the files of a Hugging Face tokenizer into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2, "the": 3} | {f"w{i}": i for i in range(4, WORDS)}
    special = [
        {
            "id": number,
            "content": word,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for word, number in vocabulary.items()
        if word.startswith("<")
    ]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": "</s>",
        "model_max_length": 131_072,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT,
    }
    model = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": WORDS}
    for name, content in (("tokenizer", tokenizer), ("tokenizer_config", config), ("config", model)):
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder
