"""The side of PyTorch transformers in `train_step` for T5, with fused AdamW."""

import torch
import torch_steps
import work
from transformers import T5Config, T5ForConditionalGeneration


def main() -> None:
    """Serves the steps of this side."""
    size = work.sizes()
    torch.manual_seed(0)
    model = T5ForConditionalGeneration(
        T5Config(
            vocab_size=size["vocab"],
            d_model=size["hidden"],
            d_kv=size["hidden"] // size["heads"],
            d_ff=size["intermediate"],
            num_layers=size["layers"],
            num_heads=size["heads"],
            decoder_start_token_id=0,
            use_cache=False,
        )
    ).train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-6, eps=1e-6, weight_decay=0.01, fused=True
    )
    batches = [_batch(batch) for batch in work.batches(size)]
    torch_steps.serve(model, optimizer, batches, size)


def _batch(batch):
    ids = torch.from_numpy(batch["token_ids"]).long()
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "labels": torch.from_numpy(batch["target_ids"].copy()).long(),
    }


if __name__ == "__main__":
    main()
