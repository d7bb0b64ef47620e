"""MPNet: the names of its tensors in Hugging Face's files.

A RoBERTa without segments, whose layers share biases of relative positions in T5's buckets.
"""

from official.config.encoders import TransformerConfig
from official.convert.bert import masked_lm_rows, task_heads
from official.convert.encoder_keys import FORM, ONLY, SIZES, EncoderKeys
from official.convert.heads import MaskedLM, MultipleChoice, table
from official.convert.mapping import Row, layer_rows, linear
from official.convert.system import BOUNDS, System

_EMBEDDINGS = {
    "token_embedding/table": "word_embeddings.weight",
    "position_embedding/table": "position_embeddings.weight",
    "norm/scale": "LayerNorm.weight",
    "norm/offset": "LayerNorm.bias",
}
_LAYER_MATRICES = {
    "attention/query_key_value": tuple(f"attention.attn.{name}" for name in "qkv"),
    "attention/output": ("attention.attn.o",),
    "feed_forward/inner": ("intermediate.dense",),
    "feed_forward/outer": ("output.dense",),
}
_LAYER_NORMS = {"attention_norm": "attention.LayerNorm", "feed_forward_norm": "output.LayerNorm"}
_BUCKETS = 32  # transformers counts in 32, whatever the config says


def _encoder_rows(encoder: TransformerConfig) -> list[Row]:
    rows = [
        Row(f"encoder/embeddings/{path}", (f"mpnet.embeddings.{name}",))
        for path, name in _EMBEDDINGS.items()
    ]
    bias = "mpnet.encoder.relative_attention_bias.weight"
    rows.append(Row("encoder/relative_bias/table", (bias,)))
    layers = layer_rows(encoder.num_layers, "mpnet.encoder.layer", _LAYER_MATRICES, _LAYER_NORMS)
    return rows + layers


SYSTEM = System(
    model_type="mpnet",
    encoder=EncoderKeys(
        title="an MPNet",
        form={**FORM, "segment_types": 0, "relative_buckets": _BUCKETS},
        sizes={ours: theirs for ours, theirs in SIZES.items() if ours != "segment_types"},
        only={**ONLY, "relative_attention_num_buckets": _BUCKETS},
        also={"relative_attention_num_buckets": _BUCKETS},
        padded_positions=True,
    ),
    prefix="mpnet.",
    encoder_rows=_encoder_rows,
    pooler="pooler.dense",
    heads=table(
        MaskedLM(
            masked_lm_rows("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
            "MPNetForMaskedLM",
            erf_gelu=True,
        ),
        *task_heads(
            "MPNet",
            "classifier.out_proj",
            hidden="classifier.dense",
            choice=MultipleChoice(
                linear("multiple_choice/output", "classifier"), "MPNetForMultipleChoice"
            ),
        ),
    ),
    architectures={frozenset(): "MPNetModel"},
    aliases={
        "lm_head.decoder.weight": "mpnet.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    buffers=("mpnet.embeddings.position_ids",),
    bounds=BOUNDS,
    segments={"format": "full_sentences"},
)
