"""T5 1.0 and 1.1 (also Flan-T5), and their encoders without decoder: the names of their tensors.

transformers has separate matrices [out, in] for queries, keys and values; ours are joined. It
stores the position biases of a stack in its first block. Files of T5 1.0 may repeat the token
table, and may have a position bias of the cross-attention, which no model reads.

The checkpoints of the release (Mesh TensorFlow) have matrices [in, out] and no config file: sizes
follow from the tensors.
"""

import dataclasses
import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from typing_extensions import override

from official.config.encoders import EncoderDecoderConfig
from official.conversion.heads import Seq2SeqLM, table
from official.conversion.mapping import Row
from official.conversion.system import ACTIVATIONS, EncoderKeys, System
from official.tokenizers import sentencepiece
from official.utils.paths import AnyPath

# `feed_forward_proj` of config.json → (activation, gate). The first name of each form is written.
_FORMS = {
    f"{gate}{name}": (activation, bool(gate))
    for activation, names in ACTIVATIONS.items()
    for name in names
    for gate in ("", "gated-")
} | {"gated-gelu": ("gelu_tanh", True)}
_NAMES = {form: name for name, form in reversed(_FORMS.items())}

# The key of transformers 5 for the scaling of the output, and the names of two tensors.
_SCALED = "scale_decoder_outputs"
_OUTPUT, _TABLE = "lm_head.weight", "shared.weight"

# The class of transformers with only the encoder.
ENCODER_CLASS = "T5EncoderModel"


@dataclasses.dataclass(frozen=True)
class T5(System):
    """T5, or only its encoder.

    Attributes:
      decodes: whether there is a decoder.
    """

    decodes: bool = True

    @override
    def describes(self, config: Mapping[str, Any]) -> bool:
        named = ENCODER_CLASS in (config.get("architectures") or ())
        decodes = config.get("is_encoder_decoder", True) is not False and not named
        return super().describes(config) and decodes == self.decodes

    @override
    def network_config(
        self,
        config: dict[str, Any],
        source: AnyPath,
        weights: Mapping[str, np.ndarray],
        generator: AnyPath | None,
    ) -> tuple[dict[str, Any], AnyPath]:
        """See `System`; the weights show whether the output layer is tied.

        transformers 4 scales the output if it is tied, and `tie_word_embeddings` controls both. In
        files of transformers 5 this key is always true: `scale_decoder_outputs` controls the
        scaling, and the output layer is tied unless the file has a separate one.
        """
        del generator
        if not self.decodes or _SCALED not in config:
            return config, source
        untied = _OUTPUT in weights and not np.array_equal(weights[_OUTPUT], weights[_TABLE])
        return {**config, "tie_word_embeddings": not untied}, source

    @override
    def written(
        self,
        encoder: EncoderDecoderConfig,
        heads: Collection[str],
        variables: Mapping[str, np.ndarray],
    ) -> dict[str, np.ndarray]:
        """See `System`; transformers 4 and 5 read the tensors of a model with a head.

        In transformers 4, an unscaled output has a separate output layer. If ours is tied, the
        written layer repeats the token table.
        """
        tensors = super().written(encoder, heads, variables)
        if not heads or encoder.scale_output or _OUTPUT in tensors:
            return tensors
        return {**tensors, _OUTPUT: tensors[_TABLE].copy()}


def _matrix(path: str, *names: str) -> Row:
    return Row(f"{path}/kernel", tuple(f"{name}.weight" for name in names), transposed=True)


def _scale(path: str, name: str) -> Row:
    return Row(f"{path}/scale", (f"{name}.weight",))


