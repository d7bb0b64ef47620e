"""Pieces of text become serialized examples, and these become shards.

`process_piece` is a pure function of a piece of the input and the settings: any process on any
machine gives the same records for it.

Shapes: B rows of a batch, E examples in them (as many, where rows are not shared), T tokens of an
example with padding, P predictions with padding.
"""

import dataclasses
import errno
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from official import config, tokenizers
from official.corruption.vocabulary import Vocabulary
from official.shards import manifest, token_counts
from official.utils import checksums, seeding
from tfrecords_tools.pretraining import (
    blocks,
    full_sentences,
    halves,
    packing,
    pairs,
    segments,
    tf_models,
)
from tfrecords_tools.pretraining.chunks import DocumentChunk
from tfrecords_tools.pretraining.lexicon import Lexicon
from tfrecords_tools.text import documents, sentences
from tfrecords_tools.writing import example_bytes

FORMATS = ("examples", "tf_models")
_CUTTERS = {
    "pairs": pairs.cut,
    "sentence_pairs": pairs.cut,
    "halves": halves.cut,
    "full_sentences": full_sentences.cut,
    "doc_sentences": full_sentences.cut,
    "blocks": blocks.cut,
}
_BATCH = 2048  # examples made at once


@dataclasses.dataclass(frozen=True)
class Settings:
    """What decides the records of a piece, besides its text.

    Attributes:
      segments: how documents become sequences.
      corruption: the masks that are made once and for all, or None.
      tokenizer: a tokenizer folder.
      seed: of every draw.
      format: 'examples' (`official.shards.features`) or 'tf_models'.
      split_sentences: whether lines are paragraphs, to be split.
      lexicons: files of phrases and entities: (feature, path) each.
      token_counts: folder of a file with the count of each piece in the corpus, which static masks
        may draw by; "" = none.
    """

    segments: config.Segments
    corruption: Any
    tokenizer: str
    seed: int
    format: str = "examples"
    split_sentences: bool = False
    lexicons: tuple[tuple[str, str], ...] = ()
    token_counts: str = ""


