"""Fine-tunes a random BertForQuestionAnswering: FOLDER, which gets `bert/` and `training.npz`.

BERT's optimizer (no bias correction, global norm 1, decay of all but biases and norms) and its
schedule, dropout off; rows without padding, which transformers would count among the candidates.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import transformers

STEPS, BATCH, LENGTH, WARMUP = 100, 8, 17, 10
RATE, DECAY, EPSILON = 1e-3, 0.01, 1e-6


def main(folder):
    torch.manual_seed(3)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.BertConfig(
        vocab_size=61,
        intermediate_size=48,
        max_position_embeddings=20,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.1,
        **sizes,
    )
    bert = transformers.BertModel(config)
    bert.save_pretrained(Path(folder) / "bert")
    model = transformers.BertForQuestionAnswering(config)
    model.bert.load_state_dict(bert.state_dict(), strict=False)
    start = {
        "kernel": model.qa_outputs.weight.detach().numpy().T.copy(),
        "bias": model.qa_outputs.bias.detach().numpy().copy(),
    }
    rows = (STEPS, BATCH)
    batches = {
        "token_ids": torch.randint(5, 61, (*rows, LENGTH)),
        "begin": torch.randint(
            3, 8, rows
        ),  # where the context does, which goes to the last but one
        "first": torch.zeros(rows, dtype=torch.long),
        "last": torch.zeros(rows, dtype=torch.long),
    }
    # The answer follows the smallest id of the context; in one row of eight there is none.
    for i in range(STEPS):
        for b in range(BATCH - 1):
            begin = int(batches["begin"][i, b])
            place = begin + int(batches["token_ids"][i, b, begin : LENGTH - 3].argmin())
            batches["first"][i, b], batches["last"][i, b] = place + 1, place + 2
    named = list(model.named_parameters())
    moments = {name: [torch.zeros_like(p), torch.zeros_like(p)] for name, p in named}
    losses = []
    for i in range(STEPS):
        segments = (torch.arange(LENGTH)[None] >= batches["begin"][i][:, None]).long()
        loss = model(
            batches["token_ids"][i],
            token_type_ids=segments,
            start_positions=batches["first"][i],
            end_positions=batches["last"][i],
        ).loss
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
    arrays = {name: value.numpy().astype(np.int32) for name, value in batches.items()}
    np.savez(Path(folder) / "training.npz", losses=losses, **arrays, **start)


if __name__ == "__main__":
    main(*sys.argv[1:])
