"""BERT: the names of its tensors, in Hugging Face's files and in the TF1 release.

Masked LM, next sentence and the heads of tasks are converted if they exist. Label 1 of the
next-sentence head means "random" in all formats.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from official.config.encoders import TransformerConfig
from official.convert.encoder_keys import EncoderKeys
from official.convert.heads import (
    Classification,
    Head,
    MaskedLM,
    MultiLabel,
    MultipleChoice,
    NextSentence,
    Regression,
    SpanAnswer,
    TokenClassification,
    table,
)
from official.convert.mapping import Row, layer_rows, linear, norm
from official.convert.system import System

# Our paths ↔ Hugging Face's, below the system's prefix. {i} is the layer.
_EMBEDDINGS = {
    "token_embedding/table": "word_embeddings.weight",
    "position_embedding/table": "position_embeddings.weight",
    "segment_embedding/table": "token_type_embeddings.weight",
    "norm/scale": "LayerNorm.weight",
    "norm/offset": "LayerNorm.bias",
}
_LAYER_MATRICES = {
    "attention/query_key_value": (
        "attention.self.query",
        "attention.self.key",
        "attention.self.value",
    ),
    "attention/output": ("attention.output.dense",),
    "feed_forward/inner": ("intermediate.dense",),
    "feed_forward/outer": ("output.dense",),
}
_LAYER_NORMS = {
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward_norm": "output.LayerNorm",
}


def embedding_rows(prefix: str) -> list[Row]:
    """Returns the rows of the three tables and their norm."""
    return [
        Row(f"encoder/embeddings/{path}", (f"{prefix}embeddings.{name}",))
        for path, name in _EMBEDDINGS.items()
    ]


def encoder_rows(prefix: str) -> Callable[[TransformerConfig], list[Row]]:
    """Returns a function that makes the rows of embeddings and layers with BERT's names."""

    def rows(encoder: TransformerConfig) -> list[Row]:
        layers = layer_rows(
            encoder.num_layers, f"{prefix}encoder.layer", _LAYER_MATRICES, _LAYER_NORMS
        )
        return embedding_rows(prefix) + layers

    return rows


def masked_lm_rows(transform: str, norm_name: str, bias: str) -> list[Row]:
    """Returns the rows of a masked LM.

    Args:
      transform: the name of the hidden layer.
      norm_name: the name of the norm after it.
      bias: the name of the output bias.
    """
    return [
        *linear("masked_lm/transform", transform),
        *norm("masked_lm/norm", norm_name),
        Row("masked_lm/output_bias", (bias,)),
    ]


def task_heads(
    model: str,
    name: str,
    *,
    hidden: str | None = None,
    activation: str | None = None,
    choice: MultipleChoice | None = None,
    span: str = "QuestionAnswering",
) -> tuple[Head, ...]:
    """Returns the heads of tasks.

    Args:
      model: the prefix of the names of the classes of transformers.
      name: the last layer of classification, regression and multiple choice.
      hidden: the layer before it that is our pooler; None = the pooler of the system.
      activation: the activation of the pooler with these heads; None = that of the system.
      choice: the head of multiple choice, where it has other names.
      span: the suffix of the name of the class for span answers.
    """
    texts = f"{model}ForSequenceClassification"
    pooler = {"pooler": hidden, "pooler_activation": activation}
    return (
        Classification(linear("classification/output", name), texts, **pooler),
        MultiLabel(linear("multi_label/output", name), texts, **pooler),
        Regression(linear("regression/output", name), texts, **pooler),
        choice
        or MultipleChoice(
            linear("multiple_choice/output", name), f"{model}ForMultipleChoice", **pooler
        ),
        SpanAnswer(linear("span_answer/output", "qa_outputs"), f"{model}For{span}", **pooler),
        TokenClassification(
            linear("token_classification/output", "classifier"), f"{model}ForTokenClassification"
        ),
    )


# Heads that the release stores as two variables, `output_weights` and `output_bias`, with the
# prefixes of these names: the next-sentence head, and those of run_classifier.py and run_squad.py.
_TF1_BARE = {
    "cls.seq_relationship": "cls/seq_relationship/",
    "classifier": "",
    "qa_outputs": "cls/squad/",
}


def tf1_name(name: str) -> str:
    """Returns the name in the release of a tensor of transformers.

    For example, `bert.encoder.layer.0.output.dense.weight` becomes
    `bert/encoder/layer_0/output/dense/kernel`.
    """
    if name == "cls.predictions.bias":
        return "cls/predictions/output_bias"
    scope, _, kind = name.rpartition(".")
    if scope in _TF1_BARE:
        return f"{_TF1_BARE[scope]}output_{'weights' if kind == 'weight' else kind}"
    stem, _, kind = name.replace("encoder.layer.", "encoder.layer_").rpartition(".")
    layer = stem.rpartition(".")[2]
    if layer.startswith("LayerNorm"):
        kind = {"weight": "gamma", "bias": "beta"}[kind]
    elif layer.endswith("_embeddings"):
        return stem.replace(".", "/")
    else:
        kind = {"weight": "kernel", "bias": "bias"}[kind]
    return f"{stem.replace('.', '/')}/{kind}"


def tf1_row(row: Row, name: Callable[[str], str] = tf1_name) -> Row:
    """Returns the row with the names of the release, where kernels are [in, out] as ours."""
    # The matrices of these heads are [out, in].
    transposed = row.transposed and row.names[0].rpartition(".")[0] in _TF1_BARE
    return dataclasses.replace(row, names=tuple(map(name, row.names)), transposed=transposed)


def system(model_type: str, title: str, prefix: str, classes: str, **more: Any) -> System:
    """Returns the system of a network with BERT's names.

    Args:
      model_type: `model_type` of config.json.
      title: the name of the system, with its article.
      prefix: the prefix of the encoder's tensors.
      classes: the prefix of the names of the classes of transformers.
      **more: other attributes of the system.
    """
    return System(
        **{
            "model_type": model_type,
            "encoder": EncoderKeys(title=title),
            "prefix": prefix,
            "encoder_rows": encoder_rows(prefix),
            "pooler": "pooler.dense",
            "heads": table(
                MaskedLM(
                    masked_lm_rows(
                        "cls.predictions.transform.dense",
                        "cls.predictions.transform.LayerNorm",
                        "cls.predictions.bias",
                    ),
                    f"{classes}ForMaskedLM",
                ),
                NextSentence(
                    linear("next_sentence", "cls.seq_relationship"),
                    f"{classes}ForNextSentencePrediction",
                ),
                *task_heads(classes, "classifier"),
            ),
            "architectures": {
                frozenset(): f"{classes}Model",
                frozenset({"masked_lm", "next_sentence"}): f"{classes}ForPreTraining",
            },
            "aliases": {
                "cls.predictions.decoder.weight": f"{prefix}embeddings.word_embeddings.weight",
                "cls.predictions.decoder.bias": "cls.predictions.bias",
            },
            "buffers": (f"{prefix}embeddings.position_ids", f"{prefix}embeddings.token_type_ids"),
            **more,
        }
    )


SYSTEM = system("bert", "a BERT", "bert.", "Bert", tf1_row=tf1_row)
