"""Writes a T5 of transformers with random weights, which never chooses its end token."""

import json
import sys

import torch
from transformers import T5Config, T5ForConditionalGeneration

END = 1


def main() -> None:
    """Writes the folder that the argument (JSON) names."""
    size = json.loads(sys.argv[1])
    torch.manual_seed(0)
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
    model.save_pretrained(size["folder"])


if __name__ == "__main__":
    main()
