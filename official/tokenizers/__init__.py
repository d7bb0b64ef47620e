"""Tokenizers: the same ids in Python and inside a graph, kept in folders of the usual file names.

`load(folder)` reads one: `vocab.txt` means WordPiece, `spiece.model` SentencePiece, `vocab.json`
(with `merges.txt`) byte-level BPE. Its
`encode(["some text"])` gives int32 arrays, its `tokenize(tf.constant(["some text"]))` the same ids
as a RaggedTensor, also in tf.function and tf.data; neither adds special tokens: packing does.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from official.tokenizers import base
from official.tokenizers.base import Tokenizer
from official.tokenizers.byte_bpe import MERGES_FILE, ByteBPE
from official.tokenizers.packing import arrange, pack, pack_arrays
from official.tokenizers.sentencepiece import SentencePiece
from official.tokenizers.wordpiece import WordPiece
from official.utils import files
from official.utils.errors import UserError

__all__ = [
    "KINDS",
    "ByteBPE",
    "SentencePiece",
    "Tokenizer",
    "WordPiece",
    "arrange",
    "load",
    "pack",
    "pack_arrays",
]

KINDS: dict[str, type[Tokenizer]] = {
    kind.FILE: kind for kind in (WordPiece, SentencePiece, ByteBPE)
}


def load(folder: str | os.PathLike, defaults: Mapping[str, Any] = {}) -> Tokenizer:
    """Reads the tokenizer in `folder`; which kind it is, its files tell.

    Args:
      folder: holds `vocab.txt`, `spiece.model` or `vocab.json` with `merges.txt`, and
        `tokenizer_config.json` where settings differ from what the vocabulary itself tells.
      defaults: settings that hold where that file does not have them.

    Raises:
      UserError: no such files, those of several kinds, files that cannot be used, or others than
        were saved.
    """
    folder = Path(folder)
    looked_for = (
        "vocab.txt (WordPiece), spiece.model (SentencePiece) or vocab.json with merges.txt "
        "(byte-level BPE)"
    )
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "is missing"
        raise UserError(f"tokenizer folder {folder} {what}: it should hold {looked_for}")
    found = [name for name in KINDS if (folder / name).is_file()]
    if not found:
        inner = any((folder / "tokenizer" / name).is_file() for name in KINDS)
        has = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
        raise UserError(
            f"{folder} holds no tokenizer: looked for {looked_for}, found {has}"
            + (f"; did you mean {folder / 'tokenizer'}?" if inner else "")
        )
    if len(found) > 1:
        raise UserError(f"{folder} holds both {' and '.join(found)}: remove what is not wanted")
    for name in (found[0], MERGES_FILE):
        if (folder / name).exists():
            files.check(folder / name)
    settings = {**defaults, **base.read_settings(folder)}
    made = KINDS[found[0]].read(folder / found[0], settings)
    base.check_fingerprint(made, settings, folder)
    return made
