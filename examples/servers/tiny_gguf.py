"""A small Llama with random weights for llama.cpp: `python tiny_gguf.py OUT.gguf` (needs gguf and numpy).

4 layers of width 128, 2,048 byte-level tokens, 3 MB: the text it writes means nothing, the server that runs it is real.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
from tiny_tokenizer import byte_alphabet, merges

WIDTH, LAYERS, HEADS, KV_HEADS, INNER, VOCABULARY, CONTEXT = 128, 4, 4, 2, 384, 2048, 8192
SPECIAL = ("<unk>", "<s>", "</s>")
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{{ eos_token }}{% endfor %}"


def main(path: Path, seed: int) -> None:
    """Write the file."""
    pairs = list(merges())[: VOCABULARY - len(SPECIAL) - 256]
    tokens = [*SPECIAL, *byte_alphabet(), *(first + second for first, second in pairs)]
    assert len(tokens) == len(set(tokens)) == VOCABULARY
    writer = gguf.GGUFWriter(str(path), "llama")
    _describe(writer, tokens, pairs)
    rng = np.random.default_rng(seed)
    for name, shape in _tensors():
        values = np.ones(shape) if len(shape) == 1 else rng.normal(0, 0.5 / np.sqrt(shape[-1]), shape)
        writer.add_tensor(name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: gguf.GGUFWriter, tokens: list[str], pairs: list[tuple[str, str]]) -> None:
    writer.add_name("tiny-random-llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    kinds = [gguf.TokenType.CONTROL if token in SPECIAL else gguf.TokenType.NORMAL for token in tokens]
    writer.add_token_types(kinds)
    writer.add_token_merges([f"{first} {second}" for first, second in pairs])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_chat_template(TEMPLATE)


def _tensors() -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "token_embd.weight", (VOCABULARY, WIDTH)
    yield "output_norm.weight", (WIDTH,)
    narrow = WIDTH // HEADS * KV_HEADS
    for layer in range(LAYERS):
        for name, shape in (
            ("attn_norm", (WIDTH,)),
            ("ffn_norm", (WIDTH,)),
            ("attn_q", (WIDTH, WIDTH)),
            ("attn_k", (narrow, WIDTH)),
            ("attn_v", (narrow, WIDTH)),
            ("attn_output", (WIDTH, WIDTH)),
            ("ffn_gate", (INNER, WIDTH)),
            ("ffn_up", (INNER, WIDTH)),
            ("ffn_down", (WIDTH, INNER)),
        ):
            yield f"blk.{layer}.{name}.weight", shape


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    main(given.path, given.seed)
