"""Turns chunks of text into serialized examples.

`process_group` is a pure function of a group of ranges of the corpus and the settings: any process
on any machine returns the same records for it. Static masks are drawn here; others are drawn when
examples are read.

Shapes: B rows of a batch, E examples in them (as many, where rows are not shared), K tokens of a
chunk, L tokens of all examples, N records, T tokens of an example with padding, P predictions with
padding, V vocabulary.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official import config, tokenizers
from official.corruption.vocabulary import Vocabulary
from official.shards import example_bytes, stored_arrays
from official.tokenizers import loading
from official.utils import host_seeding, parallel, paths, seeding
from tfrecords_tools.pretraining import (
    bin_packing,
    full_sentences,
    halves,
    pairs,
    segments,
    text_rows,
    tf_models,
)
from tfrecords_tools.pretraining.counts import LONG_WORD, Counts
from tfrecords_tools.pretraining.lexicon import Lexicon
from tfrecords_tools.pretraining.segments import Examples, TokenizedDocuments
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.text import corpus, documents, sentences
from tfrecords_tools.text.corpus import DocumentChunk, Group, Reading
from tfrecords_tools.writing.shuffle import Keyed

EXAMPLES_AT_ONCE = 2048
_CUTTERS = {
    "pairs": pairs.cut,
    "sentence_pairs": pairs.cut,
    "halves": halves.cut,
    "full_sentences": full_sentences.cut,
    "doc_sentences": full_sentences.cut,
    "blocks": text_rows.cut_blocks,
    "joined": text_rows.cut,
    "documents": text_rows.cut,
}


class _Tools(NamedTuple):
    """Objects that a worker loads once for its settings; `mask` makes static masks, or is None."""

    tokenizer: tokenizers.Tokenizer
    lexicons: list[Lexicon]
    mask: Callable | None


def start_worker() -> None:
    """Sets up a worker process."""
    parallel.use_one_thread()


def process_group(group: Group, settings: Settings, reading: Reading) -> Iterator[Keyed]:
    """Yields the examples of a group of ranges, with the keys of their order, and the counts.

    Raises:
      UserError: the text cannot be read.
    """
    before = 0  # the number of records of earlier chunks
    for chunk in corpus.read_chunks(
        group, reading, shared=pairs.needs_other_documents(settings.segments)
    ):
        records, counts = process_chunk(chunk, settings)
        numbers = before + np.arange(len(records))
        before += len(records)
        yield Keyed(host_seeding.sort_keys(settings.seed, group.number, numbers), records, counts)


def process_chunk(chunk: DocumentChunk, settings: Settings) -> tuple[list[bytes], Counts]:
    """Returns the examples of a chunk, and the counts."""
    tools = _tools(settings)
    tokenizer = tools.tokenizer
    tokens, at_blanks = _tokenized(chunk, settings, tokenizer)
    matches = [lexicon.find(tokens) for lexicon in tools.lexicons]
    text = _separated(tokens, settings, tokenizer.sep_id)
    examples, copies = _cut(text, chunk, settings, tokenizer.pair_separators)
    lengths = examples.lengths(tokenizer.pair_separators)
    members, row_splits = bin_packing.pack(
        lengths, settings.segments.row_tokens, settings.segments.packing
    )
    flags = {}
    for (feature, _), (inner, _) in zip(settings.lexicons, matches, strict=True):
        flagged = dataclasses.replace(tokens, ids=inner.astype(np.int32))
        flags[feature] = _separated(flagged, settings, 0)
    serialized: list[bytes] = []
    for rows in _row_batches(row_splits):
        index, parts = segments.select_rows(row_splits, rows)
        chosen = members[index]  # [E]: the examples, one row after the other.
        mask = None
        if tools.mask is not None:
            numbers = host_seeding.sort_keys(settings.seed, chunk.group, chunk.number, chosen)
            mask = functools.partial(tools.mask, copies=copies[chosen], numbers=numbers)
        columns = _columns(settings, tokenizer, text, flags, examples[chosen], parts, mask)
        serialized += example_bytes.serialize(columns)
    ends = np.concatenate([[0], np.cumsum(lengths[members])])
    counts = _counted(chunk, tokens, settings, at_blanks)
    counts.totals.update(examples=len(serialized), cut_tokens=int(examples.cut.sum()))
    counts.skipped.update(pairs.left_out(tokens, settings.segments))
    if left_out := pairs.left_out_tokens(tokens, settings.segments):
        counts.totals["left_out_tokens"] = left_out
    rows_of_length = np.diff(ends[row_splits])
    counts.lengths = np.bincount(rows_of_length, minlength=settings.segments.row_tokens + 1)
    counts.matches = [lines for _, lines in matches]
    return serialized, counts


def tokenize_chunk(chunk: DocumentChunk, settings: Settings) -> tuple[TokenizedDocuments, Counts]:
    """Returns the tokens of a chunk, and the counts."""
    tokenizer = _tools(settings).tokenizer
    tokens, at_blanks = _tokenized(chunk, settings, tokenizer)
    return tokens, _counted(chunk, tokens, settings, at_blanks)


def tokenize_words(
    chunk: DocumentChunk, settings: Settings
) -> tuple[TokenizedDocuments, np.ndarray, Counts]:
    """Returns the tokens of a chunk, the word of each in UTF-8 (object [K]), and the counts.

    The builder has checked that the tokenizer reads words.
    """
    tokenizer = _tools(settings).tokenizer
    texts, at_blanks = _texts(chunk, settings, tokenizer)
    ids, row_splits, words = tokenizer.encode_words([part for text in texts for part in text])
    tokens = TokenizedDocuments.from_sentences(
        ids, row_splits, list(map(len, texts)), chunk.documents
    )
    return tokens, words, _counted(chunk, tokens, settings, at_blanks)


def count_group(group: Group, settings: Settings, reading: Reading) -> np.ndarray:
    """Returns the count of each vocabulary entry in a group, int64 [V]."""
    tokenizer = _tools(settings).tokenizer
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    for chunk in corpus.read_chunks(group, reading, shared=False):
        tokens, _ = _tokenized(chunk, settings, tokenizer)
        counts += _counts(tokens, tokenizer)
    return counts


def _counted(
    chunk: DocumentChunk,
    tokens: TokenizedDocuments,
    settings: Settings,
    at_blanks: int,
) -> Counts:
    """Returns the counts of the text of a chunk."""
    tokenizer = _tools(settings).tokenizer
    totals = collections.Counter(
        documents=tokens.begun, sentences=len(tokens.sentences) - 1, tokens=len(tokens.ids)
    )
    if at_blanks:
        totals["at_blanks"] = at_blanks
    return Counts(
        totals=totals,
        skipped=chunk.read_counts.skipped.copy(),
        read=chunk.read_counts.documents,
        long=chunk.read_counts.long,
        tokens=_counts(tokens, tokenizer),
        words=_words(tokens, settings),
    )


def _words(tokens: TokenizedDocuments, settings: Settings) -> np.ndarray:
    """Returns the counts of words, int64 [3]: see `Counts`; 0 if masks do not hide words.

    Words are those of `official.corruption.units`, without special tokens.
    """
    if settings.words is None:
        return np.zeros(3, np.int64)
    begin, end = _bounds(settings, settings.words[1])
    first = begin[tokens.ids]
    first[1:] |= end[tokens.ids[:-1]]
    first[tokens.sentences[:-1]] = True
    lengths = np.diff(np.flatnonzero(np.append(first, True)))
    long = lengths[lengths > LONG_WORD]
    return np.array([len(lengths), len(long), long.sum()], np.int64)


@functools.lru_cache(maxsize=1)
def _bounds(settings: Settings, rule: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns whether pieces begin a word, and whether they end a word, bool [V] each."""
    tokenizer = _tools(settings).tokenizer
    return tokenizer.word_starts_by(rule), tokenizer.word_ends


