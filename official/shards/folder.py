"""A shard folder: read and verified, with its tokenizer, and compared with another."""

import os
from pathlib import Path

from official import tokenizers
from official.shards import integrity, manifest
from official.utils import strict
from official.utils.errors import UserError


def read(folder: Path, split: str) -> manifest.Manifest:
    """Reads a manifest and verifies the shards of a split."""
    found = manifest.read(folder)
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
    problems = integrity.verify(folder, deep=True, split=split)
    if problems:
        more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
        raise UserError(
            f"{'; '.join(problems[:3])}{more}: copy the folder again from where it is whole, or "
            "make the shards again"
        )
    return found


def check_alike(
    first: str | os.PathLike, a: manifest.Manifest, second: str | os.PathLike, b: manifest.Manifest
) -> None:
    """Refuses two folders whose examples cannot be in one batch."""
    for what, ours, theirs in (
        ("tokenizer", a.tokenizer_fingerprint, b.tokenizer_fingerprint),
        ("features", sorted(a.features), sorted(b.features)),
        ("static masks", strict.to_dict(a.corruption), strict.to_dict(b.corruption)),
        ("labels", *(list(m.task.labels) if m.task else None for m in (a, b))),
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
