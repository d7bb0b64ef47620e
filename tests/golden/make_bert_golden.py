"""Makes the golden data of BERT: what transformers computes from random weights.

    .parity/hf/bin/python tests/golden/make_bert_golden.py [FOLDER]

writes into FOLDER (here by default)

- `bert_small.npz`, `bert_deep.npz`, `bert_wide.npz`: for three odd sizes the weights, a batch
  padded on both sides, and all that `BertForPreTraining` computes from them, the gradients of
  the joint loss included;
- `bert_losses.npz`: the losses of 50 steps of training without dropout.

Names in the files: `config` (JSON, the fields of `BertConfig`), `weight/NAME`, `gradient/NAME`
(transformers' names), `batch/FIELD` (our names), `hidden_states` [L + 1, B, T, D],
`attentions` [L, B, N, T, S], `pooled_output`, `masked_lm_logits` [B, P, V],
`next_sentence_logits` [B, 2], `loss`.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import BertConfig, BertForPreTraining

SIZES = {
    "small": {
        "vocab_size": 67,
        "hidden_size": 36,
        "num_attention_heads": 3,
        "num_hidden_layers": 2,
        "intermediate_size": 50,
        "max_position_embeddings": 19,
        "hidden_act": "gelu",
    },
    "deep": {
        "vocab_size": 53,
        "hidden_size": 28,
        "num_attention_heads": 7,
        "num_hidden_layers": 3,
        "intermediate_size": 41,
        "max_position_embeddings": 23,
        "hidden_act": "gelu_new",
    },
    "wide": {
        "vocab_size": 71,
        "hidden_size": 40,
        "num_attention_heads": 5,
        "num_hidden_layers": 2,
        "intermediate_size": 33,
        "max_position_embeddings": 7,
        "hidden_act": "gelu_new",
    },
}
LENGTHS = {"small": 19, "deep": 13, "wide": 7}
TRAINING = {**SIZES["small"], "hidden_act": "gelu_new"}
STEPS, WARMUP_STEPS, PEAK_RATE, WEIGHT_DECAY = 50, 10, 1e-3, 0.01


def make_model(sizes, seed):
    """A `BertForPreTraining` whose every tensor is random, norms and biases too."""
    config = BertConfig(**sizes, attn_implementation="eager")
    model = BertForPreTraining(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            is_scale = name.endswith("LayerNorm.weight")
            # On a coarse grid, so that the stored file compresses.
            noise = torch.round(64 * 0.15 * noise) / 64
            parameter.copy_(1 + noise if is_scale else noise)
    return model


def make_batch(rng, sizes, batch_size, length, predictions):
    """Random ids; the first row is padded on the right, the second on the left, by turns."""
    vocab_size = sizes["vocab_size"]
    real = np.ones([batch_size, length], bool)
    for row in range(batch_size):
        padding = int(rng.integers(1, length // 2))
        real[row, slice(length - padding, None) if row % 2 == 0 else slice(padding)] = False
    positions = np.zeros([batch_size, predictions], np.int32)
    weights = np.zeros([batch_size, predictions], np.float32)
    for row in range(batch_size):
        count = predictions - row % 2
        positions[row, :count] = np.sort(rng.choice(np.flatnonzero(real[row]), count, False))
        weights[row, :count] = 1
    # Padding has random ids too, as it must not matter; never 0, for transformers gives the row
    # of its padding id no gradient, and the pooler does read a position that is padded.
    return {
        "token_ids": rng.integers(1, vocab_size, real.shape).astype(np.int32),
        "segment_ids": rng.integers(0, 2, real.shape).astype(np.int32),
        "padding_mask": real,
        "masked_positions": positions,
        "masked_ids": (rng.integers(1, vocab_size, positions.shape) * weights).astype(np.int32),
        "masked_weights": weights,
        "next_sentence_label": rng.integers(0, 2, batch_size).astype(np.int32),
    }


def forward(model, batch):
    """Outputs, the logits of the masked positions [B, P, V], and the joint loss (two means)."""
    batch = {name: torch.from_numpy(value) for name, value in batch.items()}
    outputs = model(
        input_ids=batch["token_ids"].long(),
        attention_mask=batch["padding_mask"].long(),
        token_type_ids=batch["segment_ids"].long(),
        output_hidden_states=True,
        output_attentions=True,
    )
    positions = batch["masked_positions"].long()
    logits = outputs.prediction_logits
    logits = logits.gather(1, positions[..., None].expand(-1, -1, logits.shape[-1]))
    losses = cross_entropy(
        logits.flatten(0, 1), batch["masked_ids"].long().flatten(), reduction="none"
    )
    weights = batch["masked_weights"].flatten()
    masked_lm = (losses * weights).sum() / weights.sum()
    next_sentence = cross_entropy(
        outputs.seq_relationship_logits, batch["next_sentence_label"].long()
    )
    return outputs, logits, masked_lm + next_sentence


def weights_of(model):
    return {f"weight/{name}": p.detach().numpy().copy() for name, p in model.named_parameters()}


def case(name, seed):
    """One size: everything that is compared."""
    sizes = SIZES[name]
    model = make_model(sizes, seed)
    rng = np.random.default_rng(seed)
    batch = make_batch(rng, sizes, batch_size=3, length=LENGTHS[name], predictions=3)
    outputs, logits, loss = forward(model, batch)
    loss.backward()
    pooled = model.bert.pooler(outputs.hidden_states[-1])
    return {
        "config": np.array(json.dumps(sizes)),
        **weights_of(model),
        **{f"gradient/{k}": p.grad.numpy() for k, p in model.named_parameters()},
        **{f"batch/{k}": value for k, value in batch.items()},
        "hidden_states": torch.stack(outputs.hidden_states).detach().numpy(),
        "attentions": torch.stack(outputs.attentions).detach().numpy(),
        "pooled_output": pooled.detach().numpy(),
        "masked_lm_logits": logits.detach().numpy(),
        "next_sentence_logits": outputs.seq_relationship_logits.detach().numpy(),
        "loss": loss.detach().numpy(),
    }


def training(seed):
    """50 steps of BERT's AdamW: no bias correction, gradients clipped to norm 1 before it.

    The rate of step s (from 0) is s / 10 of the peak for the first ten, then 1 - s / 50 of it;
    norms and biases do not decay. Batches are stacked along a first axis of steps.
    """
    model = make_model(TRAINING, seed)
    first_weights = weights_of(model)
    rng = np.random.default_rng(seed)
    batches = [make_batch(rng, TRAINING, 8, 16, 4) for _ in range(STEPS)]
    parameters = dict(model.named_parameters())
    means = {name: torch.zeros_like(p) for name, p in parameters.items()}
    squares = {name: torch.zeros_like(p) for name, p in parameters.items()}
    losses, rates = [], []
    for step, batch in enumerate(batches):
        warm = step < WARMUP_STEPS
        rate = PEAK_RATE * (step / WARMUP_STEPS if warm else 1 - step / STEPS)
        model.zero_grad()
        loss = forward(model, batch)[-1]
        loss.backward()
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
    return {
        "config": np.array(json.dumps(TRAINING)),
        **first_weights,
        **{f"batch/{k}": np.stack([b[k] for b in batches]) for k in batches[0]},
        "losses": np.array(losses),
        "learning_rates": np.array(rates),
    }


def main():
    """Writes the files."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    torch.set_num_threads(1)
    files = {name: case(name, seed) for seed, name in enumerate(SIZES, 1)}
    files["losses"] = training(seed=5)
    for name, arrays in files.items():
        np.savez_compressed(folder / f"bert_{name}.npz", **arrays)


if __name__ == "__main__":
    main()
