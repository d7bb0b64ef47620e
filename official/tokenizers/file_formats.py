"""The files that several tokenizers have: settings, and vocabularies with one piece per line.

`tokenizer_config.json` has the keys of transformers, among them the names of the special tokens,
and the fingerprint of the tokenizer.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from official.utils import json_files, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

SETTINGS_FILE = "tokenizer_config.json"
# The setting of the length, in tokens, to which the tool that wrote a tokenizer cuts texts.
MAX_TOKENS = "max_tokens"
_Default = TypeVar("_Default", bool, None)
# The key of the fingerprint. `check_fingerprint` compares it to find damaged files, and folders in
# which only one of several files was changed.
FINGERPRINT = "fingerprint"
# Key of the settings file -> names of the special token that are tried if it is not set.
SPECIALS = {
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "cls_token": ("[CLS]", "<cls>"),
    "sep_token": ("[SEP]", "<sep>"),
    "mask_token": ("[MASK]", "<mask>"),
}


def read_settings(folder: AnyPath) -> dict[str, Any]:
    """Reads `tokenizer_config.json`; returns an empty dict if there is no such file.

    Raises:
      UserError: it is not a JSON object, or a special token in it is not a string.
    """
    path = folder / SETTINGS_FILE
    if not path.exists():
        return {}
    settings = json_files.read(path)
    for key in SPECIALS:
        name = settings.get(key)
        name = name.get("content") if isinstance(name, dict) else name
        if not isinstance(name, str | None):
            raise UserError(f"{path}: {key} is {name!r}, but must be the text of a token")
        settings[key] = name
    return settings


def check_fingerprint(fingerprint: str, settings: dict[str, Any], folder: AnyPath) -> None:
    """Checks that a tokenizer is the one that was saved; does nothing without a fingerprint.

    Raises:
      UserError: the fingerprint in the settings is not that of the tokenizer.
    """
    if settings.get(FINGERPRINT, fingerprint) != fingerprint:
        raise UserError(
            f"{folder}: these are not the files that were saved: their fingerprint is "
            f"{fingerprint[:16]}…, but {SETTINGS_FILE} has {str(settings[FINGERPRINT])[:16]}…. "
            f"Copy the folder again; if it was changed on purpose, remove {FINGERPRINT!r} from "
            f"{SETTINGS_FILE}"
        )


def switch(settings: dict[str, Any], key: str, default: _Default) -> bool | _Default:
    """Returns a boolean setting, or `default` if it is not set.

    Raises:
      UserError: the value is not a boolean.
    """
    value = settings.get(key)
    if value is not None and not isinstance(value, bool):
        raise UserError(f"{SETTINGS_FILE}: {key} is {value!r}, but must be true or false")
    return default if value is None else value


def max_tokens(settings: Mapping[str, Any]) -> int | None:
    """Returns the setting `MAX_TOKENS`; None = there is none.

    Raises:
      UserError: the value is not a number of at least 4.
    """
    value = settings.get(MAX_TOKENS)
    if value is not None and (type(value) is not int or value < 4):
        raise UserError(
            f"{SETTINGS_FILE}: {MAX_TOKENS} is {value!r}, expected a number of at least 4"
        )
    return value


def find_specials(
    pieces: Sequence[str],
    settings: dict[str, Any],
    source: str,
    usual: Mapping[str, tuple[str, ...]] = SPECIALS,
) -> dict[str, str]:
    """Finds the names of the special tokens.

    Args:
      pieces: the vocabulary.
      settings: may have names under the keys of `SPECIALS`.
      source: the name of the vocabulary in messages.
      usual: the names that are tried for keys without a setting.

    Returns:
      {key: name}. A vocabulary may have no mask token; its key is then missing.

    Raises:
      UserError: the vocabulary lacks another special token, or the mask token of the settings.
    """
    known = set(pieces)
    specials, missing = {}, []
    for key in SPECIALS:
        given = settings.get(key)
        names = usual[key] if given is None else (given,)
        if name := next((name for name in names if name in known), None):
            specials[key] = name
        elif key != "mask_token" or given is not None:
            missing.append(f"{key} ({' or '.join(names)})")
    if missing:
        raise UserError(
            f"{source} lacks special tokens: {', '.join(missing)}: add them to the vocabulary, or "
            f"name in {SETTINGS_FILE} those that it has"
        )
    return specials


# A piece that is a marker and not text, such as `<S>`, `[unused1]` or `<0x0A>`.
_MARK = re.compile(r"(\[.+\]|<.+>|\{.+\})", re.DOTALL)


def capitals(pieces: Sequence[str], specials: dict[str, str]) -> list[str]:
    """Returns the pieces with a capital letter, except special tokens and markers in brackets."""
    special = set(specials.values())
    return [
        piece
        for piece in pieces
        if piece != piece.lower() and piece not in special and not _MARK.fullmatch(piece)
    ]


def json_bytes(value: dict[str, Any]) -> bytes:
    """Returns JSON with sorted keys, so that equal contents give equal bytes."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def read_pieces(path: AnyPath) -> list[str]:
    """Reads a vocabulary with one piece per line.

    Raises:
      UserError: the file is missing, or a line is not UTF-8.
    """
    lines = paths.read_bytes(path).split(b"\n")
    if not lines[-1]:
        lines.pop()
    pieces = []
    for number, line in enumerate(lines, 1):
        try:
            pieces.append(line.removesuffix(b"\r").decode())
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path}:{number}: not UTF-8: is this a vocabulary, one piece a line?"
            ) from error
    return pieces


