"""BERT: its tensors' names and its config, in Hugging Face's files and in the TF1 release.

Masked LM, next sentence and sequence classification or regression heads come along where they are
there. Label 1 of the next-sentence head is "random" on all sides.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from official import config as configs
from official.convert.mapping import Row
from official.encoders import transformer
from official.errors import UserError
from official.objectives import classification, masked_lm, regression, sentence_pair

# Our paths ↔ Hugging Face's, below `bert.`. {i} is the layer.
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

# Which class of transformers holds which heads.
ARCHITECTURES = {
    frozenset(): "BertModel",
    frozenset({"masked_lm"}): "BertForMaskedLM",
    frozenset({"next_sentence"}): "BertForNextSentencePrediction",
    frozenset({"masked_lm", "next_sentence"}): "BertForPreTraining",
    frozenset({"classification"}): "BertForSequenceClassification",
    frozenset({"regression"}): "BertForSequenceClassification",
}

# `gelu` is the erf form; the first name of each is the one that is written.
_ACTIVATIONS = {
    "gelu": ("gelu", "gelu_python"),
    "gelu_tanh": ("gelu_new", "gelu_pytorch_tanh"),
    "relu": ("relu",),
}

# Our encoder's fields under the names of config.json.
_SIZES = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "max_positions": "max_position_embeddings",
    "segment_types": "type_vocab_size",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "initializer_range": "initializer_range",
}

# Keys of config.json that change what the network computes, and the only values we have.
_ONLY = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
}

# What makes our transformer a BERT.
_BERT = {
    "norm": "post",
    "causal": False,
    "position_offset": 0,
    "layer_groups": None,
    "inner_layers": 1,
    "embedding_size": None,
}

# What the encoder's names begin with, save in a file of the bare encoder.
PREFIX = "bert."
# Tensors that repeat another one: the output layer of the masked LM is tied.
ALIASES = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
# Constants that old files keep among the weights.
BUFFERS = ("bert.embeddings.position_ids", "bert.embeddings.token_type_ids")


def huggingface_rows(num_layers: int, heads: Collection[str], pooler: bool = True) -> list[Row]:
    """The table for Hugging Face's names; the bare encoder's too begin with `bert.` here."""
    rows = [
        Row(f"encoder/embeddings/{path}", (f"bert.embeddings.{name}",))
        for path, name in _EMBEDDINGS.items()
    ]
    for i in range(num_layers):
        ours, theirs = f"encoder/layer_{i}", f"bert.encoder.layer.{i}"
        for path, names in _LAYER_MATRICES.items():
            rows += _linear(f"{ours}/{path}", *(f"{theirs}.{name}" for name in names))
        for path, name in _LAYER_NORMS.items():
            rows += _norm(f"{ours}/{path}", f"{theirs}.{name}")
    if pooler:
        rows += _linear("encoder/pooler", "bert.pooler.dense")
    if "masked_lm" in heads:
        rows += _linear("masked_lm/transform", "cls.predictions.transform.dense")
        rows += _norm("masked_lm/norm", "cls.predictions.transform.LayerNorm")
        rows.append(Row("masked_lm/output_bias", ("cls.predictions.bias",)))
    if "next_sentence" in heads:
        rows += _linear("next_sentence", "cls.seq_relationship")
    for head in ("classification", "regression"):
        if head in heads:
            rows += _linear(f"{head}/output", "classifier")
    return rows


def tf1_rows(num_layers: int, heads: Collection[str], pooler: bool = True) -> list[Row]:
    """The table for the names of the TF1 release's checkpoints."""
    return [
        dataclasses.replace(
            row,
            names=tuple(_tf1_name(name) for name in row.names),
            # TF keeps kernels as [in, out] too; this one head is a bare [2, D] matrix there.
            transposed=row.path == "next_sentence/kernel",
        )
        for row in huggingface_rows(num_layers, heads, pooler)
    ]


def heads_of(names: Collection[str], config: Mapping[str, Any]) -> tuple[str, ...]:
    """Which heads a file of Hugging Face's or TF1's names holds (see `ARCHITECTURES`)."""
    heads = []
    if any(name.startswith(("cls.predictions.", "cls/predictions/")) for name in names):
        heads.append("masked_lm")
    if any(name.startswith(("cls.seq_relationship.", "cls/seq_relationship/")) for name in names):
        heads.append("next_sentence")
    # Other classes (one label a token, multiple choice) name their head `classifier` as well.
    architectures = config.get("architectures") or ["BertForSequenceClassification"]
    if "classifier.weight" in names and "BertForSequenceClassification" in architectures:
        heads.append("regression" if _num_labels(config) == 1 else "classification")
    return tuple(heads)


def encoder_config(
    config: Mapping[str, Any], source: str, pooler: bool = True
) -> transformer.Config:
    """The encoder that a config.json or bert_config.json describes.

    Args:
      config: the parsed file.
      source: the file's name for messages.
      pooler: whether the weights have a pooler.

    Raises:
      UserError: a key is missing or has a value that this encoder does not have.
    """
    for key, only in _ONLY.items():
        if config.get(key, only) != only:
            raise UserError(f"{source}: {key}: {config[key]!r} is not supported, only {only!r}")
    if lacking := [key for key in _SIZES.values() if key not in config]:
        raise UserError(f"{source}: {lacking[0]} is missing: is this the config of a BERT model?")
    names = {name: ours for ours, theirs in _ACTIVATIONS.items() for name in theirs}
    if config.get("hidden_act") not in names:
        raise UserError(
            f"{source}: hidden_act: {config.get('hidden_act')!r} is not supported "
            f"(known: {', '.join(names)})"
        )
    try:
        return transformer.Config(
            **{ours: config[theirs] for ours, theirs in _SIZES.items()},
            activation=names[config["hidden_act"]],
            norm_epsilon=config.get("layer_norm_eps", 1e-12),
            pooler=pooler,
            **_BERT,
        )
    except (TypeError, ValueError) as error:
        raise UserError(f"{source}: {error}") from None