def _counts(tokens: TokenizedDocuments, tokenizer: tokenizers.Tokenizer) -> np.ndarray:
    return np.bincount(tokens.ids, minlength=tokenizer.vocab_size)


def _texts(
    chunk: DocumentChunk, settings: Settings, tokenizer: tokenizers.Tokenizer
) -> tuple[Sequence[list[str]], int]:
    """Returns the sentences of each document, and the number of sentences that end at a blank."""
    lines = documents.slices if tokenizer.keeps_space else documents.cleaned
    texts = [lines(document.text) for document in chunk.documents]
    if not settings.split_sentences:
        return texts, 0
    split = [[sentences.find(line) for line in lines] for lines in texts]
    return (
        [[text for found in of_lines for text in found.texts] for of_lines in split],
        sum(found.at_blanks for of_lines in split for found in of_lines),
    )


def _tokenized(
    chunk: DocumentChunk, settings: Settings, tokenizer: tokenizers.Tokenizer
) -> tuple[TokenizedDocuments, int]:
    """Returns the tokens of a chunk, and the number of sentences that end at a blank."""
    texts, at_blanks = _texts(chunk, settings, tokenizer)
    ids, row_splits = tokenizer.encode_slices(texts)
    counts = [len(slices) for slices in texts]
    return TokenizedDocuments.from_sentences(ids, row_splits, counts, chunk.documents), at_blanks


