"""ELECTRA: the names of its tensors in Hugging Face's files and in the TF1 release.

In transformers, the discriminator and the generator are two models. The generator is in the folder
`generator` inside the folder of the discriminator, and either may be missing. A generator alone is
an encoder with a masked LM. Heads of tasks read a pooled output with a GELU in transformers, and
the first position in the release; multiple choice may read either. The release has both networks in
one checkpoint and no config file. The sizes are read from the tensors, and heads have size 64.
"""

import dataclasses
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from typing_extensions import override

from official import config as configs
from official.config.encoders import TransformerConfig
from official.conversion import bert, converted_model, generators
from official.conversion.heads import MaskedLM, MultipleChoice, ReplacedTokens, table
from official.conversion.mapping import Row, linear
from official.conversion.system import (
    ACTIVATIONS,
    FORM,
    SIZES,
    EncoderKeys,
    FineTuning,
    System,
)
from official.tokenizers import Tokenizer
from official.utils.errors import UserError
from official.utils.paths import AnyPath

_HEAD_SIZE = 64


def _encoder_rows(encoder: TransformerConfig) -> list[Row]:
    rows = bert.encoder_rows("electra.")(encoder)
    if (encoder.embedding_size or encoder.hidden_size) != encoder.hidden_size:
        rows += linear("encoder/embeddings/projection", "electra.embeddings_project")
    return rows


def _tf1_name(name: str) -> str:
    if name == "generator_lm_head.bias":
        return "generator_predictions/output_bias"
    return bert.tf1_name(name.replace("dense_prediction", "dense_1"))


def _tf1_row(row: Row) -> Row:
    return bert.tf1_row(row, _tf1_name)


class _SummaryChoice(MultipleChoice):
    """Multiple choice, which reads a pooled output or the first position."""

    poolings = ("pooled", "first")

    @override
    def activation(self, config: Mapping[str, Any]) -> str:
        kind = config.get("summary_type", "first")
        if kind != "first":
            raise ValueError(f"summary_type: {kind!r} is not supported, only 'first'")
        projected = config.get("summary_use_proj", True)
        name = config.get("summary_activation", "gelu")
        names = {theirs: ours for ours, all in ACTIVATIONS.items() for theirs in all}
        names["tanh"] = "tanh"
        if name not in (names if projected else (None, "")):
            raise ValueError(
                f"summary_activation: {name!r} is not supported if summary_use_proj is {projected}"
            )
        return names[name] if projected else "gelu"

    @override
    def pooler_keys(self, objective: Any, encoder: TransformerConfig) -> dict[str, Any]:
        pooled = objective.pooling == "pooled"
        name = encoder.pooler_activation
        name = ACTIVATIONS[name][0] if name in ACTIVATIONS else name
        return {
            "summary_type": "first",
            "summary_use_proj": pooled,
            # transformers 5 refuses null here; 4 reads both null and "" as no activation.
            "summary_activation": name if pooled else "",
            "summary_last_dropout": objective.dropout,
        }


def _is_pretrained(config: configs.ResolvedConfig) -> bool:
    """Returns whether a model has an objective of ELECTRA."""
    return bool(config.of_types(generators.GENERATOR, "replaced_tokens"))


@dataclasses.dataclass(frozen=True)
class Electra(System):
    """ELECTRA; its generator is a folder inside the discriminator's."""

    @override
    def matches(self, config: configs.ResolvedConfig, tokenizer: Tokenizer | None = None) -> bool:
        """See `System`; recognized by an objective of ELECTRA, or a projection that no BERT has."""
        if super().matches(config, tokenizer):
            return True
        objectives = config.objectives
        bare = not (objectives or config.encoder.pooler)  # a bare BERT has a pooler
        own = any(self.has_room_for(o) and not bert.BERT.has_room_for(o) for o in objectives)
        heads = bare or own or bool(config.of_types(generators.GENERATOR))
        return heads and self.encoder.takes(config.encoder)

    @override
    def with_generator(
        self,
        converted: converted_model.Converted,
        folder: AnyPath,
        tensors: Mapping[str, np.ndarray],
        read: Callable[..., tuple[converted_model.Converted, System]],
    ) -> converted_model.Converted:
        del tensors
        small = folder / generators.GENERATOR
        if not small.is_dir():
            return converted
        generator, system = read(small)
        if system is not self:
            raise UserError(
                f"{small}: model_type {system.model_type!r} is not the generator of an ELECTRA"
            )
        return generators.join(converted, generator, str(small))


