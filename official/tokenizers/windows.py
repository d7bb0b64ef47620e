"""Cuts long texts into overlapping windows, eagerly or inside a graph.

Each window begins a fixed number of tokens after the previous one, and the last window contains the
end of the text. A token in several windows is owned by the window in which the shorter of its two
contexts is longest; in a tie, by the first. (BERT's release, run_squad.py, adds a hundredth of the
window's length, which matters only next to a shorter, last window.)

Questions about a context (`pack_windows`): a window is a row [CLS] question [SEP] part of the
context [SEP], with the separators that the tokenizer uses for pairs. The next window begins
`stride` tokens later, or at the end of this one if that comes first (`doc_stride` of the release).
Encoders with the layout `cls_last` read the context first, as in XLNet's release: context [SEP]
question [SEP] [CLS]. Tokens of the context are numbered from the beginning of the whole context, so
their numbers depend neither on the window nor on the layout.

Texts of one label (`TextWindows`): a window is a row [CLS] part of the text [SEP], and the next one
begins where the last `overlap` tokens of this one do, up to a number of windows.

Texts that are lists of words (`cut_words`): a window is a row [CLS] part of the tokens [SEP], and
the next one begins half a window later. The text that is tokenized is the words joined by blanks,
so each word has the mark or prefix that the tokenizer gives to words in running text; or the
original text, if its words are its tokens. A word is represented by its first token (Devlin et al.,
2019, section 5.3), in the window that owns this token.

Shapes: N texts, K tokens of all texts, W windows of all texts, B windows of a batch, T tokens of
the longest window, C characters of a word; a ragged dimension is written None.
"""

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official.tokenizers import offsets, pair_forms, pair_packing, word_characters
from official.tokenizers.base import Tokenizer
from official.utils.errors import UserError

# Fields of `pack_windows` with the position of a window; see `official.shards.features`.
POSITIONS = ("context_start", "context_length", "window_start", "own_start", "own_end")
NO_WORD = -1
# The rows of [CLS] and [SEP] in a table of tokens, before the tokens of the texts.
_BEGIN, _END, _FIRST = range(3)


class Windows(NamedTuple):
    """The windows of texts, int32 [W] each.

    Attributes:
      row: the index of the text.
      start: the index of the first token of the window in the whole text.
      length: the number of tokens of the text in the window.
      own_start: the index of the first token that the window owns.
      own_end: the index after the last token that the window owns.
    """

    row: tf.Tensor
    start: tf.Tensor
    length: tf.Tensor
    own_start: tf.Tensor
    own_end: tf.Tensor


