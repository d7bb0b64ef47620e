"""Writes stored vectors again with smaller numbers, without the model and the texts."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from official.serving.vectors import stored
from official.serving.vectors.indexes import KINDS, dense
from official.serving.vectors.stored import FILE, Stored
from official.utils import atomic, paths
from official.utils.batched import batched
from official.utils.errors import UserError


def write(folder: str | os.PathLike, output: str | os.PathLike, dtype: str) -> dict[str, Any]:
    """Writes the folder that `--mode=embed --pieces=npy` writes with another `--dtype`.

    A block of vectors is in memory at a time. The new folder appears when it is whole.

    Args:
      folder: vectors in float32.
      output: the new folder.
      dtype: the type of its numbers.

    Returns:
      The manifest of the new folder.

    Raises:
      UserError: the folder is damaged, its vectors are no float32 or of a kind that has no smaller
        numbers, or there is something at `output`.
    """
    source = Stored(folder)
    if source.manifest["dtype"] != "float32":
        raise UserError(
            f"{source.folder}: its numbers are {source.manifest['dtype']}: name the folder of "
            "float32 that they were made of, or embed the texts again"
        )
    plan = {**source.manifest, "dtype": dtype, "scale": None, "first_piece": 0}
    kind = KINDS[plan["kind"]]
    kind(plan)  # which refuses what does not go together
    source.check()
    if dtype == "int8":
        plan["scale"] = dense.scale_of(np.concatenate(source.index.documents(0, dense.SAMPLE)))
    start, pieces, index = 0, plan.pop("pieces"), kind(plan)

    def blocks(number: int) -> Iterator[tuple[list[str], Any]]:
        nonlocal start
        for ids in batched(stored.ids_of_piece(source.folder, number), dense.TOKENS_BLOCK):
            yield ids, source.index.documents(start, start + len(ids))
            start += len(ids)

    with atomic.folder(paths.path(output), FILE) as place:
        for number in range(pieces):
            stored.write_piece(place, number, index, blocks(number))
        stored.write_manifest(place, plan, pieces, None)
        return stored.read_manifest(place)
