"""The models of `tokenizer.json`, which split a word into ids.

Each has two methods: `ids` and `ids_with_offsets`.

`PairModel` is BPE of characters. The characters of a word become symbols, and an operation of
SentencePiece joins them, as in `byte_bpe`. A character may have another symbol at the beginning or
at the end of a word ("c</w>"). A character that is not in the vocabulary becomes the unknown
symbol, or the symbols of its bytes.

Shapes: W words, C characters and S symbols of all words; a ragged dimension is written None.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
from sentencepiece import sentencepiece_model_pb2
from typing_extensions import override

from official.tokenizers import byte_bpe, byte_vocabulary, offsets, wordpiece
from official.utils.errors import UserError

# Symbols are characters of the last two planes of Unicode (private use), of four bytes each.
_PLANE, _PLANE_SIZE, _MOST_SYMBOLS = 0xF0000, 0xFFFE, 2 * 0xFFFE
_SYMBOL_BYTES = 4
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_BLOCK = 256  # code points in a block of the tables of symbols

Offsets = tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]


class Model(Protocol):
    """A model of `tokenizer.json`."""

    def ids(self, words: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of words, string [W]: int32 [W, None]."""

    def ids_with_offsets(self, words: tf.Tensor) -> Offsets:
        """Returns the ids, and the first byte and the end (exclusive) of each in its word."""


def _symbol(number: int) -> str:
    plane, place = divmod(number, _PLANE_SIZE)
    return chr(_PLANE + plane * 0x10000 + place)


