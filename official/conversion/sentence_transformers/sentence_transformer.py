"""Folders of vectors of texts: their settings are those of `embedding.json`.

The modules are a Transformer, whose files are those of transformers, a Pooling, and perhaps a Dense
and a Normalize. Versions 2 to 5 write the files that are written here, and version 6 reads them. A
model that is read gets the objective `sentence_embedding` with weight 0, so that it can be
evaluated and be a teacher. A Dense becomes the projection of this objective.

Shapes: I input and O output of the Dense.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from typing_extensions import override

from official import config as configs
from official.config.parts import EncoderConfig
from official.config.sentence_embedding import Projection, SentenceEmbeddingConfig
from official.conversion.converted_model import Converted
from official.conversion.sentence_transformers import dense
from official.conversion.sentence_transformers import folder as folders
from official.conversion.sentence_transformers.folder import Folder
from official.conversion.sentence_transformers.kind import (
    Kind,
    ReadModel,
    with_objective,
    without,
)
from official.saving import embedding_settings
from official.saving.embedding_settings import EmbeddingSettings
from official.saving.model_folder import ModelFolder
from official.utils import json_files, strict
from official.utils.errors import UserError
from official.utils.paths import AnyPath

PACKAGE = "sentence_transformers.models."  # of the classes, in versions before 6
_POOLING, _DENSE = "1_Pooling", "2_Dense"
_KINDS = ("query", "document")  # of texts in a search; also the names of their prompts

# Names of poolings in sentence-transformers and ours, in the order of concatenation.
_POOLINGS = {
    "cls": "first",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean": "weighted_mean",
    "lasttoken": "last",
}
# Versions before 6 have one boolean key for each pooling.
_SWITCHES = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
_VARIABLES = f"{SentenceEmbeddingConfig.type}/projection/"


class SentenceTransformer(Kind):
    """A model with vectors of texts."""

    chains = tuple(
        ("Transformer", "Pooling", *more)
        for more in ((), ("Normalize",), ("Dense",), ("Dense", "Normalize"))
    )
    modules = "Transformer, Pooling and perhaps Dense and Normalize, in this order,"

    @override
    def read(self, folder: Folder, read_model: ReadModel) -> Converted:
        converted = read_model(folder.place("Transformer"))
        settings = _settings(folder, converted)
        converted = dataclasses.replace(converted, embedding=settings)
        return with_objective(converted, *_objective(folder, settings))

    @override
    def is_of(self, source: ModelFolder) -> bool:
        return source.has_embedding or embedding_settings.objective_of(source.config) is not None

    @override
    def network(self, config: configs.ResolvedConfig) -> configs.ResolvedConfig:
        return without(config, SentenceEmbeddingConfig)

    @override
    def max_length(self, source: ModelFolder) -> int:
        return source.embedding.max_length or source.max_length

    @override
    def write(
        self,
        source: ModelFolder,
        variables: Mapping[str, np.ndarray],
        max_length: int,
        folder: AnyPath,
    ) -> None:
        learned, settings = embedding_settings.objective_of(source.config), source.embedding
        dense = None
        if learned is not None and learned.poolings == settings.pooling:
            dense = learned.kept_projection
        write(settings, source.config.encoder, max_length, folder, dense, variables)


def _settings(folder: Folder, converted: Converted) -> EmbeddingSettings:
    """Reads the settings of a folder.

    Args:
      folder: the folder.
      converted: the model of its Transformer.

    Raises:
      UserError: a file is missing or damaged, or a setting is not supported.
    """
    poolings, include_prompt = _pooling(folder.place("Pooling") / "config.json")
    values = {
        "pooling": poolings,
        "normalize": "Normalize" in folder.chain,
        "max_length": folders.max_length(folder, converted),
        "include_prompt": include_prompt,
        **shared(folder),
    }
    return strict.build(EmbeddingSettings, values, folder.source)


def shared(folder: Folder) -> dict[str, Any]:
    """Returns the values for `EmbeddingSettings` in the file that all folders have.

    Raises:
      UserError: a value has the wrong type.
    """
    general = folder.settings
    prompts = folder.prompts()
    if any(prompts.values()):
        # sentence-transformers puts these two first, and they are empty if no file has them:
        # `passage` and the default prompt are never put before the documents of a search.
        prompts = {**dict.fromkeys(_KINDS, ""), **prompts}
    else:
        prompts = {}
    default = general.get("default_prompt_name")
    return {
        "prompts": prompts,
        "default_prompt": default if default in prompts else None,
        "similarity": general.get("similarity_fn_name") or "cosine",
        "size": general.get("truncate_dim"),
    }


def written(settings: EmbeddingSettings) -> dict[str, Any]:
    """Returns the content of the file that all folders have."""
    return {
        "model_type": SentenceTransformer.model_type,
        "prompts": _prompts(settings),
        "default_prompt_name": settings.default_prompt,
        "similarity_fn_name": settings.similarity,
        **({} if settings.size is None else {"truncate_dim": settings.size}),
    }


def _objective(
    folder: Folder, settings: EmbeddingSettings
) -> tuple[SentenceEmbeddingConfig, dict[str, np.ndarray]]:
    """Reads the Dense of a folder; returns the objective, and its variables by path.

    Args:
      folder: the folder.
      settings: the settings of the folder.

    Raises:
      UserError: a file is missing or damaged, or the activation is not supported.
    """
    pooled = SentenceEmbeddingConfig(
        pooling=",".join(settings.pooling), normalize=settings.normalize, weight=0.0
    )
    if "Dense" not in folder.chain:
        return pooled, {}
    projection, arrays = dense.read(folder.place("Dense"))
    variables = {f"{_VARIABLES}{name}": array for name, array in arrays.items()}
    return dataclasses.replace(pooled, projection=projection), variables


def write(
    settings: EmbeddingSettings,
    encoder: EncoderConfig,
    max_length: int,
    folder: AnyPath,
    learned: Projection | None = None,
    variables: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Writes the files of sentence-transformers beside those of transformers.

    Args:
      settings: the settings of the model.
      encoder: the encoder of the model.
      max_length: longer texts are cut to this number of tokens.
      folder: the folder of `save_pretrained`.
      learned: the config of the projection of vectors; None = there is no projection.
      variables: the variables of the model by path, for the projection.

    Raises:
      UserError: sentence-transformers has no such pooling or activation.
    """
    theirs = [name for name, ours in _POOLINGS.items() if ours in settings.pooling]
    if [_POOLINGS[name] for name in theirs] != list(settings.pooling):
        raise UserError(
            f"embedding.json: pooling: sentence-transformers joins {', '.join(_POOLINGS.values())} "
            f"in this order, but this model has {', '.join(settings.pooling)}"
        )
    kinds = {"Transformer": "", "Pooling": _POOLING}
    kinds |= {"Dense": _DENSE} if learned is not None else {}
    kinds |= {"Normalize": f"{len(kinds)}_Normalize"} if settings.normalize else {}
    pooling = {
        "word_embedding_dimension": encoder.hidden_size,
        **{switch: name in theirs for name, switch in _SWITCHES.items()},
        "include_prompt": settings.include_prompt,
    }
    modules = [(f"{PACKAGE}{kind}", place) for kind, place in kinds.items()]
    transformer = {"max_seq_length": max_length, "do_lower_case": False}
    folders.write(folder, modules, written(settings), transformer)
    folders.write_json(folder / _POOLING / "config.json", pooling)
    if learned is not None:
        names = ("kernel", "bias") if learned.bias else ("kernel",)
        arrays = {name: (variables or {})[f"{_VARIABLES}{name}"] for name in names}
        dense.write(folder / _DENSE, learned.activation, arrays)


def _prompts(settings: EmbeddingSettings) -> dict[str, str]:
    """Returns the prompts under their names in sentence-transformers."""
    prompts = dict(settings.prompts)
    if prompts:
        prompts |= {
            kind: settings.prompt(embedding_settings.prompt_of(kind, settings)) for kind in _KINDS
        }
    return prompts


def _pooling(path: AnyPath) -> tuple[list[str], bool]:
    """Returns the poolings of a file by our names, and whether prompts are pooled."""
    config = json_files.read(path)
    mode = config.get("pooling_mode")
    if mode is not None:
        names = [mode] if isinstance(mode, str) else mode
    else:
        names = [name for name, switch in _SWITCHES.items() if config.get(switch)]
    names = names or ["mean"]
    if not isinstance(names, list) or not set(map(str, names)) <= set(_POOLINGS):
        raise UserError(f"{path}: pooling_mode: {mode!r}: expected names of {', '.join(_POOLINGS)}")
    include = strict.typed(bool, config.get("include_prompt", True), "include_prompt", str(path))
    return [_POOLINGS[name] for name in names], include