def tf1_encoder_config(config: Mapping[str, Any], source: str) -> transformer.Config:
    """The same for the release's bert_config.json, whose `gelu` is the tanh form."""
    renamed = {"gelu": "gelu_new"}.get(config.get("hidden_act"), config.get("hidden_act"))
    return encoder_config({**config, "hidden_act": renamed}, source)


def objectives(heads: Sequence[str], config: Mapping[str, Any], source: str) -> tuple[Any, ...]:
    """Our objectives for the heads; labels and dropout come from the config."""
    dropout = config.get("classifier_dropout")
    dropout = config.get("hidden_dropout_prob", 0.1) if dropout is None else dropout
    made: list[Any] = []
    for head in heads:
        if head == "masked_lm":
            made.append(masked_lm.Config())
        elif head == "next_sentence":
            made.append(sentence_pair.Config())
        elif head == "regression":
            made.append(regression.Config(dropout=dropout))
        else:
            made.append(classification.Config(labels=_labels(config, source), dropout=dropout))
    return tuple(made)


def huggingface_config(config: configs.Config, heads: Collection[str]) -> dict[str, Any]:
    """What `config.json` says of our model.

    Raises:
      UserError: the encoder has something that BERT has not, or no class has just these heads.
    """
    encoder = config.encoder
    if configs.type_of(encoder) != "transformer":
        raise UserError(f"encoder.type: {configs.type_of(encoder)} cannot be written as a BERT")
    for field, only in _BERT.items():
        value = getattr(encoder, field)
        if value != only and (field, value) != ("embedding_size", encoder.hidden_size):
            raise UserError(f"encoder.{field}: a BERT has {only!r}, not {value!r}")
    if not encoder.segment_types:
        raise UserError("encoder.segment_types: a BERT has 1 or more, not 0")
    if frozenset(heads) not in ARCHITECTURES:
        raise UserError(f"no BERT class of transformers has the heads {', '.join(sorted(heads))}")
    result = {
        "architectures": [ARCHITECTURES[frozenset(heads)]],
        "model_type": "bert",
        **{theirs: getattr(encoder, ours) for ours, theirs in _SIZES.items()},
        "hidden_act": _ACTIVATIONS[encoder.activation][0],
        "layer_norm_eps": encoder.norm_epsilon,
        "position_embedding_type": "absolute",
    }
    for objective in config.objectives:
        if configs.type_of(objective) == "classification":
            labels = dict(enumerate(objective.labels))
            result["id2label"] = {str(i): label for i, label in labels.items()}
            result["label2id"] = {label: i for i, label in labels.items()}
            result["classifier_dropout"] = objective.dropout
            result["problem_type"] = "single_label_classification"
        elif configs.type_of(objective) == "regression":
            result["id2label"], result["label2id"] = {"0": "score"}, {"score": 0}
            result["classifier_dropout"] = objective.dropout
            result["problem_type"] = "regression"
    return result


def _linear(path: str, *names: str) -> list[Row]:
    return [
        Row(f"{path}/kernel", tuple(f"{name}.weight" for name in names), transposed=True),
        Row(f"{path}/bias", tuple(f"{name}.bias" for name in names)),
    ]


def _norm(path: str, name: str) -> list[Row]:
    return [Row(f"{path}/scale", (f"{name}.weight",)), Row(f"{path}/offset", (f"{name}.bias",))]


def _tf1_name(name: str) -> str:
    """`bert.encoder.layer.0.output.dense.weight` → `bert/encoder/layer_0/output/dense/kernel`."""
    if name == "cls.predictions.bias":
        return "cls/predictions/output_bias"
    if name.startswith("cls.seq_relationship."):
        return "cls/seq_relationship/output_" + {"t": "weights", "s": "bias"}[name[-1]]
    stem, _, kind = name.replace("encoder.layer.", "encoder.layer_").rpartition(".")
    if stem.endswith("LayerNorm"):
        kind = {"weight": "gamma", "bias": "beta"}[kind]
    elif stem.endswith("_embeddings"):
        return stem.replace(".", "/")
    else:
        kind = {"weight": "kernel", "bias": "bias"}[kind]
    return f"{stem.replace('.', '/')}/{kind}"


def _num_labels(config: Mapping[str, Any]) -> int:
    # transformers leaves the default, two labels, out of the file.
    return len(config.get("id2label") or "01")


def _labels(config: Mapping[str, Any], source: str) -> tuple[str, ...]:
    problem = config.get("problem_type") or "single_label_classification"
    if problem != "single_label_classification":
        raise UserError(
            f"{source}: problem_type: {problem!r} with {_num_labels(config)} labels is not "
            "supported"
        )
    labels = config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    try:
        labels = {int(key): str(label) for key, label in labels.items()}
        labels = tuple(labels[i] for i in range(len(labels)))
    except (ValueError, KeyError, AttributeError):
        raise UserError(
            f"{source}: id2label: the label names must stand under 0, 1, 2, ...; "
            f"found {config['id2label']!r}"
        ) from None
    if len(set(labels)) != len(labels):
        raise UserError(f"{source}: id2label: a label name is there twice: {', '.join(labels)}")
    return labels
