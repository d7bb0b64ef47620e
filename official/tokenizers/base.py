"""The base classes of tokenizers: `Splitter` splits text into ids, and `Tokenizer` has the rest.

A SavedModel carries the splitter. The tokenizer has ids, special and added tokens, files and the
fingerprint. `chunks`, `strings` and `characters` make tensors of Python texts.

Shapes: N texts, C characters and P parts of all texts, V pieces of the vocabulary, S slices; a
ragged dimension is written None.
"""

import abc
import copy
import dataclasses
import functools
import itertools
import os
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf

from official.tokenizers import added_tokens, composition, file_formats, offsets, utf8, word_starts
from official.tokenizers.added_tokens import AddedToken, Finder, Parts
from official.tokenizers.pair_forms import ODD_TOKEN, PairForm
from official.tokenizers.word_ids import WordIds
from official.utils import atomic, checksums, paths
from official.utils.paths import AnyPath

_CHUNK_CHARACTERS = 1 << 20


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
    """Returns texts as a string tensor [N] of UTF-8."""
    try:
        return tf.constant(texts, tf.string)
    except ValueError:  # a lone surrogate, whose bytes are not UTF-8
        return tf.constant([text.encode("utf-8", "surrogatepass") for text in texts], tf.string)


def characters(texts: Sequence[str]) -> tf.Tensor:
    """Returns texts as a string tensor [N] of UTF-8; a lone surrogate becomes U+FFFD."""
    try:
        return tf.constant(texts, tf.string)
    except ValueError:
        plain = (
            text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts
        )
        return tf.constant(list(plain), tf.string)


