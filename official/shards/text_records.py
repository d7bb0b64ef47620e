"""Files of JSON Lines beside the shards of a task: the texts that scores and predictions need."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from official.shards import manifest
from official.utils import checksums, paths
from official.utils.errors import UserError


def write(
    folder: str | os.PathLike, name: str, records: Iterable[Mapping[str, Any]]
) -> dict[str, str]:
    """Writes one record per line, in their order.

    Returns:
      The SHA-256 of the file by its name, for `files` of the manifest.
    """
    with (paths.path(folder) / name).open("wb") as stream:
        for record in records:
            stream.write(f"{json.dumps(record, ensure_ascii=False)}\n".encode())
    return {name: checksums.hash_file(paths.path(folder) / name)}


def read(
    folder: str | os.PathLike, name: str, content: manifest.Manifest, advice: str
) -> Iterator[dict[str, Any]]:
    """Yields the records of a file.

    Args:
      folder: the shard folder.
      name: the name of the file.
      content: the manifest of the folder.
      advice: what the message about a missing file says of the shards.

    Raises:
      UserError: the file is missing or has changed.
    """
    if name not in content.files:
        raise UserError(f"{folder} has no {name}: its shards are not those of {advice}")
    path = paths.path(folder) / name
    checksums.check(path, content.files[name], manifest.ADVICE)
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            yield json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}:{number}: not JSON ({error}): {manifest.ADVICE}") from None