def _stack_rows(encoder: EncoderDecoderConfig, stack: str, layers: int) -> list[Row]:
    ours = f"encoder/{stack}"
    bias = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    rows = [
        Row(f"{ours}/relative_bias/table", (bias,)),
        _scale(f"{ours}/final_norm", f"{stack}.final_layer_norm"),
    ]
    for i in range(layers):
        layer, block = f"{ours}/layer_{i}", f"{stack}.block.{i}.layer"
        own = f"{block}.0.SelfAttention"
        rows += [
            _matrix(f"{layer}/attention/query_key_value", *(f"{own}.{x}" for x in "qkv")),
            _matrix(f"{layer}/attention/output", f"{own}.o"),
            _scale(f"{layer}/attention_norm", f"{block}.0.layer_norm"),
        ]
        if stack == "decoder":
            cross = f"{block}.1.EncDecAttention"
            rows += [
                _matrix(f"{layer}/cross_attention/query", f"{cross}.q"),
                _matrix(f"{layer}/cross_attention/key_value", f"{cross}.k", f"{cross}.v"),
                _matrix(f"{layer}/cross_attention/output", f"{cross}.o"),
                _scale(f"{layer}/cross_attention_norm", f"{block}.1.layer_norm"),
            ]
        last = f"{block}.{2 if stack == 'decoder' else 1}"
        inner = {"inner": "wi_1", "gate": "wi_0"} if encoder.gated else {"inner": "wi"}
        for name, theirs in {**inner, "outer": "wo"}.items():
            rows.append(_matrix(f"{layer}/feed_forward/{name}", f"{last}.DenseReluDense.{theirs}"))
        rows.append(_scale(f"{layer}/feed_forward_norm", f"{last}.layer_norm"))
    return rows


def _encoder_rows(encoder: EncoderDecoderConfig) -> list[Row]:
    return [
        Row("encoder/token_embedding/table", ("shared.weight",)),
        *_stack_rows(encoder, "encoder", encoder.num_layers),
        *(
            _stack_rows(encoder, "decoder", encoder.decoder_layers)
            if encoder.decoder_layers
            else ()
        ),
    ]


def _more_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    form = config.get("feed_forward_proj", "relu")
    if form not in _FORMS:
        known = ", ".join(_NAMES.values())
        raise ValueError(f"feed_forward_proj: {form!r} is not supported (known: {known})")
    activation, gated = _FORMS[form]
    tied = config.get("tie_word_embeddings", True)
    return {
        "activation": activation,
        "gated": gated,
        "tied_output": tied,
        "scale_output": config.get(_SCALED, tied),
        "decoder_layers": config.get("num_decoder_layers") or config["num_layers"],
        "relative_max_distance": config.get("relative_attention_max_distance", 128),
        # T5 has one dropout rate.
        "attention_dropout": config["dropout_rate"],
        "inner_dropout": config["dropout_rate"],
    }


def _more_keys(encoder: EncoderDecoderConfig) -> dict[str, Any]:
    if encoder.scale_output and not encoder.tied_output:
        raise ValueError("encoder.scale_output: not supported for a T5 with tied_output: false")
    return {
        "d_kv": encoder.head_size or encoder.hidden_size // encoder.num_heads,
        "num_decoder_layers": encoder.decoder_layers,
        "feed_forward_proj": _NAMES[encoder.activation, encoder.gated],
        "tie_word_embeddings": encoder.scale_output,  # see `T5.written`
        _SCALED: encoder.scale_output,
        "relative_attention_max_distance": encoder.relative_max_distance,
    }


# {part of a name in the release: part of the name in transformers}.
_RELEASE = (
    (r"^shared\.weight$", "shared/embedding"),
    (r"^lm_head\.weight$", "decoder/logits/kernel"),
    (r"\.block\.(\d+)\.layer\.(\d+)\.", lambda m: f"/block_{m[1]:0>3}/layer_{m[2]:0>3}/"),
    (r"norm\.weight$", "norm/scale"),
    (r"(w[io]_?\d?)\.weight$", r"\1/kernel"),
    (r"\.weight$", ""),
)
# A bias of the first releases that no model reads.
UNUSED = "decoder/block_000/layer_001/EncDecAttention/relative_attention_bias"


def _release_row(row: Row) -> Row:
    names = []
    for name in row.names:
        for pattern, replacement in _RELEASE:
            name = re.sub(pattern, replacement, name)
        names.append(name.replace(".", "/"))
    # Matrices have our layout, and the biases have one row for each head.
    transposed = row.path.endswith("relative_bias/table")
    return dataclasses.replace(row, names=tuple(names), transposed=transposed)


def _with_rms_norm(row: Row) -> Row:
    """Returns a row of the release, with the names of norms in later checkpoints."""
    row = _release_row(row)
    names = tuple(re.sub(r"/layer_norm/", "/rms_norm/", name) for name in row.names)
    return dataclasses.replace(row, names=names)


