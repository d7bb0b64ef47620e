"""What all tokenizers share: ids in and outside a graph, special tokens, files, fingerprint.

Shapes: N texts, V pieces of the vocabulary; a ragged dimension is written None.
"""

import abc
import functools
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import tensorflow as tf

from official.tokenizers import offsets, word_starts
from official.utils import atomic, checksums, json_files
from official.utils.errors import UserError

SETTINGS_FILE = "tokenizer_config.json"
# The key under which `save` notes the tokenizer's fingerprint, so that `check_fingerprint` notices
# files that were damaged, or changed one without the other.
FINGERPRINT = "fingerprint"
# The key in the settings file → what the special token is called where the settings do not say.
SPECIALS = {
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
    "cls_token": ("[CLS]", "<cls>"),
    "sep_token": ("[SEP]", "<sep>"),
    "mask_token": ("[MASK]", "<mask>"),
}
_EOD = "<eod>"  # as in XLNet's vocabulary
# Settings of no use here that are saved as they were read.
_KEPT = ("model_max_length", "tokenizer_class")
_CHUNK_CHARACTERS = 1 << 20


class Splitter(tf.Module):
    """The part of a tokenizer that a SavedModel carries: strings in, ids out.

    Text never gives a special token other than the unknown one, whatever it spells: a literal
    "[MASK]" in a corpus is text. The splitters of WordPiece and SentencePiece see to it for the
    usual special tokens; for others (a `CLS` without brackets, a user-defined SentencePiece symbol)
    `forbid` makes it so.
    """

    def __init__(self):
        super().__init__()
        self._allowed = None

    def split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns ids of string [N], int32 [N, None], as the vocabulary has them."""
        raise NotImplementedError

    def split_with_offsets(self, texts: tf.Tensor) -> offsets.Tokens:
        """Returns the same ids with the characters that they come from, of valid UTF-8 [N]."""
        raise NotImplementedError

    def forbid(self, ids: Sequence[int], replacement: int, size: int) -> None:
        """From now on `replacement` comes where `split` gives one of `ids`."""
        table = np.arange(size, dtype=np.int32)
        table[list(ids)] = replacement
        self._allowed = tf.constant(table)

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns ids of string [N], int32 [N, None], without special tokens around them."""
        return self.allowed(self.split(texts))

    def tokenize_with_offsets(self, texts: tf.Tensor) -> offsets.Tokens:
        """Returns what `tokenize` does, and which characters of string [N] each id is for."""
        found = self.split_with_offsets(tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8"))
        return found._replace(ids=self.allowed(found.ids))

    def allowed(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns ids of `split` without those that `forbid` names."""
        if self._allowed is not None:
            ids = ids.with_values(tf.gather(self._allowed, ids.values))
        return ids


class Tokenizer(abc.ABC):
    """Text to ids and back.

    Attributes:
      vocab_size: V.
      pieces: id → the text of the piece.
      pad_id: id of the token that fills rows up.
      unk_id: id of the token for what the vocabulary cannot spell.
      cls_id: id of the token that opens a sequence.
      sep_id: id of the token that ends a segment.
      mask_id: id of the token that hides another; None where the vocabulary has none.
      special_ids: these, ascending.
      eod_id: id of <eod>, which stands between the documents of a stream; None where the vocabulary
        has none. It is no special token: it may be predicted.
      pair_separators: how many `sep_id` stand between the two texts of a pair.
      word_starts: bool [V], true where a piece begins a word, and for special tokens; by the first
        of `word_starts.RULES`.
      word_ends: bool [V], true where a piece ends with white space, so that the next one begins a
        word.
      keeps_space: whether ids tell a text whole, with its white space and control characters.
      files: name → SHA-256 of each file, as `save` writes it.
      fingerprint: SHA-256 over all that decides the ids; two tokenizers with the same one give the
        same ids for every text.
    """

    FILE: str
    pair_separators = 1
    keeps_space = False

    def __init__(
        self,
        pieces: Sequence[str],
        specials: dict[str, str],
        splitter: Splitter,
        settings: dict[str, Any],
    ):
        self.pieces = list(pieces)
        self.vocab_size = len(self.pieces)
        self._splitter = splitter
        self._specials = specials
        self._settings = settings
        named = [self.pieces.index(specials[key]) if key in specials else None for key in SPECIALS]
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = named
        ids = sorted({i for i in named if i is not None})
        self.special_ids = tuple(ids)
        self.eod_id = self.pieces.index(_EOD) if _EOD in self.pieces else None
        self.word_starts = self.word_starts_by(word_starts.RULES[0])
        self.word_ends = np.array([self._ends_word(piece) for piece in self.pieces], bool)
        texts = [*specials.values(), *(self.decode([i]) for i in ids)]
        spelled = self.encode_ragged(texts)[0].tolist()
        if leaks := sorted(set(spelled) & set(ids) - {self.unk_id}):
            splitter.forbid(leaks, self.unk_id, self.vocab_size)
        vocabulary = {
            name: checksums.hash_bytes(data) for name, data in self._vocabulary_files().items()
        }
        decides = {**self._decides(), "special_ids": named, **vocabulary}
        self.fingerprint = checksums.hash_bytes(json_bytes(decides))
        settings = checksums.hash_bytes(self._settings_file())
        self.files = {**vocabulary, SETTINGS_FILE: settings}

    @classmethod
    @abc.abstractmethod
    def read(cls, path: Path, settings: dict[str, Any]) -> Self:
        """Makes a tokenizer from its vocabulary file and settings."""

    @abc.abstractmethod
    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Returns readable text of ids; special tokens show as they are written."""

    @abc.abstractmethod
    def join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Does in a graph what `decode` does.

        Args:
          ids: int32 [N, None].

        Returns:
          Texts, string [N].
        """

    @functools.cached_property
    def spellings(self) -> list[bytes]:
        """What each piece stands for in a text, in UTF-8, with a blank for its blank mark."""
        return [self._spelled(piece) for piece in self.pieces]

    @abc.abstractmethod
    def _spelled(self, piece: str) -> bytes: ...

    @abc.abstractmethod
    def _begins_word(self, piece: str, rule: str) -> bool: ...

    def _ends_word(self, piece: str) -> bool:
        return False

    @abc.abstractmethod
    def _vocabulary_files(self) -> dict[str, bytes]:
        """The vocabulary's files, by name; `FILE` is one of them."""

    @abc.abstractmethod
    def _decides(self) -> dict[str, Any]:
        """Settings, besides the special tokens, that ids depend on; they are saved as well."""

    @abc.abstractmethod
    def _for_others(self) -> dict[str, Any]:
        """Settings that are saved for other tools only."""

    def word_starts_by(self, rule: str) -> np.ndarray:
        """Returns `word_starts` by one of `word_starts.RULES`, which SentencePiece tells apart."""
        starts = np.array([self._begins_word(piece, rule) for piece in self.pieces], bool)
        starts[list(self.special_ids)] = True
        return starts

    def module(self) -> tf.Module:
        """Returns the trackable object with `tokenize` that a SavedModel has to hold."""
        return self._splitter

    def tokenize(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Splits texts, in a graph or eagerly.

        Args:
          texts: UTF-8 strings [N]. Bytes that are not UTF-8 are unknown to the vocabulary.

        Returns:
          Ids, int32 [N, None], without special tokens around them.
        """
        return self._splitter.tokenize(texts)

    def tokenize_with_offsets(self, texts: tf.Tensor) -> offsets.Tokens:
        """Splits texts and says where the tokens come from, in a graph or eagerly.

        Args:
          texts: UTF-8 strings [N]; what is not UTF-8 is U+FFFD, as `bytes.decode` replaces it.

        Returns:
          `offsets.Tokens`: the ids of `tokenize`, and for each the first and the last character.
        """
        return self._splitter.tokenize_with_offsets(texts)

    def encode_with_offsets(
        self, texts: Sequence[str]
    ) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Returns ids, starts and ends of each text: its token i is `text[starts[i]:ends[i]]`.

        All are int32, and places are those of Python's strings. See `offsets.Tokens`.
        """
        if isinstance(texts, (str, bytes)):
            raise TypeError("a list of texts is wanted, not one text")
        rows = []
        with tf.device("/CPU:0"):
            for chunk in chunks(texts):
                found = self.tokenize_with_offsets(_characters(chunk))
                splits = found.ids.row_splits.numpy()
                parts = [part.values.numpy() for part in found]
                rows += [
                    tuple(part[a:b] for part in parts)
                    for a, b in zip(splits[:-1], splits[1:], strict=True)
                ]
        return rows

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Returns the same ids for each text as an int32 array."""
        values, splits = self.encode_ragged(texts)
        return [values[a:b] for a, b in zip(splits[:-1], splits[1:], strict=True)]

    def encode_ragged(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of all texts in one array: fast for thousands of texts at once.

        Args:
          texts: any number of texts; they are taken some megabytes at a time.

        Returns:
          values, int32 [sum of lengths], and row_splits, int64 [N + 1]: text i has
          `values[row_splits[i]:row_splits[i + 1]]`.
        """
        if isinstance(texts, (str, bytes)):
            raise TypeError("a list of texts is wanted, not one text")
        values, lengths = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
        with tf.device("/CPU:0"):
            for chunk in chunks(texts):
                ids = self.tokenize(strings(chunk))
                values.append(ids.values.numpy())
                lengths.append(ids.row_lengths().numpy())
        return np.concatenate(values), np.cumsum(np.concatenate(lengths))

    def encode_slices(self, texts: Sequence[Sequence[str]]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of documents that are given in slices, such as sentences.

        Args:
          texts: the slices of each document. Together they are its text, white space included.

        Returns:
          values, int32 [sum of lengths], and row_splits, int64 [S + 1]: the tokens of slice i, of
          the slices of all documents, are `values[row_splits[i]:row_splits[i + 1]]`. Here each
          slice is a text of its own, as these tokenizers do not keep white space.
        """
        return self.encode_ragged([part.strip() for text in texts for part in text])

    def save(self, folder: str | os.PathLike) -> None:
        """Writes the vocabulary and `tokenizer_config.json` into `folder`.

        Raises:
          UserError: the disk is full.
        """
        contents = {**self._vocabulary_files(), SETTINGS_FILE: self._settings_file()}
        for name, data in contents.items():
            with atomic.file(Path(folder) / name, "wb") as file:
                file.write(data)

    def _settings_file(self) -> bytes:
        kept = {key: self._settings[key] for key in _KEPT if key in self._settings}
        settings = {**self._for_others(), **kept, **self._specials, **self._decides()}
        settings[FINGERPRINT] = self.fingerprint
        return json_bytes(settings)


def read_settings(folder: Path) -> dict[str, Any]:
    """Reads `tokenizer_config.json`; empty where there is none.

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
            raise UserError(f"{path}: {key} is {name!r}, but the text of a token is wanted")
        settings[key] = name
    return settings


def check_fingerprint(tokenizer: Tokenizer, settings: dict[str, Any], folder: Path) -> None:
    """Refuses a tokenizer that is another one than was saved; older files do not say which.

    Raises:
      UserError: the fingerprint that the settings give is not the tokenizer's.
    """
    if settings.get(FINGERPRINT, tokenizer.fingerprint) != tokenizer.fingerprint:
        raise UserError(
            f"{folder}: these are not the files that were saved: together they give the "
            f"fingerprint {tokenizer.fingerprint[:16]}…, and {SETTINGS_FILE} says "
            f"{str(settings[FINGERPRINT])[:16]}…. Copy the folder again; if it was changed on "
            f"purpose, remove {FINGERPRINT!r} from {SETTINGS_FILE}"
        )


def switch(settings: dict[str, Any], key: str, default: bool | None) -> bool | None:
    """Returns a true-or-false setting.

    Raises:
      UserError: it is neither.
    """
    value = settings.get(key)
    if value is not None and not isinstance(value, bool):
        raise UserError(f"{SETTINGS_FILE}: {key} is {value!r}, but true or false is wanted")
    return default if value is None else value


def find_specials(
    pieces: Sequence[str],
    settings: dict[str, Any],
    source: str,
    usual: dict[str, tuple[str, ...]] = SPECIALS,
) -> dict[str, str]:
    """Finds what the special tokens are called.

    Args:
      pieces: the vocabulary.
      settings: may name them, under the keys of `SPECIALS`.
      source: the name of the vocabulary in messages.
      usual: what they are called where the settings do not say.

    Returns:
      Key → name. A vocabulary may lack the mask token, and then this does too.

    Raises:
      UserError: others are not in the vocabulary, or a mask token that the settings name is not.
    """
    known = set(pieces)
    found, missing = {}, []
    for key in SPECIALS:
        given = settings.get(key)
        names = usual[key] if given is None else (given,)
        if name := next((name for name in names if name in known), None):
            found[key] = name
        elif key != "mask_token" or given is not None:
            missing.append(f"{key} ({' or '.join(names)})")
    if missing:
        raise UserError(
            f"{source} lacks special tokens: {', '.join(missing)}: add them to the vocabulary, or "
            f"name in {SETTINGS_FILE} those that it has"
        )
    return found


def has_capitals(pieces: Sequence[str], specials: dict[str, str]) -> bool:
    """Whether a vocabulary can spell capital letters, special tokens apart."""
    return any(piece != piece.lower() for piece in set(pieces) - set(specials.values()))


def json_bytes(value: dict[str, Any]) -> bytes:
    """Returns JSON that is the same for the same contents."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def chunks(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields texts in groups of about a megabyte."""
    start = size = 0
    for i, text in enumerate(texts):
        size += len(text)
        if size >= _CHUNK_CHARACTERS:
            yield texts[start : i + 1]
            start, size = i + 1, 0
    if start < len(texts):
        yield texts[start:]


def strings(texts: Sequence[str]) -> tf.Tensor:
    """Returns texts as a tensor of their UTF-8 bytes."""
    try:
        return tf.constant(texts, tf.string)
    except ValueError:  # a lone surrogate: its bytes are not UTF-8, and split as such
        return tf.constant([text.encode("utf-8", "surrogatepass") for text in texts], tf.string)


def _characters(texts: Sequence[str]) -> tf.Tensor:
    """Strings whose characters are those of Python's, a lone surrogate being U+FFFD."""
    try:
        return tf.constant(texts, tf.string)
    except ValueError:
        plain = (
            text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts
        )
        return tf.constant(list(plain), tf.string)
