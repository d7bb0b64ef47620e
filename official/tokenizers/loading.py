"""Reads the tokenizer of a folder, whose files determine its kind."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from official.tokenizers import (
    added_tokens,
    class_rules,
    file_formats,
    folder_classes,
    folders,
    tokenizer_json,
)
from official.tokenizers.base import Tokenizer
from official.tokenizers.byte_bpe import ByteBPE
from official.tokenizers.byte_vocabulary import MERGES_FILE
from official.tokenizers.codes_bpe import CodesBPE
from official.tokenizers.folders import Look
from official.tokenizers.sentencepiece import SentencePiece
from official.tokenizers.word_characters import Characters
from official.tokenizers.word_starts import BLANK
from official.tokenizers.wordpiece import CONTINUES, WordPiece
from official.utils import atomic, paths
from official.utils.errors import UserError

JSON_FILE = tokenizer_json.FILE
KINDS: dict[str, type[Tokenizer]] = {
    kind.FILE: kind for kind in (WordPiece, SentencePiece, ByteBPE, Characters, CodesBPE)
}


def load(
    folder: str | os.PathLike, defaults: Mapping[str, Any] = {}, *, foreign: bool = False
) -> Tokenizer:
    """Reads the tokenizer in a folder, whose files determine its kind.

    A folder of another tool is read by the rules of `official.tokenizers.folders`: each of its
    settings is applied or refused. A folder that this project wrote has a fingerprint, and is read
    without these rules.

    Args:
      folder: contains `vocab.txt`, `spiece.model`, `vocab.json` with `merges.txt`, or `words.txt`;
        or `tokenizer.json`. It may also contain `tokenizer_config.json` with settings, and lists of
        added tokens.
      defaults: settings that apply if that file does not have them.
      foreign: whether the folder was written by another tool even if it has a fingerprint; other
        tools copy this key.

    Raises:
      UserError: the folder has no such files, or files of several kinds; or the files are not
        valid, differ from those that were saved, or have settings that are refused.
    """
    folder = paths.path(folder)
    atomic.check_complete(folder, file_formats.SETTINGS_FILE)
    names = [name for name in KINDS if (folder / name).is_file()]
    if CodesBPE.FILE in names and WordPiece.FILE in names:
        names.remove(WordPiece.FILE)  # here `vocab.txt` has the pieces of `bpe.codes`, with counts
    described = (folder / tokenizer_json.FILE).is_file()
    if not names and not described:
        raise _nothing(folder)
    given = file_formats.read_settings(folder)
    ours = file_formats.FINGERPRINT in given and bool(names)
    if len(names) > 1 and (ours or not described):
        raise UserError(
            f"{folder} holds both {' and '.join(names)}: remove the files of the one that is not "
            "used"
        )
    for name in (*names, MERGES_FILE, tokenizer_json.FILE):
        if (folder / name).exists():
            paths.check_file(folder / name)
    if ours:
        if foreign:
            folders.look(folder, given, defaults)  # refuses unknown settings
        settings = {**given, **defaults, **{k: v for k, v in given.items() if v is not None}}
        settings[added_tokens.LISTED] = added_tokens.read(folder, settings)
        tokenizer = KINDS[names[0]].read(folder / names[0], settings)
    else:
        seen = folders.look(folder, given, defaults)
        tokenizer = _read(folder, names, seen)
        settings = seen.settings
    if names or (tokenizer.FILE == tokenizer_json.FILE and not foreign):
        file_formats.check_fingerprint(tokenizer.fingerprint, settings, folder)
    return tokenizer


def _nothing(folder: paths.AnyPath) -> UserError:
    """Returns the error for a folder without a tokenizer."""
    looked_for = (
        "vocab.txt (WordPiece), spiece.model (SentencePiece), vocab.json with merges.txt "
        "(byte-level BPE), words.txt (characters), bpe.codes with vocab.txt or tokenizer.json"
    )
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "is missing"
        return UserError(f"tokenizer folder {folder} {what}: it should hold {looked_for}")
    inner = any((folder / "tokenizer" / name).is_file() for name in KINDS)
    has = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
    return UserError(
        f"{folder} holds no tokenizer: looked for {looked_for}, found {has}"
        + (f"; did you mean {folder / 'tokenizer'}?" if inner else "")
    )


def _read(folder: paths.AnyPath, names: Sequence[str], seen: Look) -> Tokenizer:
    """Reads the tokenizer of a folder of another tool.

    If there is a `tokenizer.json`, it defines the tokenizer. A SentencePiece model of the same
    tokenizer in the same folder is read for its rules of blanks.
    """
    if seen.described is None:
        return read_vocabulary(folder / names[0], seen)
    if names == [SentencePiece.FILE]:
        return described_or(lambda: read_vocabulary(folder / names[0], seen), folder, seen)
    return _described(folder, seen)


def _described(folder: paths.AnyPath, seen: Look) -> Tokenizer:
    """Reads the `tokenizer.json` of a folder."""
    path = folder / tokenizer_json.FILE
    tokenizer = tokenizer_json.read(path, seen.settings, seen.described)
    about = {"class": seen.title}
    if hasattr(tokenizer, "lower_case"):
        done = "text is lower-cased" if tokenizer.lower_case else "text keeps its capitals"
        about["case"] = f"{done}: by {path.name} and the rules of this class"
    tokenizer.about = about
    return tokenizer


def described_or(
    read_model: Callable[[], Tokenizer], folder: paths.AnyPath, seen: Look
) -> Tokenizer:
    """Returns the tokenizer of a SentencePiece model, or that of `tokenizer.json` if they differ.

    Args:
      read_model: reads the SentencePiece model.
      folder: the folder.
      seen: the settings of the folder.

    Raises:
      UserError: the file is not valid, or has a component that these tokenizers do not have.
    """
    tokenizer = _described(folder, seen)
    alone = seen.tokenizer_class is not None and seen.tokenizer_class.name in folder_classes.ALONE
    if not alone:
        model = read_model()
        if isinstance(model, SentencePiece) and tokenizer_json.is_same(tokenizer, model):
            return model
    return tokenizer


def read_vocabulary(path: paths.AnyPath, seen: Look) -> Tokenizer:
    """Reads the vocabulary of a folder of another tool.

    Args:
      path: the file of the vocabulary.
      seen: the settings of the folder.

    Raises:
      UserError: the file is not valid, or belongs to a class of another kind than the file.
    """
    kind = KINDS.get(path.name, SentencePiece)
    if kind is WordPiece:
        _refuse_marked(path)
    title = folder_classes.KINDS.get(kind.FILE)
    settings = dict(seen.settings)
    cased = title in folder_classes.CASED
    unsaid = cased and settings.get("do_lower_case") is None
    by_class = seen.lower_case(title) if unsaid and title else None
    if by_class is not None:
        settings["do_lower_case"] = by_class
    if seen.described is None and kind is SentencePiece:
        settings.setdefault(
            "prepend_scheme", class_rules.prepend_scheme(seen.tokenizer_class, settings)
        )
    tokenizer = kind.read(path, settings)
    about = {"class": seen.title}
    if cased:
        lower = bool(getattr(tokenizer, "lower_case", False))
        about["case"] = _case(tokenizer, lower, unsaid, by_class, seen, path)
    tokenizer.about = about
    if note := _not_found(tokenizer, settings, path):
        tokenizer.notes = (*tokenizer.notes, note)
    never = seen.tokenizer_class is not None and seen.tokenizer_class.lower_case is None
    if unsaid and not (never and by_class is not None):
        tokenizer.notes = (*tokenizer.notes, f"{path}: {about['case']}")
    return tokenizer


def _not_found(tokenizer: Tokenizer, settings: Mapping[str, Any], path: paths.AnyPath) -> str:
    """Returns a note about pieces of `never_split` that are split in text; "" = there are none.

    The slow tokenizers of transformers 4 find these pieces in text. By default it loads fast
    tokenizers, which do not.
    """
    listed = settings.get("never_split")
    listed = listed if isinstance(listed, list) else []
    found = {tokenizer.pieces[i] for i in (*tokenizer.special_ids, *tokenizer.added)}
    never = [name for name in listed if name in tokenizer.pieces and name not in found]
    if not never:
        return ""
    return (
        f"{path}: never_split lists {', '.join(map(repr, never[:3]))}, which never occur as pieces "
        "of text, as in the fast tokenizers of transformers; its slow ones find them: to find "
        f"them too, list them in added_tokens_decoder of {file_formats.SETTINGS_FILE} to have that"
    )


def _refuse_marked(path: paths.AnyPath) -> None:
    """Refuses a `vocab.txt` with the pieces of a SentencePiece model, such as KoBERT's."""
    pieces = file_formats.read_pieces(path)
    marked = sum(piece.startswith(BLANK) and len(piece) > 1 for piece in pieces)
    if marked <= sum(piece.startswith(CONTINUES) for piece in pieces):
        return
    models: list[paths.AnyPath] = sorted(path.parent.glob("*.model"))
    beside = f", perhaps of {models[0].name} in the same folder" if models else ""
    raise UserError(
        f"{path} has the pieces of a SentencePiece model ({marked:,} begin with {BLANK}){beside}: "
        "no class of transformers reads them (KoBERT has one of its own), and WordPiece finds none "
        "of them in text. Way out: the vocabulary as a tokenizer.json of PreTrainedTokenizerFast, "
        "or a SentencePiece model spiece.model that has the ids of these lines"
    )


def _case(
    tokenizer: Tokenizer,
    lower: bool,
    unsaid: bool,
    by_class: bool | None,
    seen: Look,
    path: paths.AnyPath,
) -> str:
    """Returns a note that says whether text is lower-cased, and why."""
    done = "text is lower-cased" if lower else "text keeps its capitals"
    if not unsaid:
        return f"{done}: do_lower_case in {file_formats.SETTINGS_FILE}"
    specials = {piece: piece for piece in (tokenizer.pieces[i] for i in tokenizer.special_ids)}
    found = file_formats.capitals(tokenizer.pieces[: tokenizer.num_base_pieces], specials)
    other = f'write "do_lower_case": {"false" if lower else "true"} into '
    other += f"{file_formats.SETTINGS_FILE} if the model was trained otherwise"
    if by_class is None:
        why = f"pieces such as {found[0]!r} have capitals" if found else "no piece has a capital"
        return f"{done}: no file says it, and {why}; {other}"
    name = seen.tokenizer_class.name if seen.tokenizer_class else ""
    why = f"{done}: no file says it, and {name} does so ({seen.how})"
    if lower and found:
        return f"{why}, though pieces such as {found[0]!r} have capitals; {other}"
    return f"{why}; {other}"
