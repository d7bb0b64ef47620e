"""ELMo's released files: `options.json` and `weights.hdf5`, in and out.

The files have the encoder alone: no output of the language model, and no vocabulary.

Shapes: C cells, P projection.
"""

import json
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import h5py
import numpy as np

from official.config.bilm import BilmConfig
from official.convert import hdf5
from official.utils import json_files, strict
from official.utils.errors import UserError
from official.utils.paths import AnyPath

OPTIONS, WEIGHTS = "options.json", "weights.hdf5"
_DIRECTIONS = ("forward", "backward")
# The table of characters of training, and of inference, which counts the id 0.
_CHARACTERS = (261, 262)
_WORD = 50


# The fields of the config by section and name in the options; those with a default may be missing.
_FIELDS = {
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


def read_options(path: AnyPath) -> BilmConfig:
    """Reads an options file.

    Raises:
      UserError: the file is missing or no JSON, or an option is missing, of another type or not
        supported.
    """
    options = json_files.read(path)

    def option(section: str, name: str, default: Any = None) -> Any:
        found: Any = options
        *above, last = f"{section}.{name}".split(".")
        for i, key in enumerate(above):
            found = found.get(key, {})
            if not isinstance(found, dict):
                raise UserError(f"{path}: {'.'.join(above[: i + 1])}: expected an object")
        found = found.get(last)
        found = default if found is None else found
        if found is None:
            raise UserError(f"{path}: {section}.{name}: missing")
        return found

    characters = option("char_cnn", "n_characters")
    if characters not in _CHARACTERS:
        raise UserError(
            f"{path}: char_cnn.n_characters: {characters!r}, expected 261 (training) or 262 (then "
            "0 is counted)"
        )
    width = option("char_cnn", "max_characters_per_token")
    if width != _WORD:
        raise UserError(f"{path}: char_cnn.max_characters_per_token: {width!r}, expected {_WORD}")
    hints = typing.get_type_hints(BilmConfig)
    values = {
        field: strict.typed(hints[field], option(*place), ".".join(place[:2]), str(path))
        for field, place in _FIELDS.items()
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
        raise UserError("encoder.tokens: words: the files of ELMo have characters alone")
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
    """Yields the path of each variable of the encoder with the name of its data set."""
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
      UserError: the file cannot be read, or has other data sets or shapes; all are named.
    """
    # The release's kernels of convolutions are those of images of one line.
    ours_of = {theirs: ours for ours, theirs in names(config)}
    expected = {
        theirs: (1, *shapes[ours]) if theirs.startswith("CNN/W_cnn") else tuple(shapes[ours])
        for theirs, ours in ours_of.items()
    }
    found = hdf5.read(path, expected, "these options")
    return {ours: found[theirs].reshape(shapes[ours]) for theirs, ours in ours_of.items()}


def write(config: BilmConfig, variables: Mapping[str, np.ndarray], folder: AnyPath) -> None:
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
