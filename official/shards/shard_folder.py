"""Opens shard folders: checks them, loads their tokenizer, and compares two folders.

TensorFlow reads a TFRecord file that is empty, or cut between two records, without an error. The
sizes and checksums of the manifest show such damage.
"""

import mmap
import os
import struct
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from official import config as configs
from official.shards import manifest
from official.tasks import Description
from official.utils import checksums, input_files, paths, strict
from official.utils.errors import UserError
from official.utils.paths import AnyPath

if TYPE_CHECKING:
    from official import tokenizers

_AT_ONCE = 16  # shards


def read(folder: AnyPath, split: str) -> manifest.Manifest:
    """Reads the manifest of a folder.

    Raises:
      UserError: the folder has no examples of the split.
    """
    content = manifest.read(folder)
    if content.kind == "tf_models":
        raise UserError(
            f"{folder} was written with --format=tf_models, for other programs to read: make the "
            "shards again without it"
        )
    if not any(shard.records for shard in content.split(split)):
        others = sorted({shard.split for shard in content.shards if shard.records})
        raise UserError(
            f"{folder} has no examples of a {split} split; it has {', '.join(others) or 'none'}"
        )
    return content


def refuse(model_dir: AnyPath) -> None:
    """Raises UserError if the folder for a new model is a shard folder."""
    if (model_dir / manifest.FILE).exists():
        raise UserError(
            f"--model_dir: {model_dir} has shards ({manifest.FILE}): name another folder, or a new "
            "one"
        )


def verify(folder: AnyPath, split: str, deep: bool) -> None:
    """Compares the shards of a split with the manifest.

    Args:
      folder: a shard folder.
      split: the split.
      deep: whether to compare every byte; if not, only sizes are compared.

    Raises:
      UserError: a shard is missing or has changed.
    """
    if changed := problems(folder, deep, split):
        more = f" (and {len(changed) - 3} more)" if len(changed) > 3 else ""
        raise UserError(
            f"{'; '.join(changed[:3])}{more}: copy the folder again from where it is whole, or "
            "make the shards again"
        )


def check_alike(
    first: str | os.PathLike, a: manifest.Manifest, second: str | os.PathLike, b: manifest.Manifest
) -> None:
    """Raises UserError if the examples of two folders cannot be in one batch."""
    for what, ours, theirs in (
        ("tokenizer", a.tokenizer_fingerprint, b.tokenizer_fingerprint),
        ("features", sorted(a.features), sorted(b.features)),
        ("static masks", strict.to_dict(a.corruption), strict.to_dict(b.corruption)),
        ("labels", _labels(a), _labels(b)),
        ("windows", _windows(a), _windows(b)),
    ):
        if ours != theirs:
            raise UserError(
                f"{first} and {second} cannot be read together: {what} {ours} in the first, "
                f"{theirs} in the second; make both in the same way"
            )


def _labels(content: manifest.Manifest) -> list[str] | None:
    """Returns the labels of the task of a folder; None if it has no task."""
    return list(content.task.labels) if isinstance(content.task, Description) else None


def _windows(content: manifest.Manifest) -> int | None:
    """Returns the largest number of windows of a text; None = it is cut."""
    return content.task.windows if isinstance(content.task, Description) else None


def check_batch(folder: str, rows: int, batch_size: int, training: bool) -> None:
    """Checks that a batch has as many rows as the stream.

    Raises:
      UserError: it has more or fewer rows.
    """
    if batch_size != rows:
        key = "recipe.batch_size" if training else "recipe.eval_batch_size"
        raise UserError(
            f"{folder} is a stream of {rows} rows, and the batch has {batch_size}: its rows "
            f"continue from batch to batch, so give --override={key}={rows}, or make the shards "
            f"again with --override=segments.rows={batch_size}"
        )


def check_memory(folder: str, config: configs.Config, content: manifest.Manifest) -> None:
    """Checks that the shards can fill the encoder's memory.

    Raises:
      UserError: `encoder.memory_length` is longer than the longest text before a row.
    """
    if config.encoder is None or config.segments is None:
        return
    memory = config.encoder.memory_length
    totals = content.totals
    longest = totals.longest_memory if isinstance(totals, manifest.PretrainingTotals) else None
    longest = longest or 0
    if memory > longest:
        raise UserError(
            f"{folder}: encoder.memory_length: {memory}, and the longest text that a row continues "
            f"has {longest} tokens: lower it to {longest}, or make shards of fewer rows or "
            "of more text"
        )


