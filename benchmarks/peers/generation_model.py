"""Writes a T5 or GPT-2 of transformers with random weights, which never chooses its end token."""

import json
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration

END = 1


def t5(size: dict) -> T5ForConditionalGeneration:
    """Returns a T5 1.1."""
    config = T5Config(
        vocab_size=size["vocab"],
        d_model=size["hidden"],
        d_kv=size["hidden"] // size["heads"],
        d_ff=size["intermediate"],
        num_layers=size["layers"],
        num_heads=size["heads"],
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
        decoder_start_token_id=0,
    )
    model = T5ForConditionalGeneration(config)
    with torch.no_grad():
        # Fresh weights repeat a token; these give each text its own.
        model.lm_head.weight.normal_(0, 1)
        model.lm_head.weight[END] = 0
    return model


def gpt2(size: dict) -> GPT2LMHeadModel:
    """Returns a GPT-2."""
    config = GPT2Config(
        vocab_size=size["vocab"],
        n_positions=size["positions"],
        n_embd=size["hidden"],
        n_layer=size["layers"],
        n_head=size["heads"],
        n_inner=size["intermediate"],
        # With the usual 0.02 a token repeats itself.
        initializer_range=0.04,
        bos_token_id=size["vocab"] - 1,
        eos_token_id=size["vocab"] - 1,
    )
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        model.transformer.wte.weight[-1] = 0
    return model


def main() -> None:
    """Writes the folder that the argument (JSON) names."""
    size = json.loads(sys.argv[1])
    torch.manual_seed(0)
    {"t5": t5, "gpt2": gpt2}[size["model"]](size).save_pretrained(size["folder"])


if __name__ == "__main__":
    main()
