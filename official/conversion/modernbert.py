"""ModernBERT and Ettin: the names of their tensors in Hugging Face's files.

The masked LM and all heads of tasks read through the same hidden layer, `head`: a linear layer, the
activation and a norm. So in transformers, the hidden layer of a task's head starts from that of the
masked LM.

In config.json, transformers 4 has `global_attn_every_n_layers`, and transformers 5 lists the kind
of each layer. Both forms are read; the form of version 4 is written, which version 5 reads too.
transformers has one dropout rate for the weights and the output of attention; ours for the weights
is written. The general dropout rate of our encoder is that of the embeddings and of the
feed-forward networks in transformers.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import override

from official.config.encoders import LocalAttention, TransformerConfig
from official.conversion import heads
from official.conversion.mapping import Row, linear, norm
from official.conversion.system import ACTIVATIONS, BOUNDS, FORM, EncoderKeys, FineTuning, System
from official.utils import strict

_POOLINGS = {"first": "cls", "mean": "mean"}
_KINDS = ("full_attention", "sliding_attention")
_THETAS = ("global_rope_theta", "local_rope_theta")
_BIASES = ("attention_bias", "mlp_bias", "classifier_bias")
_DROPOUTS = ("embedding_dropout", "mlp_dropout")
_DEFAULTS = {
    "global_attn_every_n_layers": 3,
    "local_attention": 128,
    "global_rope_theta": 160000.0,
    "local_rope_theta": 10000.0,
    "attention_dropout": 0.0,
    "norm_bias": False,
    **dict.fromkeys(_BIASES, False),
    **dict.fromkeys(_DROPOUTS, 0.0),
}


def _encoder_rows(encoder: TransformerConfig) -> list[Row]:
    rows = [
        Row(
            "encoder/embeddings/token_embedding/table", ("model.embeddings.tok_embeddings.weight",)
        ),
        *norm("encoder/embeddings/norm", "model.embeddings.norm"),
        *norm("encoder/final_norm", "model.final_norm"),
    ]
    for i in range(encoder.num_layers):
        ours, theirs = f"encoder/layer_{i}", f"model.layers.{i}"
        if i or encoder.first_norm:
            rows += norm(f"{ours}/attention_norm", f"{theirs}.attn_norm")
        rows += norm(f"{ours}/feed_forward_norm", f"{theirs}.mlp_norm")
        rows += linear(f"{ours}/feed_forward/outer", f"{theirs}.mlp.Wo")
        rows += linear(f"{ours}/attention/output", f"{theirs}.attn.Wo")
        rows += linear(f"{ours}/attention/query_key_value", f"{theirs}.attn.Wqkv")
        for number, path in enumerate(("gate", "inner")):
            rows += [
                dataclasses.replace(row, part=(number, 2))
                for row in linear(f"{ours}/feed_forward/{path}", f"{theirs}.mlp.Wi")
            ]
    return _present(rows, encoder)


def _present(rows: Sequence[Row], encoder: TransformerConfig) -> list[Row]:
    """Returns the rows, without biases and offsets that the encoder does not have."""
    kept = {"/bias": encoder.use_bias, "/offset": encoder.norm_bias}
    lacking = tuple(name for name, there in kept.items() if not there)
    return [row for row in rows if not row.path.endswith(lacking)]


class _Hidden(heads.Head):
    """A head with the common hidden layer."""

    transform = True

    @override
    def rows_of(self, encoder: TransformerConfig) -> Sequence[Row]:
        path = self.rows[0].path.partition("/")[0]
        hidden = [*linear(f"{path}/transform", "head.dense"), *norm(f"{path}/norm", "head.norm")]
        return [*_present(hidden, encoder), *self.rows]


class _MaskedLM(_Hidden, heads.MaskedLM):
    """The masked LM; files always have its output bias."""

    transform = False  # the hidden layer always exists; the objective has no key for it


class _TaskHead(_Hidden, heads.TaskHead):
    """A head of a task."""

    @override
    def objective(self, config: Mapping[str, Any], dropout: Any) -> Any:
        """See `Head`; without `classifier_dropout`, dropout is 0."""
        del dropout
        objective = super().objective(config, config.get("classifier_dropout", 0.0))
        changes: dict[str, Any] = {"transform": True}
        if self.pools:
            pooling = config.get("classifier_pooling", "cls")
            names = {theirs: ours for ours, theirs in _POOLINGS.items()}
            if pooling not in names:
                raise ValueError(f"classifier_pooling: {pooling!r} is not supported")
            changes["pooling"] = names[pooling]
        return dataclasses.replace(objective, **changes)

    @override
    def pooler_keys(self, objective: Any, encoder: Any) -> dict[str, Any]:
        del encoder
        return {"classifier_pooling": _POOLINGS[objective.pooling]} if self.pools else {}


class _Classification(_TaskHead, heads.Classification):
    poolings = tuple(_POOLINGS)


class _MultiLabel(_TaskHead, heads.MultiLabel):
    poolings = tuple(_POOLINGS)


class _Ranking(_TaskHead, heads.Ranking):
    poolings = tuple(_POOLINGS)


class _Regression(_TaskHead, heads.Regression):
    poolings = tuple(_POOLINGS)


class _MultipleChoice(_TaskHead, heads.MultipleChoice):
    poolings = tuple(_POOLINGS)


class _SpanAnswer(_TaskHead, heads.SpanAnswer):
    pass


class _TokenClassification(_TaskHead, heads.TokenClassification):
    pass


def _heads() -> list[heads.Head]:
    classes = {
        _Classification: "SequenceClassification",
        _MultiLabel: "SequenceClassification",
        _Ranking: "SequenceClassification",
        _Regression: "SequenceClassification",
        _MultipleChoice: "MultipleChoice",
        _SpanAnswer: "QuestionAnswering",
        _TokenClassification: "TokenClassification",
    }
    bias = Row("masked_lm/output_bias", ("decoder.bias",))
    return [
        _MaskedLM([bias], "ModernBertForMaskedLM"),
        *(
            kind(linear(f"{kind.name}/output", "classifier"), f"ModernBertFor{name}")
            for kind, name in classes.items()
        ),
    ]


def _more_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    config = {**_DEFAULTS, **config}
    if config.get("norm_eps") is None:
        raise ValueError("norm_eps is missing: is this the config of a ModernBERT model?")
    if config.get("classifier_activation", "gelu") != config["hidden_activation"]:
        raise ValueError(
            f"classifier_activation: {config.get('classifier_activation', 'gelu')!r} is not "
            f"supported with hidden_activation: {config['hidden_activation']!r}: this encoder has "
            "one activation for both"
        )
    biases = {bool(config[key]) for key in _BIASES}
    if len(biases) > 1:
        raise ValueError(
            f"{', '.join(_BIASES)}: not supported if they differ: here either all linear layers "
            "have biases, or none has"
        )
    rates = {config[key] for key in _DROPOUTS}
    if len(rates) > 1:
        raise ValueError(
            f"{', '.join(_DROPOUTS)}: not supported if they differ: this encoder has one rate for "
            "both"
        )
    every = _global_every(config)
    theta, local_theta = _thetas(config)
    local: dict[str, Any] | None = None
    if every > 1:
        window = int(config["local_attention"])
        local = strict.to_dict(LocalAttention(window, every, local_theta))
    return {
        "local_attention": local,
        "rotary_theta": theta,
        "use_bias": biases.pop(),
        "norm_bias": bool(config["norm_bias"]),
        "dropout": rates.pop(),
        "attention_output_dropout": config["attention_dropout"],
        "scale_residual_init": True,
    }


def _global_every(config: Mapping[str, Any]) -> int:
    """Returns n such that layer 0 and every n-th layer after it are global; 1 = all layers.

    Raises:
      ValueError: the listed layers do not follow such a rule.
    """
    kinds = config.get("layer_types")
    if kinds is None:
        return int(config["global_attn_every_n_layers"])
    later = [i for i, kind in enumerate(kinds) if kind == _KINDS[0] and i]
    every = later[0] if later else max(2, len(kinds))
    expected = [_KINDS[i % every != 0] for i in range(len(kinds))]
    if kinds != expected or len(kinds) != config["num_hidden_layers"]:
        raise ValueError(
            f"layer_types: {kinds} is not supported: layer 0 and every n-th layer after it have "
            f"{_KINDS[0]}, the others {_KINDS[1]}"
        )
    return every


def _thetas(config: Mapping[str, Any]) -> tuple[float, float]:
    """Returns rotary theta of global layers, and of local layers.

    Raises:
      ValueError: rotary positions are scaled.
    """
    rules = config.get("rope_parameters") or {}
    thetas = []
    for kind, key in zip(_KINDS, _THETAS, strict=True):
        rule = rules.get(kind) or {}
        if rule.get("rope_type", "default") != "default":
            raise ValueError(
                f"rope_parameters: {kind}: rope_type: {rule['rope_type']!r} is not supported, only "
                "'default'"
            )
        thetas.append(rule.get("rope_theta", config[key]))
    return float(thetas[0]), float(thetas[0] if thetas[1] is None else thetas[1])


def _is_one(encoder: TransformerConfig) -> bool:
    """Returns whether an encoder has parts that no earlier system has, and is not a GPT-2."""
    local = encoder.local_attention is not None
    return local or (encoder.positions == "rotary" and not encoder.causal)


def _more_keys(encoder: TransformerConfig) -> dict[str, Any]:
    local = encoder.local_attention or LocalAttention(theta=encoder.rotary_theta)
    return {
        "global_attn_every_n_layers": local.global_every if encoder.local_attention else 1,
        "local_attention": local.window,
        "global_rope_theta": encoder.rotary_theta,
        "local_rope_theta": local.theta,
        "norm_bias": encoder.norm_bias,
        **dict.fromkeys(_BIASES, encoder.use_bias),
        **dict.fromkeys(_DROPOUTS, encoder.dropout),
        "classifier_activation": ACTIVATIONS[encoder.activation][0],
    }


SYSTEM = System(
    model_type="modernbert",
    encoder=EncoderKeys(
        title="a ModernBERT",
        form={
            **{
                name: only
                for name, only in FORM.items()
                if name
                not in ("local_attention", "use_bias", "norm_bias", "attention_output_dropout")
            },
            "norm": "pre",
            "positions": "rotary",
            "gated": True,
            "norm_embeddings": True,
            "first_norm": False,
            "segment_types": 0,
        },
        sizes={
            "vocab_size": "vocab_size",
            "hidden_size": "hidden_size",
            "num_layers": "num_hidden_layers",
            "num_heads": "num_attention_heads",
            "intermediate_size": "intermediate_size",
            "max_positions": "max_position_embeddings",
            "attention_dropout": "attention_dropout",
            "initializer_range": "initializer_range",
        },
        more_fields=_more_fields,
        more_keys=_more_keys,
        activation="hidden_activation",
        epsilon="norm_eps",
        only={
            "decoder_bias": True,
            "tie_word_embeddings": True,
        },
        also={"decoder_bias": True},
    ),
    prefix="model.",
    encoder_rows=_encoder_rows,
    mark=_is_one,
    finetune=FineTuning(
        "modernbert", suits=lambda config: config.encoder.local_attention is not None
    ),
    heads=heads.table(*_heads()),
    architectures={frozenset(): "ModernBertModel"},
    aliases={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
    bare=("embeddings.", "layers.", "final_norm."),
    bounds={**BOUNDS, "cls_token_id": "cls_id", "sep_token_id": "sep_id"},
    vocabulary="tokenizer.json",
    segments={"format": "doc_sentences"},
    max_length=1024,
    corruption={"mask_rate": 0.3, "max_predictions": 308},
)
