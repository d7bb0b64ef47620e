"""Converts ELMo's released files to model folders, and back.

A release has two files, whose names end in `options.json` and `weights.hdf5`. They contain the
encoder, without the output layer of the language model. Only the language model needs the
vocabulary, a separate file: the encoder reads the characters of words.
"""

import dataclasses
import json
import os
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import h5py
import numpy as np

from official import config as configs
from official import tokenizers
from official.config.encoders import BilmConfig
from official.conversion import converted_model, hdf5
from official.saving import model_folder
from official.tokenizers import word_characters
from official.tokenizers.word_characters import SPECIALS, Characters
from official.utils import atomic, json_files, paths, strict
from official.utils.errors import UserError, warn
from official.utils.paths import AnyPath

# File names of a release begin with the sizes of the model and end with these names.
OPTIONS, WEIGHTS = "options.json", "weights.hdf5"
_DIRECTIONS = ("forward", "backward")
# The number of characters in training; and in inference, where id 0 counts too.
_CHARACTERS = (261, 262)
_WORD = 50  # the number of characters of a word
# Fields of the config: {"section.name" of the options: field}; options with a default may be
# missing.
_FIELDS: dict[str, tuple[Any, ...]] = {
    "character_size": ("char_cnn", "embedding.dim"),
    "filters": ("char_cnn", "filters"),
    "highway_layers": ("char_cnn", "n_highway", 0),
    "activation": ("char_cnn", "activation"),
    "cell_size": ("lstm", "dim"),
    "projection_size": ("lstm", "projection_dim"),
    "num_layers": ("lstm", "n_layers"),
    "cell_clip": ("lstm", "cell_clip", 0.0),
    "projection_clip": ("lstm", "proj_clip", 0.0),
    "skip_connections": ("lstm", "use_skip_connections", False),
}


def read(
    folder: str | os.PathLike, vocabulary: str | os.PathLike | None = None
) -> converted_model.Converted:
    """Reads a folder with the files of a release.

    Args:
      folder: has one file whose name ends in `options.json` and one that ends in `weights.hdf5`.
      vocabulary: a file of one word per line, with `<S>`, `</S>` and `<UNK>` on any lines; a
        vocabulary without `<UNK>` gets it as its last word. None = `words.txt` of the folder if it
        exists, or else only these three words.

    Raises:
      UserError: a file is missing or damaged, or there are several; or the weights do not match the
        options: each data set that disagrees is named.
    """
    folder = paths.path(folder)
    options, weights = (_only(folder, ending) for ending in (OPTIONS, WEIGHTS))
    tokenizer = _tokenizer(folder, vocabulary)
    encoder = dataclasses.replace(read_options(options), vocab_size=tokenizer.vocab_size)
    config = configs.ResolvedConfig.of(
        configs.from_dict({"name": folder.resolve().name}), encoder=encoder
    )
    variables = read_weights(weights, encoder, model_folder.shapes(config))
    return converted_model.Converted(config, tokenizer, variables, ())


def write(model_dir: str | os.PathLike, output: str | os.PathLike, checkpoint: str) -> list[str]:
    """Writes the encoder of a model folder as `options.json`, `weights.hdf5` and `words.txt`.

    Returns:
      The names of the objectives, which the files cannot contain and which are left out.

    Raises:
      UserError: `model_dir` is not a model folder, or its encoder is not a `bilm` that reads
        characters; or `output` exists.
    """
    config, tokenizer, model = model_folder.restore(model_dir, checkpoint)
    if not isinstance(config.encoder, BilmConfig):
        raise UserError(
            f"{paths.path(model_dir) / model_folder.CONFIG}: encoder.type: {config.encoder.type}: "
            "--target=elmo supports only bilm: use --target=hf"
        )
    variables = {path: np.asarray(value) for path, value in model.variables_by_path().items()}
    with atomic.folder(output, OPTIONS) as temporary:
        write_release(config.encoder, variables, temporary)
        tokenizer.save(temporary)
    return [objective.type for objective in config.objectives]


def _only(folder: AnyPath, ending: str) -> AnyPath:
    """Returns the only file of a folder whose name has an ending."""
    matching: list[AnyPath] = sorted(folder.glob(f"*{ending}"))
    if len(matching) == 1:
        return matching[0]
    names = ", ".join(path.name for path in matching) or "none"
    raise UserError(
        f"{folder}: expected one file whose name ends in {ending}, found {names}: --input is a "
        "folder with the two files of one release"
    )


def _tokenizer(folder: AnyPath, vocabulary: str | os.PathLike | None) -> tokenizers.Tokenizer:
    """Returns the tokenizer of a vocabulary; that of a folder may have settings."""
    own = folder / Characters.FILE
    if vocabulary is None and own.exists():
        paths.check_file(own)
        return tokenizers.load(folder)  # refuses a folder with several vocabularies
    if vocabulary is None:
        return Characters(SPECIALS)
    path = paths.path(vocabulary)
    paths.check_file(path)
    words = word_characters.read_words(path)
    begin, end, unknown = SPECIALS
    if unknown not in words and begin in words and end in words:
        warn(f"{path} has no {unknown}: it becomes the last word, with the id {len(words):,}")
        words.append(unknown)
    return Characters(words, source=str(path))


