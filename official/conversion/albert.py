"""ALBERT: the names of its tensors in Hugging Face's files and in the TF1 release.

Label 1 of the sentence-order head means "swapped" in all formats.
"""

import dataclasses
import re

from official.config.encoders import TransformerConfig
from official.conversion import bert
from official.conversion.bert import embedding_rows, masked_lm_rows, task_heads
from official.conversion.heads import MaskedLM, SentenceOrder, table
from official.conversion.mapping import Row, linear, norm
from official.conversion.system import BOUNDS, ENDS, FORM, SIZES, EncoderKeys, System

_LAYER_MATRICES = {
    "attention/query_key_value": ("attention.query", "attention.key", "attention.value"),
    "attention/output": ("attention.dense",),
    "feed_forward/inner": ("ffn",),
    "feed_forward/outer": ("ffn_output",),
}
_LAYER_NORMS = {
    "attention_norm": "attention.LayerNorm",
    "feed_forward_norm": "full_layer_layer_norm",
}

# Names in transformers → names in the TF1 release. All other names are those of BERT.
_TF1 = {
    r"^albert\.pooler": "bert.pooler.dense",
    r"^albert\.": "bert.",
    r"albert_layer_groups\.(\d+)\.albert_layers\.(\d+)": r"transformer.group_\1.inner_group_\2",
    r"\.attention\.(query|key|value)\.": r".attention_1.self.\1.",
    r"\.attention\.dense\.": ".attention_1.output.dense.",
    r"\.attention\.LayerNorm\.": ".LayerNorm.",
    r"\.ffn\.": ".ffn_1.intermediate.dense.",
    r"\.ffn_output\.": ".ffn_1.intermediate.output.dense.",
    r"\.full_layer_layer_norm\.": ".LayerNorm_1.",
    r"^predictions\.(dense|LayerNorm)": r"cls.predictions.transform.\1",
    r"^predictions\.bias": "cls.predictions.bias",
    r"^sop_classifier\.classifier": "cls.seq_relationship",
}


def _encoder_rows(encoder: TransformerConfig) -> list[Row]:
    rows = embedding_rows("albert.")
    if (encoder.embedding_size or encoder.hidden_size) != encoder.hidden_size:
        rows += linear(
            "encoder/embeddings/projection", "albert.encoder.embedding_hidden_mapping_in"
        )
    for group in range(encoder.layer_groups or 0):
        for layer in range(encoder.inner_layers):
            ours = f"encoder/group_{group}_layer_{layer}"
            theirs = f"albert.encoder.albert_layer_groups.{group}.albert_layers.{layer}"
            for path, names in _LAYER_MATRICES.items():
                rows += linear(f"{ours}/{path}", *(f"{theirs}.{name}" for name in names))
            for path, name in _LAYER_NORMS.items():
                rows += norm(f"{ours}/{path}", f"{theirs}.{name}")
    return rows


def _bert_name(name: str) -> str:
    for pattern, replacement in _TF1.items():
        name = re.sub(pattern, replacement, name)
    return name


def _tf1_row(row: Row) -> Row:
    return bert.tf1_row(dataclasses.replace(row, names=tuple(map(_bert_name, row.names))))


SYSTEM = System(
    model_type="albert",
    encoder=EncoderKeys(
        title="an ALBERT",
        form={
            name: FORM[name]
            for name in (
                *("norm", "causal", "pooled_position", "position_offset"),
                *("scale_embeddings", "relative_buckets"),
            )
        },
        sizes={
            **SIZES,
            "embedding_size": "embedding_size",
            "layer_groups": "num_hidden_groups",
            "inner_layers": "inner_group_num",
        },
        projected=True,
    ),
    prefix="albert.",
    encoder_rows=_encoder_rows,
    mark=lambda encoder: encoder.layer_groups is not None,
    pooler="pooler",
    heads=table(
        MaskedLM(
            masked_lm_rows("predictions.dense", "predictions.LayerNorm", "predictions.bias"),
            "AlbertForMaskedLM",
        ),
        SentenceOrder(linear("sentence_order", "sop_classifier.classifier")),
        *task_heads("Albert", "classifier"),
    ),
    architectures={
        frozenset(): "AlbertModel",
        frozenset({"masked_lm", "sentence_order"}): "AlbertForPreTraining",
    },
    dropout="classifier_dropout_prob",
    aliases={
        "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
    buffers=("albert.embeddings.position_ids", "albert.embeddings.token_type_ids"),
    vocabulary="spiece.model",
    tokenizer_class="AlbertTokenizer",
    typed_release=True,
    bounds=BOUNDS,
    ends=ENDS,
    tf1_row=_tf1_row,
    segments={"format": "pairs", "relation": "sentence_order"},
    corruption={"word_starts": "albert"},
)
