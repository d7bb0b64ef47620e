"""Makes tests/golden/sentence_vectors: a folder of sentence-transformers and its vectors.

The folder has the weights and the vocabulary of tests/golden/hf_files/bare. For each case there are
the module files that differ from those of the folder, and the vectors of TEXTS: the states of
transformers, pooled by hand.

Run with the Python of the environment of tests/parity/requirements-hf.txt:
    .parity/hf/bin/python tests/golden/make_sentence_vectors_golden.py [FILE]
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import BertModel, BertTokenizer

HERE = Path(__file__).parent
MAX_LENGTH = 12
PROMPTS = {"query": "the dog: ", "document": ""}
TEXTS = ["The cat sat on a mat.", "", "a", "dog " * 30, "A quickly running dog, under the tree!"]
# Poolings in the order of sentence-transformers, whether vectors are normalized, whether the tokens
# of a prompt are pooled, and the default prompt.
CASES = {
    "mean": (["mean"], True, True, None),
    "plain": (["cls", "max"], False, True, None),
    "four": (["max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"], True, True, "query"),
    "prompt": (["cls", "mean", "weightedmean"], False, False, "query"),
}


def pooled(states, mask, mode, first):
    """One vector for each row of states [B, T, D]; `mask` [B, T] says what is pooled."""
    mask = mask.unsqueeze(-1).float()
    total = (states * mask).sum(1)
    number = mask.sum(1).clamp(min=1e-9)
    if mode == "cls":
        return first
    if mode == "max":
        return states.masked_fill(mask == 0, -1e9).max(1).values
    if mode == "mean":
        return total / number
    if mode == "mean_sqrt_len_tokens":
        return total / number.sqrt()
    if mode == "weightedmean":
        weights = mask * torch.arange(1, states.shape[1] + 1).float()[None, :, None]
        return (states * weights).sum(1) / weights.sum(1)
    rows = [row[keep.nonzero()[-1, 0]] for row, keep in zip(states, mask[..., 0], strict=True)]
    return torch.stack(rows)


def vectors(model, tokenizer, modes, normalize, include_prompt, prompt):
    """The vectors of TEXTS."""
    before = PROMPTS[prompt] if prompt else ""
    batch = tokenizer(
        [before + text for text in TEXTS],
        max_length=MAX_LENGTH, truncation=True, padding=True, return_tensors="pt",
    )  # fmt: skip
    with torch.no_grad():
        states = model(**batch).last_hidden_state
    mask = batch["attention_mask"].clone()
    if before and not include_prompt:
        mask[:, : len(tokenizer(before)["input_ids"]) - 1] = 0
    found = torch.cat([pooled(states, mask, mode, states[:, 0]) for mode in modes], 1)
    return torch.nn.functional.normalize(found) if normalize else found


def main(output=HERE / "sentence_vectors.npz"):
    """Writes the file."""
    folder = HERE / "hf_files" / "bare"
    model, tokenizer = (
        BertModel.from_pretrained(folder).eval(),
        BertTokenizer.from_pretrained(folder),
    )
    found = {name: vectors(model, tokenizer, *case).numpy() for name, case in CASES.items()}
    about = {
        "cases": CASES, "texts": TEXTS, "max_length": MAX_LENGTH, "prompts": PROMPTS,
    }  # fmt: skip
    np.savez_compressed(output, about=np.array(json.dumps(about)), **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
