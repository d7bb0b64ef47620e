"""DistilBERT: the names of its tensors in Hugging Face's files.

It becomes a transformer without segments, with the heads of the file. The hidden layer of heads
that read the first position is our pooler, with a ReLU. With other heads there is no pooler.
"""

from official.config.encoders import TransformerConfig
from official.convert.bert import masked_lm_rows, task_heads
from official.convert.encoder_keys import FORM, EncoderKeys
from official.convert.heads import MaskedLM, table
from official.convert.mapping import Row, layer_rows
from official.convert.system import System

_EMBEDDINGS = {
    "token_embedding/table": "word_embeddings.weight",
    "position_embedding/table": "position_embeddings.weight",
    "norm/scale": "LayerNorm.weight",
    "norm/offset": "LayerNorm.bias",
}
_LAYER_MATRICES = {
    "attention/query_key_value": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    "attention/output": ("attention.out_lin",),
    "feed_forward/inner": ("ffn.lin1",),
    "feed_forward/outer": ("ffn.lin2",),
}
_LAYER_NORMS = {"attention_norm": "sa_layer_norm", "feed_forward_norm": "output_layer_norm"}


def _encoder_rows(encoder: TransformerConfig) -> list[Row]:
    rows = [
        Row(f"encoder/embeddings/{path}", (f"distilbert.embeddings.{name}",))
        for path, name in _EMBEDDINGS.items()
    ]
    stem = "distilbert.transformer.layer"
    return rows + layer_rows(encoder.num_layers, stem, _LAYER_MATRICES, _LAYER_NORMS)


SYSTEM = System(
    model_type="distilbert",
    encoder=EncoderKeys(
        title="a DistilBERT",
        form={**FORM, "segment_types": 0},
        sizes={
            "vocab_size": "vocab_size",
            "hidden_size": "dim",
            "num_layers": "n_layers",
            "num_heads": "n_heads",
            "intermediate_size": "hidden_dim",
            "max_positions": "max_position_embeddings",
            "dropout": "dropout",
            "attention_dropout": "attention_dropout",
            "initializer_range": "initializer_range",
        },
        activation="activation",
        epsilon=None,
        only={"tie_word_embeddings": True, "tie_weights_": True},
        also={},
    ),
    prefix="distilbert.",
    encoder_rows=_encoder_rows,
    heads=table(
        MaskedLM(
            masked_lm_rows("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
            "DistilBertForMaskedLM",
        ),
        *task_heads("DistilBert", "classifier", hidden="pre_classifier", activation="relu"),
    ),
    architectures={frozenset(): "DistilBertModel"},
    dropout="seq_classif_dropout",
    aliases={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    buffers=("distilbert.embeddings.position_ids",),
    segments={"format": "full_sentences"},
)