def _separated(
    tokens: TokenizedDocuments, settings: Settings, separator: int
) -> TokenizedDocuments:
    """Returns the tokens that examples are cut from; for blocks, with separators."""
    if settings.segments.format != "blocks":
        return tokens
    return text_rows.separated(tokens, separator)


def _cut(
    text: TokenizedDocuments, chunk: DocumentChunk, settings: Settings, between: int
) -> tuple[Examples, np.ndarray]:
    """Returns the examples of all copies of a chunk, and the index of each example's copy, [E]."""
    cutter = _CUTTERS[settings.segments.format]
    copies = range(settings.segments.duplicates)
    seeds = [(settings.seed, chunk.group, chunk.number, i) for i in copies]
    parts = [
        cutter(text, settings.segments, host_seeding.numpy_rng(*counters), between)
        for counters in seeds
    ]
    return segments.concatenate(parts), np.repeat(copies, [len(part) for part in parts])


def _row_batches(row_splits: np.ndarray) -> list[np.ndarray]:
    """Returns the rows in batches of about `EXAMPLES_AT_ONCE` examples."""
    wanted = np.arange(EXAMPLES_AT_ONCE, int(row_splits[-1]), EXAMPLES_AT_ONCE)
    cuts = np.searchsorted(row_splits[1:], wanted, side="right")
    return [rows for rows in np.split(np.arange(len(row_splits) - 1), cuts) if len(rows)]


def _columns(
    settings: Settings,
    tokenizer: tokenizers.Tokenizer,
    text: TokenizedDocuments,
    flags: Mapping[str, TokenizedDocuments],
    examples: Examples,
    parts: np.ndarray,
    mask: Callable | None,
) -> dict[str, example_bytes.Column]:
    """Returns the features of a batch of rows.

    Args:
      settings: the settings.
      tokenizer: the tokenizer.
      text: the tokens of the chunk.
      flags: for each lexicon feature, flags instead of the ids of `text`.
      examples: the examples, one row after the other.
      parts: the row splits of the examples, [B + 1].
      mask: makes the static masks of token features, concatenated [L], with a padding mask [E, T];
        None = there are none.
    """
    between = tokenizer.pair_separators
    ids, part_splits, (lengths, segment_splits) = segments.assemble(
        text, examples, tokenizer.cls_id, tokenizer.sep_id, between
    )
    inner = {
        name: segments.assemble(flagged, examples, 0, 0, between)[0] > 0
        for name, flagged in flags.items()
    }
    row_splits = part_splits[parts]
    columns = {
        "token_ids": (ids, row_splits),
        "segment_lengths": (lengths, segment_splits[parts]),
    }
    if settings.segments.packing > 1:
        columns["part_lengths"] = (np.diff(part_splits), parts)
    if settings.segments.label:
        columns[settings.segments.label] = (examples.labels, parts)
    for name, values in inner.items():
        if settings.format == "examples":
            columns[name] = _positions(values, row_splits)
    if mask is not None:
        # [E, T]: masks are drawn for each example, independently of others in its row.
        padding_mask = np.arange(settings.segments.max_length) < np.diff(part_splits)[:, None]
        masked = mask({"token_ids": ids, **inner}, padding_mask)
        if settings.format in tf_models.FORMATS:
            pair_lengths = lengths.reshape(-1, 2)
            return tf_models.columns(
                {**masked, "segment_lengths": pair_lengths, "next_sentence_label": examples.labels},
                settings.format,
                tokenizer.pairs,
            )
        columns |= _masked_columns(masked, padding_mask, part_splits, parts)
    if settings.segments.format == "blocks":
        columns["next_id"] = (text_rows.next_ids(text, examples), parts)
    return columns


