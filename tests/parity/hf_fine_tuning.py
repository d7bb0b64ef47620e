"""Fine-tunes a random BERT under each of five heads: FOLDER, which gets `bert/` and `KIND.npz`.

BERT's optimizer (no bias correction, global norm 1, decay of all but biases and norms) and its
schedule, dropout off, the same encoder to begin with. `KIND.npz` has the batches under the names of
the model's inputs, the head's first `kernel` and `bias`, and the losses.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import transformers

STEPS, BATCH, LENGTH, WARMUP = 100, 8, 17, 10
RATE, DECAY, EPSILON = 1e-3, 0.01, 1e-6
CLASSES = {
    "classification": ("BertForSequenceClassification", 3),
    "regression": ("BertForSequenceClassification", 1),
    "multiple_choice": ("BertForMultipleChoice", 1),
    "span_answer": ("BertForQuestionAnswering", 2),
    "token_classification": ("BertForTokenClassification", 4),
}


def config_of(num_labels):
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    return transformers.BertConfig(
        vocab_size=61,
        intermediate_size=48,
        max_position_embeddings=20,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.1,
        num_labels=num_labels,
        **sizes,
    )


def rows(*shape):
    """Two segments and, after them, padding; each row has lengths of its own."""
    length = torch.randint(9, LENGTH + 1, (*shape, 1))
    begin, place = torch.randint(3, 8, (*shape, 1)), torch.arange(LENGTH)
    real = place < length
    return {
        "input_ids": torch.randint(5, 61, (*shape, LENGTH)) * real,
        "token_type_ids": ((place >= begin) & real).long(),
        "attention_mask": real.long(),
    }


def classification():
    """Which third of the ids the first token is of."""
    batches = rows(STEPS, BATCH)
    return {**batches, "labels": (batches["input_ids"][..., 0] - 5) // 19}


def regression():
    """The mean of the ids, from about -3 to 3."""
    batches = rows(STEPS, BATCH)
    mean = batches["input_ids"].sum(-1) / batches["attention_mask"].sum(-1)
    return {**batches, "labels": (mean - 32) / 4}


def multiple_choice():
    """The right choice of three is the one that begins with the smallest id."""
    batches = rows(STEPS, BATCH, 3)
    return {**batches, "labels": batches["input_ids"][..., 0].argmin(-1)}


def span_answer():
    """The answer follows the smallest id of the context; in one row of eight there is none.

    Rows have no padding, which transformers would count among the candidates.
    """
    shape = (STEPS, BATCH)
    ids, begin = torch.randint(5, 61, (*shape, LENGTH)), torch.randint(3, 8, shape)
    first, last = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
    for i in range(STEPS):
        for b in range(BATCH - 1):
            place = int(begin[i, b]) + int(ids[i, b, begin[i, b] : LENGTH - 3].argmin())
            first[i, b], last[i, b] = place + 1, place + 2
    return {
        "input_ids": ids,
        "token_type_ids": (torch.arange(LENGTH) >= begin[..., None]).long(),
        "attention_mask": torch.ones_like(ids),
        "start_positions": first,
        "end_positions": last,
    }


def token_classification():
    """The tag says which quarter of the ids a token is of; two of five tokens have no tag."""
    batches = rows(STEPS, BATCH)
    tags = (batches["input_ids"] - 5) // 14
    read = (torch.rand(tags.shape) < 0.6) & (batches["attention_mask"] == 1)
    return {**batches, "labels": torch.where(read, tags, -100)}


def train(model, batches):
    """Changes the model; returns the loss of each step."""
    named = list(model.named_parameters())
    moments = {name: [torch.zeros_like(p), torch.zeros_like(p)] for name, p in named}
    losses = []
    for i in range(STEPS):
        loss = model(**{name: value[i] for name, value in batches.items()}).loss
        model.zero_grad()
        loss.backward()
        losses.append(loss.item())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        rate = RATE * (i / WARMUP if i < WARMUP else 1 - i / STEPS)
        with torch.no_grad():
            for name, parameter in named:
                first, second = moments[name]
                first.mul_(0.9).add_(parameter.grad, alpha=0.1)
                second.mul_(0.999).addcmul_(parameter.grad, parameter.grad, value=0.001)
                update = first / (second.sqrt() + EPSILON)
                if "bias" not in name and "LayerNorm" not in name:
                    update += DECAY * parameter
                parameter.sub_(rate * update)
    return losses


def main(folder):
    torch.manual_seed(3)
    bert = transformers.BertModel(config_of(2))
    bert.save_pretrained(Path(folder) / "bert")
    for kind, (name, outputs) in CLASSES.items():
        model = getattr(transformers, name)(config_of(outputs)).train()
        model.bert.load_state_dict(bert.state_dict(), strict=False)
        (head,) = (part for part in model.children() if isinstance(part, torch.nn.Linear))
        start = {
            "kernel": head.weight.detach().numpy().T.copy(),
            "bias": head.bias.detach().numpy().copy(),
        }
        batches = globals()[kind]()
        losses = train(model, batches)
        arrays = {name: value.numpy() for name, value in batches.items()}
        np.savez(Path(folder) / f"{kind}.npz", losses=losses, **arrays, **start)


if __name__ == "__main__":
    main(*sys.argv[1:])
