"""DeBERTa, v1 to v3: the names of their tensors in Hugging Face's files.

v2 and v3 are `deberta-v2` in transformers. Their layers have three separate matrices for queries,
keys and values, which project distances as well. The layers of v1 have one matrix, ordered by head,
no bias of the keys, and two matrices for distances.

Files of the releases have parts that transformers has no class for: the head of replaced-token
detection (`mask_predictions`), that of the masked LM (`lm_predictions`), whose decoder reads
absolute positions, and the table of these positions. The discriminator of v3 is the file of the
model. In it, `word_embeddings._weight` is the difference that training has added to the table of
the generator, and `weight` is the sum, which the encoder reads. The generator is a second file,
with fewer layers.
"""

import dataclasses
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from official.config.corruptions import TokenMasksConfig
from official.config.encoders import TransformerConfig
from official.conversion import bert, converted_model, generators
from official.conversion.heads import EnhancedMaskedLM, MaskedLM, NormedReplacedTokens, table
from official.conversion.mapping import LazyTensors, Row, Shape, layer_rows, linear, norm
from official.conversion.system import (
    ACTIVATIONS,
    ENDS,
    FORM,
    SIZES,
    EncoderKeys,
    FineTuning,
    Network,
    System,
)
from official.conversion.weight_files import Tensors
from official.tokenizers import file_formats
from official.tokenizers.pair_forms import SEPARATORS
from official.tokenizers.sentencepiece import DEBERTA_FILE
from official.utils import json_files
from official.utils.errors import UserError
from official.utils.paths import AnyPath

# The file of the generator's weights: as written here, and as released.
GENERATOR_FILES = ("model.generator.safetensors", "pytorch_model.generator.bin")
# An optional file with the generator's values for keys of config.json.
GENERATOR_CONFIG = "generator_config.json"
_PREFIX = "deberta."
_TERMS = ("p2c", "c2p")
_MATRICES = {
    "attention/query_key_value": tuple(
        f"attention.self.{name}_proj" for name in ("query", "key", "value")
    ),
    "attention/output": ("attention.output.dense",),
    "feed_forward/inner": ("intermediate.dense",),
    "feed_forward/outer": ("output.dense",),
}
_NORMS = {
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward_norm": "output.LayerNorm",
}
_WORDS = f"{_PREFIX}embeddings.word_embeddings"
# The difference of the discriminator's token table to the generator's.
DELTA = f"{_WORDS}._weight"
_POSITIONS = f"{_PREFIX}embeddings.position_embeddings"
_LAYER = re.compile(r"encoder\.layer\.(\d+)\.")
# The code of the release misspells the last layer of its head; its files do not.
_MISSPELLED = "mask_predictions.classifer."
# The head of the masked LM, and the names of its parts in transformers with `legacy: true`.
_HEAD = "lm_predictions.lm_head"
_LEGACY = {
    f"cls.predictions.{legacy}": f"{_HEAD}.{name}"
    for legacy, name in {
        "bias": "bias",
        "transform.dense.weight": "dense.weight",
        "transform.dense.bias": "dense.bias",
        "transform.LayerNorm.weight": "LayerNorm.weight",
        "transform.LayerNorm.bias": "LayerNorm.bias",
    }.items()
}


@dataclasses.dataclass(frozen=True)
class HeadByHead(Row):
    """A kernel of queries, keys and values that a file stores as [N * 3 * H, D], ordered by head.

    Attributes:
      heads: N.
    """

    heads: int = 1

    @override
    def part_shape(self, shape: Shape) -> Shape:
        return shape[::-1]

    @override
    def join(self, parts: Iterable[np.ndarray], shape: Shape) -> np.ndarray:
        (part,) = parts
        blocks = part.reshape(self.heads, 3, -1, shape[0])
        return np.ascontiguousarray(blocks.transpose(3, 1, 0, 2)).reshape(shape)

    @override
    def split(self, variable: np.ndarray) -> dict[str, np.ndarray]:
        blocks = variable.reshape(len(variable), 3, self.heads, -1).transpose(2, 1, 3, 0)
        part = np.ascontiguousarray(blocks).reshape(variable.shape[::-1])
        return {self.names[0]: part}


