"""The sides of PyTorch transformers in `benchmarks.train_step`, with fused AdamW."""

from collections.abc import Callable, Mapping

import server
import torch
import train_step_torch
from transformers import (
    BertConfig,
    BertForPreTraining,
    DebertaV2Config,
    DebertaV2ForMaskedLM,
    ModernBertConfig,
    ModernBertForMaskedLM,
    T5Config,
    T5ForConditionalGeneration,
)


def bert(size: dict) -> None:
    """Serves the steps of `BertForPreTraining`."""
    torch.manual_seed(0)
    model = BertForPreTraining(
        BertConfig(
            **server.sizes(size),
            hidden_act="gelu_new",
        )
    ).train()
    train_step_torch.serve(model, train_step_torch.adamw(model), _bert_batch, _loss, size)


def t5(size: dict) -> None:
    """Serves the steps of `T5ForConditionalGeneration`."""
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
    train_step_torch.serve(model, optimizer, _t5_batch, _loss, size)


def deberta(size: dict) -> None:
    """Serves the steps of `DebertaV2ForMaskedLM`, in the form of v3."""
    torch.manual_seed(0)
    model = DebertaV2ForMaskedLM(
        DebertaV2Config(
            **server.sizes(size),
            relative_attention=True,
            position_biased_input=False,
            position_buckets=256,
            norm_rel_ebd="layer_norm",
            share_att_key=True,
            pos_att_type="p2c|c2p",
        )
    ).train()
    train_step_torch.serve(model, train_step_torch.adamw(model), _deberta_batch, _loss, size)


def modernbert(size: dict) -> None:
    """Serves the steps of `ModernBertForMaskedLM`, which predicts only the masked tokens."""
    torch.manual_seed(0)
    model = ModernBertForMaskedLM(
        ModernBertConfig(
            **server.sizes(size),
            sparse_prediction=True,
            reference_compile=False,
            **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0),
            **dict.fromkeys(("cls_token_id", "sep_token_id"), 0),
        )
    ).train()
    train_step_torch.serve(model, train_step_torch.adamw(model), _deberta_batch, _loss, size)


def _deberta_batch(batch):
    names = ("input_ids", "attention_mask", "labels")
    return {name: value for name, value in _bert_batch(batch).items() if name in names}


def _bert_batch(batch):
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


def _t5_batch(batch):
    ids = torch.from_numpy(batch["token_ids"]).long()
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "labels": torch.from_numpy(batch["target_ids"].copy()).long(),
    }


def _loss(forward: Callable, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return forward(**batch).loss


if __name__ == "__main__":
    server.main(bert, t5, deberta, modernbert)