def with_one_id(pieces: Sequence[str], source: str) -> tuple[list[str], list[str]]:
    """Makes the pieces of a vocabulary distinct, as the tools that wrote the file read it.

    If a piece is in several lines, the last line counts, and an empty line never occurs in text.
    Such lines keep their ids, but get names that never occur in text. Empty lines at the end get no
    ids.

    Args:
      pieces: the lines of a file.
      source: the name of the vocabulary in messages.

    Returns:
      The pieces, and sentences about repeated pieces and empty lines.
    """
    result = list(pieces)
    while result and not result[-1]:
        result.pop()
    last = {piece: number for number, piece in enumerate(result)}
    empty, doubled = [], []
    for number, piece in enumerate(result):
        if piece and last[piece] == number:
            continue
        name = f"[line{number + 1}]"
        while name in last:
            name = f"[{name}]"
        result[number] = name
        if piece:
            doubled.append(f"{piece!r} in lines {number + 1} and {last[piece] + 1}")
        else:
            empty.append(str(number + 1))
    notes = []
    if doubled:
        notes.append(f"{source}: if a piece is in two lines, the last one counts: {_some(doubled)}")
    if empty:
        notes.append(f"{source}: the empty line {_some(empty)} never occurs in text")
    return result, notes


def _some(found: Sequence[str]) -> str:
    more = f" and {len(found) - 3:,} more" if len(found) > 3 else ""
    return ", ".join(found[:3]) + more


def pieces_file(pieces: Sequence[str]) -> bytes:
    """Returns the contents of a vocabulary file with one piece per line."""
    return "".join(f"{piece}\n" for piece in pieces).encode()


def check_pieces(pieces: Sequence[str], source: str) -> None:
    """Checks that there are pieces, and that none is empty or listed twice.

    Raises:
      UserError: there are no pieces, or a piece is empty or listed twice; names `source` and the
        line.
    """
    if not any(pieces):
        raise UserError(f"{source} is empty: a vocabulary has one piece a line")
    lines: dict[str, int] = {}
    for number, piece in enumerate(pieces, 1):
        if not piece:
            raise UserError(f"{source}, line {number}: empty, expected a piece")
        if piece in lines:
            raise UserError(
                f"{source}: {piece!r} is in line {lines[piece]} and again in line {number}: a "
                "piece may have only one id; rename the one that is not used"
            )
        lines[piece] = number
