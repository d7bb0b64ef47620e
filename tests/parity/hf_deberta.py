"""Makes DeBERTas of transformers with random weights: PARENT, which gets a folder for each.

A folder has what `save_pretrained` writes, `batch.npz`, and `answers.npz` with the states of the
real tokens and the gradients of a sum over them. Or, with `tokenizer` before PARENT: writes
`ids.json`, the ids of `texts.json` by the slow tokenizer of the folder.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

V3 = {"relative_attention": True, "position_biased_input": False, "pos_att_type": "p2c|c2p"}
V1 = {**V3, "type_vocab_size": 0}
V3 |= {"share_att_key": True, "norm_rel_ebd": "layer_norm"}
# Odd sizes; rows of 33 tokens reach beyond the buckets, and in v1 beyond the distances. (In v2 and
# v3, transformers reads a row of longer distances that the release does not have.)
CASES = {
    "v3": ("DebertaV2Model", {**V3, "hidden_size": 21, "num_attention_heads": 3,
                              "intermediate_size": 37, "position_buckets": 10,
                              "max_position_embeddings": 41}),
    "v2": ("DebertaV2Model", {**V3, "hidden_size": 26, "num_attention_heads": 2,
                              "intermediate_size": 31, "position_buckets": 8,
                              "max_relative_positions": 37, "conv_kernel_size": 3,
                              "conv_act": "gelu"}),
    "v1": ("DebertaModel", {**V1, "hidden_size": 35, "num_attention_heads": 5,
                            "intermediate_size": 43, "max_relative_positions": 17}),
}  # fmt: skip
LENGTH = 33


def main(parent):
    """Writes the folders."""
    for seed, (name, (kind, sizes)) in enumerate(CASES.items()):
        torch.manual_seed(seed)
        cls = getattr(transformers, kind)
        both = {"vocab_size": 263, "num_hidden_layers": 3, "initializer_range": 0.2}
        model = cls(cls.config_class(**both, **sizes)).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 1:
                    parameter.add_(torch.randn_like(parameter) * 0.3)
        real = torch.ones((3, LENGTH), dtype=torch.bool)
        real[0, 22:] = real[1, :14] = False
        ids = torch.randint(5, 263, real.shape)
        states = model(input_ids=ids, attention_mask=real.long()).last_hidden_state
        factors = torch.randn_like(states) * real[..., None]
        (states * factors).sum().backward()
        folder = Path(parent) / name
        model.save_pretrained(folder)
        batch = {"token_ids": ids.int(), "padding_mask": real, "factors": factors}
        np.savez(folder / "batch.npz", **{key: value.numpy() for key, value in batch.items()})
        gradients = {f"gradient/{key}": p.grad.numpy() for key, p in model.named_parameters()}
        np.savez(folder / "answers.npz", states=states.detach().numpy(), **gradients)


def tokenizer(folder):
    """Writes the ids of texts and of pairs."""
    folder = Path(folder)
    slow = transformers.AutoTokenizer.from_pretrained(folder, use_fast=False)
    assert type(slow).__name__ == "DebertaV2Tokenizer"
    texts = json.loads((folder / "texts.json").read_text())
    ids = {
        "plain": [slow.encode(text, add_special_tokens=False) for text in texts],
        "pairs": [slow.encode(text, text) for text in texts],
        "mask": slow.mask_token_id,
    }
    (folder / "ids.json").write_text(json.dumps(ids))


if __name__ == "__main__":
    tokenizer(sys.argv[2]) if sys.argv[1] == "tokenizer" else main(*sys.argv[1:])