class PairModel(tf.Module):
    """BPE of characters."""

    def __init__(
        self,
        ids: Mapping[str, int],
        merges: Sequence[tuple[str, str]],
        source: str,
        *,
        unk_id: int | None = None,
        fuse_unk: bool = False,
        byte_fallback: bool = False,
        ignore_merges: bool = False,
        prefix: str = "",
        suffix: str = "",
    ):
        """Makes a model.

        Args:
          ids: {token: id}, single characters and results of merges; ids may repeat.
          merges: pairs of tokens, in the order in which they are joined.
          source: the name of the vocabulary in messages.
          unk_id: the id of characters that are not tokens; None = they are left out.
          fuse_unk: whether consecutive unknown characters become one token.
          byte_fallback: whether unknown characters become the tokens of their bytes, such as
            "<0xE2>".
          ignore_merges: whether a word that is a token becomes this token even if the merges do not
            make it.
          prefix: begins the tokens that do not begin a word.
          suffix: ends the tokens that end a word.

        Raises:
          UserError: a merge has a part or a result that is not a token, or two merges make the same
            token of different characters; or there are too many characters.
        """
        super().__init__()
        self._fuse_unk, self._fallback = fuse_unk, byte_fallback
        self._prefix, self._suffix = prefix.encode(), suffix.encode()
        self._has_unk = unk_id is not None
        # {token: its symbols}; the first symbol is the unknown one.
        spelled: dict[str, str] = {}
        edges = list(itertools.product((True, False), (True, False)))  # first, last
        # Not an attribute, because a SavedModel cannot track dictionaries with integer keys.
        forms: list[dict[int, int]] = []
        for first, last in edges:
            start, end = "" if first else prefix, suffix if last else ""
            table: dict[int, int] = {}
            for token in ids:
                inner = token[len(start) : len(token) - len(end)]
                if len(inner) == 1 and token == start + inner + end:
                    symbol = spelled.setdefault(token, _symbol(len(spelled) + 1))
                    table[ord(inner)] = _number(symbol)
            forms.append(table)
        if not prefix and not suffix:
            del forms[1:]
        self._byte_symbols = np.zeros(256, np.int32)
        if byte_fallback:
            if lacking := [token for token in _BYTES if token not in ids]:
                raise UserError(
                    f"{source}: byte_fallback needs the pieces of all 256 bytes, and "
                    f"{lacking[0]} is not in the vocabulary"
                )
            for byte, token in enumerate(_BYTES):
                spelled[token] = _symbol(len(spelled) + 1)
                self._byte_symbols[byte] = _number(spelled[token])
        base = len(spelled)
        if base >= _MOST_SYMBOLS:
            raise UserError(f"{source} has {base:,} characters, expected fewer than 131,068")
        symbols = list(spelled)
        pairs, results = list[tuple[str, str]](), dict[str, str]()
        for number, (left, right) in enumerate(merges, 1):
            token = left + right.removeprefix(prefix)
            for part in (left, right, token):
                if part not in ids:
                    raise UserError(
                        f"{source}: merge {number} ({left} {right}): {part!r} is not in the "
                        "vocabulary"
                    )
            # A part that only a later merge makes gets symbols too, because `reachable` needs them.
            parts = [spelled.get(part) or self._spelled(part, prefix, suffix, spelled)
                     for part in (left, right)]  # fmt: skip
            joined = "".join(parts)
            if spelled.setdefault(token, joined) != joined:
                raise UserError(
                    f"{source}: merge {number} ({left} {right}) makes {token!r}, which another "
                    "merge makes of other characters"
                )
            pairs.append((parts[0], parts[1]))
            results[joined] = token
        # Of equal pairs, the last one counts, as in a dictionary that is filled in this order.
        ranks = {pair: rank for rank, pair in enumerate(pairs)}
        pairs = sorted(ranks, key=ranks.__getitem__)
        made = byte_vocabulary.reachable(pairs)
        unknown = _symbol(0)
        pieces = [unknown, *(spelled[token] for token in symbols), *made]
        self._ids = tf.constant(
            [0 if unk_id is None else unk_id, *(ids[token] for token in symbols),
             *(ids[results[piece]] for piece in made)], tf.int32)  # fmt: skip
        self._joins = tf_text.SentencepieceTokenizer(byte_bpe.model_of(pieces), out_type=tf.int32)
        self._tables = [_table(form) for form in forms]
        self._whole: tf.lookup.StaticHashTable | None = None
        if ignore_merges:
            self._keep_whole(ids)

    @staticmethod
    def _spelled(token: str, prefix: str, suffix: str, spelled: Mapping[str, str]) -> str:
        """Returns the symbols of the characters of a token."""
        continues = bool(prefix) and token.startswith(prefix)
        ends = bool(suffix) and token.endswith(suffix)
        inner = token.removeprefix(prefix).removesuffix(suffix if ends else "")
        names = [
            (prefix if continues or i else "")
            + character
            + (suffix * (ends and i == len(inner) - 1))
            for i, character in enumerate(inner)
        ]
        return "".join(spelled.get(name, _symbol(0)) for name in names)

    def _keep_whole(self, ids: Mapping[str, int]) -> None:
        """Makes the table of tokens that the merges do not make from their own text."""
        tokens = list(ids)
        with tf.device("/CPU:0"):
            rows = self.ids(tf.constant(tokens)).to_list()
        others = [token for token, row in zip(tokens, rows, strict=True) if row != [ids[token]]]
        if others:
            values = [ids[token] for token in others]
            self._whole = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(
                    tf.constant(others), tf.constant(values, tf.int32)
                ),
                default_value=-1,
            )

    @override
    def ids(self, words: tf.Tensor) -> tf.RaggedTensor:
        symbols, _, _ = self._symbols(words)
        tokens = self._joins.tokenize(_written(symbols))
        tokens = tokens.with_values(tf.gather(self._ids, tokens.values))
        return tokens if self._whole is None else self._with_whole(words, tokens)[0]

    @override
    def ids_with_offsets(self, words: tf.Tensor) -> Offsets:
        symbols, starts, ends = self._symbols(words)
        tokens, first, last = self._joins.tokenize_with_offsets(_written(symbols))
        begins = tf.cast(tf.gather(symbols.row_starts(), offsets.rows_of(tokens)), tf.int32)
        first = begins + tf.cast(first.values, tf.int32) // _SYMBOL_BYTES
        last = begins + tf.cast(last.values, tf.int32) // _SYMBOL_BYTES - 1
        rows = (
            tokens.with_values(tf.gather(self._ids, tokens.values)),
            tokens.with_values(tf.gather(starts, first)),
            tokens.with_values(tf.gather(ends, last)),
        )
        if self._whole is not None:
            ids, starts, ends = self._with_whole(words, *rows)
            return ids, starts, ends
        return rows

    def _with_whole(self, words: tf.Tensor, *rows: tf.RaggedTensor) -> list[tf.RaggedTensor]:
        """Replaces the tokens of each word that is a token by this one token."""
        assert self._whole is not None
        found = self._whole.lookup(words)
        whole = found >= 0
        values = (found, tf.zeros_like(found), tf.strings.length(words))
        counts = tf.where(whole, tf.ones([], tf.int64), tf.cast(rows[0].row_lengths(), tf.int64))
        kept = tf.repeat(~whole, tf.cast(rows[0].row_lengths(), tf.int64))
        splits = tf.concat([[tf.zeros([], tf.int64)], tf.cumsum(counts)], 0)
        single = tf.boolean_mask(splits[:-1], whole)[:, None]
        free = tf.where(tf.repeat(~whole, counts))
        total = splits[-1:]

        def filled(row: tf.RaggedTensor, value: tf.Tensor) -> tf.RaggedTensor:
            new = tf.scatter_nd(free, tf.boolean_mask(row.values, kept), total)
            new = tf.tensor_scatter_nd_update(new, single, tf.boolean_mask(value, whole))
            return tf.RaggedTensor.from_row_splits(new, splits, validate=False)

        return [filled(row, value) for row, value in zip(rows, values, strict=False)]

    def _symbols(self, words: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Returns the symbols of words, int32 [W, None], their first bytes and ends, [S] each."""
        codes = tf.strings.unicode_decode(words, "UTF-8")  # [W, None]
        values, rows = codes.values, offsets.rows_of(codes)  # [C]
        changes, edge = rows[1:] != rows[:-1], tf.ones([1], tf.bool)[: tf.size(rows)]
        first, last = tf.concat([edge, changes], 0), tf.concat([changes, edge], 0)
        # The four forms: first and last, only first, only last, neither.
        form = tf.where(first, 0, 2) + tf.where(last, 0, 1)
        form = form if len(self._tables) > 1 else tf.zeros_like(form)
        symbols = tf.zeros_like(values)
        for number, (blocks, table) in enumerate(self._tables):
            place = tf.gather(blocks, values // _BLOCK) * _BLOCK + values % _BLOCK
            of_form = tf.gather(table, place)
            symbols = tf.where(tf.equal(form, number), of_form, symbols)
        widths = 1 + sum(tf.cast(values >= low, tf.int32) for low in (0x80, 0x800, 0x10000))
        ends = tf.cumsum(widths)
        before = tf.concat([[0], ends], 0)
        of_word = tf.gather(before, tf.gather(codes.row_starts(), rows))
        starts, ends = ends - widths - of_word, ends - of_word
        unknown = tf.equal(symbols, 0)
        splits = codes.row_splits
        if self._fallback:
            # Byte tokens spell the character with its prefix and its suffix.
            before_it = tf.where(unknown & ~first, len(self._prefix), 0)
            after_it = tf.where(unknown & last, len(self._suffix), 0)
            times = tf.where(unknown, widths, 1) + before_it + after_it
            owner = tf.repeat(tf.range(tf.size(values)), times)
            code, width = tf.gather(values, owner), tf.gather(widths, owner)
            place = tf.ragged.range(times).values - tf.gather(before_it, owner)
            inside = tf.clip_by_value(place, 0, width - 1)
            # UTF-8: six bits of the code point in each byte; the first byte also encodes the number
            # of bytes.
            bits = code // tf.gather(tf.constant([1, 64, 64**2, 64**3]), width - 1 - inside)
            rest = 0x80 + bits % 64
            lead = tf.gather(tf.constant([0, 0, 0xC0, 0xE0, 0xF0]), width) + bits
            byte = tf.where(tf.equal(inside, 0), lead, rest)
            affixes = tf.constant([*self._prefix, *self._suffix, 0], tf.int32)
            size, total = len(self._prefix), len(self._prefix) + len(self._suffix)
            in_prefix = tf.clip_by_value(place + size, 0, size)
            in_suffix = tf.clip_by_value(place - width + size, 0, total)
            of_prefix, of_suffix = tf.gather(affixes, in_prefix), tf.gather(affixes, in_suffix)
            byte = tf.where(place < 0, of_prefix, tf.where(place < width, byte, of_suffix))
            of_bytes = tf.gather(tf.constant(self._byte_symbols), byte)
            symbols = tf.where(tf.gather(unknown, owner), of_bytes, tf.gather(symbols, owner))
            starts, ends = tf.gather(starts, owner), tf.gather(ends, owner)
            splits = tf.gather(tf.concat([[0], tf.cumsum(times)], 0), splits)
        elif not self._has_unk or self._fuse_unk:
            kept = ~unknown
            if self._has_unk:
                again = unknown[1:] & unknown[:-1] & ~first[1:]
                begins = tf.concat([edge, ~again], 0)
                kept |= begins
                # A fused unknown token ends with its last character.
                group = tf.cumsum(tf.cast(begins, tf.int32)) - 1
                ends = tf.gather(
                    tf.math.segment_max(ends, group), tf.gather(group, tf.range(tf.size(ends)))
                )
            before = tf.concat([[0], tf.cumsum(tf.cast(kept, tf.int32))], 0)
            symbols, starts, ends = (
                tf.boolean_mask(part, kept) for part in (symbols, starts, ends)
            )
            splits = tf.gather(before, splits)
        splits = tf.cast(splits, tf.int64)
        return tf.RaggedTensor.from_row_splits(symbols, splits, validate=False), starts, ends


def _number(symbol: str) -> int:
    plane, place = divmod(ord(symbol) - _PLANE, 0x10000)
    return plane * _PLANE_SIZE + place


def _table(symbols: Mapping[int, int]) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns a two-level table: the index of each block of code points, and the blocks."""
    places = {code // _BLOCK: 0 for code in sorted(symbols)}
    places |= {block: number for number, block in enumerate(places, 1)}
    which = np.zeros(0x110000 // _BLOCK, np.int32)
    blocks = np.zeros((len(places) + 1, _BLOCK), np.int32)  # block 0 is empty
    for block, number in places.items():
        which[block] = number
    for code, symbol in symbols.items():
        blocks[places[code // _BLOCK], code % _BLOCK] = symbol
    return tf.constant(which), tf.constant(blocks.ravel())


def _written(symbols: tf.RaggedTensor) -> tf.Tensor:
    """Encodes symbols, int32 [W, None], in UTF-8: string [W]."""
    values = symbols.values
    codes = _PLANE + values + 2 * (values // _PLANE_SIZE)
    return tf.strings.unicode_encode(symbols.with_values(codes), "UTF-8")


class WordPieces(wordpiece.PartedWords):
    """WordPiece: the longest pieces from the left."""

    def __init__(self, ids: Mapping[str, int], unk: str, max_characters: int, prefix: str):
        """Makes a model; `ids` is {piece: id}, ordered by id."""
        super().__init__(list(ids), unk, max_characters, "", r"\s", prefix)

    @override
    def ids(self, words: tf.Tensor) -> tf.RaggedTensor:
        return self.of_words(words)

    @override
    def ids_with_offsets(self, words: tf.Tensor) -> Offsets:
        return self.of_words_with_offsets(words)


class WholeWords(tf.Module):
    """WordLevel: each word is a piece, or unknown."""

    def __init__(self, ids: Mapping[str, int], unk_id: int):
        super().__init__()
        self._ids = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.constant(list(ids)), tf.constant(list(ids.values()), tf.int32)
            ),
            default_value=unk_id,
        )

    @override
    def ids(self, words: tf.Tensor) -> tf.RaggedTensor:
        return tf.RaggedTensor.from_row_lengths(
            self._ids.lookup(words), tf.ones_like(words, tf.int64), validate=False
        )

    @override
    def ids_with_offsets(self, words: tf.Tensor) -> Offsets:
        ids = self.ids(words)
        ends = tf.strings.length(words)
        return ids, ids.with_values(tf.zeros_like(ends)), ids.with_values(ends)


class Unigram(tf.Module):
    """Unigram: the pieces with the largest sum of scores."""

    def __init__(self, model: bytes):
        """Makes a model from a SentencePiece model without normalization."""
        super().__init__()
        parsed = sentencepiece_model_pb2.ModelProto.FromString(model)
        parsed.normalizer_spec.add_dummy_prefix = False
        parsed.normalizer_spec.remove_extra_whitespaces = False
        parsed.normalizer_spec.escape_whitespaces = False
        self._model = tf_text.SentencepieceTokenizer(
            parsed.SerializeToString(deterministic=True), out_type=tf.int32
        )

    @override
    def ids(self, words: tf.Tensor) -> tf.RaggedTensor:
        return self._model.tokenize(words)

    @override
    def ids_with_offsets(self, words: tf.Tensor) -> Offsets:
        ids, starts, ends = self._model.tokenize_with_offsets(words)
        return ids, *(part.with_values(tf.cast(part.values, tf.int32)) for part in (starts, ends))
