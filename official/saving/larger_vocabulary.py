"""Gives a model the rows of another vocabulary."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from official import config as configs
from official import tokenizers
from official.saving import model_folder
from official.tokenizers import extension


def with_rows(
    config: configs.Config,
    variables: Mapping[str, np.ndarray],
    sources: Sequence[Sequence[int]],
) -> tuple[configs.Config, dict[str, np.ndarray]]:
    """Changes what has a row for each piece: tables, output biases, and other heads.

    Args:
      config: the config of the model.
      variables: its variables by path.
      sources: for each row of the result, the old rows whose mean it is.

    Returns:
      The new config, and the variables.
    """
    old_size = config.encoder.vocab_size

    def sized(size: int) -> configs.Config:
        return dataclasses.replace(
            config, encoder=dataclasses.replace(config.encoder, vocab_size=size)
        )

    # What grows with the vocabulary has a row for each piece.
    shapes, larger = model_folder.shapes(config), model_folder.shapes(sized(old_size + 1))
    first = np.array([source[0] for source in sources])
    means = {i: list(source) for i, source in enumerate(sources) if len(source) > 1}
    result = {}
    for path, array in variables.items():
        for axis, count in enumerate(shapes[path]):
            if larger[path][axis] == count:
                continue
            old = np.moveaxis(array, axis, 0)
            new = old[first]
            for i, source in means.items():
                new[i] = old[source].mean(axis=0, dtype=np.float64)
            array = np.ascontiguousarray(np.moveaxis(new, 0, axis))
        result[path] = array
    return sized(len(sources)), result


def for_tokenizer(
    config: configs.Config,
    variables: Mapping[str, np.ndarray],
    old: tokenizers.Tokenizer,
    new: tokenizers.Tokenizer,
    size: int,
) -> dict[str, np.ndarray]:
    """Gives each piece of a larger vocabulary its row: the known ones keep theirs.

    A new piece gets the mean of the rows of the old pieces that spell it.

    Args:
      config: the config of the model.
      variables: its variables by path.
      old: the tokenizer of the model.
      new: the larger tokenizer, which may have other ids.
      size: the number of rows, at least those of `new`; rows behind it stay as they are.

    Returns:
      The variables.
    """
    behind = [[i] for i in range(new.vocab_size, size)]
    return with_rows(config, variables, [*extension.spelled_by(old, new), *behind])[1]


def grown(size: int, pieces: int, rows: Mapping[int, Sequence[int]]) -> list[Sequence[int]]:
    """Returns the sources of a table that keeps its rows.

    Args:
      size: the number of old rows.
      pieces: the number of pieces of the new tokenizer.
      rows: {id of a new piece: ids of the old pieces that spell it}.
    """
    return [rows.get(i, (i,)) for i in range(max(size, pieces))]