class Records(NamedTuple):
    """What a piece, or some rows of a stream, came to.

    Attributes:
      examples: serialized.
      lengths: at place n the number of rows with n tokens.
      documents: those that begin here and have a token, and likewise
      sentences: those with a token.
      tokens: of these, counted once and without specials.
      cut: tokens of all examples that did not fit.
      left_out: what became of no example, counted by reason.
      token_counts: how often each piece stands in the text, int64 [V].
      matches: for each lexicon how often each of its lines was found in the text.
      more: other counts, for the manifest.
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


def process_piece(piece: DocumentChunk, settings: Settings) -> Records:
    """Makes the examples of a piece, in random order: all that the workers do."""
    tokenizer, lexicons, mask = _tools(settings)
    own = tokens = _tokenized(piece, settings, tokenizer)
    if piece.others and pairs.borrows(settings.segments):
        others = DocumentChunk(piece.number, piece.others)
        tokens = own.with_others(_tokenized(others, settings, tokenizer))
    found = [lexicon.find(tokens) for lexicon in lexicons]
    text = _separated(tokens, settings, tokenizer.sep_id)
    counters = (settings.seed, piece.number)
    rounds = range(settings.segments.duplicates)
    cutter = _CUTTERS[settings.segments.format]
    between = tokenizer.pair_separators
    parts = [
        cutter(text, settings.segments, seeding.numpy_rng(*counters, i), between) for i in rounds
    ]
    examples = segments.concatenate(parts)
    duplicates = np.repeat(rounds, [len(part) for part in parts])
    lengths = examples.lengths(between)
    members, row_splits = packing.pack(
        lengths, settings.segments.row_tokens, settings.segments.packing
    )
    order = seeding.numpy_rng(*counters).permutation(len(row_splits) - 1)
    made: list[bytes] = []
    ends = np.cumsum(np.diff(row_splits)[order])  # examples up to each row
    cuts = np.searchsorted(ends, np.arange(_BATCH, len(members), _BATCH), side="right")
    for some in filter(len, np.split(order, cuts)):
        index, parts = segments.taken(row_splits, some)
        rows = members[index]  # examples, one row after the other
        seeds = seeding.row_seeds(settings.seed, duplicates[rows], (piece.number << 32) + rows)
        batch = segments.assemble(text, examples[rows], tokenizer.cls_id, tokenizer.sep_id, between)
        inner = {}
        for (feature, _), (flags, _) in zip(settings.lexicons, found, strict=True):
            flagged = dataclasses.replace(tokens, ids=flags.astype(np.int32))
            flagged = _separated(flagged, settings, 0)
            inner[feature] = segments.assemble(flagged, examples[rows], 0, 0, between)[0] > 0
        columns = _columns(settings, parts, *batch, examples.labels[rows], inner, mask, seeds)
        if settings.segments.format == "blocks":
            columns["next_id"] = (blocks.next_ids(text, examples[rows]), parts)
        made += example_bytes.serialize(columns)
    ends = np.concatenate([[0], np.cumsum(lengths[members])])
    return Records(
        made,
        np.bincount(np.diff(ends[row_splits]), minlength=settings.segments.row_tokens + 1),
        len(own.documents) - 1 - own.continues,
        len(own.sentences) - 1,
        len(own.ids),
        int(examples.cut.sum()),
        pairs.left_out(own, settings.segments),
        _counts(own, tokenizer),
        [matches for _, matches in found],
    )


def tokenize_piece(
    piece: DocumentChunk, settings: Settings
) -> tuple[segments.TokenizedDocuments, Records]:
    """Returns the tokens of a piece, and the counts of what is in it."""
    tokenizer, _, _ = _tools(settings)
    tokens = _tokenized(piece, settings, tokenizer)
    return tokens, Records(
        documents=len(tokens.documents) - 1 - tokens.continues,
        sentences=len(tokens.sentences) - 1,
        tokens=len(tokens.ids),
        token_counts=_counts(tokens, tokenizer),
    )


def count_piece(piece: DocumentChunk, settings: Settings) -> np.ndarray:
    """Counts the pieces of the vocabulary in a piece of text, as `process_piece` does."""
    tokenizer, _, _ = _tools(settings)
    return _counts(_tokenized(piece, settings, tokenizer), tokenizer)


def _counts(tokens: segments.TokenizedDocuments, tokenizer: tokenizers.Tokenizer) -> np.ndarray:
    return np.bincount(tokens.ids, minlength=tokenizer.vocab_size)


def _tokenized(
    piece: DocumentChunk, settings: Settings, tokenizer: tokenizers.Tokenizer
) -> segments.TokenizedDocuments:
    texts = piece.documents
    if not tokenizer.keeps_space:
        texts = [documents.cleaned(lines) for lines in texts]
    if settings.split_sentences:
        texts = [[s for line in lines for s in sentences.split(line)] for lines in texts]
    ids, row_splits = tokenizer.encode_slices(texts)
    counts = [len(slices) for slices in texts]
    return segments.TokenizedDocuments.from_sentences(
        ids, row_splits, counts, piece.continues, piece.unfinished
    )


def _separated(
    piece: segments.TokenizedDocuments, settings: Settings, separator: int
) -> segments.TokenizedDocuments:
    """Returns what examples are runs of: in blocks, separators are among the tokens."""
    if settings.segments.format != "blocks":
        return piece
    return blocks.separated(piece, separator)


def _columns(
    settings: Settings,
    parts: np.ndarray,
    ids: np.ndarray,
    part_splits: np.ndarray,
    segment_lengths: example_bytes.Column,
    labels: np.ndarray,
    inner: dict[str, np.ndarray],
    mask: Callable | None,
    seeds: tf.Tensor,
) -> dict[str, example_bytes.Column]:
    """Returns the features of a batch of rows; `parts` [B + 1] says which examples are in each.

    `part_splits` [E + 1] says where examples begin in `ids`; `labels` and `seeds` are theirs [E].
    """
    row_splits = part_splits[parts]
    lengths, segment_splits = segment_lengths
    columns = {
        "token_ids": (ids, row_splits),
        "segment_lengths": (lengths, segment_splits[parts]),
    }
    if settings.segments.packing > 1:
        columns["part_lengths"] = (np.diff(part_splits), parts)
    if settings.segments.label:
        columns[settings.segments.label] = (labels, parts)
    for name, flags in inner.items():
        if settings.format == "examples":
            columns[name] = _positions(flags, row_splits)
    if mask is None:
        return columns
    # [E, T]: masks are drawn for each example, whichever share its row.
    padding_mask = np.arange(settings.segments.max_length) < np.diff(part_splits)[:, None]
    masked = mask({"token_ids": ids, **inner}, padding_mask, seeds)
    if settings.format == "tf_models":
        pairs = lengths.reshape(-1, 2)
        given = {"segment_lengths": pairs, "next_sentence_label": labels}
        return tf_models.columns({**masked, **given})
    columns["token_ids"] = (masked["token_ids"][padding_mask], row_splits)
    times = masked["masked_weights"].astype(np.int64)  # [E, P]: how often each is listed
    starts = np.concatenate([[0], np.cumsum(times.sum(axis=1))])[parts]
    before = part_splits[:-1] - np.repeat(row_splits[:-1], np.diff(parts))  # [E]: in the same row
    positions = masked["masked_positions"] + before[:, None]
    columns["masked_positions"] = (np.repeat(positions, times.ravel()), starts)
    columns["masked_ids"] = (np.repeat(masked["masked_ids"], times.ravel()), starts)
    return columns


def _positions(flags: np.ndarray, row_splits: np.ndarray) -> example_bytes.Column:
    """Lists where flags of all examples are true, counted from each example's beginning."""
    (places,) = np.nonzero(flags)
    starts = np.searchsorted(places, row_splits)
    return places - np.repeat(row_splits[:-1], np.diff(starts)), starts


