"""Loads model folders with transformers and answers: PARENT, whose folders hold inputs.npz too."""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers


def main(parent):
    for folder in sorted(Path(parent).iterdir()):
        (name,) = json.loads((folder / "config.json").read_text())["architectures"]
        cls = getattr(transformers, name)
        # As in the golden files: another attention of a ModernBERT rounds in another way.
        eager = name.startswith(("ModernBert", "EuroBert"))
        options = {"attn_implementation": "eager"} if eager else {}
        model, info = cls.from_pretrained(folder, output_loading_info=True, **options)
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
            assert not info[kind], (folder, kind, info[kind])
        inputs = {key: torch.from_numpy(a) for key, a in np.load(folder / "inputs.npz").items()}
        with torch.no_grad():
            actual = dict(model.eval()(**inputs, output_hidden_states=True))
        actual["hidden_states"] = torch.stack(
            actual.get("hidden_states") or actual["decoder_hidden_states"]
        )
        if model.config.model_type == "modernbert":  # whose last one has no norm
            with torch.no_grad():
                last = getattr(model, "model", model).final_norm(actual["hidden_states"][-1:])
            actual["hidden_states"] = torch.cat([actual["hidden_states"][:-1], last])
        actual = {key: value for key, value in actual.items() if isinstance(value, torch.Tensor)}
        # The fast ones of SentencePiece want one package more.
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, use_fast=False)
        actual["ids"] = torch.tensor(tokenizer("the cat", "the")["input_ids"])
        np.savez(folder / "outputs.npz", **{key: value.numpy() for key, value in actual.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
