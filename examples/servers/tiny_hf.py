"""A small Llama with random weights in Hugging Face's layout, for vLLM and SGLang: `python tiny_hf.py OUT`.

27 million parameters of float32 (109 MB): enough that a prefill of 2,000 tokens takes a second on a CPU core and stalls
whatever shares it. What it writes means nothing, but each token is text: half a character would be held back by the
server, and a stream without text cannot be timed. Needs torch, transformers and tokenizers, which vLLM brings.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from tiny_tokenizer import byte_alphabet, merges
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = ["<unk>", "<s>", "</s>"]
BOS, EOS = 1, 2
VOCABULARY, CONTEXT = 2048, 32768
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{{ eos_token }}{% endfor %}"


def main(out: Path, seed: int) -> None:
    """Write tokenizer, configuration and weights."""
    tokenizer = _tokenizer()
    tokenizer.save_pretrained(out)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=512,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
        intermediate_size=1536,
        max_position_embeddings=CONTEXT,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=EOS,
        tie_word_embeddings=False,
        rms_norm_eps=1e-5,
        dtype="float32",
    )
    model = LlamaForCausalLM(config).to(torch.float32)
    with torch.no_grad():  # the likeliest token is never one of score 0
        model.lm_head.weight[[not tokenizer.decode([token]).isascii() for token in range(VOCABULARY)]] = 0
        model.lm_head.weight[: len(SPECIAL)] = 0
    model.generation_config = GenerationConfig(bos_token_id=BOS, eos_token_id=EOS, pad_token_id=EOS)
    model.save_pretrained(out)


def _tokenizer() -> PreTrainedTokenizerFast:
    pairs = list(merges())[: VOCABULARY - len(SPECIAL) - 256]
    tokens = [*SPECIAL, *byte_alphabet(), *(first + second for first, second in pairs)]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="</s>"
    )
    fast.chat_template = TEMPLATE
    return fast


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    main(given.out, given.seed)
