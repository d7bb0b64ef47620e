"""Makes models of transformers with heads of tasks: PARENT, which gets a folder for each.

A folder has what `save_pretrained` writes, `inputs.npz` and, of the class on these inputs,
`outputs.npz`. Sizes are odd, weights random, biases and scales too.
"""

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
}


def make_model(name, seed):
    torch.manual_seed(seed)
    cls = getattr(transformers, name.partition(".")[0])
    sizes = CASES[name] if name.startswith("XLNet") else {**SIZES, **CASES[name]}
    model = cls(cls.config_class(**sizes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
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
        types = 2 if xlnet else config.type_vocab_size
        inputs["token_type_ids"] = torch.randint(0, types, real.shape)
    if xlnet:
        inputs["use_mems"] = torch.tensor(False)
    if name == "XLNetForQuestionAnswering":
        # Answers may be in the first four real tokens, or at the last position.
        inside = (place >= LENGTH - length) & (place < LENGTH - length + 4)
        inputs["p_mask"] = 1 - (inside | (place == LENGTH - 1)).float()
        inputs["cls_index"] = torch.full((3,), LENGTH - 1)
    return inputs


def main(parent):
    for seed, name in enumerate(CASES):
        model = make_model(name, seed)
        inputs = make_inputs(name, model)
        with torch.no_grad():
            outputs = model(**inputs)
        folder = Path(parent) / name
        model.save_pretrained(folder)
        np.savez(folder / "inputs.npz", **{k: v.numpy() for k, v in inputs.items()})
        np.savez(folder / "outputs.npz", **{k: v.numpy() for k, v in outputs.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
