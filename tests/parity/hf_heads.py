"""Makes models of transformers with heads: PARENT, which gets a folder for each.

A folder has what `save_pretrained` writes, `inputs.npz` and, of the class on these inputs,
`outputs.npz`. Sizes are odd, weights random, biases and scales too. transformers 4 makes heads of
tasks, on random tokens. transformers 5 makes every head of every system, each with a tokenizer; the
tokens are those of TEXTS, and `places.json` has the places of words among them.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
import transformers

LENGTH = 9
SIZES = {
    "vocab_size": 61,
    "hidden_size": 15,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 22,
    "max_position_embeddings": 13,
    "initializer_range": 0.25,
}
XLNET = {"vocab_size": 61, "d_model": 18, "n_layer": 2, "n_head": 3, "d_inner": 23}
XLNET |= {"initializer_range": 0.25, "mem_len": None}
ROBERTA = {"vocab_size": 277, "type_vocab_size": 1}
LABELS = {"id2label": {0: "no", 1: "yes", 2: "maybe"}, "label2id": {"no": 0, "yes": 1, "maybe": 2}}
DEBERTA = {"relative_attention": True, "position_biased_input": False, "pos_att_type": "p2c|c2p"}
DEBERTA |= {"type_vocab_size": 0}
DEBERTA_V1 = {**DEBERTA, "vocab_size": 263, "max_relative_positions": 6}
DEBERTA |= {"share_att_key": True, "position_buckets": 6, "norm_rel_ebd": "layer_norm"}
MODERN = {"local_attention": 6, "hidden_size": 18, "attn_implementation": "eager"}
EURO = {"hidden_size": 24, "num_attention_heads": 6, "num_key_value_heads": 2}
EURO |= {"rope_parameters": {"rope_type": "default", "rope_theta": 50.0}}
EURO |= {"attn_implementation": "eager"}
DISTIL = {"hidden_dim": 22, "dim": 15, "n_layers": 2, "n_heads": 3}

# What differs from the sizes above, by class and, where a class is there twice, more of a name.
CASES = {
    "BertForQuestionAnswering": {},
    "BertForMultipleChoice": {},
    "RobertaForQuestionAnswering": ROBERTA,
    "RobertaForMultipleChoice": ROBERTA,
    "AlbertForQuestionAnswering": {"embedding_size": 7},
    "AlbertForMultipleChoice": {"embedding_size": 7},
    "ElectraForQuestionAnswering": {"embedding_size": 10},
    "ElectraForMultipleChoice": {"embedding_size": 10},
    "ElectraForMultipleChoice.tanh": {"embedding_size": 10, "summary_activation": "tanh"},
    "ElectraForMultipleChoice.first": {
        "embedding_size": 15,
        "summary_use_proj": False,
        "summary_activation": None,
    },
    "ElectraForSequenceClassification": {"embedding_size": 10, **LABELS},
    "ElectraForSequenceClassification.regression": {"embedding_size": 15, "num_labels": 1},
    "XLNetForQuestionAnsweringSimple": XLNET,
    "XLNetForQuestionAnswering": {**XLNET, "start_n_top": 3, "end_n_top": 2},
    "XLNetForMultipleChoice": XLNET,
    "DistilBertForQuestionAnswering": DISTIL,
    "DistilBertForMultipleChoice": DISTIL,
    "DistilBertForSequenceClassification": {**DISTIL, **LABELS},
    "BertForTokenClassification": LABELS,
    "RobertaForTokenClassification": {**ROBERTA, **LABELS},
    "AlbertForTokenClassification": {"embedding_size": 7, **LABELS},
    "ElectraForTokenClassification": {"embedding_size": 10, **LABELS},
    "XLNetForTokenClassification": {**XLNET, **LABELS},
    "DistilBertForTokenClassification": {**DISTIL, **LABELS},
    "DebertaV2ForQuestionAnswering": {**DEBERTA, "conv_kernel_size": 3, "conv_act": "gelu"},
    "DebertaV2ForMultipleChoice": DEBERTA,
    "DebertaV2ForTokenClassification": {**DEBERTA, **LABELS},
    "DebertaForQuestionAnswering": DEBERTA_V1,
    "DebertaForTokenClassification": {**DEBERTA_V1, **LABELS},
    "DebertaForSequenceClassification.regression": {**DEBERTA_V1, "num_labels": 1},
}

# What transformers 5 makes: sizes and a tokenizer for each system, and its heads.
TEXTS = [
    ["The cat sat on the river .", "In Spain ?"],
    ["naïve café", "3.5%"],
    ["Dogs", "ran to the sea"],
]
TYPED = ["input_ids", "token_type_ids", "attention_mask"]
MASKED = ["The {} sat on the river .", "In {} ?"]
CHOICES = [["It rained .", "The street is", ["wet", "dry , but"]],
           ["A dog", "ran", ["to the sea", "fast"]]]  # fmt: skip
SYSTEMS = {
    "Bert": ("bert", {}),
    "Ernie": ("bert", {"use_task_id": True}),
    "Electra": ("bert", {"embedding_size": 10}),
    "DistilBert": ("distilbert", DISTIL),
    "MPNet": ("mpnet", {}),
    "Roberta": ("roberta", {"type_vocab_size": 1}),
    "XLMRoberta": ("xlm_roberta", {"type_vocab_size": 1}),
    "Camembert": ("camembert", {"type_vocab_size": 1}),
    "Albert": ("albert", {"embedding_size": 7}),
    "XLNet": ("xlnet", XLNET),
    "GPT2": ("gpt2", {}),
    "DebertaV2": ("deberta", {**DEBERTA, "legacy": False, "tie_word_embeddings": False}),
    "ModernBert": ("modernbert", MODERN),
    "EuroBert": ("eurobert", EURO),
    "T5": (
        "t5",
        {
            "d_model": 15,
            "d_kv": 5,
            "d_ff": 22,
            "num_layers": 2,
            "num_heads": 3,
            "initializer_factor": 0.5,
        },
    ),
}
SPECIAL = {
    "Bert": ("ForPreTraining", "ForNextSentencePrediction"),
    "Ernie": ("ForPreTraining", "ForNextSentencePrediction", "ForMaskedLM.no_task"),
    "Electra": ("ForPreTraining", "ForMultipleChoice.tanh", "ForMultipleChoice.first"),
    "Albert": ("ForPreTraining",),
    "XLNet": ("LMHeadModel", "ForQuestionAnsweringSimple"),
    "GPT2": ("LMHeadModel",),
    "EuroBert": ("ForSequenceClassification.bos", "ForSequenceClassification.mean"),
    "T5": tuple(f"ForConditionalGeneration{kind}" for kind in ("", ".unscaled", ".own_output")),
}
EVERY = (
    *("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification"),
    *("ForSequenceClassification.multi_label", "ForSequenceClassification.regression"),
    *("ForQuestionAnswering", "ForMultipleChoice"),
)
VARIANTS = {
    "regression": {"num_labels": 1},
    "multi_label": {"problem_type": "multi_label_classification", **LABELS},
    "no_task": {"use_task_id": False},
    "unscaled": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "own_output": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "tanh": {"summary_activation": "tanh"},
    "bos": {"classifier_pooling": "bos", **LABELS},
    "mean": {"classifier_pooling": "mean", **LABELS},
    "first": {"summary_use_proj": False, "summary_activation": ""},
}


def heads(system):
    """The heads of a system, as the names of its classes end."""
    own = ("Model", "EncoderModel")[: 1 + (system == "T5")] if system in ("GPT2", "T5") else EVERY
    lacking = {"XLNet": EVERY[1:2], "EuroBert": EVERY[-2:]}.get(system, ())
    return [head for head in own if head not in lacking] + list(SPECIAL.get(system, ()))


def make_model(name, sizes, seed):
    torch.manual_seed(seed)
    cls = getattr(transformers, name.partition(".")[0])
    sizes = sizes if name.startswith("XLNet") else {**SIZES, **sizes}
    model = cls(cls.config_class(**sizes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    if name.endswith(".own_output"):  # as of Flan-T5
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.flip(0) * 0.5)
    return model


def make_inputs(name, model):
    """Rows of different lengths, or rows of choices; an XLNet has its padding on the left."""
    config, xlnet = model.config, name.startswith("XLNet")
    shape = (2, 3) if "MultipleChoice" in name else (3,)
    length = torch.randint(5, LENGTH + 1, (*shape, 1))
    length.view(-1)[0] = LENGTH
    place = torch.arange(LENGTH)
    real = place >= LENGTH - length if xlnet else place < length
    ids = torch.where(real, torch.randint(5, 61, real.shape), config.pad_token_id)
    inputs = {"input_ids": ids, "attention_mask": real.float() if xlnet else real.long()}
    if config.model_type != "distilbert":
        types = 2 if xlnet else config.type_vocab_size or 1
        inputs["token_type_ids"] = torch.randint(0, types, real.shape)
    if xlnet:
        inputs["use_mems"] = torch.tensor(False)
    if name == "XLNetForQuestionAnswering":
        # Answers may be in the first four real tokens, or at the last position.
        inside = (place >= LENGTH - length) & (place < LENGTH - length + 4)
        inputs |= answer_mask(inside)
    return inputs


def answer_mask(inside):
    last = torch.arange(inside.shape[1]) == inside.shape[1] - 1
    return {
        "p_mask": 1 - (inside | last).float(),
        "cls_index": torch.full((len(inside),), inside.shape[1] - 1),
    }


def tokens(name, model, tokenizer):
    """The tokens of TEXTS, MASKED or CHOICES, and where words and masks are among them."""
    rows = TEXTS
    if "MultipleChoice" in name:
        rows = [[a, f"{b} {c}"] for a, b, endings in CHOICES for c in endings]
    if "MaskedLM" in name or name.endswith("PreTraining"):
        rows = [[text.format(tokenizer.mask_token)] for text in MASKED]
    if name.startswith(("T5", "GPT2")) or "TokenClassification" in name:
        rows = [[first] for first, _ in rows]
    inputs = tokenizer(*map(list, zip(*rows, strict=True)), padding=True, return_tensors="pt")
    places = {
        # Of each token the word, whether it is of the second text, and its characters.
        "words": [
            [-1 if i is None else i for i in inputs.word_ids(row)] for row in range(len(rows))
        ],
        "second": [[i == 1 for i in inputs.sequence_ids(row)] for row in range(len(rows))],
        "characters": [[list(span) for span in each.offsets] for each in inputs.encodings],
        "masks": [
            [i == tokenizer.mask_token_id for i in row] for row in inputs["input_ids"].tolist()
        ],
        "texts": rows,
    }
    inputs = dict(inputs)
    if "MultipleChoice" in name:
        inputs = {key: value.reshape(2, 2, -1) for key, value in inputs.items()}
    if name.startswith("XLNet"):
        inputs["use_mems"] = torch.tensor(False)
        inputs["attention_mask"] = inputs["attention_mask"].float()
    if name == "XLNetForQuestionAnswering":
        inputs |= answer_mask((inputs["token_type_ids"] == 1) & (inputs["attention_mask"] > 0))
    if name.startswith("T5") and "Encoder" not in name:
        labels = tokenizer([row[0][::-1] for row in TEXTS], padding=True, return_tensors="pt")
        labels = labels["input_ids"]
        inputs["decoder_input_ids"] = torch.cat([0 * labels[:, :1], labels[:, :-1]], 1)
    return inputs, places


def save(folder, model, inputs):
    with torch.no_grad():
        outputs = dict(model(**inputs))
    model.save_pretrained(folder)
    np.savez(folder / "inputs.npz", **{k: v.numpy() for k, v in inputs.items()})
    outputs = {k: v.numpy() for k, v in outputs.items() if isinstance(v, torch.Tensor)}
    np.savez(folder / "outputs.npz", **outputs)


def all_heads(parent):
    """What transformers 5 makes."""
    import hf5_tokenizers

    sources = hf5_tokenizers.sources(parent)
    for seed, system in enumerate(SYSTEMS):
        source, sizes = SYSTEMS[system]
        tokenizer_class, folder, settings = sources[source]
        if system in ("Albert", "XLNet"):  # whose classes ask for no types of their own
            settings = {**settings, "model_input_names": TYPED}
        tokenizer = tokenizer_class.from_pretrained(folder, **settings)
        tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
        sizes = {**sizes, "vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
        if system != "XLNet":
            sizes["max_position_embeddings"] = 80
        for head in heads(system):
            more = VARIANTS.get(head.partition(".")[2], {})
            if "Classification" in head and not more:
                more = LABELS
            model = make_model(system + head, {**sizes, **more}, seed)
            inputs, places = tokens(system + head, model, tokenizer)
            save(parent / (system + head), model, inputs)
            (parent / (system + head) / "places.json").write_text(json.dumps(places))
            tokenizer.save_pretrained(parent / (system + head))
    shutil.rmtree(parent / "old")
    (parent / "choices.json").write_text(json.dumps({"choices": CHOICES}))


def main(parent):
    parent = Path(parent)
    if int(transformers.__version__.partition(".")[0]) >= 5:
        return all_heads(parent)
    for seed, name in enumerate(CASES):
        model = make_model(name, CASES[name], seed)
        save(parent / name, model, make_inputs(name, model))


if __name__ == "__main__":
    main(*sys.argv[1:])
