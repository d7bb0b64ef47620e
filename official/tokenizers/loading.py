"""Reads the tokenizer of a folder, whose files determine its kind."""

import os
from collections.abc import Mapping
from typing import Any

from official.tokenizers import added_tokens, file_formats, tokenizer_json
from official.tokenizers.base import Tokenizer
from official.tokenizers.byte_bpe import ByteBPE
from official.tokenizers.byte_vocabulary import MERGES_FILE
from official.tokenizers.sentencepiece import SentencePiece
from official.tokenizers.word_characters import Characters
from official.tokenizers.wordpiece import WordPiece
from official.utils import atomic, paths
from official.utils.errors import UserError

JSON_FILE = tokenizer_json.FILE
KINDS: dict[str, type[Tokenizer]] = {
    kind.FILE: kind for kind in (WordPiece, SentencePiece, ByteBPE, Characters)
}


def load(folder: str | os.PathLike, defaults: Mapping[str, Any] = {}) -> Tokenizer:
    """Reads the tokenizer in a folder, whose files determine its kind.

    Args:
      folder: contains `vocab.txt`, `spiece.model`, `vocab.json` with `merges.txt`, or `words.txt`;
        or `tokenizer.json`, which is read if there is none of these. It may contain
        `tokenizer_config.json`, if settings differ from those that follow from the vocabulary, and
        lists of added tokens.
      defaults: settings that apply if that file does not have them.

    Raises:
      UserError: there are no such files or those of several kinds, or the files are not valid or
        not those that were saved.
    """
    folder = paths.path(folder)
    atomic.check_complete(folder, file_formats.SETTINGS_FILE)
    looked_for = (
        "vocab.txt (WordPiece), spiece.model (SentencePiece), vocab.json with merges.txt "
        "(byte-level BPE), words.txt (characters) or tokenizer.json"
    )
    names = [name for name in KINDS if (folder / name).is_file()]
    described = folder / tokenizer_json.FILE
    if not names and described.is_file():
        settings = _settings(folder, defaults)
        settings[added_tokens.LISTED] = added_tokens.read(folder, settings)
        paths.check_file(described)
        return tokenizer_json.read(described, settings)
    if not names and not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "is missing"
        raise UserError(f"tokenizer folder {folder} {what}: it should hold {looked_for}")
    if not names:
        inner = any((folder / "tokenizer" / name).is_file() for name in KINDS)
        has = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
        raise UserError(
            f"{folder} holds no tokenizer: looked for {looked_for}, found {has}"
            + (f"; did you mean {folder / 'tokenizer'}?" if inner else "")
        )
    if len(names) > 1:
        raise UserError(f"{folder} holds both {' and '.join(names)}: remove the files of the other")
    for name in (names[0], MERGES_FILE):
        if (folder / name).exists():
            paths.check_file(folder / name)
    settings = _settings(folder, defaults)
    settings[added_tokens.LISTED] = added_tokens.read(folder, settings)
    tokenizer = KINDS[names[0]].read(folder / names[0], settings)
    file_formats.check_fingerprint(tokenizer.fingerprint, settings, folder)
    return tokenizer


def _settings(folder: paths.AnyPath, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a folder; a key that is null there has its default."""
    given = file_formats.read_settings(folder)
    return {
        **given,
        **defaults,
        **{key: value for key, value in given.items() if value is not None},
    }
