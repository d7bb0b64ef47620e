"""Makes LoRA adapters by peft: PARENT [NAME...], which gets `NAME/base` and `NAME/adapter`.

Sizes are odd; all weights are random, those that peft trains too. `NAME/outputs.npz` has the inputs
and the outputs of the model with its adapter, and after `merge_and_unload`. With names, it reads
the adapters `NAME/written` of classifications, and answers the same inputs in `NAME/written.npz`.
"""

import sys
from pathlib import Path

import numpy as np
import peft
import torch
import transformers
from hf_heads import DEBERTA, DISTIL, EURO, MODERN, ROBERTA, SIZES, XLNET

EVERY = {"target_modules": "all-linear"}
SEQ, PATTERNS = "SEQ_CLS", {"rank_pattern": {"query": 2}, "alpha_pattern": {"0.*.query": 16}}
TOKENS = {f"{name}_token_id": 0 for name in ("bos", "eos", "pad", "cls", "sep")}
MODERN = {**MODERN, **TOKENS, "vocab_size": 263}
GPT2 = {**TOKENS, "vocab_size": 259, "n_embd": 15, "n_layer": 2, "n_head": 3, "n_positions": 13}
T5 = {"vocab_size": 61, "d_model": 15, "d_kv": 5, "d_ff": 22, "num_layers": 2, "num_heads": 3}
T5 |= {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}

# {name: (class of the base, class with the adapter, sizes, settings of the adapter)}. The base
# has the hidden layers of a head that peft does not save.
CASES = {
    "bert": ("BertModel", "BertForSequenceClassification", {}, {"task_type": SEQ}),
    "bert_patterns": (
        "BertForPreTraining", "BertForSequenceClassification", {},
        {"task_type": SEQ, "bias": "all", **PATTERNS, **EVERY},
    ),
    "bert_dora": (
        "BertForSequenceClassification", "BertForSequenceClassification", {},
        {"task_type": SEQ, "use_dora": True, "target_modules": ["query", "output.dense"],
         "rank_pattern": {r"layer\.1\.output\.dense": 3}},
    ),
    "bert_masked_lm": (
        "BertForMaskedLM", "BertForMaskedLM", {},
        {"lora_bias": True, "target_modules": r".*(key|dense)", "bias": "all"},
    ),
    "bert_embeddings": (
        "BertForMaskedLM", "BertForTokenClassification", {},
        {"task_type": "TOKEN_CLS", "target_modules": ["word_embeddings", "value"]},
    ),
    "roberta": (
        "RobertaForMaskedLM", "RobertaForSequenceClassification", ROBERTA,
        {"task_type": SEQ, "use_rslora": True, "bias": "lora_only", **EVERY},
    ),
    "roberta_answers": (
        "RobertaForMaskedLM", "RobertaForQuestionAnswering", ROBERTA,
        {"task_type": "QUESTION_ANS", "use_dora": True, "modules_to_save": ["qa_outputs"]},
    ),
    "deberta": (
        "DebertaV2ForSequenceClassification", "DebertaV2ForSequenceClassification", DEBERTA,
        {"task_type": SEQ, "bias": "all"},
    ),
    "deberta_pooler": (
        "DebertaV2ForMaskedLM", "DebertaV2ForSequenceClassification", DEBERTA,
        {"task_type": SEQ, "use_dora": True, "modules_to_save": ["pooler"], "use_rslora": True,
         "target_modules": ["query_proj", "key_proj", "dense"]},
    ),
    "modernbert": (
        "ModernBertForMaskedLM", "ModernBertForSequenceClassification", MODERN,
        {"task_type": SEQ, "target_modules": ["Wqkv", "Wi", "Wo"], "rank_pattern": {"Wi": 7}},
    ),
    "modernbert_dora": (
        "ModernBertForMaskedLM", "ModernBertForSequenceClassification", MODERN,
        {"task_type": SEQ, "use_dora": True, "modules_to_save": ["head"], "use_rslora": True,
         "target_modules": ["Wqkv", "mlp.Wo"]},
    ),
    "electra": (
        "ElectraForPreTraining", "ElectraForSequenceClassification", {"embedding_size": 10},
        {"task_type": SEQ, **EVERY},
    ),
    "albert": ("AlbertModel", "AlbertModel", {"embedding_size": 7},
               {"task_type": "FEATURE_EXTRACTION", **EVERY}),
    "distilbert": ("DistilBertForMaskedLM", "DistilBertModel", DISTIL,
                   {"task_type": "FEATURE_EXTRACTION", "target_modules": ["q_lin", "lin1"]}),
    "eurobert": ("EuroBertForMaskedLM", "EuroBertForMaskedLM",
                 {**EURO, **TOKENS, "vocab_size": 277},
                 {"target_modules": ["q_proj", "k_proj", "down_proj", "embed_tokens"]}),
    "xlnet": ("XLNetLMHeadModel", "XLNetForSequenceClassification", XLNET,
              {"task_type": SEQ, "target_modules": ["layer_1"],
               "modules_to_save": ["logits_proj", "sequence_summary"]}),
    "gpt2": ("GPT2LMHeadModel", "GPT2LMHeadModel", GPT2,
             {"task_type": "CAUSAL_LM", "target_modules": ["c_attn", "c_proj"], "bias": "all"}),
    "gpt2_dora": ("GPT2LMHeadModel", "GPT2LMHeadModel", GPT2,
                  {"task_type": "CAUSAL_LM", "target_modules": ["c_proj"], "use_dora": True}),
    "t5": ("T5EncoderModel", "T5EncoderModel", T5, {"task_type": "FEATURE_EXTRACTION"}),
    # What can stay beside the weights: the same kernels in all layers, of one rank.
    "roberta_alike": (
        "RobertaForMaskedLM", "RobertaForSequenceClassification", ROBERTA,
        {"task_type": SEQ, "use_rslora": True, "target_modules": ["query", "key", "dense"]},
    ),
    "deberta_alike": (
        "DebertaV2ForSequenceClassification", "DebertaV2ForSequenceClassification", DEBERTA,
        {"task_type": SEQ, "target_modules": ["query_proj", "key_proj", "value_proj"]},
    ),
    "modernbert_alike": (
        "ModernBertForMaskedLM", "ModernBertForSequenceClassification", MODERN,
        {"task_type": SEQ, "target_modules": ["Wqkv", "Wi", "Wo"]},
    ),
}  # fmt: skip
# The pooler is random and frozen in training, and peft does not save it.
LOST = {
    "lost_pooler": ("BertForMaskedLM", "BertForSequenceClassification", {}, {"task_type": SEQ}),
}


