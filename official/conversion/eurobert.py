"""EuroBERT: the names of its tensors in Hugging Face's files.

The network is Llama's with bidirectional attention. Its masked LM has one kernel without a bias,
which is not tied to the token table. The head of texts has a linear layer with the erf form of
GELU, whatever the activation of the encoder: on one vector (`bos`, `mean`), or on all positions
before their mean (`late`: transformers computes scores of all positions and then their mean, which
is the same, since the output layer is affine).

config.json of the releases has `rope_theta` and `clf_pooling`, that of transformers 5
`rope_parameters` and `classifier_pooling`. Both are read. `rope_theta` and `classifier_pooling` are
written, which transformers 5 reads. It has a dropout rate only for the attention weights. The
encoder's other rates, which matter only in training, are not written.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from typing_extensions import override

from official.config.encoders import TransformerConfig
from official.conversion import heads
from official.conversion.mapping import Row, layer_rows, linear, norm
from official.conversion.system import BOUNDS, FORM, EncoderKeys, FineTuning, System

# {`classifier_pooling`: (`pooling`, `dense`) of the objective}.
_POOLINGS = {"bos": ("first", "vector"), "mean": ("mean", "vector"), "late": ("mean", "states")}
_THETA = 10000.0  # the default of transformers


def _encoder_rows(encoder: TransformerConfig) -> list[Row]:
    matrices: dict[str, tuple[str, ...]] = {
        "attention/output": ("self_attn.o_proj",),
        "feed_forward/gate": ("mlp.gate_proj",),
        "feed_forward/inner": ("mlp.up_proj",),
        "feed_forward/outer": ("mlp.down_proj",),
    }
    query, *others = (f"self_attn.{name}_proj" for name in "qkv")
    if encoder.heads.grouped:
        matrices |= {"attention/query": (query,), "attention/key_value": tuple(others)}
    else:
        matrices |= {"attention/query_key_value": (query, *others)}
    norms = {"attention_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm"}
    rows = [
        Row("encoder/embeddings/token_embedding/table", ("model.embed_tokens.weight",)),
        *norm("encoder/final_norm", "model.norm"),
        *layer_rows(encoder.num_layers, "model.layers", matrices, norms),
    ]
    return [row for row in rows if not row.path.endswith(("/bias", "/offset"))]


class _TextHead(heads.TaskHead):
    """A head that reads one vector for each text."""

    poolings = ("first", "mean")
    denses: ClassVar[tuple[str | None, ...]] = ("vector", "states")

    @override
    def objective(self, config: Mapping[str, Any], dropout: Any) -> Any:
        """See `Head`; the head of transformers has no dropout."""
        del dropout
        made = super().objective(config, config.get("classifier_dropout", 0.0))
        named = config.get("classifier_pooling") or config.get("clf_pooling") or "late"
        if named not in _POOLINGS:
            raise ValueError(
                f"classifier_pooling: {named!r} is not supported (known: {', '.join(_POOLINGS)})"
            )
        pooling, dense = _POOLINGS[named]
        return dataclasses.replace(made, pooling=pooling, dense=dense)

    @override
    def pooler_keys(self, objective: Any, encoder: Any) -> dict[str, Any]:
        del encoder
        names = {ours: theirs for theirs, ours in _POOLINGS.items()}
        named = names.get((objective.pooling, objective.dense))
        return {} if named is None else {"classifier_pooling": named}  # `check` refuses others


class _Classification(_TextHead, heads.Classification):
    pass


class _MultiLabel(_TextHead, heads.MultiLabel):
    pass


class _Ranking(_TextHead, heads.Ranking):
    pass


class _Regression(_TextHead, heads.Regression):
    pass


class _TokenClassification(heads.TokenClassification):
    @override
    def objective(self, config: Mapping[str, Any], dropout: Any) -> Any:
        """See `Head`; the head of transformers has no dropout."""
        del dropout
        return super().objective(config, config.get("classifier_dropout", 0.0))


def _heads() -> list[heads.Head]:
    kernel = Row("masked_lm/output/kernel", ("lm_head.weight",), transposed=True)
    of_texts = [
        kind(
            [*linear(f"{kind.name}/dense", "dense"), *linear(f"{kind.name}/output", "classifier")],
            "EuroBertForSequenceClassification",
        )
        for kind in (_Classification, _MultiLabel, _Ranking, _Regression)
    ]
    tokens = linear("token_classification/output", "classifier")
    return [
        heads.KernelMaskedLM([kernel], "EuroBertForMaskedLM"),
        *of_texts,
        _TokenClassification(tokens, "EuroBertForTokenClassification"),
    ]


def _more_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    heads_of_queries, size = config["num_attention_heads"], config["hidden_size"]
    head_size = config.get("head_dim")
    if head_size not in (None, size // heads_of_queries):
        raise ValueError(
            f"head_dim: {head_size!r} is not supported, only {size // heads_of_queries}, "
            "hidden_size divided by num_attention_heads"
        )
    key_values = config.get("num_key_value_heads")
    rule = {**(config.get("rope_scaling") or config.get("rope_parameters") or {})}
    kind = rule.get("rope_type", rule.get("type", "default"))
    if kind != "default":
        raise ValueError(f"rope_parameters: rope_type: {kind!r} is not supported, only 'default'")
    part = rule.get("partial_rotary_factor", config.get("partial_rotary_factor"))
    if part not in (None, 1.0):
        raise ValueError(f"partial_rotary_factor: {part!r} is not supported, only 1.0")
    theta = rule.get("rope_theta", config.get("rope_theta"))
    return {
        "num_key_value_heads": None if key_values == heads_of_queries else key_values,
        "rotary_theta": _THETA if theta is None else theta,
        "dropout": 0.0,
    }


def _more_keys(encoder: TransformerConfig) -> dict[str, Any]:
    return {
        "num_key_value_heads": encoder.num_key_value_heads or encoder.num_heads,
        "rope_theta": encoder.rotary_theta,
    }


def _is_one(encoder: TransformerConfig) -> bool:
    """Returns whether an encoder has rotary positions and norms that no earlier system has."""
    rms = encoder.norm_type == "rms" and not encoder.norm_embeddings
    return rms and encoder.positions == "rotary" and not encoder.causal


SYSTEM = System(
    model_type="eurobert",
    encoder=EncoderKeys(
        title="a EuroBERT",
        form={
            **{
                name: only
                for name, only in FORM.items()
                if name not in ("attention_output_dropout", "norm_embeddings")
            },
            "norm": "pre",
            "norm_type": "rms",
            "positions": "rotary",
            "gated": True,
            "use_bias": False,
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
        epsilon="rms_norm_eps",
        only={
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": False,
            "is_decoder": False,
        },
        also={"attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False},
    ),
    prefix="model.",
    encoder_rows=_encoder_rows,
    mark=_is_one,
    finetune=FineTuning("eurobert"),
    heads=heads.table(*_heads()),
    architectures={frozenset(): "EuroBertModel"},
    bounds={**BOUNDS, "mask_token_id": "mask_id"},
    bare=("embed_tokens.", "layers.", "norm."),
    vocabulary="tokenizer.json",
    segments={"format": "doc_sentences"},
    max_length=2048,
    corruption={"mask_rate": 0.5, "max_predictions": 1024, "mask_prob": 1.0, "random_prob": 0.0},
)
