"""ELMo's released files: `options.json` and `weights.hdf5`, in and out.

The files have the encoder alone: no output of the language model, and no vocabulary.

Shapes: C cells, P projection.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import h5py
import numpy as np

from official.config.bilm import BilmConfig
from official.utils import json_files, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

OPTIONS, WEIGHTS = "options.json", "weights.hdf5"
_DIRECTIONS = ("forward", "backward")
# The table of characters of training, and of inference, which counts the id 0.
_CHARACTERS = (261, 262)
_WORD = 50


def read_options(path: AnyPath) -> BilmConfig:
    """Reads an options file.

    Raises:
      UserError: the file is missing or no JSON, or an option is missing or not supported.
    """
    options = json_files.read(path)

    def option(section: str, name: str, default: Any = None) -> Any:
        found = options.get(section, {}).get(name, default)
        if found is None:
            raise UserError(f"{path}: {section}.{name}: missing")
        return found

    network = options.get("char_cnn", {})
    characters = option("char_cnn", "n_characters")
    if characters not in _CHARACTERS:
        raise UserError(
            f"{path}: char_cnn.n_characters: {characters}, expected 261 (training) or 262 (then 0 "
            "is counted)"
        )
    if option("char_cnn", "max_characters_per_token") != _WORD:
        raise UserError(
            f"{path}: char_cnn.max_characters_per_token: "
            f"{network['max_characters_per_token']}, expected {_WORD}"
        )
    try:
        return BilmConfig(
            character_size=option("char_cnn", "embedding", {}).get("dim"),
            filters=option("char_cnn", "filters"),
            highway_layers=option("char_cnn", "n_highway", 0),
            activation=option("char_cnn", "activation"),
            cell_size=option("lstm", "dim"),
            projection_size=option("lstm", "projection_dim"),
            num_layers=option("lstm", "n_layers"),
            cell_clip=float(option("lstm", "cell_clip", 0.0)),
            projection_clip=float(option("lstm", "proj_clip", 0.0)),
            skip_connections=bool(option("lstm", "use_skip_connections", False)),
        )
    except (TypeError, ValueError) as error:
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
    try:
        with paths.local_copy(path) as local, h5py.File(local) as file:
            found = {}
            file.visititems(
                lambda name, item: (
                    found.update({name: np.asarray(item)})
                    if isinstance(item, h5py.Dataset)
                    else None
                )
            )
    except OSError as error:
        raise UserError(f"{path}: not an HDF5 file that can be read ({error})") from None
    variables, wrong = {}, []
    for ours, theirs in names(config):
        value = found.pop(theirs, None)
        shape = tuple(shapes[ours])
        # The release's kernels are those of images of one line.
        expected = (1, *shape) if theirs.startswith("CNN/W_cnn") else shape
        if value is None:
            wrong.append(f"{theirs}: missing")
        elif value.shape != expected:
            wrong.append(f"{theirs}: shape {list(value.shape)}, the options say {list(expected)}")
        else:
            variables[ours] = value.reshape(shape).astype(np.float32)
    wrong += [f"{name}: the options do not have it" for name in sorted(found)]
    if wrong:
        raise UserError("\n".join([f"{path}: does not belong to these options:", *wrong]))
    return variables


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
