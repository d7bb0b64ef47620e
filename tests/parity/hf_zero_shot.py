"""Classes that transformers' pipeline chooses by entailment.

Run with OUT: writes a folder for each order of the labels, and `expected.json` with the scores of
the pipeline for TEXTS and CLASSES, one right or any number of them.
"""

import json
import sys
from pathlib import Path

import torch
import transformers as t
from hf_pair_forms import PIECES

NLI = {
    "usual": ["contradiction", "neutral", "entailment"],
    "reverse": ["entailment", "neutral", "contradiction"],
    "two": ["not_entailment", "Entailment"],
}
TEXTS = ["the cat sat on the mat", "it is a very bad film", "dog " * 60, "red"]
CLASSES = ["cat", "bad film", "dog", "good"]
HYPOTHESIS = "it is {} ."


def make(out):
    torch.manual_seed(0)
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 24}
    expected = {}
    for name, labels in NLI.items():
        config = t.BertConfig(
            vocab_size=len(PIECES), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
            intermediate_size=32, initializer_range=0.5, max_position_embeddings=24,
            id2label=dict(enumerate(labels)), label2id={x: i for i, x in enumerate(labels)},
        )  # fmt: skip
        t.BertForSequenceClassification(config).eval().save_pretrained(out / name)
        (out / name / "vocab.txt").write_text("\n".join(PIECES) + "\n")
        (out / name / "tokenizer_config.json").write_text(json.dumps(settings))
        ask = t.pipeline("zero-shot-classification", model=str(out / name))
        expected[name] = {
            kind: [
                dict(zip(each["labels"], each["scores"], strict=True))
                for each in ask(
                    TEXTS, classes, hypothesis_template=HYPOTHESIS, multi_label=kind == "several"
                )
            ]
            for kind, classes in (("one", CLASSES), ("several", CLASSES), ("single", CLASSES[:1]))
        }
    (out / "expected.json").write_text(json.dumps(expected))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