def read_options(path: AnyPath) -> BilmConfig:
    """Reads an options file.

    Raises:
      UserError: the file is missing or not JSON, or an option is missing, has the wrong type or is
        not supported.
    """
    options = json_files.read(path)

    def option(section: str, name: str, default: Any = None) -> Any:
        value: Any = options
        *above, last = f"{section}.{name}".split(".")
        for i, key in enumerate(above):
            value = value.get(key, {})
            if not isinstance(value, dict):
                raise UserError(f"{path}: {'.'.join(above[: i + 1])}: expected an object")
        value = value.get(last)
        value = default if value is None else value
        if value is None:
            raise UserError(f"{path}: {section}.{name}: missing")
        return value

    characters = option("char_cnn", "n_characters")
    if characters not in _CHARACTERS:
        raise UserError(
            f"{path}: char_cnn.n_characters: {characters!r}, expected 261 (training) or 262 "
            "(inference, which counts the id 0)"
        )
    width = option("char_cnn", "max_characters_per_token")
    if width != _WORD:
        raise UserError(f"{path}: char_cnn.max_characters_per_token: {width!r}, expected {_WORD}")
    hints = typing.get_type_hints(BilmConfig)
    values = {
        field: strict.typed(hints[field], option(*key), ".".join(key[:2]), str(path))
        for field, key in _FIELDS.items()
    }
    try:
        return BilmConfig(**values)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None


def options_of(config: BilmConfig) -> dict[str, Any]:
    """Returns the options of an encoder, for inference.

    Raises:
      UserError: the encoder has a table of words.
    """
    if config.tokens != "characters":
        raise UserError("encoder.tokens: words: the files of ELMo support only characters")
    return {
        "lstm": {
            "dim": config.cell_size,
            "projection_dim": config.projection_size,
            "n_layers": config.num_layers,
            "cell_clip": config.cell_clip,
            "proj_clip": config.projection_clip,
            "use_skip_connections": config.skip_connections,
        },
        "char_cnn": {
            "embedding": {"dim": config.character_size},
            "filters": [list(pair) for pair in config.filters],
            "n_filters": sum(number for _, number in config.filters),
            "n_highway": config.highway_layers,
            "n_characters": _CHARACTERS[1],
            "max_characters_per_token": _WORD,
            "activation": config.activation,
        },
    }


def names(config: BilmConfig) -> Iterator[tuple[str, str]]:
    """Yields (path of a variable of the encoder, name of its data set)."""
    yield "encoder/words/table", "char_embed"
    for i, (width, _) in enumerate(config.filters):
        yield f"encoder/words/convolution_{width}/kernel", f"CNN/W_cnn_{i}"
        yield f"encoder/words/convolution_{width}/bias", f"CNN/b_cnn_{i}"
    for i in range(config.highway_layers):
        for ours, theirs in (("gate", "carry"), ("transform", "transform")):
            yield f"encoder/words/highway_{i}/{ours}/kernel", f"CNN_high_{i}/W_{theirs}"
            yield f"encoder/words/highway_{i}/{ours}/bias", f"CNN_high_{i}/b_{theirs}"
    yield "encoder/words/projection/kernel", "CNN_proj/W_proj"
    yield "encoder/words/projection/bias", "CNN_proj/b_proj"
    for number, direction in enumerate(_DIRECTIONS):
        for i in range(config.num_layers):
            cell = f"RNN_{number}/RNN/MultiRNNCell/Cell{i}/LSTMCell"
            yield f"encoder/{direction}_{i}/kernel", f"{cell}/W_0"
            yield f"encoder/{direction}_{i}/bias", f"{cell}/B"
            yield f"encoder/{direction}_{i}/projection", f"{cell}/W_P_0"


def read_weights(path: AnyPath, config: BilmConfig, shapes: Mapping[str, tuple[int, ...]]) -> dict:
    """Reads the weights of an encoder.

    Args:
      path: an HDF5 file.
      config: the config, as `read_options` returns it.
      shapes: the shapes of the variables, by path.

    Returns:
      The variables, by path.

    Raises:
      UserError: the file cannot be read, or its data sets or shapes differ; all differences are
        named.
    """
    # The release stores convolution kernels as 2D kernels of height 1.
    ours_of = {theirs: ours for ours, theirs in names(config)}
    expected = {
        theirs: (1, *shapes[ours]) if theirs.startswith("CNN/W_cnn") else tuple(shapes[ours])
        for theirs, ours in ours_of.items()
    }
    arrays = hdf5.read(path, expected, "these options")
    return {ours: arrays[theirs].reshape(shapes[ours]) for theirs, ours in ours_of.items()}


def write_release(config: BilmConfig, variables: Mapping[str, np.ndarray], folder: AnyPath) -> None:
    """Writes `options.json` and `weights.hdf5` into a folder.

    Raises:
      UserError: the encoder has a table of words.
    """
    options = options_of(config)
    (folder / OPTIONS).write_text(json.dumps(options, indent=1) + "\n")
    with h5py.File(folder / WEIGHTS, "w") as file:
        for ours, theirs in names(config):
            value = np.asarray(variables[ours], np.float32)
            file[theirs] = value[None] if theirs.startswith("CNN/W_cnn") else value
