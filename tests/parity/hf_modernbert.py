"""Writes random ModernBERTs, and what transformers computes of long rows: OUT.

A folder for each size has the model, and `outputs.npz`: rows with padding on the right, on the left
and without any, the states after the last norm, the logits, and the gradient of the sum of the
logits of real positions times random numbers; and the states of texts of the last row, each alone.
`again.npz` of a folder `NAME_back` has its logits.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import transformers

LENGTH = 210  # several blocks of local layers
SIZES = {
    "wide": {"hidden_size": 36, "num_hidden_layers": 5, "local_attention": 20},
    "deep": {"hidden_size": 18, "num_hidden_layers": 7, "local_attention": 9},
    "biases": {
        "hidden_size": 12, "num_hidden_layers": 4, "local_attention": 70,
        "global_attn_every_n_layers": 2,
        **dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"), True),
    },
}  # fmt: skip
COMMON = {
    "vocab_size": 277,
    "num_attention_heads": 3,
    "intermediate_size": 29,
    "max_position_embeddings": 300,
    "global_rope_theta": 700.0,
    "local_rope_theta": 40.0,
    "initializer_range": 0.25,
    "pad_token_id": 261,
    **dict.fromkeys(("bos_token_id", "cls_token_id"), 259),
    **dict.fromkeys(("eos_token_id", "sep_token_id"), 260),
    "reference_compile": False,
    "attn_implementation": "eager",
}


def batch(rng):
    """Rows with padding on the right, on the left, and without any."""
    real = np.ones((3, LENGTH), bool)
    real[0, 110:] = real[1, :40] = False
    return rng.integers(5, 257, real.shape), real


def answer(model, ids, real):
    """The states after the last norm, and the logits."""
    inputs = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(real * 1)}
    states = model.model(**inputs).last_hidden_state
    return states, model(**inputs).logits


def main(out):
    """Writes the models, or the answers of those that were written back."""
    torch.set_num_threads(1)
    for number, (name, sizes) in enumerate(SIZES.items()):
        rng = np.random.default_rng(number)
        ids, real = batch(rng)
        if (back := Path(out, f"{name}_back")).exists():
            options = {"attn_implementation": "eager", "reference_compile": False}
            model = transformers.ModernBertForMaskedLM.from_pretrained(back, **options).eval()
            with torch.no_grad():
                np.savez(back / "again.npz", logits=answer(model, ids, real)[1].numpy())
            continue
        torch.manual_seed(number)
        config = transformers.ModernBertConfig(**COMMON, **sizes)
        model = transformers.ModernBertForMaskedLM(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim == 1:
                    parameter.add_(torch.randn_like(parameter) * 0.3)
        factors = rng.standard_normal((*real.shape, 277)).astype("float32") * real[:, :, None]
        states, logits = answer(model, ids, real)
        (logits * torch.from_numpy(factors)).sum().backward()
        model.save_pretrained(Path(out, name))
        gradients = {f"gradient/{n}": p.grad.numpy() for n, p in model.named_parameters()}
        parts = [answer(model, ids[2:, a:b], real[2:, a:b])[0].detach() for a, b in PARTS]
        np.savez(
            Path(out, name, "outputs.npz"), ids=ids, real=real, factors=factors,
            states=states.detach(), logits=logits.detach(), packed=torch.cat(parts, 1),
            bounds=np.array(PARTS), **gradients,
        )  # fmt: skip


PARTS = ((0, 70), (70, 75), (75, LENGTH))

if __name__ == "__main__":
    main(*sys.argv[1:])
