"""Gives a model the rows of a larger vocabulary."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from official import config as configs
from official.saving import model_folder


def grow(
    config: configs.Config,
    variables: Mapping[str, np.ndarray],
    pieces: int,
    rows: Mapping[int, Sequence[int]],
) -> tuple[configs.Config, dict[str, np.ndarray]]:
    """Grows what has a row for each piece: tables, output biases, and other heads.

    A new row is the mean of the rows of its old pieces.

    Args:
      config: the config of the model.
      variables: its variables by path.
      pieces: the number of pieces of the new tokenizer.
      rows: {id of a new piece: ids of the old pieces that spell it}.

    Returns:
      The new config, and the variables. All old rows are as they were, except those of
      `[unusedN]`.
    """
    old_size = config.encoder.vocab_size

    def sized(size: int) -> configs.Config:
        return dataclasses.replace(
            config, encoder=dataclasses.replace(config.encoder, vocab_size=size)
        )

    # What grows with the vocabulary has a row for each piece.
    shapes, larger = model_folder.shapes(config), model_folder.shapes(sized(old_size + 1))
    size = max(old_size, pieces)
    result = {}
    for path, array in variables.items():
        for axis, count in enumerate(shapes[path]):
            if larger[path][axis] == count:
                continue
            old = np.moveaxis(array, axis, 0)
            new = np.zeros((size, *old.shape[1:]), old.dtype)
            new[:old_size] = old
            for number, spelled in rows.items():
                new[number] = old[list(spelled)].mean(axis=0, dtype=np.float64)
            array = np.ascontiguousarray(np.moveaxis(new, 0, axis))
        result[path] = array
    return sized(size), result
