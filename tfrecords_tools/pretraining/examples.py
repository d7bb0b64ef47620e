"""Turns chunks of text into serialized examples.

`process_chunk` is a pure function of a chunk of the input and the settings: any process on any
machine returns the same records for it.

Shapes: B rows of a batch, E examples in them (as many, where rows are not shared), K tokens of a
chunk, L tokens of all examples, T tokens of an example with padding, P predictions with padding, V
vocabulary.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official import tokenizers
from official.shards import example_bytes
from official.utils import seeding
from tfrecords_tools.pretraining import (
    blocks,
    full_sentences,
    halves,
    packing,
    pairs,
    segments,
    static_masks,
    text_rows,
    tf_models,
)
from tfrecords_tools.pretraining.chunks import DocumentChunk
from tfrecords_tools.pretraining.lexicon import Lexicon
from tfrecords_tools.pretraining.segments import Examples, TokenizedDocuments
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.text import documents, sentences

EXAMPLES_AT_ONCE = 2048
_CUTTERS = {
    "pairs": pairs.cut,
    "sentence_pairs": pairs.cut,
    "halves": halves.cut,
    "full_sentences": full_sentences.cut,
    "doc_sentences": full_sentences.cut,
    "blocks": blocks.cut,
    "joined": text_rows.cut,
    "documents": text_rows.cut,
}


class Records(NamedTuple):
    """The records of a chunk of text, or of some rows of a stream, with their counts.

    Attributes:
      examples: serialized examples.
      lengths: the number of rows with n tokens, at index n.
      documents: the number of documents that begin here and have a token.
      sentences: the number of sentences that have a token.
      tokens: the number of tokens of these, without special tokens and copies.
      cut: the number of tokens of all examples that did not fit.
      left_out: the number of texts that became no example, by reason.
      token_counts: the number of occurrences of each vocabulary entry in the text, int64 [V].
      matches: for each lexicon, the number of matches of each of its lines in the text.
      more: other counts for the manifest.
    """

    examples: Sequence[bytes] = ()
    lengths: np.ndarray | int = 0
    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    cut: int = 0
    left_out: Mapping[str, int] = {}
    token_counts: np.ndarray | int = 0
    matches: Sequence[np.ndarray] = ()
    more: Mapping[str, int] = {}


class _Tools(NamedTuple):
    """What a worker loads once for its settings; `mask` makes static masks, or is None."""

    tokenizer: tokenizers.Tokenizer
    lexicons: list[Lexicon]
    mask: Callable | None


def start_worker() -> None:
    """Sets up TensorFlow in a worker process: one thread, no accelerator."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.set_visible_devices([], "GPU")


def process_chunk(chunk: DocumentChunk, settings: Settings) -> Records:
    """Returns the examples of a chunk, in random order, and their counts."""
    tools = _tools(settings)
    tokenizer = tools.tokenizer
    own = tokens = _tokenized(chunk, settings, tokenizer)
    if chunk.others and pairs.borrows(settings.segments):
        others = DocumentChunk(chunk.number, chunk.others)
        tokens = own.with_others(_tokenized(others, settings, tokenizer))
    matches = [lexicon.find(tokens) for lexicon in tools.lexicons]
    text = _separated(tokens, settings, tokenizer.sep_id)
    examples, copies = _cut(text, chunk.number, settings, tokenizer.pair_separators)
    lengths = examples.lengths(tokenizer.pair_separators)
    members, row_splits = packing.pack(
        lengths, settings.segments.row_tokens, settings.segments.packing
    )
    flags = {}
    for (feature, _), (inner, _) in zip(settings.lexicons, matches, strict=True):
        flagged = dataclasses.replace(tokens, ids=inner.astype(np.int32))
        flags[feature] = _separated(flagged, settings, 0)
    serialized: list[bytes] = []
    for rows in _row_batches(row_splits, seeding.numpy_rng(settings.seed, chunk.number)):
        index, parts = segments.taken(row_splits, rows)
        chosen = members[index]  # [E]: the examples, one row after the other.
        seeds = seeding.row_seeds(settings.seed, copies[chosen], (chunk.number << 32) + chosen)
        columns = _columns(settings, tools, text, flags, examples[chosen], parts, seeds)
        serialized += example_bytes.serialize(columns)
    ends = np.concatenate([[0], np.cumsum(lengths[members])])
    return Records(
        examples=serialized,
        lengths=np.bincount(np.diff(ends[row_splits]), minlength=settings.segments.row_tokens + 1),
        documents=len(own.documents) - 1 - own.continues,
        sentences=len(own.sentences) - 1,
        tokens=len(own.ids),
        cut=int(examples.cut.sum()),
        left_out=pairs.left_out(own, settings.segments),
        token_counts=_counts(own, tokenizer),
        matches=[counts for _, counts in matches],
    )


def tokenize_chunk(chunk: DocumentChunk, settings: Settings) -> tuple[TokenizedDocuments, Records]:
    """Returns the tokens of a chunk, and its counts."""
    tokenizer = _tools(settings).tokenizer
    tokens = _tokenized(chunk, settings, tokenizer)
    return tokens, _counted(tokens, tokenizer)


def tokenize_words(
    chunk: DocumentChunk, settings: Settings
) -> tuple[TokenizedDocuments, np.ndarray, Records]:
    """Returns the tokens of a chunk, the word of each in UTF-8 (object [K]), and the counts.

    The tokenizer is one of words (`official.tokenizers.characters`).
    """
    tokenizer = _tools(settings).tokenizer
    texts = _texts(chunk, settings, tokenizer)
    ids, row_splits, words = tokenizer.encode_words([part for text in texts for part in text])
    tokens = TokenizedDocuments.from_sentences(
        ids, row_splits, list(map(len, texts)), chunk.continues, chunk.unfinished
    )
    return tokens, words, _counted(tokens, tokenizer)


