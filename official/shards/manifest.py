"""The manifest of a shard folder: what is in it, how it was made, and whether it is still whole.

A TFRecord file that is empty, or cut between two records, reads without an error; the sizes and
checksums here are what catches it.
"""

import dataclasses
import hashlib
import json
import mmap
import os
import struct
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from official.shards.features import FEATURES
from official.tasks import SPLITS
from official.utils import atomic, json_files
from official.utils.errors import UserError

FILE = "manifest.json"
TOKENIZER_FOLDER = "tokenizer"
TOKEN_COUNTS_FILE = "token_counts.npy"
FORMAT_VERSION = 1
MAX_TOKENS = 1 << 20  # of a row
KINDS = ("pretraining", "task", "tf_models")


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of records.

    Attributes:
      name: file name within the folder.
      records: how many examples it holds.
      bytes: its size.
      sha256: its checksum, in hexadecimal.
      split: one of `official.tasks.SPLITS`.
    """

    name: str
    records: int
    bytes: int
    sha256: str
    split: str = "train"


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What `manifest.json` says.

    Attributes:
      kind: 'pretraining', 'task', or 'tf_models' (features of the TF Model Garden's loader).
      features: names of the features that every example has.
      tokenizer: SHA-256 of each tokenizer file, by name.
      tokenizer_fingerprint: SHA-256 over the files that decide ids.
      max_length: no example, and no row that several share, is longer than this, in tokens.
      seed: the seed that the examples were made with.
      config: the settings that they were made with, as plain values.
      task: name, kind, labels, columns and metrics of a task; None for pretraining.
      shards: the files, in the order that numbers their examples.
      totals: documents, sentences, tokens, examples, and `skipped`: {reason: count}.
      length_histogram: at place n the number of examples with n tokens.
      token_counts: SHA-256 of the file with the count of each piece in the corpus; "" = none.
      files: SHA-256 of other files that belong to the examples, by name.
      format_version: version of this file's format.
    """

    kind: str
    features: tuple[str, ...]
    tokenizer: Mapping[str, str]
    tokenizer_fingerprint: str
    max_length: int
    seed: int
    shards: tuple[Shard, ...]
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    task: Mapping[str, Any] | None = None
    totals: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    length_histogram: tuple[int, ...] = ()
    token_counts: str = ""
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    format_version: int = FORMAT_VERSION

    def split(self, name: str) -> tuple[Shard, ...]:
        """Returns the shards of a split, in order."""
        return tuple(shard for shard in self.shards if shard.split == name)


def write(folder: str | os.PathLike, manifest: Manifest) -> None:
    """Writes `manifest.json` into a shard folder."""
    with atomic.file(Path(folder) / FILE) as stream:
        json_files.dump(dataclasses.asdict(manifest), stream)


def read(folder: str | os.PathLike) -> Manifest:
    """Reads the manifest of a shard folder.

    Raises:
      UserError: no such folder or file, not JSON, another content than was written, another
        version, or entries that are missing, unknown or of the wrong type.
    """
    path = Path(folder) / FILE
    if not Path(folder).is_dir():
        raise UserError(f"{folder}: no such folder; name a folder that build_shards has made")
    values = json_files.read(
        path,
        f"{folder} is no shard folder, or no whole one; make it with tfrecords_tools.build_shards "
        "or build_task_shards",
    )
    version = values.get("format_version")
    if version != FORMAT_VERSION:
        raise UserError(
            f"{path} has format_version {version!r}, this program reads {FORMAT_VERSION}: "
            "make the shards again, or read them with the version that made them"
        )
    values = json_files.checked(values, path)
    shards = values.get("shards")
    if isinstance(shards, list):
        values["shards"] = [
            _build(Shard, entry, f"{path}: shard {i}") for i, entry in enumerate(shards)
        ]
    manifest = _build(Manifest, values, str(path))
    _check(manifest, path)
    return manifest


def fingerprint(manifests: Sequence[Manifest], split: str) -> str:
    """SHA-256 of what the batches of a split depend on, beside the config of the run.

    It holds the examples, their order and how rows are laid out, not where the folders are.

    Args:
      manifests: of the folders that are read together, in their order.
      split: that is read.
    """
    parts = []
    for found in manifests:
        segments = found.config.get("segments") or {}
        parts.append(
            {
                "shards": [(shard.records, shard.sha256) for shard in found.split(split)],
                "features": sorted(found.features),
                "tokenizer": found.tokenizer_fingerprint,
                "token_counts": found.token_counts,
                "max_length": found.max_length,
                "rows": segments.get("rows"),
                "packing": segments.get("packing", 1),
            }
        )
    return hashlib.sha256(json.dumps([split, parts], sort_keys=True).encode()).hexdigest()


def write_token_counts(folder: str | os.PathLike, counts: np.ndarray) -> str:
    """Writes how often each piece stands in the corpus, int64 [V].

    Returns:
      The file's SHA-256, for the manifest.
    """
    path = Path(folder) / TOKEN_COUNTS_FILE
    np.save(path, counts)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def token_counts(folder: str | os.PathLike, manifest: Manifest) -> np.ndarray | None:
    """Reads what `write_token_counts` wrote; None where the manifest names none.

    Raises:
      UserError: the file is missing, has changed, or holds something else than counts.
    """
    if not manifest.token_counts:
        return None
    path = Path(folder) / TOKEN_COUNTS_FILE
    if not path.is_file():
        raise UserError(f"{path} is missing: copy the folder again, or make the shards again")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != manifest.token_counts:
        raise UserError(
            f"{path} has changed since it was written: expected SHA-256 {manifest.token_counts}, "
            f"found {digest}: copy the folder again, or make the shards again"
        )
    try:
        counts = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise UserError(f"{path} holds no counts ({error}): make the shards again") from None
    if not isinstance(counts, np.ndarray) or (counts.dtype, counts.ndim) != (np.int64, 1):
        raise UserError(f"{path} holds no counts: int64 [V] are wanted; make the shards again")
    return np.array(counts)


