"""Makes DeBERTas of transformers with random weights: PARENT, which gets a folder for each.

A folder has what `save_pretrained` writes, `batch.npz`, and `answers.npz` with the states of the
real tokens and the gradients of a sum over them. `released` has a discriminator and a generator as
the release of v3 saves them, and what both answer. Or:

  tokenizer FOLDER  writes `ids.json`, the ids of `texts.json` by the slow tokenizer of the folder,
                    and by the fast one, which is saved in FOLDER/fast.
  again FOLDER      writes `again.npz`, the states of FOLDER/batch.npz by `AutoModel`.
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
    released(Path(parent) / "released")


class Head(torch.nn.Module):
    """A hidden layer and a norm, before it in a discriminator, after it in a generator."""

    def __init__(self, size):
        super().__init__()
        self.dense, self.LayerNorm = torch.nn.Linear(size, size), torch.nn.LayerNorm(size, 1e-7)
        for parameter in self.parameters():
            torch.nn.init.normal_(parameter, 0.3, 0.3)


def released(folder):
    """Writes both files of a DeBERTa-v3, and the logits of both."""
    folder.mkdir()
    sizes = {**CASES["v3"][1], "vocab_size": 263, "initializer_range": 0.2, "hidden_size": 24}
    models, heads = [], []
    for seed, layers in enumerate((3, 2)):
        torch.manual_seed(seed)
        config = transformers.DebertaV2Config(**sizes, num_hidden_layers=layers)
        models.append(transformers.DebertaV2Model(config).eval())
        heads.append(Head(24))
    (main, small), (question, fill) = models, heads
    score, positions = torch.nn.Linear(24, 1), torch.randn(41, 24)
    base, delta = small.embeddings.word_embeddings.weight.data, torch.randn(263, 24) * 0.1
    main.embeddings.word_embeddings.weight.data = base + delta
    bias, words = torch.randn(263), "deberta.embeddings.word_embeddings._weight"

    def named(model, prefix, head):
        parts = (("deberta.", model), (f"{prefix}.", head))
        return {p + name: t.data for p, part in parts for name, t in part.named_parameters()}

    tensors = named(main, "mask_predictions", question) | {
        "mask_predictions.classifier.weight": score.weight.data,
        "mask_predictions.classifier.bias": score.bias.data, words: delta,
    }  # fmt: skip
    torch.save(tensors, folder / "pytorch_model.bin")
    tensors = named(small, "lm_predictions.lm_head", fill) | {
        "lm_predictions.lm_head.bias": bias,
        "deberta.embeddings.position_embeddings.weight": positions,
    }
    torch.save(tensors, folder / "pytorch_model.generator.bin")
    described = {**main.config.to_dict(), "architectures": None}
    (folder / "config.json").write_text(json.dumps(described))
    real = torch.ones((2, LENGTH), dtype=torch.long)
    real[0, 25:] = 0
    ids = torch.randint(5, 263, real.shape)
    np.savez(folder / "batch.npz", token_ids=ids.int(), padding_mask=real.bool())
    with torch.no_grad():
        states = main(ids, real).last_hidden_state
        hidden = question.LayerNorm(states + states[:, :1])
        replaced = score(torch.nn.functional.gelu(question.dense(hidden)))[..., 0]
        # The last layer twice: its queries, and its residual sum, begin with the positions.
        inputs = small(ids, real, output_hidden_states=True).hidden_states[-2]
        query, encoder = inputs + positions[:LENGTH], small.encoder
        for _ in range(2):
            query, _ = encoder.layer[-1](
                inputs, encoder.get_attention_mask(real), query_states=query,
                relative_pos=encoder.get_rel_pos(inputs),
                rel_embeddings=encoder.get_rel_embedding(),
            )  # fmt: skip
        filled = fill.LayerNorm(torch.nn.functional.gelu(fill.dense(query))) @ base.T + bias
    np.savez(folder / "answers.npz", states=states, replaced=replaced, filled=filled)


def again(folder):
    """Writes the states of a folder that was written from one of ours."""
    batch = np.load(folder / "batch.npz")
    model, info = transformers.AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["mismatched_keys"]
    with torch.no_grad():
        ids, real = (torch.from_numpy(batch[key]).long() for key in ("token_ids", "padding_mask"))
        states = model.eval()(ids, real).last_hidden_state
    np.savez(folder / "again.npz", states=states)


def tokenizer(folder):
    """Writes the ids of texts and of pairs."""
    slow = transformers.AutoTokenizer.from_pretrained(folder, use_fast=False)
    texts = json.loads((folder / "texts.json").read_text())
    fast = transformers.AutoTokenizer.from_pretrained(folder)
    assert fast.is_fast and not slow.is_fast
    fast.save_pretrained(folder / "fast")
    ids = {
        "fast": [fast.encode(text, add_special_tokens=False) for text in texts],
        "plain": [slow.encode(text, add_special_tokens=False) for text in texts],
        "pairs": [slow.encode(text, text) for text in texts],
        "mask": slow.mask_token_id,
    }
    (folder / "ids.json").write_text(json.dumps(ids))


if __name__ == "__main__":
    other = {"tokenizer": tokenizer, "again": again}.get(sys.argv[1])
    other(Path(sys.argv[2])) if other else main(*sys.argv[1:])