def count_chunk(chunk: DocumentChunk, settings: Settings) -> np.ndarray:
    """Returns the count of each vocabulary entry in a chunk, as `process_chunk` counts them."""
    tokenizer = _tools(settings).tokenizer
    return _counts(_tokenized(chunk, settings, tokenizer), tokenizer)


def _counted(tokens: TokenizedDocuments, tokenizer: tokenizers.Tokenizer) -> Records:
    return Records(
        documents=len(tokens.documents) - 1 - tokens.continues,
        sentences=len(tokens.sentences) - 1,
        tokens=len(tokens.ids),
        token_counts=_counts(tokens, tokenizer),
    )


def _counts(tokens: TokenizedDocuments, tokenizer: tokenizers.Tokenizer) -> np.ndarray:
    return np.bincount(tokens.ids, minlength=tokenizer.vocab_size)


def _texts(
    chunk: DocumentChunk, settings: Settings, tokenizer: tokenizers.Tokenizer
) -> Sequence[list[str]]:
    """Returns the sentences of each document."""
    texts = chunk.documents
    if not tokenizer.keeps_space:
        texts = [documents.cleaned(lines) for lines in texts]
    if settings.split_sentences:
        texts = [[s for line in lines for s in sentences.split(line)] for lines in texts]
    return texts


def _tokenized(
    chunk: DocumentChunk, settings: Settings, tokenizer: tokenizers.Tokenizer
) -> TokenizedDocuments:
    texts = _texts(chunk, settings, tokenizer)
    ids, row_splits = tokenizer.encode_slices(texts)
    counts = [len(slices) for slices in texts]
    return TokenizedDocuments.from_sentences(
        ids, row_splits, counts, chunk.continues, chunk.unfinished
    )


def _separated(
    tokens: TokenizedDocuments, settings: Settings, separator: int
) -> TokenizedDocuments:
    """Returns the tokens that examples are cut from; those of blocks include separators."""
    if settings.segments.format != "blocks":
        return tokens
    return blocks.separated(tokens, separator)


def _cut(
    text: TokenizedDocuments, number: int, settings: Settings, between: int
) -> tuple[Examples, np.ndarray]:
    """Returns the examples of all copies of a chunk, and the number of the copy of each, [E]."""
    cutter = _CUTTERS[settings.segments.format]
    copies = range(settings.segments.duplicates)
    parts = [
        cutter(text, settings.segments, seeding.numpy_rng(settings.seed, number, i), between)
        for i in copies
    ]
    return segments.concatenate(parts), np.repeat(copies, [len(part) for part in parts])


def _row_batches(row_splits: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    """Returns the rows in random order, in batches of about `EXAMPLES_AT_ONCE` examples."""
    order = rng.permutation(len(row_splits) - 1)
    ends = np.cumsum(np.diff(row_splits)[order])  # The number of examples up to each row.
    total = int(row_splits[-1])
    cuts = np.searchsorted(ends, np.arange(EXAMPLES_AT_ONCE, total, EXAMPLES_AT_ONCE), side="right")
    return [rows for rows in np.split(order, cuts) if len(rows)]


def _columns(
    settings: Settings,
    tools: _Tools,
    text: TokenizedDocuments,
    flags: Mapping[str, TokenizedDocuments],
    examples: Examples,
    parts: np.ndarray,
    seeds: tf.Tensor,
) -> dict[str, example_bytes.Column]:
    """Returns the features of a batch of rows.

    Args:
      settings: the settings.
      tools: the tools of the worker.
      text: the tokens of the chunk.
      flags: for each lexicon feature, flags instead of the ids of `text`.
      examples: the examples, one row after the other.
      parts: the row splits of the examples, [B + 1].
      seeds: the seed of each example, [E].
    """
    tokenizer = tools.tokenizer
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
    if tools.mask is not None:
        # [E, T]: masks are drawn for each example, whatever else is in its row.
        padding_mask = np.arange(settings.segments.max_length) < np.diff(part_splits)[:, None]
        masked = tools.mask({"token_ids": ids, **inner}, padding_mask, seeds)
        if settings.format == "tf_models":
            pair_lengths = lengths.reshape(-1, 2)
            return tf_models.columns(
                {**masked, "segment_lengths": pair_lengths, "next_sentence_label": examples.labels}
            )
        columns |= static_masks.columns(masked, padding_mask, part_splits, parts)
    if settings.segments.format == "blocks":
        columns["next_id"] = (blocks.next_ids(text, examples), parts)
    return columns


def _positions(flags: np.ndarray, row_splits: np.ndarray) -> example_bytes.Column:
    """Returns the positions of the true flags, counted from the beginning of each row."""
    (positions,) = np.nonzero(flags)
    starts = np.searchsorted(positions, row_splits)
    return positions - np.repeat(row_splits[:-1], np.diff(starts)), starts


@functools.lru_cache(maxsize=1)
def _tools(settings: Settings) -> _Tools:
    tokenizer = tokenizers.load(settings.tokenizer)
    lexicons = [Lexicon(path, tokenizer) for _, path in settings.lexicons]
    mask = None if settings.corruption is None else static_masks.masker(settings, tokenizer)
    return _Tools(tokenizer, lexicons, mask)
