"""Makes the golden data of multiple choice: what transformers computes from random weights.

    .parity/hf/bin/python tests/golden/make_choice_golden.py [FOLDER]

writes into FOLDER (here by default) `choice.npz`: `config` (JSON, the fields of `BertConfig`),
`weight/NAME` of a `BertForMultipleChoice`, `batch/FIELD` [steps, B, C, ...] (our names), of the
first step `logits` [B, C] and `gradient/NAME`, and the `losses` and `learning_rates` of 100 steps
of training without dropout, as `make_bert_golden.training` has them.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from make_bert_golden import SIZES, WEIGHT_DECAY, weights_of
from transformers import BertConfig, BertForMultipleChoice

CONFIG = {**SIZES["small"], "hidden_act": "gelu_new"}
STEPS, WARMUP_STEPS, PEAK_RATE = 100, 10, 1e-3
BATCH, CHOICES, LENGTH = 5, 3, 11


def make_model(seed):
    """A model whose every tensor is random, norms and biases too."""
    model = BertForMultipleChoice(BertConfig(**CONFIG, attn_implementation="eager")).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            noise = torch.round(64 * 0.15 * noise) / 64  # on a coarse grid, which compresses
            parameter.copy_(1 + noise if name.endswith("LayerNorm.weight") else noise)
    return model


def make_batch(rng):
    """Random ids; every choice has padding of its own, on the right or on the left."""
    real = np.ones([BATCH, CHOICES, LENGTH], bool)
    for row in real.reshape(-1, LENGTH):
        padding = int(rng.integers(0, LENGTH // 2))
        row[slice(LENGTH - padding, None) if rng.integers(2) else slice(padding)] = False
    # Never 0, for transformers gives the row of its padding id no gradient.
    return {
        "token_ids": rng.integers(1, CONFIG["vocab_size"], real.shape).astype(np.int32),
        "segment_ids": rng.integers(0, 2, real.shape).astype(np.int32),
        "padding_mask": real,
        "answer": rng.integers(0, CHOICES, BATCH).astype(np.int32),
    }


def forward(model, batch):
    """Logits [B, C] and their mean cross-entropy."""
    batch = {name: torch.from_numpy(value) for name, value in batch.items()}
    outputs = model(
        input_ids=batch["token_ids"].long(),
        attention_mask=batch["padding_mask"].long(),
        token_type_ids=batch["segment_ids"].long(),
        labels=batch["answer"].long(),
    )
    return outputs.logits, outputs.loss


def main():
    """Writes the file."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    torch.set_num_threads(1)
    model = make_model(7)
    weights = weights_of(model)
    rng = np.random.default_rng(7)
    batches = [make_batch(rng) for _ in range(STEPS)]
    parameters = dict(model.named_parameters())
    means = {name: torch.zeros_like(p) for name, p in parameters.items()}
    squares = {name: torch.zeros_like(p) for name, p in parameters.items()}
    losses, rates, first = [], [], {}
    for step, batch in enumerate(batches):
        warm = step < WARMUP_STEPS
        rate = PEAK_RATE * (step / WARMUP_STEPS if warm else 1 - step / STEPS)
        model.zero_grad()
        logits, loss = forward(model, batch)
        loss.backward()
        if not first:
            first = {f"gradient/{k}": p.grad.numpy().copy() for k, p in parameters.items()}
            first["logits"] = logits.detach().numpy()
        norm = torch.sqrt(sum((p.grad**2).sum() for p in parameters.values()))
        with torch.no_grad():
            for name, p in parameters.items():
                gradient = p.grad / max(norm.item(), 1.0)
                means[name].mul_(0.9).add_(0.1 * gradient)
                squares[name].mul_(0.999).add_(0.001 * gradient**2)
                update = means[name] / (squares[name].sqrt() + 1e-6)
                if "LayerNorm" not in name and not name.endswith("bias"):
                    update = update + WEIGHT_DECAY * p
                p.sub_(rate * update)
        losses.append(loss.item())
        rates.append(rate)
    np.savez_compressed(
        folder / "choice.npz",
        config=np.array(json.dumps(CONFIG)),
        **weights,
        **first,
        **{f"batch/{k}": np.stack([b[k] for b in batches]) for k in batches[0]},
        losses=np.array(losses),
        learning_rates=np.array(rates),
    )


if __name__ == "__main__":
    main()