SYSTEM = Electra(
    model_type="electra",
    encoder=EncoderKeys(
        title="an ELECTRA",
        form={name: only for name, only in FORM.items() if name != "embedding_size"},
        sizes={**SIZES, "embedding_size": "embedding_size"},
    ),
    prefix="electra.",
    encoder_rows=_encoder_rows,
    mark=lambda encoder: (  # BERT's pooler has tanh
        encoder.pooler_activation != "tanh"
        or encoder.embedding_size not in (None, encoder.hidden_size)
    ),
    # The rate is that of Clark et al. (2020), table 7.
    finetune=FineTuning("electra", small_rate=3e-4, suits=_is_pretrained),
    heads=table(
        MaskedLM(
            bert.masked_lm_rows(
                "generator_predictions.dense",
                "generator_predictions.LayerNorm",
                "generator_lm_head.bias",
            ),
            "ElectraForMaskedLM",
            erf_gelu=True,
        ),
        ReplacedTokens(
            [
                *linear("replaced_tokens/transform", "discriminator_predictions.dense"),
                *linear("replaced_tokens/output", "discriminator_predictions.dense_prediction"),
            ],
            "ElectraForPreTraining",
        ),
        *bert.task_heads(
            "Electra",
            "classifier.out_proj",
            hidden="classifier.dense",
            choice=_SummaryChoice(
                linear("multiple_choice/output", "classifier"),
                "ElectraForMultipleChoice",
                pooler="sequence_summary.summary",
            ),
        ),
    ),
    architectures={frozenset(): "ElectraModel"},
    pooler_activation="gelu",
    aliases={"generator_lm_head.weight": "electra.embeddings.word_embeddings.weight"},
    buffers=("electra.embeddings.position_ids", "electra.embeddings.token_type_ids"),
    segments={"format": "halves"},
    corruption={"mask_prob": 0.85, "random_prob": 0.0, "replacement": True},
    tf1_row=_tf1_row,
    release_gelu="gelu",
)


def release(names: Collection[str]) -> dict[str, System]:
    """Returns {scope of a network: its table} for a checkpoint of the release.

    Args:
      names: the names of the tensors of the checkpoint.
    """
    # The generator may share the embeddings of the discriminator.
    own = "generator/embeddings/word_embeddings" in names
    pattern = r"^electra/" if own else r"^electra/(?!embeddings/)"

    def in_generator(row: Row) -> Row:
        row = _tf1_row(row)
        renamed = tuple(re.sub(pattern, "generator/", name) for name in row.names)
        return dataclasses.replace(row, names=renamed)

    def system(head: str, tf1_row: Callable[[Row], Row]) -> System:
        heads = table(SYSTEM.heads[head])
        return dataclasses.replace(SYSTEM.of_release(), heads=heads, tf1_row=tf1_row)

    tables = {"electra": system("replaced_tokens", _tf1_row)}
    if any(name.startswith("generator/") for name in names):
        tables["generator"] = system("masked_lm", in_generator)
    return tables


def release_config(tensors: Mapping[str, np.ndarray], scope: str, source: str) -> dict[str, Any]:
    """Returns a config.json for a network of the release, from the shapes of its tensors.

    Args:
      tensors: the tensors of the checkpoint.
      scope: the scope of the network, `electra` or `generator`.
      source: the name of the checkpoint for messages.

    Raises:
      UserError: a tensor is missing, or the hidden size is not a multiple of 64.
    """
    own = f"{scope}/embeddings/word_embeddings" in tensors
    embeddings = f"{scope if own else 'electra'}/embeddings"
    inner = f"{scope}/encoder/layer_0/intermediate/dense/kernel"
    names = [
        *(f"{embeddings}/{kind}_embeddings" for kind in ("word", "position", "token_type")),
        inner,
    ]
    if lacking := [name for name in names if name not in tensors]:
        raise UserError(f"{source} lacks the tensor {lacking[0]}: the file is incomplete")
    words, positions, types, kernel = (tensors[name].shape for name in names)
    if kernel[0] % _HEAD_SIZE:
        raise UserError(
            f"{source}: {inner}: the hidden size {kernel[0]} is not a multiple of {_HEAD_SIZE}, "
            "the size of a head in every ELECTRA of the release"
        )
    layers = {name.split("/")[2] for name in tensors if name.startswith(f"{scope}/encoder/layer_")}
    return {
        "vocab_size": words[0],
        "embedding_size": words[1],
        "hidden_size": kernel[0],
        "num_hidden_layers": len(layers),
        "num_attention_heads": kernel[0] // _HEAD_SIZE,
        "intermediate_size": kernel[1],
        "max_position_embeddings": positions[0],
        "type_vocab_size": types[0],
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "initializer_range": 0.02,
    }
