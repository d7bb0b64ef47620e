"""A shard folder: read and verified, with its tokenizer, and compared with another."""

import os
import typing
from pathlib import Path

from official import config, tokenizers
from official.shards import manifest
from official.utils.errors import UserError


def read(folder: Path, split: str) -> manifest.Manifest:
    """Reads a manifest and verifies the shards of a split."""
    found = manifest.read(folder)
    _check_segments(found, folder / manifest.FILE)
    if found.kind == "tf_models":
        raise UserError(
            f"{folder} was written with --format=tf_models, for other programs to read: make the "
            "shards again without it"
        )
    if not any(shard.records for shard in found.split(split)):
        others = sorted({shard.split for shard in found.shards if shard.records})
        raise UserError(
            f"{folder} has no examples of a {split} split; it has {', '.join(others) or 'none'}"
        )
    problems = manifest.verify(folder, deep=True, split=split)
    if problems:
        more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
        raise UserError(
            f"{'; '.join(problems[:3])}{more}: copy the folder again from where it is whole, or "
            "make the shards again"
        )
    return found


def _check_segments(found: manifest.Manifest, path: Path) -> None:
    """Refuses segments in a manifest that are not of the types that the program wrote."""
    segments = found.config.get("segments") or {}
    if not isinstance(segments, dict):
        raise UserError(f"{path}: config.segments is no object: make the shards again")
    hints = typing.get_type_hints(config.Segments)
    for name in segments.keys() & hints.keys():
        config.typed(hints[name], segments[name], f"config.segments.{name}", str(path))


def check_alike(
    first: str | os.PathLike, a: manifest.Manifest, second: str | os.PathLike, b: manifest.Manifest
) -> None:
    """Refuses two folders whose examples cannot be in one batch."""
    for what, ours, theirs in (
        ("tokenizer", a.tokenizer_fingerprint, b.tokenizer_fingerprint),
        ("features", sorted(a.features), sorted(b.features)),
        ("static masks", a.config.get("corruption"), b.config.get("corruption")),
        ("labels", (a.task or {}).get("labels"), (b.task or {}).get("labels")),
    ):
        if ours != theirs:
            raise UserError(
                f"{first} and {second} cannot be read together: {what} {ours} in the first, "
                f"{theirs} in the second; make both in the same way"
            )


def load_tokenizer(folder: Path, found: manifest.Manifest) -> tokenizers.Tokenizer:
    """The tokenizer that the examples were made with, which lies in the folder."""
    path = folder / manifest.TOKENIZER_FOLDER
    tokenizer = tokenizers.load(path)
    if tokenizer.fingerprint != found.tokenizer_fingerprint:
        raise UserError(
            f"{path} is another tokenizer ({tokenizer.fingerprint[:16]}…) than the one that the "
            f"shards of {folder} were made with ({found.tokenizer_fingerprint[:16]}…): put that "
            "one back, or make the shards again"
        )
    return tokenizer