def cut(lengths: tf.Tensor, room: tf.Tensor | int, step: tf.Tensor | int) -> Windows:
    """Returns the windows of texts; an empty text has one window.

    Args:
      lengths: the number of tokens of each text, integers [N].
      room: the largest number of tokens of the text in a window, int32 [N] or one number.
      step: tokens from the start of a window to the start of the next, at most `room`.
    """
    lengths = tf.cast(lengths, tf.int32)
    counts = 1 + tf.maximum(lengths - room + step - 1, 0) // step  # [N]
    row = tf.repeat(tf.range(tf.size(counts)), counts)  # [W]
    number = tf.ragged.range(counts).values  # index of the window in its text
    lengths, room, step = (
        tf.gather(tf.broadcast_to(values, tf.shape(counts)), row)
        for values in (lengths, room, step)
    )
    start = number * step
    length = tf.minimum(room, lengths - start)
    last = tf.equal(start + length, lengths)
    # The first of two windows owns the first half of the tokens that both contain.
    own_start = tf.where(number > 0, (start - step + room - 1 + start) // 2 + 1, 0)
    own_end = tf.where(last, lengths, (start + room - 1 + start + step) // 2 + 1)
    return Windows(row, start, length, own_start, own_end)


def check(tokenizer: pair_packing.SpecialIds, max_length: int, stride: int, max_query: int) -> None:
    """Checks that a window has room for its question and at least one token of the context.

    Raises:
      UserError: it has no room, or a size is less than 1.
    """
    specials = pair_packing.num_specials(2, tokenizer)
    if stride < 1:
        raise UserError(f"doc_stride: {stride} is less than 1: windows would not advance")
    if max_query < 1:
        raise UserError(f"max_query_length: {max_query} is less than 1")
    if max_length < specials + max_query + 1:
        raise UserError(
            f"max_length: {max_length} has no room for a question of {max_query} tokens "
            f"(max_query_length), {specials} special tokens and a token of the context: at least "
            f"{specials + max_query + 1} is needed"
        )


def pack_windows(
    questions: tf.RaggedTensor,
    contexts: tf.RaggedTensor,
    tokenizer: pair_packing.SpecialIds,
    max_length: int,
    stride: int,
    max_query: int,
) -> dict[str, tf.Tensor | tf.RaggedTensor]:
    """Cuts contexts into windows, each with its question.

    Args:
      questions: ids, int32 [N, None]; questions of more than `max_query` tokens are cut at the end.
      contexts: ids, int32 [N, None]; an empty context has one window.
      tokenizer: has the special ids.
      max_length: maximum number of tokens in a window, including special tokens.
      stride: tokens from the start of a window to the start of the next.
      max_query: maximum number of tokens in a question.

    Returns:
      token_ids int32 [W, None], unpadded, and segment_lengths int32 [W, 2] as `pack_arrays`
      returns them; and int32 [W] each: `row`, the number of the question; `context_start`, the
      position in the row of the first token of the context; `context_length`, the number of tokens
      of the context; `window_start`, the number of the first of them in the whole context;
      `own_start` and `own_end`, the numbers of the first token that the window owns and of the
      token after the last one.
    """
    question_length = tf.minimum(tf.cast(questions.row_lengths(), tf.int32), max_query)  # [N]
    room = max_length - pair_packing.num_specials(2, tokenizer) - question_length
    windows = cut(contexts.row_lengths(), room, tf.minimum(room, stride))
    question_length = tf.gather(question_length, windows.row)  # [W]

    def part(ids: tf.RaggedTensor, first: tf.Tensor | int, size: tf.Tensor) -> tf.RaggedTensor:
        begin = tf.cast(tf.gather(ids.row_starts(), windows.row), tf.int32) + first
        places = tf.ragged.range(begin, begin + size)
        return places.with_values(tf.gather(ids.values, places.values))

    cls, sep = (
        tf.fill([tf.size(windows.row), 1], tf.constant(i, tf.int32))
        for i in (tokenizer.cls_id, tokenizer.sep_id)
    )
    question = part(questions, 0, question_length)
    context = part(contexts, windows.start, windows.length)
    separators = [sep] * tokenizer.pairs.separators
    context_start = 1 + question_length + tokenizer.pairs.separators
    return {
        "token_ids": tf.concat([cls, question, *separators, context, sep], axis=1),
        "segment_lengths": tf.stack([context_start, windows.length + 1], axis=1),
        "row": windows.row,
        "context_start": context_start,
        "context_length": windows.length,
        "window_start": windows.start,
        "own_start": windows.own_start,
        "own_end": windows.own_end,
    }


def arrange_windows(
    batch: Mapping[str, tf.Tensor], tokenizer: pair_packing.SpecialIds, layout: str
) -> dict[str, tf.Tensor]:
    """Rearranges padded windows for a layout.

    Args:
      batch: token_ids int32 [B, T], segment_ids int32 [B, T], padding_mask bool [B, T], and
        context_start and context_length int32 [B].
      tokenizer: has the special ids.
      layout: one of `pair_packing.LAYOUTS`.

    Returns:
      token_ids, segment_ids, padding_mask and context_start.
    """
    fields = ("token_ids", "segment_ids", "padding_mask")
    start, length = batch["context_start"][:, None], batch["context_length"][:, None]  # [B, 1]
    mask = batch["padding_mask"]
    total = tf.reduce_sum(tf.cast(mask, tf.int32), axis=1, keepdims=True)  # [B, 1]
    if layout == "cls_last":
        # [CLS] Q [SEP] C [SEP] becomes [CLS] C [SEP] Q [SEP], which is then arranged as any pair.
        separators = tokenizer.pairs.separators
        question_length = start - 1 - separators
        column = tf.range(tf.shape(mask)[1])[None, :]
        question = 1 + length + separators  # the position where the question begins
        origin = tf.where(
            column < 1 + length, column - 1 + start, column - length + question_length
        )
        origin = tf.where(column < question, origin, column - question + 1)
        origin = tf.where((column == 0) | (column >= total - 1), column, origin)
        second = (column >= question) & mask
        origin = tf.clip_by_value(origin, 0, tf.shape(mask)[1] - 1)
        batch = {
            "token_ids": tf.gather(batch["token_ids"], origin, batch_dims=1),
            "segment_ids": pair_packing.types_of(tf.cast(second, tf.int32), tokenizer),
            "padding_mask": mask,
        }
        start = tf.shape(mask)[1] - total  # after the padding
    moved = pair_packing.arrange({name: batch[name] for name in fields}, tokenizer, layout)
    return {**moved, "context_start": start[:, 0]}


def answer_tokens(
    starts: np.ndarray, ends: np.ndarray, answer_start: int, answer_end: int
) -> tuple[int, int] | None:
    """Returns the first and the last token of an answer, or None if no token overlaps it.

    Args:
      starts: first character of each token of the context.
      ends: the character after the last one of each token.
      answer_start: first character of the answer.
      answer_end: the character after its last one.
    """
    inside = np.flatnonzero((ends > answer_start) & (starts < answer_end))
    return (int(inside[0]), int(inside[-1])) if len(inside) else None


@dataclasses.dataclass(frozen=True)
class TextWindows:
    """How texts are read that are longer than a row.

    Attributes:
      count: the largest number of windows of a text; a longer one is cut.
      overlap: the number of tokens that two neighboring windows share.
      max_length: the largest number of tokens of a window, including special tokens.
    """

    count: int
    overlap: int
    max_length: int

    def check(self, tokenizer: pair_packing.SpecialIds, flag: str = "window_overlap: ") -> None:
        """Checks that windows have room for text and advance.

        Args:
          tokenizer: has the special ids.
          flag: how the message names the overlap.

        Raises:
          UserError: they do not.
        """
        room = self.room(tokenizer)
        if not 0 <= self.overlap < room:
            raise UserError(
                f"{flag}{self.overlap}: a window of {self.max_length} tokens has room for "
                f"{max(room, 0)} of a text, so the overlap must be from 0 to {max(room - 1, 0)}: "
                "make it smaller, or the windows longer (max_length)"
            )

    def room(self, tokenizer: pair_packing.SpecialIds) -> int:
        """Returns the number of tokens of a text in a window."""
        return self.max_length - pair_packing.num_specials(1, tokenizer)

    def tokens(self, tokenizer: pair_packing.SpecialIds) -> int:
        """Returns the number of tokens of a text that are read."""
        room = self.room(tokenizer)
        return room + (self.count - 1) * (room - self.overlap)

    def pack(
        self, texts: tf.RaggedTensor, tokenizer: pair_packing.SpecialIds
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Cuts texts into windows, eagerly or inside a graph.

        Args:
          texts: ids, int32 [N, None]; an empty text has one window.
          tokenizer: has the special ids. It says which end of a text that is too long is cut.

        Returns:
          token_ids int32 [W, None], unpadded, with the special ids; and the number of the text of
          each window, int32 [W].
        """
        lengths = tf.cast(texts.row_lengths(), tf.int32)
        kept = tf.minimum(lengths, self.tokens(tokenizer))
        begins = tf.cast(texts.row_starts(), tf.int32)
        if tokenizer.pairs.cut_side == pair_forms.LEFT:
            begins += lengths - kept
        room = self.room(tokenizer)
        made = cut(kept, room, room - self.overlap)
        begins = tf.gather(begins, made.row) + made.start
        places = tf.ragged.range(begins, begins + made.length)
        parts = places.with_values(tf.gather(texts.values, places.values))
        first, last = (
            tf.fill([tf.size(made.row), 1], tf.constant(i, tf.int32))
            for i in (tokenizer.cls_id, tokenizer.sep_id)
        )
        return tf.concat([first, parts, last], axis=1), made.row


class WordTokens(NamedTuple):
    """The tokens of texts that are lists of words.

    Attributes:
      ids: the ids, int32 [N, None].
      word_ids: the number of the word at the first token of each word, `NO_WORD` elsewhere, int32
        [N, None].
      words: the words in UTF-8, string [K]; None if the tokenizer does not read words.
    """

    ids: tf.RaggedTensor
    word_ids: tf.RaggedTensor
    words: tf.Tensor | None


def encode_words(words: tf.RaggedTensor, tokenizer: Tokenizer) -> WordTokens:
    """Returns the tokens of texts. A word that the tokenizer removes has no token.

    Args:
      words: the words of each text, UTF-8 strings [N, None].
      tokenizer: the tokenizer.
    """
    sizes = tf.strings.length(words.values, unit="UTF8_CHAR") + 1  # and the blank after the word
    ends = tf.cumsum(tf.cast(sizes, tf.int64))
    begins = tf.gather(tf.concat([[0], ends], 0), words.row_starts())  # [N]
    ends -= tf.gather(begins, offsets.rows_of(words)) + 1
    return encode_running(offsets.joined(words, " "), words.with_values(ends), tokenizer)


def encode_running(texts: tf.Tensor, ends: tf.RaggedTensor, tokenizer: Tokenizer) -> WordTokens:
    """Returns the tokens of running texts; a token belongs to the word in which it begins.

    A token that begins with the blank before a word belongs to this word.

    Args:
      texts: UTF-8 strings [N].
      ends: the end of each word, in characters (exclusive), integers [N, None].
      tokenizer: the tokenizer.
    """
    tokens = tokenizer.tokenize_with_offsets(texts)
    words = tokenizer.words(texts).values if tokenizer.reads_words else None
    # Positions in the concatenated texts, with one character between two texts.
    sizes = tf.cast(tf.strings.length(texts, unit="UTF8_CHAR"), tf.int64) + 1
    begins = tf.cumsum(sizes, exclusive=True)  # [N]
    rows = offsets.rows_of(tokens.ids)
    starts = tf.gather(begins, rows) + tf.cast(tokens.starts.values, tf.int64)  # [K]
    placed = tf.gather(begins, offsets.rows_of(ends)) + tf.cast(ends.values, tf.int64)
    number = tf.cast(tf.searchsorted(placed, starts, side="right"), tf.int64)
    number -= tf.gather(ends.row_starts(), rows)
    number = tf.minimum(number, tf.gather(ends.row_lengths(), rows) - 1)
    first = (number[1:] != number[:-1]) | (rows[1:] != rows[:-1])
    first = tf.concat([[True], first], 0)[: tf.size(number)]
    word_ids = tf.where(first, tf.cast(number, tf.int32), NO_WORD)
    return WordTokens(tokens.ids, tokens.ids.with_values(word_ids), words)


class WordWindows(NamedTuple):
    """The windows of texts that are lists of words, with their special tokens.

    Attributes:
      token_ids: int32 [W, None].
      word_ids: the words that are read in the window, int32 [W, None]: as in `WordTokens`, and
        `NO_WORD` for words that another window owns.
      places: the row of each token in the table of [CLS], [SEP] and the K tokens of all texts,
        int32 [W, None].
      windows: the windows.
    """

    token_ids: tf.RaggedTensor
    word_ids: tf.RaggedTensor
    places: tf.RaggedTensor
    windows: Windows


def cut_words(
    tokens: WordTokens, tokenizer: pair_packing.SpecialIds, max_length: int
) -> WordWindows:
    """Cuts texts into windows.

    Args:
      tokens: the tokens of the texts.
      tokenizer: has the special ids.
      max_length: maximum number of tokens in a window, including special tokens.
    """
    room = max_length - pair_packing.num_specials(1, tokenizer)
    windows = cut(tokens.ids.row_lengths(), room, max(1, room // 2))
    begins = tf.cast(tf.gather(tokens.ids.row_starts(), windows.row), tf.int32)  # [W]
    places = tf.ragged.range(begins + windows.start, begins + windows.start + windows.length)
    window = offsets.rows_of(places)
    number = places.values - tf.gather(begins, window)  # index of the token in its text
    own = number >= tf.gather(windows.own_start, window)
    own &= number < tf.gather(windows.own_end, window)
    words = tf.where(own, tf.gather(tokens.word_ids.values, places.values), NO_WORD)
    ids = tf.concat([[tokenizer.cls_id, tokenizer.sep_id], tokens.ids.values], 0)
    framed = _between(_BEGIN, places.with_values(places.values + _FIRST), _END)
    return WordWindows(
        framed.with_values(tf.gather(ids, framed.values)),
        _between(NO_WORD, places.with_values(words), NO_WORD),
        framed,
        windows,
    )


def pack_word_windows(
    tokens: WordTokens, tokenizer: Tokenizer, max_length: int
) -> dict[str, tf.Tensor]:
    """Cuts texts into windows, as `cut_words`, and pads them.

    Args:
      tokens: the tokens of the texts.
      tokenizer: has the special ids.
      max_length: maximum number of tokens in a window, including special tokens.

    Returns:
      The fields of `pair_packing.pack` with the layout `cls_first`, [W, T]; `word_ids` int32 [W,
      None]; `row` int32 [W], the number of the text; and, if the tokenizer reads words,
      `character_ids` int32 [W, T, C].
    """
    made = cut_words(tokens, tokenizer, max_length)
    token_ids = made.token_ids.to_tensor(tokenizer.pad_id)
    fields = {
        "token_ids": token_ids,
        "segment_ids": tf.zeros_like(token_ids),
        "padding_mask": tf.sequence_mask(made.token_ids.row_lengths(), tf.shape(token_ids)[1]),
        "word_ids": made.word_ids,
        "row": made.windows.row,
    }
    if tokens.words is not None:
        ends = [word_characters.SENTENCE_BEGIN, word_characters.SENTENCE_END]
        marks = np.stack([word_characters.mark(which) for which in ends])
        table = tf.concat([marks, word_characters.of_words(tokens.words)], 0)
        characters = made.places.with_values(tf.gather(table, made.places.values))
        fields["character_ids"] = characters.to_tensor(0, shape=[None, None, word_characters.WIDTH])
    return fields


def _between(first: int, values: tf.RaggedTensor, last: int) -> tf.RaggedTensor:
    """Puts a value before and after each row of int32 [W, None]."""
    column = tf.fill([values.nrows(), 1], tf.constant(0, tf.int32))
    return tf.concat([column + first, values, column + last], axis=1)