class Taps(Row):
    """The kernel [W * in, out] of a convolution that a file stores as [out, in, W]."""

    @override
    def part_shape(self, shape: Shape) -> Shape:
        """See `Row`; inputs and outputs have the same size."""
        return (shape[1], shape[1], shape[0] // shape[1])

    @override
    def join(self, parts: Iterable[np.ndarray], shape: Shape) -> np.ndarray:
        (part,) = parts
        return np.ascontiguousarray(part.transpose(2, 1, 0)).reshape(shape)

    @override
    def split(self, variable: np.ndarray) -> dict[str, np.ndarray]:
        size = variable.shape[1]
        part = variable.reshape(-1, size, size).transpose(2, 1, 0)
        return {self.names[0]: np.ascontiguousarray(part)}


def _shared_rows(encoder: TransformerConfig) -> list[Row]:
    """Returns the rows of variables outside the layers."""
    ours, theirs = "encoder/distance_table", f"{_PREFIX}encoder"
    rows = [
        Row("encoder/embeddings/token_embedding/table", (f"{_WORDS}.weight",)),
        *norm("encoder/embeddings/norm", f"{_PREFIX}embeddings.LayerNorm"),
        Row(f"{ours}/table", (f"{theirs}.rel_embeddings.weight",)),
    ]
    if encoder.disentangled is not None and encoder.disentangled.norm:
        rows += norm(f"{ours}/norm", f"{theirs}.LayerNorm")
    if encoder.convolution is not None:
        rows += [
            Taps("encoder/convolution/taps/kernel", (f"{theirs}.conv.conv.weight",)),
            Row("encoder/convolution/taps/bias", (f"{theirs}.conv.conv.bias",)),
            *norm("encoder/convolution/norm", f"{theirs}.conv.LayerNorm"),
        ]
    return rows


def _rows(encoder: TransformerConfig) -> list[Row]:
    layers = layer_rows(encoder.num_layers, f"{_PREFIX}encoder.layer", _MATRICES, _NORMS)
    return _shared_rows(encoder) + layers


def _v1_rows(encoder: TransformerConfig) -> list[Row]:
    matrices = {
        path: names for path, names in _MATRICES.items() if path != "attention/query_key_value"
    }
    matrices["attention/distance_query"] = ("attention.self.pos_q_proj",)
    rows = _shared_rows(encoder)
    rows += layer_rows(encoder.num_layers, f"{_PREFIX}encoder.layer", matrices, _NORMS)
    for i in range(encoder.num_layers):
        ours = f"encoder/layer_{i}/attention"
        theirs = f"{_PREFIX}encoder.layer.{i}.attention.self"
        joined = f"{ours}/query_key_value"
        rows += [
            HeadByHead(f"{joined}/kernel", (f"{theirs}.in_proj.weight",), heads=encoder.num_heads),
            Row(f"{joined}/bias", (f"{theirs}.q_bias", f"{theirs}.v_bias")),
            Row(f"{ours}/distance_key/kernel", (f"{theirs}.pos_proj.weight",), transposed=True),
        ]
    return rows


def _check(config: Mapping[str, Any], only: Mapping[str, tuple[Any, Any]]) -> None:
    """Refuses unsupported values.

    Args:
      config: the parsed config.json.
      only: {key: (the only supported value, the default)}.
    """
    for key, (value, default) in only.items():
        if (given := config.get(key, default)) != value:
            raise ValueError(f"{key}: {given!r} is not supported, only {value!r}")


def _distances(config: Mapping[str, Any]) -> dict[str, Any]:
    """Checks the keys that v1 and v2 share, and returns the fields of `disentangled` for them."""
    size = config["hidden_size"]
    head_size = size // config["num_attention_heads"]
    _check(
        config,
        {
            "relative_attention": (True, False),
            "position_biased_input": (False, True),
            "type_vocab_size": (0, 0),
            "embedding_size": (size, size),
            "attention_head_size": (head_size, head_size),
            "pooler_hidden_size": (size, size),
        },
    )
    terms = config.get("pos_att_type") or ()
    terms = terms.split("|") if isinstance(terms, str) else terms
    if {str(term).strip().lower() for term in terms} != set(_TERMS):
        raise ValueError(
            f"pos_att_type: {config.get('pos_att_type')!r} is not supported, only 'p2c|c2p'"
        )
    distance = config.get("max_relative_positions", -1)
    if distance < 1:
        distance = config["max_position_embeddings"]
    return {"max_distance": distance}


def _v1_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    _check(config, {"talking_head": (False, False)})
    form = {"buckets": 0, "own_projections": True, "norm": False}
    return {"disentangled": {**_distances(config), **form}}


def _v2_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    _check(config, {"share_att_key": (True, False), "conv_groups": (1, 1)})
    norms = [name.strip() for name in str(config.get("norm_rel_ebd", "none")).lower().split("|")]
    form = {"buckets": max(0, config.get("position_buckets", -1)), "norm": "layer_norm" in norms}
    distances = _distances(config)
    # If every distance has its own bucket, `max_relative_positions` has no effect.
    least = form["buckets"] // 2 + 2
    if config["max_position_embeddings"] < least:
        distances = {key: max(value, least) for key, value in distances.items()}
    fields: dict[str, Any] = {"disentangled": {**distances, **form}}
    if (width := config.get("conv_kernel_size", 0)) > 0:
        names = {theirs: ours for ours, all in ACTIVATIONS.items() for theirs in all}
        name = config.get("conv_act", "tanh")
        if name not in (*names, "tanh"):
            raise ValueError(f"conv_act: {name!r} is not supported")
        fields["convolution"] = {"kernel_size": width, "activation": names.get(name, name)}
    return fields


def _keys(encoder: TransformerConfig) -> dict[str, Any]:
    """Returns the keys of config.json that v1 and v2 share."""
    form = encoder.disentangled
    if form is None:
        raise ValueError(
            "encoder.disentangled: a DeBERTa needs it, and this encoder does not have it"
        )
    longest = encoder.max_positions
    return {
        "max_relative_positions": -1 if form.max_distance == longest else form.max_distance,
        "pooler_hidden_size": encoder.hidden_size,
        "pooler_dropout": 0,
        "pooler_hidden_act": "gelu",
    }


def _v1_keys(encoder: TransformerConfig) -> dict[str, Any]:
    keys = _keys(encoder)
    for key in ("buckets", "norm"):
        if value := getattr(encoder.disentangled, key):
            raise ValueError(
                f"encoder.disentangled.{key}: a DeBERTa with own_projections: true does not have "
                f"it, and here it is {value!r}"
            )
    return keys


def _v2_keys(encoder: TransformerConfig) -> dict[str, Any]:
    keys, form, convolution = _keys(encoder), encoder.disentangled, encoder.convolution
    if convolution is not None:
        name = convolution.activation
        keys["conv_act"] = name if name == "tanh" else ACTIVATIONS[name][0]
        keys["conv_kernel_size"] = convolution.kernel_size
    assert form is not None  # `_keys` has refused None
    return {
        **keys,
        "share_att_key": True,
        "position_buckets": form.buckets or -1,
        "norm_rel_ebd": "layer_norm" if form.norm else "none",
    }


class _NamedMaskedLM(MaskedLM):
    """The masked LM, if config.json names its class; files of bare encoders may contain it."""

    @override
    def is_in(self, config: Mapping[str, Any], has_tensors: bool) -> bool:
        return has_tensors and self._is_named(config)

    @override
    def keys(self, objective: Any, dropout_key: str) -> dict[str, Any]:
        # The output layer is always the token table. In transformers 4, `true` would tie the hidden
        # layer.
        also = {"legacy": False, "tie_word_embeddings": False}
        return {**super().keys(objective, dropout_key), **also}


def _released(head: Any, config: Mapping[str, Any], has_tensors: bool) -> bool:
    """Returns whether a file has a head of pretraining; config.json may not name its class."""
    return has_tensors and (head._is_named(config) or not config.get("architectures"))


class _EnhancedMaskedLM(EnhancedMaskedLM, _NamedMaskedLM):
    """The masked LM of a release, which is recognized by its position table."""

    @override
    def is_in(self, config: Mapping[str, Any], has_tensors: bool) -> bool:
        return _released(self, config, has_tensors)

    @override
    def rows_of(self, encoder: Any) -> Sequence[Row]:
        return [*_MASKED_LM, *self.rows]


class _ReplacedTokens(NormedReplacedTokens):
    @override
    def is_in(self, config: Mapping[str, Any], has_tensors: bool) -> bool:
        return _released(self, config, has_tensors)


@dataclasses.dataclass(frozen=True)
class Deberta(System):
    """A version of DeBERTa; its generator is a file in the folder of the discriminator."""

    @override
    def heads_of(self, names: Collection[str], config: Mapping[str, Any]) -> tuple[str, ...]:
        """See `System`; ignores old parts of a masked LM in the file of a discriminator.

        A masked LM with a decoder is recognized by its position table.
        """
        heads = super().heads_of(names, config)
        enhanced = EnhancedMaskedLM.name
        if enhanced not in heads:
            return heads
        whole = f"{_HEAD}.bias" in names and NormedReplacedTokens.name not in heads
        return (enhanced,) if whole else tuple(head for head in heads if head != enhanced)

    @override
    def network_config(
        self,
        config: dict[str, Any],
        source: AnyPath,
        weights: Mapping[str, np.ndarray],
        generator: AnyPath | None,
    ) -> tuple[dict[str, Any], AnyPath]:
        """See `System`.

        Without a config file, the generator has the sizes of the discriminator, and the number of
        layers follows from its tensors.
        """
        if generator is None:
            return config, source
        layers = {int(found[1]) for name in weights if (found := _LAYER.search(name))}
        if not layers:
            raise UserError(f"{generator} has no tensors of layers: is it the file of a generator?")
        count, own = max(layers) + 1, generator.parent / GENERATOR_CONFIG
        keys = json_files.read(own) if own.exists() else {}
        if keys.get("num_hidden_layers", count) != count:
            raise UserError(
                f"{own}: num_hidden_layers is {keys['num_hidden_layers']!r}, and {generator} has "
                f"{count} layers: are they of the same model?"
            )
        named = {"architectures": [self.heads[MaskedLM.name].architecture]}
        whole = {**config, "num_hidden_layers": count, **keys, **named}
        return whole, own if keys else source

    @override
    def with_generator(
        self,
        converted: converted_model.Converted,
        folder: AnyPath,
        tensors: Mapping[str, np.ndarray],
        read: Callable[..., tuple[converted_model.Converted, System]],
    ) -> converted_model.Converted:
        """See `System`; the model has the masks of the release."""
        files = [folder / name for name in GENERATOR_FILES]
        file = next((file for file in files if file.exists()), None)
        types = {objective.type for objective in converted.config.objectives}
        if file is None or not types <= {"replaced_tokens"}:
            return converted
        generator, _ = read(folder, file)
        delta = tensors[DELTA] if DELTA in tensors else None
        both = generators.join(converted, generator, str(file), disentangled=True, delta=delta)
        length = min(self.max_length, converted.config.encoder.max_positions)
        number = max(1, round(TokenMasksConfig.mask_rate * length))
        masks = TokenMasksConfig(
            windows=True, mask_prob=1.0, random_prob=0.0, max_predictions=number
        )
        leftover = [name for name in both.leftover if name != DELTA]
        return dataclasses.replace(
            both, config=dataclasses.replace(both.config, corruption=masks), leftover=leftover
        )

    @override
    def in_one_folder(
        self, networks: dict[str, Network], variables: Mapping[str, np.ndarray]
    ) -> dict[str, dict[str, np.ndarray]]:
        described, tensors = networks[""]
        if generators.DELTA in variables:
            tensors[DELTA] = variables[generators.DELTA]
        if generators.GENERATOR not in networks:
            return {}
        small, weights = networks.pop(generators.GENERATOR)
        check_generator(small, described)
        return {GENERATOR_FILES[0]: weights}


def check_generator(small: Mapping[str, Any], main: Mapping[str, Any]) -> None:
    """Refuses a generator that the config.json of the discriminator does not describe.

    Args:
      small: the parsed config.json of the generator.
      main: the parsed config.json of the discriminator.

    Raises:
      UserError: they differ in more than the number of layers.
    """
    for key, value in small.items():
        other = main.get(key, value)
        if key not in ("architectures", "num_hidden_layers") and value != other:
            raise UserError(
                f"objectives: generator: {key} is {value!r}, and {other!r} in the encoder: the two "
                "networks of a DeBERTa-v3 share one config.json and differ only in their layers; "
                "official.export keeps both"
            )


class OneForm(LazyTensors):
    """The tensors of a file, with the same names for heads in all versions."""

    _index: Mapping[str, str]

    def __init__(self, tensors: Tensors, source: str | os.PathLike):
        """Wraps tensors.

        Raises:
          UserError: the file has the difference of token tables, but not the token table.
        """
        self.source, self._tensors = source, tensors
        if DELTA in tensors and f"{_WORDS}.weight" not in tensors:
            raise UserError(
                f"{source}: {DELTA} is the difference of the discriminator's token table to the "
                f"generator's, and the table itself, {_WORDS}.weight, is missing: take a file that "
                "has it"
            )
        self._index: dict[str, str] = {
            _LEGACY.get(name, name).replace(_MISSPELLED, "mask_predictions.classifier."): name
            for name in tensors
        }

    def __getitem__(self, name: str) -> np.ndarray:
        """Reads a tensor."""
        return self._tensors[self._index[name]]


# The hidden layer and the output bias of a masked LM.
_MASKED_LM = (
    *linear("masked_lm/transform", f"{_HEAD}.dense"),
    *norm("masked_lm/norm", f"{_HEAD}.LayerNorm"),
    Row("masked_lm/output_bias", (f"{_HEAD}.bias",)),
)


def _system(
    model_type: str, classes: str, heads: Collection[str], keys: Mapping[str, Any], **more: Any
) -> Deberta:
    """Returns the system of a version.

    Args:
      model_type: `model_type` of config.json.
      classes: the prefix of the names of the classes of transformers.
      heads: the names of the heads of tasks that transformers has.
      keys: attributes of its `EncoderKeys`.
      **more: other attributes of the system.
    """
    positions = Row("masked_lm/position_embedding/table", (f"{_POSITIONS}.weight",))
    replaced = [
        *norm("replaced_tokens/norm", "mask_predictions.LayerNorm"),
        *linear("replaced_tokens/transform", "mask_predictions.dense"),
        *linear("replaced_tokens/output", "mask_predictions.classifier"),
    ]
    tasks = bert.task_heads(classes, "classifier", hidden="pooler.dense")
    return Deberta(
        model_type=model_type,
        encoder=EncoderKeys(
            sizes={ours: theirs for ours, theirs in SIZES.items() if ours != "segment_types"},
            only={
                "is_decoder": False,
                "pooler_hidden_act": "gelu",
                "pooler_dropout": 0,
            },
            also={
                "relative_attention": True,
                "position_biased_input": False,
                "type_vocab_size": 0,
                "pos_att_type": list(_TERMS),
            },
            **keys,
        ),
        prefix=_PREFIX,
        finetune=FineTuning("deberta"),
        heads=table(
            _NamedMaskedLM(_MASKED_LM, f"{classes}ForMaskedLM"),
            _EnhancedMaskedLM([positions], f"{classes}ForMaskedLM"),
            _ReplacedTokens(replaced, f"{classes}Model"),
            *(head for head in tasks if head.name in heads),
        ),
        architectures={frozenset(): f"{classes}Model"},
        pooler_activation="gelu",
        dropout="cls_dropout",
        ends=ENDS,
        aliases={
            "cls.predictions.decoder.weight": f"{_WORDS}.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
        bare=("embeddings.", "encoder."),
        tensors=OneForm,
        buffers=(f"{_PREFIX}embeddings.position_ids",),
        whole=True,
        unread=(DELTA, f"{_POSITIONS}._weight", f"{_POSITIONS}.weight"),
        segments={"format": "full_sentences"},
        **more,
    )


_TEXTS = ("classification", "multi_label", "ranking", "regression")
_TASKS = (*_TEXTS, "span_answer", "token_classification")
_FORM = {**FORM, "positions": "none", "segment_types": 0}
del _FORM["disentangled"]
_V2_FORM = dict(_FORM)
del _V2_FORM["convolution"]

SYSTEM = _system(
    "deberta-v2",
    "DebertaV2",
    (*_TASKS, "multiple_choice"),
    {
        "title": "a DeBERTa-v2",
        "form": _V2_FORM,
        "more_fields": _v2_fields,
        "more_keys": _v2_keys,
    },
    encoder_rows=_rows,
    mark=lambda encoder: encoder.disentangled is not None,
    vocabulary=DEBERTA_FILE,
    rounded_to=1000,  # the multilingual model has 251,000 rows
    tokenizer_class="DebertaV2Tokenizer",
)
V1 = _system(
    "deberta",
    "Deberta",
    _TASKS,
    {"title": "a DeBERTa", "form": _FORM, "more_fields": _v1_fields, "more_keys": _v1_keys},
    encoder_rows=_v1_rows,
    mark=lambda encoder: encoder.disentangled is not None and encoder.disentangled.own_projections,
    vocabulary="vocab.json",
    tokenizer_class="DebertaTokenizer",
    # The special tokens differ from those of RoBERTa, which has the same files.
    tokenizer_settings={key: names[0] for key, names in file_formats.SPECIALS.items()}
    | {SEPARATORS: 1},
)
