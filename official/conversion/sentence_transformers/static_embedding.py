"""Folders of static vectors: a StaticEmbedding, and perhaps a Normalize.

The StaticEmbedding has `model.safetensors` with the table, and `tokenizer.json`, whose truncation
is the length at which texts are cut. All tokens of a text count, the unknown token too, but no
special tokens stand around it. They are written as folders of model2vec, which
sentence-transformers reads: see `official.conversion.model2vec`.
"""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from typing_extensions import override

from official import tokenizers
from official.conversion import model2vec
from official.conversion.converted_model import Converted
from official.conversion.sentence_transformers import folder as folders
from official.conversion.sentence_transformers.folder import Folder
from official.conversion.sentence_transformers.kind import Kind, ReadModel
from official.conversion.sentence_transformers.sentence_transformer import (
    PACKAGE,
    shared,
    written,
)
from official.conversion.weight_files import Weights
from official.saving.embedding_settings import EmbeddingSettings
from official.saving.model_folder import ModelFolder
from official.utils import json_files, strict
from official.utils.errors import UserError
from official.utils.paths import AnyPath

_TABLES = ("embedding.weight", "embeddings")  # the second name is that of model2vec


class StaticEmbedding(Kind):
    """Vectors of texts that are means of a table."""

    chains = (("StaticEmbedding",), ("StaticEmbedding", "Normalize"))
    modules = "StaticEmbedding and perhaps Normalize, in this order,"

    @override
    def describes(self, folder: Folder) -> bool:
        return super().describes(folder) and folder.chain[:1] == ("StaticEmbedding",)

    @override
    def read(self, folder: Folder, read_model: ReadModel) -> Converted:
        place = folder.place("StaticEmbedding")
        path = place / tokenizers.JSON_FILE
        cut = json_files.read(path).get("truncation") or {}
        if not isinstance(cut, dict):
            raise UserError(f"{path}: truncation: {cut!r} is not an object")
        length = strict.typed(int | None, cut.get("max_length"), "truncation.max_length", str(path))
        normalize = "Normalize" in folder.chain
        with contextlib.closing(Weights(place)) as weights:
            name = next((name for name in _TABLES if name in weights), _TABLES[0])
            made = model2vec.converted(place, weights, name, normalize, length, False)
        if made.embedding is None:  # a folder of static vectors always has settings
            return made
        values = {**strict.to_dict(made.embedding), **shared(folder)}
        settings = strict.build(EmbeddingSettings, values, folder.source)
        return dataclasses.replace(made, embedding=settings)

    @override
    def is_of(self, source: ModelFolder) -> bool:
        return False  # there are no files of transformers: see `write`


def write(
    source: ModelFolder, variables: Mapping[str, np.ndarray], folder: AnyPath
) -> Sequence[str]:
    """Writes static vectors as a folder of model2vec that sentence-transformers reads too.

    Args:
      source: the model folder.
      variables: its variables by path.
      folder: the folder to write to.

    Returns:
      Sentences about what is different there.

    Raises:
      UserError: the model has a part that these folders do not have.
    """
    settings = source.embedding
    notes = model2vec.write(source.config, variables, source.tokenizer, settings, folder)
    modules = [(f"{PACKAGE}StaticEmbedding", "")]
    modules += [(f"{PACKAGE}Normalize", "1_Normalize")] if settings.normalize else []
    # The table is written with the first dimensions that are kept.
    folders.write(folder, modules, written(dataclasses.replace(settings, size=None)))
    if settings.prompt(None):
        notes.append("model2vec has no prompts: the default prompt does not stand before texts")
    return notes