def load_tokenizer(folder: AnyPath, content: manifest.Manifest) -> "tokenizers.Tokenizer":
    """Loads the tokenizer in the folder, and checks that the examples were made with it."""
    from official import tokenizers  # It imports TensorFlow, which the other functions do not need.

    path = folder / manifest.TOKENIZER_FOLDER
    tokenizer = tokenizers.load(path)
    if tokenizer.fingerprint != content.tokenizer_fingerprint:
        raise UserError(
            f"{path} is another tokenizer ({tokenizer.fingerprint[:16]}…) than the one that the "
            f"shards of {folder} were made with ({content.tokenizer_fingerprint[:16]}…): put that "
            "one back, or make the shards again"
        )
    return tokenizer


def problems(folder: str | os.PathLike, deep: bool, split: str | None = None) -> list[str]:
    """Compares the shards of a folder with its manifest.

    Args:
      folder: a shard folder.
      deep: whether to read every byte and to check the other files of the folder as well. If it is
        False, only the sizes of the shards are compared.
      split: the only split to check; None = all splits.

    Returns:
      One sentence for each file that has changed: the file, what is expected and what is there.

    Raises:
      UserError: the manifest itself cannot be read.
    """
    content = manifest.read(folder)
    found = []
    if deep:
        for name, recorded in content.files.items():
            found.append(checksums.problem(paths.path(folder) / name, recorded))
    shards = content.shards if split is None else content.split(split)
    # A remote file system is slow even when it is only asked for sizes.
    at_once = _AT_ONCE if paths.is_remote(folder) and not deep else 1
    with ThreadPoolExecutor(at_once) as pool:
        found += pool.map(
            lambda shard: _shard_problem(paths.path(folder) / shard.name, shard, deep), shards
        )
    return [problem for problem in found if problem]


def describe(path: str | os.PathLike, split: str = "train") -> manifest.Shard:
    """Returns the manifest's entry of a finished shard file, measured on the disk.

    Raises:
      UserError: the file ends within a record.
    """
    records, size, digest = _measure(paths.path(path))
    if records is None:
        raise UserError(f"{path} ends within a record: write it again")
    return manifest.Shard(paths.path(path).name, records, size, digest, split)


def _shard_problem(path: AnyPath, shard: manifest.Shard, deep: bool) -> str | None:
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return f"{path} is missing: expected {shard.bytes} bytes"
    if size != shard.bytes:
        kind = "empty" if size == 0 else "cut" if size < shard.bytes else "longer than written"
        return f"{path} is {kind}: expected {shard.bytes} bytes, found {size}"
    if not deep:
        return None
    records, _, digest = _measure(path)
    if changed := checksums.difference(path, shard.sha256, digest):
        return changed
    if records != shard.records:
        found = "a cut record" if records is None else f"{records} records"
        return (
            f"{path} does not match its manifest: expected {shard.records} records, found {found}"
        )
    return None


def _measure(path: AnyPath) -> tuple[int | None, int, str]:
    """Returns the number of records, the bytes and the SHA-256 of a TFRecord file, in one read.

    The number of records is None if the last one is cut.
    """
    size = path.stat().st_size
    if size == 0:
        return 0, 0, checksums.hash_bytes(b"")
    with (
        paths.local_copy(path) as file,
        open(file, "rb") as stream,
        mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        return _count(data), size, checksums.hash_bytes(data)


def _count(data: mmap.mmap) -> int | None:
    """Returns the number of records in a file; None if the record lengths do not fit the file."""
    records = position = 0
    while position + 12 <= len(data):  # a record: length (8 bytes), its CRC (4), content, its CRC
        position += 16 + struct.unpack_from("<Q", data, position)[0]
        records += 1
    return records if position == len(data) else None


def check_lengths(path: AnyPath) -> None:
    """Compares the lengths of the records of a local TFRecord file with the file.

    TensorFlow trusts the length of a record, and a damaged one that exceeds the memory may end the
    process.

    Raises:
      UserError: a record ends beyond the file, or there is no such file.
    """
    with input_files.opened(path) as stream:
        if not os.fstat(stream.fileno()).st_size:
            return
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if _count(data) is None:
                raise UserError(
                    f"{path}: a record ends beyond the file: copy the folder again from where it "
                    "is whole, or make the shards again"
                )
