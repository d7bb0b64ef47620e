"""The side of PyTorch transformers in `train_step`: `BertForPreTraining` and fused AdamW."""

import torch
import torch_steps
import work
from transformers import BertConfig, BertForPreTraining


def main() -> None:
    """Serves the steps of this side."""
    size = work.sizes()
    torch.manual_seed(0)
    model = BertForPreTraining(
        BertConfig(
            vocab_size=size["vocab"],
            hidden_size=size["hidden"],
            num_hidden_layers=size["layers"],
            num_attention_heads=size["heads"],
            intermediate_size=size["intermediate"],
            hidden_act="gelu_new",
        )
    ).train()
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}],
        lr=1e-6,
        eps=1e-6,
        fused=True,
    )
    batches = [_batch(batch) for batch in work.batches(size)]
    torch_steps.serve(model, optimizer, batches, size)


def _batch(batch):
    ids = torch.from_numpy(batch["token_ids"]).long()
    labels = torch.full_like(ids, -100)
    labels.scatter_(
        1,
        torch.from_numpy(batch["masked_positions"]).long(),
        torch.from_numpy(batch["masked_ids"]).long(),
    )
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "token_type_ids": torch.from_numpy(batch["segment_ids"]).long(),
        "labels": labels,
        "next_sentence_label": torch.from_numpy(batch["next_sentence_label"]).long(),
    }


if __name__ == "__main__":
    main()