def main(parent, *names):
    """Writes the folders, or the answers of adapters."""
    for name in names:
        answer(Path(parent, name))
    if names:
        return
    for number, (name, case) in enumerate({**CASES, **LOST}.items()):
        make(Path(parent, name), number, *case)


def make(folder, seed, base, with_adapter, sizes, settings):
    """Makes one case."""
    torch.manual_seed(seed)
    kind = getattr(transformers, base)
    config = kind.config_class(**(sizes if base.startswith("XLNet") else {**SIZES, **sizes}))
    kind(config).eval().save_pretrained(folder / "base")
    more = {"num_labels": 3} if "ForSequence" in with_adapter or "ForToken" in with_adapter else {}
    more |= {"attn_implementation": "eager", "ignore_mismatched_sizes": True}
    model = getattr(transformers, with_adapter).from_pretrained(folder / "base", **more).eval()
    settings = {"r": 4, "lora_alpha": 8, **settings}
    adapted = peft.get_peft_model(model, peft.LoraConfig(**settings)).eval()
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter += 0.2 * torch.randn(parameter.shape)
    # that of the ALBERT is a file of torch, as old versions of peft wrote it
    adapted.save_pretrained(folder / "adapter", safe_serialization=folder.name != "albert")
    ids = torch.randint(5, config.vocab_size, (3, 9))
    real = torch.ones(3, 9, dtype=torch.long)
    if not base.startswith(("GPT2", "XLNet")):  # which read the last token
        real[1, 6:] = 0
    batch = {"input_ids": ids, "attention_mask": real}
    plain = getattr(transformers, with_adapter).from_pretrained(folder / "base", **more).eval()
    outputs = {"ids": ids.numpy(), "real": real.numpy().astype(bool)}
    with torch.no_grad():
        outputs["before"] = first(plain(**batch))
        outputs["unmerged"] = first(adapted(**batch))
        outputs["merged"] = first(adapted.merge_and_unload()(**batch))
    np.savez(folder / "outputs.npz", **outputs)


def answer(folder):
    """Answers by the adapter `written`, whose config names its base."""
    inputs = np.load(folder / "outputs.npz")
    real = torch.tensor(inputs["real"], dtype=torch.long)
    batch = {"input_ids": torch.tensor(inputs["ids"]), "attention_mask": real}
    more = {"num_labels": 3, "attn_implementation": "eager", "ignore_mismatched_sizes": True}
    kind = peft.AutoPeftModelForSequenceClassification
    adapted = kind.from_pretrained(folder / "written", **more).eval()
    with torch.no_grad():
        outputs = {"unmerged": first(adapted(**batch))}
        outputs["merged"] = first(adapted.merge_and_unload()(**batch))
    np.savez(folder / "written.npz", **outputs)


def first(output):
    """The logits or states of an output; of an answer, logits of its start."""
    return output[0].numpy()


if __name__ == "__main__":
    main(*sys.argv[1:])
