"""Opens a model folder, or a folder of transformers or sentence-transformers."""

import os

import numpy as np

from official.saving import embedding_settings, generation_settings, model_folder
from official.saving.model_folder import ModelFolder
from official.utils import paths, progress
from official.utils.errors import UserError
from official.utils.progress import Report

_CHECKPOINTS = ("best", "last")
# Of transformers, sentence-transformers, and adapters, which are refused with what to do.
_FILES = ("config.json", "modules.json", "adapter_config.json")


def open_folder(
    folder: str | os.PathLike, checkpoint: str = "best", report: Report = progress.say
) -> ModelFolder:
    """Opens a model folder, or converts a folder of another tool in memory.

    Args:
      folder: a model folder, or a folder of transformers or sentence-transformers.
      checkpoint: as in `ModelFolder.open`; only `best` or `last` for a folder of another tool,
        which has one checkpoint.
      report: takes a line that says what was converted.

    Raises:
      UserError: the folder is none of these, or has something that is not supported.
    """
    path = paths.path(folder)
    if not is_foreign(path):
        return ModelFolder.open(path, checkpoint)
    if checkpoint not in _CHECKPOINTS:
        raise UserError(
            f"checkpoint: {checkpoint!r}: {folder} is a folder of transformers, with one checkpoint"
        )
    from official.conversion import huggingface  # the readers of all formats

    converted = huggingface.read(path)
    source = str(path)
    # The first call takes the variables: a model that is built has them already. Others convert the
    # folder again.
    converted_variables = [dict(converted.variables)]

    def variables() -> tuple[dict[str, np.ndarray], str]:
        if converted_variables:
            return converted_variables.pop(), source
        return dict(huggingface.read(path).variables), source

    embedding = converted.embedding or embedding_settings.of_values({}, converted.config, source)
    opened = ModelFolder(
        path=path,
        config=converted.config,
        tokenizer=converted.tokenizer,
        max_length=model_folder.max_length(
            path, converted.config, converted.tokenizer, {}, embedding
        ),
        task={},
        generation=generation_settings.of_values(converted.generation, source),
        embedding=embedding,
        has_embedding=converted.embedding is not None,
        variables=variables,
    )
    report(
        f"{folder}: a folder of transformers, converted in memory (official.convert writes the "
        "converted model)"
    )
    return opened


def is_foreign(folder: paths.AnyPath) -> bool:
    """Whether a folder is of transformers or sentence-transformers, and not a model folder."""
    if (folder / model_folder.CONFIG).exists():
        return False
    return any((folder / file).exists() for file in _FILES)