def verify(folder: str | os.PathLike, deep: bool, split: str | None = None) -> list[str]:
    """Compares the shards of a folder with its manifest.

    Args:
      folder: a shard folder.
      deep: whether to read every byte (checksums and records), not sizes alone. The other files
        of the folder are then looked at as well.
      split: the only split to look at, or None for all.

    Returns:
      One sentence for each shard or file that is not as it was written: file, expected, found.

    Raises:
      UserError: the manifest itself cannot be read.
    """
    problems = []
    found = read(folder)
    for name, digest in found.files.items() if deep else ():
        if problem := file_problem(Path(folder) / name, digest):
            problems.append(problem)
    for shard in found.shards:
        if split is None or shard.split == split:
            problem = _problem(Path(folder) / shard.name, shard, deep)
            if problem:
                problems.append(problem)
    return problems


def file_problem(path: Path, sha256: str) -> str | None:
    """Says what is wrong with a file that belongs to the examples; None if nothing is."""
    if not path.is_file():
        return f"{path} is missing"
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != sha256:
        return f"{path} has changed since it was written: expected SHA-256 {sha256}, found {digest}"
    return None


def describe(path: str | os.PathLike, split: str = "train") -> Shard:
    """Returns the entry of a finished shard file, measured on the disk.

    Raises:
      UserError: the file is cut within a record.
    """
    records, size, digest = _measure(Path(path))
    if records is None:
        raise UserError(f"{path} ends within a record: write it again")
    return Shard(Path(path).name, records, size, digest, split)


def _problem(path: Path, shard: Shard, deep: bool) -> str | None:
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
    if digest != shard.sha256:
        return (
            f"{path} has changed since it was written: expected SHA-256 {shard.sha256}, "
            f"found {digest}"
        )
    if records != shard.records:
        found = "a cut record" if records is None else f"{records} records"
        return (
            f"{path} is at odds with its manifest: expected {shard.records} records, found {found}"
        )
    return None


def _measure(path: Path) -> tuple[int | None, int, str]:
    """Returns the records of a TFRecord file (None if the last one is cut), bytes and SHA-256."""
    size = path.stat().st_size
    if size == 0:
        return 0, 0, hashlib.sha256().hexdigest()
    with open(path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        digest = hashlib.sha256(data).hexdigest()
        records = place = 0
        while place + 12 <= size:  # a record: length (8 bytes), its CRC (4), content, its CRC (4)
            place += 16 + struct.unpack_from("<Q", data, place)[0]
            records += 1
        return (records if place == size else None), size, digest


def _build(kind: type, values: Any, where: str) -> Any:
    """Makes a dataclass of a JSON object, strictly."""
    if not isinstance(values, dict):
        raise UserError(f"{where} is no JSON object: make the shards again")
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for name in values.keys() - fields.keys():
        raise UserError(f"{where} has an unknown entry {name!r}: make the shards again")
    made = {}
    for name, field in fields.items():
        if name not in values:
            if (
                field.default is dataclasses.MISSING
                and field.default_factory is dataclasses.MISSING
            ):
                raise UserError(f"{where} lacks {name!r}: make the shards again")
            continue
        value = values[name]
        if isinstance(value, bool) or not isinstance(value, _JSON_TYPES[_origin(field.type)]):
            raise UserError(f"{where}: {name} is {value!r}, which is of the wrong type")
        made[name] = tuple(value) if isinstance(value, list) else value
    return kind(**made)


def _origin(annotation: Any) -> Any:
    return typing.get_origin(annotation) or annotation


_JSON_TYPES = {
    str: str,
    int: int,
    tuple: list,
    Mapping: dict,
    types.UnionType: (dict, types.NoneType),  # Mapping | None
}


def _check(manifest: Manifest, path: Path) -> None:
    if manifest.kind not in KINDS:
        raise UserError(f"{path}: kind {manifest.kind!r} is none of {', '.join(KINDS)}")
    if manifest.kind != "tf_models":
        for name in manifest.features:
            if name not in FEATURES:
                raise UserError(
                    f"{path}: feature {name!r} is unknown to this program; it knows "
                    f"{', '.join(FEATURES)}"
                )
    if not 1 <= manifest.max_length <= MAX_TOKENS:
        raise UserError(f"{path}: max_length: {manifest.max_length} is not from 1 to {MAX_TOKENS}")
    for name in manifest.files:
        if Path(name).name != name:
            raise UserError(f"{path}: file name {name!r} is no plain file name")
    for shard in manifest.shards:
        if Path(shard.name).name != shard.name:
            raise UserError(f"{path}: shard name {shard.name!r} is no plain file name")
        if shard.split not in SPLITS:
            raise UserError(f"{path}: split {shard.split!r} is none of {', '.join(SPLITS)}")
