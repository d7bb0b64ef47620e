"""The published systems at the size of tests: {name: changes of `small.config`}."""

from pathlib import Path

from official import config as configs
from tests import sentences, small, streams

ROBERTA = {
    "segments__format": "full_sentences",
    "segments__short_seq_prob": 0.0,
    "corruption__count": "random",
    "corruption__random_tokens": "non_special",
    "encoder__position_offset": 2,
    "encoder__segment_types": 1,
    "encoder__activation": "gelu",
    "objectives": [{"type": "masked_lm"}],
    "recipe__optimizer": {
        "learning_rate": 1e-2, "beta_2": 0.98, "no_decay": [], "clip_norm": 0.0,
        "bias_correction": True,
    },
    "recipe__schedule": {"type": "xlnet", "warmup_steps": 5},
}  # fmt: skip
SPANBERT = {
    "segments__format": "doc_sentences",
    "corruption__unit": "span",
    "corruption__count": "up",
    "corruption__max_span": 3,
    "corruption__action": "unit",
    "corruption__random_tokens": "unigram",
    "objectives": [{"type": "masked_lm"}, {"type": "span_boundary", "offset_size": 4}],
}
ERNIE = {
    "corruption__unit": "phrase",
    "corruption__count": "each",
    "corruption__max_predictions": 10,
    "encoder__activation": "relu",
}
ALBERT = {
    "segments__relation": "sentence_order",
    "corruption__unit": "ngram",
    "corruption__max_ngram": 2,
    "corruption__word_starts": "albert",
    "encoder__num_layers": 4,
    "encoder__embedding_size": 8,
    "encoder__layer_groups": 2,
    "objectives": [
        {"type": "masked_lm"},
        {"type": "sentence_pair", "relation": "sentence_order"},
    ],
    "recipe__optimizer": {"type": "lamb", "learning_rate": 1e-2},
}
ELECTRA = {
    "segments__format": "halves",
    "corruption__mask_prob": 0.85,
    "corruption__random_prob": 0.0,
    "corruption__replacement": True,
    "encoder__pooler": False,
    "objectives": [{"type": "generator", "size": 0.5}, {"type": "replaced_tokens"}],
    "recipe__schedule": {"type": "electra", "warmup_steps": 5},
}
DEBERTA_V3 = {
    "segments__format": "full_sentences",
    "segments__packing": 2,
    "segments__short_seq_prob": 0.5,
    "corruption__windows": True,
    "corruption__mask_prob": 1.0,
    "corruption__random_prob": 0.0,
    "encoder__num_layers": 2,
    "encoder__positions": "none",
    "encoder__segment_types": 0,
    "encoder__disentangled": {"buckets": 8, "max_distance": 16},
    "encoder__activation": "gelu",
    "encoder__norm_epsilon": 1e-7,
    "encoder__initializer": "normal",
    "encoder__pooler": False,
    "objectives": [
        {
            "type": "generator", "size": 1.0, "num_layers": 1, "sharing": "gdes",
            "enhanced_mask_decoder": True, "decoupled": True,
        },
        {"type": "replaced_tokens", "form": "deberta", "weight": 10.0},
    ],
}  # fmt: skip
# Rows of two blocks of local attention, the second of which is not full, with several texts.
MODERNBERT = {
    "segments": {
        "format": "doc_sentences", "max_length": 32, "short_seq_prob": 0.0, "packing": 6,
        "row_length": 150,
    },
    "corruption__unit": "token",
    "corruption__mask_rate": 0.3,
    "corruption__count": "each",
    "corruption__max_predictions": 20,
    "encoder__num_layers": 3,
    "encoder__positions": "rotary",
    "encoder__local_attention": {"window": 6, "global_every": 3},
    "encoder__segment_types": 0,
    "encoder__activation": "gelu",
    "encoder__gated": True,
    "encoder__use_bias": False,
    "encoder__norm": "pre",
    "encoder__norm_bias": False,
    "encoder__norm_embeddings": True,
    "encoder__first_norm": False,
    "encoder__pooler": False,
    "objectives": [{"type": "masked_lm"}],
    "recipe__recompute": "layers",
    "recipe__optimizer": {"type": "stable_adamw", "learning_rate": 1e-2, "beta_2": 0.98},
    "recipe__schedule": {"type": "trapezoidal", "warmup_steps": 2, "decay_fraction": 0.3},
}  # fmt: skip
XLNET = {
    "segments__relation": "none",
    "corruption": {
        "type": "permutation", "k": 4, "num_predict": 8, "max_span": 3, "perm_size": 16,
    },
    "encoder": {
        "type": "transformer_xl", "vocab_size": 125, "hidden_size": 16, "num_layers": 2,
        "num_heads": 2, "intermediate_size": 32, "dropout": 0.0, "attention_dropout": 0.0,
    },
    "objectives": [{"type": "permutation_lm"}],
}  # fmt: skip
# As XLNet is trained: rows that go on, half of them backward, and what is remembered of them.
XLNET_STREAM = {
    **XLNET,
    "segments": {
        "format": "stream", "max_length": 32, "rows": 8, "reuse_length": 16, "backward": True,
    },
    "encoder": {**XLNET["encoder"], "memory_length": 24, "reuse_length": 16},
}  # fmt: skip
TRANSFORMER_XL = {
    "segments": {"format": "stream", "max_length": 16, "rows": 8},
    "corruption": None,
    "encoder": {
        **XLNET["encoder"], "segment_types": 0, "attention": "uni", "untie_biases": False,
        "memory_length": 24, "query_stream": False,
    },
    "objectives": [{"type": "causal_lm"}],
}  # fmt: skip
GPT2 = {
    "segments__format": "full_sentences",
    "segments__packing": 2,
    "corruption": None,
    "encoder__segment_types": 0,
    "encoder__norm": "pre",
    "encoder__causal": True,
    "encoder__scale_residual_init": True,
    "encoder__pooler": False,
    "objectives": [{"type": "causal_lm", "direction": "backward"}],
}
T5 = {
    "segments": {"format": "joined", "max_length": 32},
    "corruption": {"type": "sentinels", "sentinels": 8},
    "encoder": {
        "type": "encoder_decoder", "vocab_size": 133, "hidden_size": 16, "num_layers": 1,
        "num_heads": 2, "head_size": 6, "intermediate_size": 32, "relative_buckets": 8,
        "relative_max_distance": 16, "dropout": 0.0, "attention_dropout": 0.0, "inner_dropout": 0.0,
    },
    "objectives": [{"type": "seq2seq_lm", "z_loss": 1e-4}],
    "recipe__optimizer": {"type": "adafactor", "learning_rate": 0.1},
    "recipe__schedule": {"type": "inverse_sqrt", "warmup_steps": 5},
}  # fmt: skip
# The characters of words, both directions, and the states of the rows.
ELMO = {
    "segments": {"format": "stream", "max_length": 8, "rows": 8, "sentences": True},
    "corruption": None,
    "encoder": {
        "type": "bilm", "vocab_size": len(sentences.VOCABULARY), "character_size": 4,
        "filters": [[1, 4], [2, 6]], "highway_layers": 1, "cell_size": 12, "projection_size": 8,
        "dropout": 0.0,
    },
    "objectives": [{"type": "bilm", "weight": 8.0, "samples": 20}],
    "recipe__optimizer": {
        "type": "adagrad", "learning_rate": 0.2, "initial_accumulator": 1.0, "clip_norm": 10.0,
    },
    "recipe__schedule": {"type": "constant"},
}  # fmt: skip
SYSTEMS = {
    "roberta": ROBERTA,
    "spanbert": SPANBERT,
    "ernie": ERNIE,
    "albert": ALBERT,
    "electra": ELECTRA,
    "deberta_v3": DEBERTA_V3,
    "modernbert": MODERNBERT,
    "xlnet": XLNET,
    "xlnet_stream": XLNET_STREAM,
    "transformer_xl": TRANSFORMER_XL,
    "gpt2": GPT2,
    "t5": T5,
    "elmo": ELMO,
}


def shard_folder(folder: Path, settings: configs.Config) -> Path:
    """Shards of what `settings.segments` says."""
    if settings.segments.sentences:
        return sentences.shard_folder(folder, settings, sentences.documents(24))
    if settings.segments.format == "stream":
        return streams.stream_folder(folder, settings, small.documents(24))
    return small.shard_folder(folder, settings)
