"""RoBERTa: the names of its tensors in Hugging Face's files.

The position table has as many rows more as the padding token's id and one, 2 in the release. The
classification head's hidden layer is our pooler.
"""

from official.convert.bert import encoder_rows, task_classes, task_rows
from official.convert.mapping import Row, linear, norm
from official.convert.system import System

SYSTEM = System(
    model_type="roberta",
    title="a RoBERTa",
    prefix="roberta.",
    encoder_rows=encoder_rows("roberta."),
    pooler="pooler.dense",
    task_poolers=dict.fromkeys(("classification", "regression"), "classifier.dense"),
    head_rows={
        "masked_lm": [
            *linear("masked_lm/transform", "lm_head.dense"),
            *norm("masked_lm/norm", "lm_head.layer_norm"),
            Row("masked_lm/output_bias", ("lm_head.bias",)),
        ],
        **task_rows("classifier.out_proj", choice="classifier"),
    },
    architectures={
        frozenset(): "RobertaModel",
        frozenset({"masked_lm"}): "RobertaForMaskedLM",
        **task_classes("Roberta"),
    },
    padded_positions=True,
    gelu_heads=frozenset({"masked_lm"}),
    aliases={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    buffers=("roberta.embeddings.position_ids", "roberta.embeddings.token_type_ids"),
    vocabulary="vocab.json",
    bounds=True,
    segments={"format": "full_sentences"},
    corruption={"random_tokens": "non_special"},
)
