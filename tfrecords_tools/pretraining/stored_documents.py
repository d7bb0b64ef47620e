"""Makes the documents of a stream as records, so that they can be shuffled.

A document has a record for each of its parts. The parts of a document follow one another in the
shuffled order, and so do the copies of the corpus (`segments.duplicates`).

Shapes: D documents.
"""

from collections.abc import Iterator

import numpy as np

from official.tokenizers.word_characters import MAX_BYTES
from official.utils import host_seeding
from tfrecords_tools.pretraining import examples
from tfrecords_tools.pretraining.segments import TokenizedDocuments
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.pretraining.stored_document import StoredDocument
from tfrecords_tools.text import corpus
from tfrecords_tools.text.corpus import Group, Reading
from tfrecords_tools.writing.shuffle import Keyed

_PART_BITS = 9  # of a key; the others are the hash of the document


def make(group: Group, settings: Settings, reading: Reading) -> Iterator[Keyed]:
    """Yields the documents of a group, with the keys of their order, and the counts.

    Raises:
      UserError: the text cannot be read.
    """
    for chunk in corpus.read_chunks(group, reading, shared=False):
        words = None
        if settings.segments.sentences:
            text, words, counts = examples.tokenize_words(chunk, settings)
            counts.totals["cut_words"] = sum(len(word) > MAX_BYTES for word in words)
        else:
            text, counts = examples.tokenize_chunk(chunk, settings)
        identities = host_seeding.sort_keys(0, *text.identities.T)  # [D]
        records = [document.pack() for document in _documents(text, identities, words)]
        copies = settings.segments.duplicates
        keys = [
            _keys(
                host_seeding.sort_keys(settings.seed, copy, identities.view(np.int64)),
                copy,
                text,
                copies,
            )
            for copy in range(copies)
        ]
        yield Keyed(np.concatenate(keys), records * copies, counts)


def _keys(hashes: np.ndarray, copy: int, text: TokenizedDocuments, copies: int) -> np.ndarray:
    """Returns the keys of the documents of a copy: one copy comes after the other."""
    bits = 64 - _PART_BITS
    hashes = (hashes >> np.uint64(_PART_BITS)) + np.uint64(copy << bits)
    return (hashes // np.uint64(copies) << np.uint64(_PART_BITS)) + text.parts.astype(np.uint64)


def _documents(
    text: TokenizedDocuments, identities: np.ndarray, words: np.ndarray | None
) -> Iterator[StoredDocument]:
    """Yields the documents of a chunk."""
    sentence_lengths = np.diff(text.sentences).astype(np.int32)
    lengths, data, ends = np.zeros(0, np.uint8), b"", np.zeros(1, np.int64)
    if words is not None:
        cut = [word[:MAX_BYTES] for word in words]
        lengths = np.fromiter(map(len, cut), np.uint8, len(cut))
        data = b"".join(cut)
        ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    bytes_ = np.frombuffer(data, np.uint8)
    for number, (begin, end) in enumerate(
        zip(text.documents[:-1], text.documents[1:], strict=True)
    ):
        first, last = text.sentences[begin], text.sentences[end]
        yield StoredDocument(
            int(identities[number]),
            int(text.parts[number]),
            bool(text.unfinished[number]),
            sentence_lengths[begin:end],
            text.ids[first:last].astype(np.int32),
            lengths[first:last],
            bytes_[ends[first] : ends[last]] if words is not None else bytes_,
        )
