"""Model folders from ELMo's released files, and back.

A release has two files, whose names end in `options.json` and `weights.hdf5`, and no output of the
language model. Its vocabulary is a file of its own, which only the language model needs: the
encoder reads the characters of words.
"""

import dataclasses
import os

import numpy as np

from official import config as configs
from official import tokenizers
from official.convert import converted_model, elmo
from official.saving import model_folder
from official.tokenizers import characters
from official.tokenizers.characters import SPECIALS, Characters
from official.utils import atomic, files, paths
from official.utils.errors import UserError, warn
from official.utils.paths import AnyPath

# What the names of the files end in: those of a release begin with its sizes.
_ENDINGS = ("options.json", "weights.hdf5")


def read(
    folder: str | os.PathLike, vocabulary: str | os.PathLike | None = None
) -> converted_model.Converted:
    """Reads a folder with the files of a release.

    Args:
      folder: has one file whose name ends in `options.json` and one that ends in `weights.hdf5`.
      vocabulary: a file of one word per line, with `<S>`, `</S>` and `<UNK>` on any lines; a
        vocabulary without `<UNK>` gets it as its last word. None = `words.txt` of the folder, or
        else these three alone.

    Raises:
      UserError: a file is missing, there are several, or one is broken; or the weights do not
        belong to the options: each data set that disagrees is named.
    """
    folder = paths.path(folder)
    options, weights = (_only(folder, ending) for ending in _ENDINGS)
    tokenizer = _tokenizer(folder, vocabulary)
    encoder = dataclasses.replace(elmo.read_options(options), vocab_size=tokenizer.vocab_size)
    config = dataclasses.replace(
        configs.from_dict({"name": folder.resolve().name}), encoder=encoder, objectives=()
    )
    variables = elmo.read_weights(weights, encoder, model_folder.shapes(config))
    return converted_model.Converted(config, tokenizer, variables, ())


def write(model_dir: str | os.PathLike, output: str | os.PathLike, checkpoint: str) -> list[str]:
    """Writes the encoder of a model folder as `options.json`, `weights.hdf5` and `words.txt`.

    Returns:
      The names of the parts that are left out: the objectives, which the files have no place for.

    Raises:
      UserError: `model_dir` is no model folder, or its encoder is no `bilm` that reads characters;
        or `output` exists.
    """
    config, tokenizer, model = model_folder.restore(model_dir, checkpoint)
    if config.encoder.type != "bilm":
        raise UserError(
            f"{paths.path(model_dir) / model_folder.CONFIG}: encoder.type: {config.encoder.type}: "
            "--target=elmo writes bilm alone; take --target=hf"
        )
    variables = {path: np.asarray(value) for path, value in model.variables_by_path().items()}
    with atomic.folder(output, elmo.OPTIONS) as temporary:
        elmo.write(config.encoder, variables, temporary)
        tokenizer.save(temporary)
    return [objective.type for objective in config.objectives]


def _only(folder: AnyPath, ending: str) -> AnyPath:
    """Returns the file of a folder whose name has an ending."""
    found = sorted(folder.glob(f"*{ending}"))
    if len(found) == 1:
        return found[0]
    names = ", ".join(path.name for path in found) or "none"
    raise UserError(
        f"{folder}: expected one file whose name ends in {ending}, found {names}: --input is a "
        "folder with the two files of one release"
    )


def _tokenizer(folder: AnyPath, vocabulary: str | os.PathLike | None) -> Characters:
    """Returns the tokenizer of a vocabulary; that of a folder may have settings."""
    own = folder / Characters.FILE
    if vocabulary is None and own.exists():
        return tokenizers.load(folder)
    if vocabulary is None:
        return Characters(SPECIALS)
    path = paths.path(vocabulary)
    files.check(path)
    words = characters.read_words(path)
    begin, end, unknown = SPECIALS
    if unknown not in words and begin in words and end in words:
        warn(f"{path} has no {unknown}: it becomes the last word, number {len(words):,}")
        words.append(unknown)
    return Characters(words, source=str(path))