class Splitter(tf.Module):
    """Splits strings into ids, inside a graph or eagerly.

    Without `special=True`, text never becomes a special token other than the unknown token: a
    literal "[MASK]" in a corpus is text. The splitters of WordPiece and SentencePiece ensure this
    for the usual special tokens. For others (a `CLS` without brackets, a user-defined SentencePiece
    symbol) `forbid` ensures it. Added tokens are found before the text is split.
    """

    # Whether a splitter normalizes text.
    normalizes = True
    # Whether it composes characters (Unicode's form NFC) before all else.
    nfc = False

    def __init__(self) -> None:
        super().__init__()
        self._allowed: tf.Tensor | None = None
        self._added: Finder | None = None
        self._special: Finder | None = None  # made on first use
        self._special_tokens: dict[int, AddedToken] = {}

    def split(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of string [N], int32 [N, None], before `forbid` is applied."""
        raise NotImplementedError

    def split_with_offsets(self, texts: tf.Tensor) -> offsets.Tokens:
        """Returns the same ids and the characters that they come from, for valid UTF-8 [N]."""
        raise NotImplementedError

    def split_parts(self, parts: Parts) -> tf.RaggedTensor:
        """Returns the ids of the parts that are text, int32 [P, None]; no ids for added tokens."""
        return self.split(parts.texts)

    def split_parts_with_offsets(self, parts: Parts) -> offsets.Tokens:
        """Returns the ids of `split_parts` with their offsets in the parts."""
        return self.split_with_offsets(parts.texts)

    def composed(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns strings [N] in the form NFC if `nfc`, or else as they are."""
        return composition.composed(texts) if self.nfc else texts

    def composed_bytes(self, texts: Sequence[bytes]) -> list[bytes]:
        """Like `composed`, for UTF-8 texts in Python; skips ASCII texts."""
        if not self.nfc or all(text.isascii() for text in texts):
            return list(texts)
        return self.composed(tf.constant(texts, tf.string)).numpy().tolist()

    def normalized(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns strings [N] in the normalized form that is split into words."""
        raise NotImplementedError

    def normalized_characters(
        self, characters: tf.RaggedTensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor | None]:
        """Returns the normalized form of each of C characters, string [N, None].

        Also returns whether each character belongs to the one before it, bool [C]; None = no
        character does.
        """
        raise NotImplementedError

    def forbid(self, ids: Sequence[int], replacement: int, size: int) -> None:
        """Replaces each of `ids` in the results of `split`; `size` is the vocabulary size."""
        table = np.arange(size, dtype=np.int32)
        table[list(ids)] = replacement
        self._allowed = tf.constant(table)

    def find(self, added: Mapping[int, AddedToken], special: Mapping[int, AddedToken]) -> None:
        """Sets the tokens that are found in text before it is split.

        Args:
          added: the tokens that are found in every text.
          special: the tokens that are found as well with `special=True`.
        """
        self._added = self._finder(added) if added else None
        self._special_tokens = {**added, **special}

    def _finder(self, tokens: Mapping[int, AddedToken]) -> Finder:
        return Finder(tokens, self if self.normalizes else None)

    def finder(self, special: bool) -> Finder | None:
        """Returns the finder of added tokens; None = there are no tokens to find."""
        if not special:
            return self._added
        if self._special is None:
            with tf.init_scope():
                self._special = self._finder(self._special_tokens)
        return self._special

    def tokenize(self, texts: tf.Tensor, special: bool = False) -> tf.RaggedTensor:
        """Returns the ids of string [N], int32 [N, None], without special tokens around them.

        Args:
          texts: UTF-8 strings [N].
          special: whether text that spells a special token becomes its id.
        """
        finder = self.finder(special)
        if finder is None:
            return self.allowed(self.split(texts))
        parts = finder.cut(texts)
        return parts.with_tokens(self.allowed(self.split_parts(parts)))

    def tokenize_with_offsets(self, texts: tf.Tensor, special: bool = False) -> offsets.Tokens:
        """Returns the ids of `tokenize`, and the characters of string [N] that each comes from."""
        finder = self.finder(special)
        if finder is None:
            texts = utf8.valid(texts)
            tokens = self.split_with_offsets(texts)
            return tokens._replace(ids=self.allowed(tokens.ids))
        parts = finder.cut(texts)
        tokens = self.split_parts_with_offsets(parts)
        return parts.tokens_with_offsets(tokens._replace(ids=self.allowed(tokens.ids)))

    def allowed(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns ids of `split` with the forbidden ids replaced; see `forbid`."""
        if self._allowed is not None:
            ids = ids.with_values(tf.gather(self._allowed, ids.values))
        return ids


_EOD = "<eod>"  # as in XLNet's vocabulary
_EOP = "<eop>"
_SENTINEL = "<extra_id_{}>"  # as in T5's vocabulary
# Settings that have no effect here, but are saved as they were read.
_KEPT = ("model_max_length", "tokenizer_class")
# Classes that read only `tokenizer.json`, and none of the files that are saved here.
_NO_CLASS = ("TokenizersBackend", "PreTrainedTokenizerFast")


class Tokenizer(abc.ABC):
    """Text to ids and back.

    Added tokens (markers such as "[E1]", new words, T5's sentinels) are found in every text before
    it is split, by `official.tokenizers.added_tokens`. The special tokens are not: a literal
    "[MASK]" in a corpus is text. With `special=True`, the methods that encode text find special
    tokens too, for texts in which a person writes them on purpose. Then "[MASK]" becomes `mask_id`,
    as in transformers:

      tokenizer.encode(["Paris is the [MASK] of France."], special=True)

    Attributes:
      vocab_size: V.
      pieces: the text of each piece, by id.
      pad_id: id of the padding token.
      unk_id: id of the token for text that the vocabulary cannot spell.
      cls_id: id of the first token of a sequence.
      sep_id: id of the token that ends a segment.
      mask_id: id of the mask token; None if the vocabulary has none.
      special_ids: the ids above, ascending.
      eod_id: id of <eod>, which separates the documents of a stream; None if the vocabulary has
        none. It is not a special token, so it may be predicted.
      sentinel_ids: ids of the sentinels `<extra_id_0>`, `<extra_id_1>`, ...; empty if the
        vocabulary has none. They are found in text as added tokens are.
      sentinels: the sentinels with their flags, by id.
      added: the added tokens by id, without sentinels.
      special_tokens: the additional tokens that `special=True` finds, by id.
      num_base_pieces: number of pieces of the vocabulary's files; added tokens may follow them.
      max_tokens: the length in tokens to which the tool that wrote the tokenizer cuts texts; None =
        the maximum length of the model.
      pairs: how two texts stand in a row; see `official.tokenizers.pair_forms`.
      word_starts: bool [V], true for pieces that begin a word and for special tokens, by the first
        of `word_starts.RULES`.
      word_ends: bool [V], true for pieces that end with white space, so that the next piece begins
        a word.
      keeps_space: whether ids represent a text exactly, with its white space and control
        characters.
      reads_words: whether tokens are whole words, of which an encoder may read the characters. Only
        these tokenizers have `words`, `numbers` and `encode_words`.
      notes: sentences about decisions made while the files of another tool were read.
      about: facts from these files under the keys `class` (the class of transformers) and `case`
        (whether text is lower-cased).
      files: {name: SHA-256} of the files that `save` writes.
      fingerprint: SHA-256 of everything that decides the ids. Two tokenizers with the same
        fingerprint give the same ids for every text.
    """

    FILE: str
    pairs = PairForm()
    keeps_space = False
    reads_words = False
    notes: tuple[str, ...] = ()
    about: Mapping[str, str] = types.MappingProxyType({})
    # Whether the mask token strips the white space before it (`lstrip`), if no file says it.
    _mask_strips = True
    # Encodes texts without a graph; None if the texts of this tokenizer cannot be cut into words.
    _words: WordIds | None = None

    def __init__(
        self,
        pieces: Sequence[str],
        specials: dict[str, str],
        splitter: Splitter,
        settings: dict[str, Any],
        num_base_pieces: int | None = None,
        controls: Sequence[str] = (),
    ):
        """Initializes the attributes that all tokenizers have.

        Args:
          pieces: the vocabulary and the added tokens after it, by id.
          specials: the names of the special tokens; only that of the mask may be missing.
          splitter: splits text.
          settings: those of the settings file, and the listed tokens.
          num_base_pieces: number of pieces of the vocabulary; None = all.
          controls: other pieces of the vocabulary that no text becomes.
        """
        self.pieces = list(pieces)
        self.num_base_pieces = len(self.pieces) if num_base_pieces is None else num_base_pieces
        self.vocab_size = len(self.pieces)
        self._splitter = splitter
        self._specials = specials
        self._settings = settings
        self.max_tokens = file_formats.max_tokens(settings)
        self.pairs = PairForm.of(settings, type(self).pairs, file_formats.SETTINGS_FILE)
        id_of = {key: self.pieces.index(name) for key, name in specials.items()}
        self.pad_id, self.unk_id = id_of["pad_token"], id_of["unk_token"]
        self.cls_id, self.sep_id = id_of["cls_token"], id_of["sep_token"]
        self.mask_id = id_of.get("mask_token")
        ids = sorted(set(id_of.values()))
        self.special_ids = tuple(ids)
        self.eod_id = self.pieces.index(_EOD) if _EOD in self.pieces else None
        numbers = {piece: i for i, piece in enumerate(self.pieces)}
        names = itertools.takewhile(numbers.__contains__, map(_SENTINEL.format, itertools.count()))
        self.sentinel_ids = tuple(numbers[name] for name in names)
        self.added, self.special_tokens, flagged = self._listed(numbers, controls)
        self.word_starts = self.word_starts_by(word_starts.RULES[0])
        self.word_ends = np.array([self._ends_word(piece) for piece in self.pieces], bool)
        self.word_ends[list(self.added)] = False
        texts = [*specials.values(), *(self.decode([i]) for i in ids)]
        spelled = self.encode_ragged(texts)[0].tolist()
        if leaks := sorted(set(spelled) & set(ids) - {self.unk_id}):
            splitter.forbid(leaks, self.unk_id, self.vocab_size)
        self.sentinels = {
            i: flagged.get(i, AddedToken(self.pieces[i], special=True)) for i in self.sentinel_ids
        }
        splitter.find({**self.sentinels, **self.added}, self.special_tokens)
        # Saved with their flags: tokens after the vocabulary, those found in every text, and those
        # with unusual flags.
        self._written = {i: dataclasses.asdict(token) for i, token in sorted(flagged.items())}
        vocabulary = {
            name: checksums.hash_bytes(data) for name, data in self._vocabulary_files().items()
        }
        self._sign(vocabulary)

    def _sign(self, vocabulary: Mapping[str, str]) -> None:
        """Sets `fingerprint` and `files`, given the checksums of the vocabulary's files."""
        decides = {
            **self._decides(),
            # In the order of `file_formats.SPECIALS`.
            "special_ids": [self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id],
            **vocabulary,
        }
        decides |= self.packing()
        listed = [*self.added, *(i for i in self.special_ids if i >= self.num_base_pieces)]
        listed += [i for i in self.sentinel_ids if i in self._written]
        if listed:
            decides[added_tokens.LISTED] = [[i, self._written[i]] for i in sorted(listed)]
        self.fingerprint = checksums.hash_bytes(file_formats.json_bytes(decides))
        digest = checksums.hash_bytes(self._settings_file())
        self.files = {**vocabulary, file_formats.SETTINGS_FILE: digest}

    def with_pairs(self, pairs: PairForm) -> Self:
        """Returns this tokenizer with another form of a pair."""
        made = copy.copy(self)
        made.pairs = pairs
        made._settings = {**self._settings, **pairs.settings()}
        made._sign(
            {name: d for name, d in self.files.items() if name != file_formats.SETTINGS_FILE}
        )
        return made

    def _listed(
        self, numbers: dict[str, int], controls: Sequence[str]
    ) -> tuple[dict[int, AddedToken], dict[int, AddedToken], dict[int, AddedToken]]:
        """Returns added tokens, special tokens, and tokens whose flags are saved, each by id."""
        roles = {self._settings.get("bos_token"), self._settings.get("eos_token")}
        own = {*controls, *filter(None, roles), _EOD, _EOP}
        added, special, flagged = {}, {}, {}
        for key, content in self._specials.items():
            strips = self._mask_strips and key == "mask_token"
            special[numbers[content]] = AddedToken(content, lstrip=strips, special=True)
        usual = dict(special)
        for content, (_, token) in self._settings.get(added_tokens.LISTED, {}).items():
            i = numbers.get(content)
            if i is None:
                continue
            if i in self.sentinel_ids:
                if (token.lstrip or token.rstrip) and self._blanks_matter():
                    flagged[i] = token
                continue
            if i in usual or (i < self.num_base_pieces and content in own):
                special[i] = token
                if token != usual.get(i):
                    flagged[i] = token
            else:
                added[i] = flagged[i] = token
        flagged |= {i: token for i, token in special.items() if i >= self.num_base_pieces}
        return added, special, flagged

    def _blanks_matter(self) -> bool:
        """Returns whether removing the blank between an added token and text changes the ids.

        If not, the flags that transformers gives to sentinels have no effect and are left out.
        """
        return False

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that make this tokenizer again, with the tokens that were listed."""
        listed = {
            flags["content"]: added_tokens.Listed(i, AddedToken(**flags))
            for i, flags in self._written.items()
        }
        return {**self._settings, **self._specials, added_tokens.LISTED: listed}

    @property
    def pair_separators(self) -> int:
        """The number of `sep_id` between the two texts of a pair."""
        return self.pairs.separators

    def packing(self) -> dict[str, Any]:
        """Returns the settings of pairs that differ from the defaults and affect the input.

        `odd_token` is left out, and so is not part of the fingerprint: a model can read rows that
        were cut by either rule.
        """
        differing = self.pairs.differing(type(self).pairs)
        differing.pop(ODD_TOKEN, None)
        return differing

    @classmethod
    @abc.abstractmethod
    def read(cls, path: AnyPath, settings: dict[str, Any]) -> Self:
        """Reads a tokenizer from its vocabulary file and settings."""

    @abc.abstractmethod
    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Returns the text of ids; special tokens appear as in the vocabulary."""

    @abc.abstractmethod
    def join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Decodes in a graph, as `decode` does.

        Args:
          ids: int32 [N, None].

        Returns:
          Texts, string [N].
        """

    @functools.cached_property
    def spellings(self) -> list[bytes]:
        """The text of each piece in UTF-8, with a blank in place of the mark "▁"."""
        spelled = [self._spelled(piece) for piece in self.pieces]
        for i, token in self.added.items():
            spelled[i] = self._spelled_added(token.content)
        return spelled

    @functools.cached_property
    def piece_bytes(self) -> np.ndarray:
        """The bytes of text that each piece stands for, int32 [V]: 0 for special tokens.

        Their sum over the tokens of a text is the length of the text in UTF-8, after the
        normalization of the tokenizer. SentencePiece has a blank before the first word as well.
        WordPiece does not keep blanks, so one blank is counted before each word and each
        punctuation mark. Text that the vocabulary cannot spell counts 0 bytes.
        """
        counts = np.array([self._num_bytes(piece) for piece in self.pieces], np.int32)
        for i in self.added:
            counts[i] = len(self.spellings[i])
        counts[[*self.special_ids, *self.sentinel_ids]] = 0
        return counts

    def _num_bytes(self, piece: str) -> int:
        return len(self._spelled(piece))

    @abc.abstractmethod
    def _spelled(self, piece: str) -> bytes: ...

    def _spelled_added(self, content: str) -> bytes:
        return content.encode()

    @abc.abstractmethod
    def _begins_word(self, piece: str, rule: str) -> bool: ...

    def _ends_word(self, piece: str) -> bool:
        return False

    @abc.abstractmethod
    def _vocabulary_files(self) -> dict[str, bytes]:
        """Returns the contents of the vocabulary's files by name, including `FILE`."""

    @abc.abstractmethod
    def _decides(self) -> dict[str, Any]:
        """Returns the saved settings, other than special tokens, that ids depend on."""

    @abc.abstractmethod
    def _for_others(self) -> dict[str, Any]:
        """Returns the settings that are saved only for other tools."""

    def splitting(self) -> dict[str, Any]:
        """Returns the settings that decide how a text is split, without the vocabulary."""
        return self._decides() | self.packing()

    def word_starts_by(self, rule: str) -> np.ndarray:
        """Returns `word_starts` by one of `word_starts.RULES`.

        The rules concern SentencePiece; other tokenizers have the same result for all of them.
        """
        starts = np.array([self._begins_word(piece, rule) for piece in self.pieces], bool)
        starts[[*self.special_ids, *self.added]] = True
        return starts

    def module(self) -> tf.Module:
        """Returns the module, with a method `tokenize`, that a SavedModel tracks."""
        return self._splitter

    def tokenize(self, texts: tf.Tensor, special: bool = False) -> tf.RaggedTensor:
        """Splits texts, in a graph or eagerly.

        Args:
          texts: UTF-8 strings [N]. Bytes that are not UTF-8 become unknown tokens.
          special: whether text that spells a special token becomes its id.

        Returns:
          Ids, int32 [N, None], without special tokens around them.
        """
        return self._splitter.tokenize(texts, special)

    def tokenize_with_offsets(self, texts: tf.Tensor, special: bool = False) -> offsets.Tokens:
        """Splits texts into tokens with their offsets, in a graph or eagerly.

        Args:
          texts: UTF-8 strings [N]. Bytes that are not UTF-8 become U+FFFD, as in `bytes.decode`.
          special: whether text that spells a special token becomes its id.

        Returns:
          `offsets.Tokens`: the ids of `tokenize`, and the first and last character of each.
        """
        return self._splitter.tokenize_with_offsets(texts, special)

    def encode_with_offsets(
        self,
        texts: Sequence[str],
        special: bool = False,
        split: Callable[[tf.Tensor, bool], offsets.Tokens] | None = None,
    ) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Returns ids, starts and ends of each text: its token i is `text[starts[i]:ends[i]]`.

        All are int32, and offsets are indices of Python's strings. See `offsets.Tokens`.

        Args:
          texts: any number of texts.
          special: whether text that spells a special token becomes its id.
          split: `tokenize_with_offsets`, or a graph of it.
        """
        split = split or self.tokenize_with_offsets
        if isinstance(texts, (str, bytes)):
            raise TypeError("expected a list of texts, got one text")
        rows = []
        with tf.device("/CPU:0"):
            for chunk in chunks(texts):
                tokens = split(characters(chunk), special)
                splits = tokens.ids.row_splits.numpy()
                parts = [part.values.numpy() for part in tokens]
                rows += [
                    tuple(part[a:b] for part in parts)
                    for a, b in zip(splits[:-1], splits[1:], strict=True)
                ]
        return rows

    def encode(self, texts: Sequence[str], special: bool = False) -> list[np.ndarray]:
        """Returns the ids of each text as an int32 array, the same as `tokenize`."""
        values, splits = self.encode_ragged(texts, special)
        return [values[a:b] for a, b in zip(splits[:-1], splits[1:], strict=True)]

    def encode_ragged(
        self, texts: Sequence[str], special: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of all texts in one array, which is fast for thousands of texts.

        Args:
          texts: any number of texts; they are processed some megabytes at a time.
          special: whether text that spells a special token becomes its id.

        Returns:
          values, int32 [sum of lengths], and row_splits, int64 [N + 1]: the ids of text i are
          `values[row_splits[i]:row_splits[i + 1]]`.
        """
        if isinstance(texts, (str, bytes)):
            raise TypeError("expected a list of texts, got one text")
        values, lengths = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
        with tf.device("/CPU:0"):
            for chunk in chunks(texts):
                ids = self._ids(chunk, special)
                values.append(ids.values.numpy())
                lengths.append(np.diff(ids.row_splits.numpy()))
        return np.concatenate(values), np.cumsum(np.concatenate(lengths))

    def words(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the words of UTF-8 strings [N] in a graph or eagerly: string [N, None]."""
        raise NotImplementedError

    def numbers(self, words: tf.RaggedTensor) -> tf.RaggedTensor:
        """Returns the ids of words, string [N, None]: those of `tokenize`, int32 [N, None]."""
        raise NotImplementedError

    def encode_words(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the ids and the words of all texts.

        Args:
          texts: any number of texts.

        Returns:
          values, int32 [K], and row_splits, int64 [N + 1], as `encode_ragged` does; and the uncut
          words in UTF-8, object [K].
        """
        raise NotImplementedError

    def _ids(self, texts: Sequence[str], special: bool) -> tf.RaggedTensor:
        """Returns the ids of texts, the same as `tokenize`."""
        if self._words is None:
            return self.tokenize(strings(texts), special)
        finder = self._splitter.finder(special)
        if finder is None or not any(map(finder.may_be_in, texts)):
            plain = [text.encode("utf-8", "surrogatepass") for text in texts]
            return self._splitter.allowed(self._split(self._words, plain))
        parts = finder.cut(strings(texts))
        split = self._split(self._words, parts.texts.numpy().tolist())
        return parts.with_tokens(self._splitter.allowed(split))

    def _split(self, words: WordIds, texts: Sequence[bytes]) -> tf.RaggedTensor:
        """Returns the ids of texts without added tokens, before `forbid` is applied."""
        return words.split(texts)

    def encode_slices(self, texts: Sequence[Sequence[str]]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of documents that are given as slices, such as sentences.

        Args:
          texts: the slices of each document. Concatenated they are its text, including white
            space.

        Returns:
          values, int32 [sum of lengths], and row_splits, int64 [S + 1], over the slices of all
          documents: the ids of slice i are `values[row_splits[i]:row_splits[i + 1]]`. Each slice
          is split separately, since these tokenizers do not keep white space.
        """
        return self.encode_ragged([part.strip() for text in texts for part in text])

    def save(self, folder: str | os.PathLike) -> None:
        """Writes the vocabulary and `tokenizer_config.json` into `folder`.

        Raises:
          UserError: the disk is full.
        """
        contents = {**self._vocabulary_files(), file_formats.SETTINGS_FILE: self._settings_file()}
        for name, data in contents.items():
            with atomic.file(paths.path(folder) / name, "wb") as file:
                file.write(data)

    def _settings_file(self) -> bytes:
        kept = {key: self._settings[key] for key in _KEPT if key in self._settings}
        kept = {key: value for key, value in kept.items() if value not in _NO_CLASS}
        settings = {**self._for_others(), **kept, **self._specials, **self._decides()}
        settings |= self.pairs.differing(type(self).pairs)
        settings |= {} if self.max_tokens is None else {file_formats.MAX_TOKENS: self.max_tokens}
        if self._written:
            written = {flags["content"] for flags in self._written.values()}
            for key in ("bos_token", "eos_token"):
                if self._settings.get(key) in written:
                    settings[key] = self._settings[key]
            settings[added_tokens.DECODER] = {str(i): flags for i, flags in self._written.items()}
        settings[file_formats.FINGERPRINT] = self.fingerprint
        return file_formats.json_bytes(settings)


def sentinels(count: int) -> list[str]:
    """Returns the pieces of sentinels in the order of T5's vocabulary: `<extra_id_0>` is last."""
    return [_SENTINEL.format(i) for i in reversed(range(count))]
