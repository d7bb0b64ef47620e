"""Files that fsspec opens, as local ones that TensorFlow reads."""

import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO

import numpy as np
import tensorflow as tf

from official.utils import atomic, gfile, paths
from official.utils.errors import UserError

_BUFFER = 1 << 20  # bytes


def needed(files: Iterable[str]) -> bool:
    """Returns whether TensorFlow cannot open one of the files itself."""
    return any(gfile.by_fsspec(file) for file in files)


def names(files: Sequence[str] | tf.Tensor, fetched: bool) -> tf.data.Dataset:
    """Returns the names that TensorFlow reads files by: string [], one after another.

    A file that is fetched has a name until the next one is asked for, or until the iterator is
    gone. The next one is fetched meanwhile, so that two files are in `TMPDIR`, where nothing is
    left of a process that is killed.

    Args:
      files: paths, string [n].
      fetched: what `needed` says of them.
    """
    if not fetched:
        return tf.data.Dataset.from_tensor_slices(files)
    name = tf.TensorSpec([], tf.string)
    return tf.data.Dataset.from_generator(_fetch, output_signature=name, args=(files,))


def records(files: Sequence[str]) -> tf.data.Dataset:
    """Returns the records of TFRecord files, string [], one after another."""
    if not needed(files):
        return tf.data.TFRecordDataset(files)
    return names(files, fetched=True).flat_map(tf.data.TFRecordDataset)


def problem(error: tf.errors.OpError) -> str | None:
    """Returns why a file cannot be fetched, in words; None if the error has another reason."""
    found = re.search(r"UserError: (.*)", error.message)
    return found[1] if found else None


def _fetch(files: np.ndarray) -> Iterator[str]:
    """Yields names of files; see `names`."""
    with ThreadPoolExecutor(1) as pool:
        rest = [pool.submit(_copied, files[0].decode())] if len(files) else []
        for number in range(len(files)):
            with rest.pop().result() as local:
                if number + 1 < len(files):
                    rest.append(pool.submit(_copied, files[number + 1].decode()))
                yield f"/dev/fd/{local.fileno()}"


def _copied(file: str) -> IO[bytes]:
    """Returns a local file that has no name, with the content of a file.

    Raises:
      UserError: the file cannot be read, or there is no room for it.
    """
    path = paths.path(file)
    local = tempfile.TemporaryFile()
    try:
        with atomic.disk_errors(path), path.open("rb") as source:
            shutil.copyfileobj(source, local, _BUFFER)
            local.flush()
    except FileNotFoundError as error:
        local.close()
        raise UserError(f"{file} was removed while it was read") from error
    except BaseException:
        local.close()
        raise
    return local
