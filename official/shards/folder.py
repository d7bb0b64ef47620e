"""Opens shard folders: verifies them, loads their tokenizer, and compares two folders."""

import os

from official import tokenizers
from official.shards import integrity, manifest
from official.utils import strict
from official.utils.errors import UserError
from official.utils.paths import AnyPath


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
    """Raises UserError if the folder of a model to be is one of shards."""
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
    if changed := integrity.verify(folder, deep, split):
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
        ("labels", *(list(m.task.labels) if m.task else None for m in (a, b))),
    ):
        if ours != theirs:
            raise UserError(
                f"{first} and {second} cannot be read together: {what} {ours} in the first, "
                f"{theirs} in the second; make both in the same way"
            )


def load_tokenizer(folder: AnyPath, content: manifest.Manifest) -> tokenizers.Tokenizer:
    """Loads the tokenizer in the folder, and checks that the examples were made with it."""
    path = folder / manifest.TOKENIZER_FOLDER
    tokenizer = tokenizers.load(path)
    if tokenizer.fingerprint != content.tokenizer_fingerprint:
        raise UserError(
            f"{path} is another tokenizer ({tokenizer.fingerprint[:16]}…) than the one that the "
            f"shards of {folder} were made with ({content.tokenizer_fingerprint[:16]}…): put that "
            "one back, or make the shards again"
        )
    return tokenizer