@functools.lru_cache(maxsize=1)
def _tools(settings: Settings) -> tuple[tokenizers.Tokenizer, list[Lexicon], Callable | None]:
    """Returns the tokenizer, the lexicons, and what makes static masks (None: there are none)."""
    tokenizer = tokenizers.load(settings.tokenizer)
    lexicons = [Lexicon(path, tokenizer) for _, path in settings.lexicons]
    if settings.corruption is None:
        return tokenizer, lexicons, None
    corruption = config.module_of(settings.corruption)
    counts = None
    if settings.token_counts:
        counts = np.load(Path(settings.token_counts) / token_counts.FILE)
    vocabulary = Vocabulary.from_tokenizer(tokenizer, counts, settings.corruption)
    places = settings.segments.max_length
    fields = {"token_ids": tf.int32, "padding_mask": tf.bool}
    fields |= dict.fromkeys(settings.corruption.needs(), tf.bool)

    @tf.function(
        input_signature=[
            {name: tf.TensorSpec([None, places], dtype) for name, dtype in fields.items()},
            tf.TensorSpec([None], tf.uint64),
        ]
    )
    def corrupt(batch, seeds):
        return corruption.corrupt(settings.corruption, vocabulary, batch, seeds)

    def mask(values, padding_mask, seeds):
        batch = {"padding_mask": padding_mask}
        for name in fields.keys() & values.keys():
            fill = tokenizer.pad_id if name == "token_ids" else False
            batch[name] = np.full(padding_mask.shape, fill, values[name].dtype)
            batch[name][padding_mask] = values[name]
        return {k: v.numpy() for k, v in corrupt(batch, seeds).items()}

    return tokenizer, lexicons, mask


def start_worker() -> None:
    """Sets TensorFlow up in a worker process: one thread, no accelerator."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.set_visible_devices([], "GPU")


class Writer:
    """Spreads records over the shards of a folder: record i goes to shard i modulo their number."""

    def __init__(self, folder: Path, shards: int, split: str = "train"):
        self.folder = folder
        self._split = split
        self._paths = [folder / f"{split}-{i:05d}-of-{shards:05d}.tfrecord" for i in range(shards)]
        self._writers = [tf.io.TFRecordWriter(str(path)) for path in self._paths]
        self._next = itertools.cycle(range(shards))
        self._records = [0] * shards

    def contiguous(self, total: int) -> None:
        """Before anything is written: of `total` records, the first ones go to the first shard."""
        shards = len(self._writers)
        self._next = iter(i * shards // total for i in range(total))

    def write(self, records: Iterable[bytes]) -> None:
        """Appends records.

        Raises:
          OSError: the disk is full.
        """
        for record, shard in zip(records, self._next, strict=False):
            _on_disk(self._writers[shard].write, record)
            self._records[shard] += 1

    def finish(self) -> tuple[manifest.Shard, ...]:
        """Closes the shards and returns their entries in the manifest.

        Raises:
          OSError: the disk is full.
        """
        entries = []
        for path, writer, records in zip(self._paths, self._writers, self._records, strict=True):
            _on_disk(writer.close)
            digest = checksums.hash_file(path)
            entries.append(
                manifest.Shard(path.name, records, path.stat().st_size, digest, self._split)
            )
        return tuple(entries)


def _on_disk(function: Callable, *args) -> None:
    try:
        function(*args)
    except tf.errors.ResourceExhaustedError as error:  # what TensorFlow makes of a full disk
        raise OSError(errno.ENOSPC, "No space left on device") from error
