"""RoBERTa: the names of its tensors in Hugging Face's files.

The position table has additional rows, as many as the id of the padding token plus one (2 in the
release). The hidden layer of the classification head is our pooler.
"""

from official.convert.bert import encoder_rows, masked_lm_rows, task_heads
from official.convert.encoder_keys import EncoderKeys
from official.convert.heads import MaskedLM, MultipleChoice, table
from official.convert.mapping import linear
from official.convert.system import BOUNDS, System

SYSTEM = System(
    model_type="roberta",
    encoder=EncoderKeys(title="a RoBERTa", padded_positions=True),
    prefix="roberta.",
    encoder_rows=encoder_rows("roberta."),
    pooler="pooler.dense",
    heads=table(
        MaskedLM(
            masked_lm_rows("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
            "RobertaForMaskedLM",
            erf_gelu=True,
        ),
        *task_heads(
            "Roberta",
            "classifier.out_proj",
            hidden="classifier.dense",
            choice=MultipleChoice(
                linear("multiple_choice/output", "classifier"), "RobertaForMultipleChoice"
            ),
        ),
    ),
    architectures={frozenset(): "RobertaModel"},
    aliases={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    buffers=("roberta.embeddings.position_ids", "roberta.embeddings.token_type_ids"),
    vocabulary="vocab.json",
    bounds=BOUNDS,
    segments={"format": "full_sentences"},
    corruption={"random_tokens": "non_special"},
)
