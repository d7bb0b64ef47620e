"""Loads folders of T5 and answers: PARENT, whose folders hold inputs.npz too, and TEXTS.json."""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers.models.t5 import modeling_t5

# As in make_t5_golden.py: norms and softmax in the type of the rest, which is float64.
torch.Tensor.float = lambda self: self
modeling_t5.T5LayerNorm.forward = lambda self, x: (
    self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
)


def main(parent, texts):
    for folder in sorted(Path(parent).iterdir()):
        (name,) = json.loads((folder / "config.json").read_text())["architectures"]
        cls = getattr(transformers, name)
        model, info = cls.from_pretrained(
            folder, output_loading_info=True, attn_implementation="eager"
        )
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
            assert not info[kind], (folder, kind, info[kind])
        inputs = {key: torch.from_numpy(a) for key, a in np.load(folder / "inputs.npz").items()}
        with torch.no_grad():
            out = model.double().eval()(**inputs, output_hidden_states=True, output_attentions=True)
        if name == "T5EncoderModel":
            actual = {"encoded": out.last_hidden_state.numpy()}
        else:
            actual = {
                "encoded": out.encoder_last_hidden_state.numpy(),
                "decoded": out.decoder_hidden_states[-1].numpy(),
                "cross_attentions": torch.stack(out.cross_attentions).numpy(),
            }
        if "logits" in out:
            actual["logits"] = out.logits.numpy()
        np.savez(folder / "outputs.npz", **actual)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, use_fast=False)
        ids = tokenizer(json.load(open(texts)))["input_ids"]
        (folder / "ids.json").write_text(json.dumps(ids))


if __name__ == "__main__":
    main(*sys.argv[1:])