def release(tensors: Mapping[str, np.ndarray]) -> tuple[System, dict[str, Any]]:
    """Returns the system of a checkpoint of the release, and a config.json for it.

    Args:
      tensors: the tensors of the checkpoint.
    """
    later = any("/rms_norm/" in name for name in tensors)
    system = dataclasses.replace(
        SYSTEM, tf1_row=_with_rms_norm if later else _release_row, tokenizer_class="T5Tokenizer"
    ).of_release()
    first = "encoder/block_000/layer_00"
    gated = f"{first}1/DenseReluDense/wi_0/kernel" in tensors
    table = tensors["shared/embedding"]
    heads, buckets = tensors[f"{first}0/SelfAttention/relative_attention_bias"].shape
    inner = tensors[f"{first}1/DenseReluDense/{'wi_0' if gated else 'wi'}/kernel"]
    layers = {
        stack: len({m[1] for name in tensors if (m := re.match(rf"{stack}/block_(\d+)/", name))})
        for stack in ("encoder", "decoder")
    }
    return system, {
        "architectures": ["T5ForConditionalGeneration"],
        "vocab_size": table.shape[0],
        "d_model": table.shape[1],
        "d_kv": tensors[f"{first}0/SelfAttention/q"].shape[1] // heads,
        "d_ff": inner.shape[1],
        "num_layers": layers["encoder"],
        "num_decoder_layers": layers["decoder"],
        "num_heads": heads,
        "relative_attention_num_buckets": buckets,
        "dropout_rate": 0.1,
        "layer_norm_epsilon": 1e-6,
        "feed_forward_proj": "gated-gelu" if gated else "relu",
        "tie_word_embeddings": "decoder/logits/kernel" not in tensors,
    }


SYSTEM = T5(
    model_type="t5",
    encoder=EncoderKeys(
        title="a T5",
        encoder_type=EncoderDecoderConfig,
        form={
            "norm": "rms",
            "norm_position": "pre",
            "use_bias": False,
            "scale_scores": False,
            "positions": "relative",
            "scale_embeddings": False,
        },
        sizes={
            "vocab_size": "vocab_size",
            "hidden_size": "d_model",
            "head_size": "d_kv",
            "intermediate_size": "d_ff",
            "num_layers": "num_layers",
            "num_heads": "num_heads",
            "relative_buckets": "relative_attention_num_buckets",
            "dropout": "dropout_rate",
        },
        more_fields=_more_fields,
        more_keys=_more_keys,
        activation=None,
        epsilon="layer_norm_epsilon",
        only={"is_encoder_decoder": True},
        also={"is_encoder_decoder": True, "decoder_start_token_id": 0},
    ),
    prefix="",
    encoder_rows=_encoder_rows,
    mark=lambda encoder: encoder.decoder_layers > 0,
    heads=table(
        Seq2SeqLM(
            [_matrix("seq2seq_lm/output", "lm_head")], architecture="T5ForConditionalGeneration"
        )
    ),
    architectures={frozenset(): "T5Model"},
    bounds={"eos_token_id": "sep_id"},
    ends={"eos_token": "sep_id"},
    aliases={
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
    },
    tied_aliases={"lm_head.weight": "shared.weight"},
    bare=(),
    buffers=("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight",),
    vocabulary="spiece.model",
    tokenizer_settings={"extra_ids": sentencepiece.T5["extra_ids"]},
)

# The encoder without decoder and head.
ENCODER = dataclasses.replace(
    SYSTEM,
    encoder=dataclasses.replace(
        SYSTEM.encoder,
        title="a T5 encoder",
        more_fields=lambda config: _more_fields(config) | {"decoder_layers": 0},
        # A config.json of the encoder may contain keys of the decoder.
        more_keys=lambda encoder: _more_keys(dataclasses.replace(encoder, decoder_layers=None)),
        only={},
        also={"is_encoder_decoder": False},
    ),
    mark=lambda encoder: not encoder.decoder_layers,
    heads={},
    architectures={frozenset(): ENCODER_CLASS},
    decodes=False,
)