def _positions(flags: np.ndarray, row_splits: np.ndarray) -> example_bytes.Column:
    """Returns the positions of the true flags, counted from the beginning of each row."""
    (positions,) = np.nonzero(flags)
    starts = np.searchsorted(positions, row_splits)
    return positions - np.repeat(row_splits[:-1], np.diff(starts)), starts


@functools.lru_cache(maxsize=1)
def _tools(settings: Settings) -> _Tools:
    tokenizer = loading.load(settings.tokenizer)
    lexicons = [Lexicon(path, tokenizer) for _, path in settings.lexicons]
    mask = None if settings.corruption is None else _masker(settings, tokenizer)
    return _Tools(tokenizer, lexicons, mask)


def _masker(settings: Settings, tokenizer: tokenizers.Tokenizer) -> Callable:
    """Returns a function that masks examples with the corruption of the settings.

    The function takes token features, concatenated [L], a padding mask [E, T], and for each example
    the index of its copy, int64 [E], and its own index, uint64 [E]. It returns the masked batch.
    """
    corruption = config.module_of(settings.corruption)
    counts = None
    if settings.token_counts:
        with paths.local_copy(
            paths.join(settings.token_counts, stored_arrays.TOKEN_COUNTS)
        ) as path:
            counts = np.load(path)
    vocabulary = Vocabulary.from_tokenizer(tokenizer, counts, settings.corruption)
    max_length = settings.segments.max_length
    fields = {"token_ids": tf.int32, "padding_mask": tf.bool}
    fields |= dict.fromkeys(settings.corruption.needs(), tf.bool)

    @tf.function(
        input_signature=[
            {name: tf.TensorSpec([None, max_length], dtype) for name, dtype in fields.items()},
            tf.TensorSpec([None], tf.int64),
            tf.TensorSpec([None], tf.uint64),
        ],
        autograph=False,
    )
    def corrupt(
        batch: dict[str, tf.Tensor], copies: tf.Tensor, numbers: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        seeds = seeding.row_seeds(settings.seed, copies, numbers)
        return corruption.corrupt(settings.corruption, vocabulary, batch, seeds)

    def mask(
        values: Mapping[str, np.ndarray],
        padding_mask: np.ndarray,
        copies: np.ndarray,
        numbers: np.ndarray,
    ) -> dict[str, np.ndarray]:
        batch = {"padding_mask": padding_mask}
        for name in fields.keys() & values.keys():
            fill = tokenizer.pad_id if name == "token_ids" else False
            batch[name] = np.full(padding_mask.shape, fill, values[name].dtype)
            batch[name][padding_mask] = values[name]
        return {name: value.numpy() for name, value in corrupt(batch, copies, numbers).items()}

    return mask


def _masked_columns(
    masked: Mapping[str, np.ndarray],
    padding_mask: np.ndarray,
    part_splits: np.ndarray,
    parts: np.ndarray,
) -> dict[str, example_bytes.Column]:
    """Returns the features that static masks change or add.

    Args:
      masked: the masked batch, token_ids int32 [E, T], masked_positions, masked_ids and
        masked_weights [E, P].
      padding_mask: bool [E, T].
      part_splits: the row splits of the examples among their tokens, [E + 1].
      parts: the row splits of the rows among the examples, [B + 1].
    """
    row_splits = part_splits[parts]
    times = masked["masked_weights"].astype(np.int64)  # [E, P]: how often each is listed.
    starts = np.concatenate([[0], np.cumsum(times.sum(axis=1))])[parts]
    before = part_splits[:-1] - np.repeat(row_splits[:-1], np.diff(parts))  # [E]: in the same row.
    positions = masked["masked_positions"] + before[:, None]
    return {
        "token_ids": (masked["token_ids"][padding_mask], row_splits),
        "masked_positions": (np.repeat(positions, times.ravel()), starts),
        "masked_ids": (np.repeat(masked["masked_ids"], times.ravel()), starts),
    }
