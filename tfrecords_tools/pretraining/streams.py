"""The text of rows that continue from one batch to the next, for encoders with memory.

The documents, in an order drawn from the seed, form one text, and each row of the batch gets a part
of it. The sequences of a row are consecutive, at a fixed stride. Sequence t of row b is record t ·
R + b of the shards and continues record (t - 1) · R + b. If the records are read in order, R at a
time, row b of each batch continues row b of the batch before. `stream_rows` and `sentence_rows`
define the layouts of a sequence.

The documents are shuffled as records (`StoredDocument`). A document has a record for each of its
parts. In the shuffled order, the parts of a document are consecutive, and so are the copies of the
corpus (`segments.duplicates`).

Shapes: D documents, K tokens, S sentences, Y bytes of the words, R rows of the batch.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from official import config
from official.utils import host_seeding
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from tfrecords_tools.pretraining.segments import TokenizedDocuments
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.text import corpus
from tfrecords_tools.text.corpus import Group, Reading
from tfrecords_tools.writing.shuffle import Keyed

_HEADER = np.dtype(
    [("identity", "<u8"), ("part", "<i4"), ("unfinished", "<i4"), ("sentences", "<i4"),
     ("tokens", "<i4"), ("bytes", "<i8")]
)  # fmt: skip
_PART_BITS = 9  # of a key, for the part; the other bits are the hash of the document
_DTYPES = {
    "ids": np.int32, "begins": bool, "documents": np.int64, "identities": np.uint64,
    "ends": np.int64, "bytes": np.uint8, "sentences": np.int64,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything that the rows depend on, except the text.

    Attributes:
      segments: the settings.
      seed: the seed of every draw.
      sep_id: the id of [SEP].
      cls_id: the id of [CLS].
      between: the number of [SEP] between A and B.
      end_id: the id after a document: <eod>, or [SEP] if the vocabulary has no <eod>.
      steps: the number of sequences of each row.
    """

    segments: config.Segments
    seed: int
    sep_id: int
    cls_id: int
    between: int
    end_id: int = -1
    steps: int = 0

    @property
    def joins(self) -> bool:
        """Whether rows continue from one document to the next."""
        return self.segments.short_documents == "join"

    @property
    def stride(self) -> int:
        """The number of tokens from the begin of a sequence to the begin of the next in its row."""
        return self.segments.reuse_length or self.segments.max_length

    @property
    def span(self) -> int:
        """The number of tokens of text that a sequence needs, including `next_id` if it has one.

        Raises:
          UserError: there is no room for A and B.
        """
        length, reused = self.segments.max_length, self.segments.reuse_length
        if not reused:
            return length + 1
        room = length - reused - self.between - 2
        if room < 2:
            raise UserError(
                f"segments.max_length: {length} tokens with segments.reuse_length: {reused} and "
                f"{self.between + 2} special tokens have no room for A and B: lower reuse_length "
                f"to {length - self.between - 4}"
            )
        return reused + room

    def check(self) -> None:
        """Raises UserError if there is no room for A and B."""
        _ = self.span

    @property
    def streams(self) -> int:
        """The number of rows that share the text; with backward rows, half of all rows."""
        return self.segments.rows // (2 if self.segments.backward else 1)


class StoredDocument(NamedTuple):
    """A document or a part of one.

    Attributes:
      identity: a number that parts and copies of the same document share.
      part: the number of the part; 0 = the document begins here.
      unfinished: whether a further part follows.
      sentences: the number of tokens of each sentence, int32 [S].
      ids: int32 [K].
      lengths: the number of bytes of each word, uint8 [K]; empty if words are not kept.
      data: the bytes of the words, uint8 [Y].
    """

    identity: int
    part: int
    unfinished: bool
    sentences: np.ndarray
    ids: np.ndarray
    lengths: np.ndarray
    data: np.ndarray

    def pack(self) -> bytes:
        """Returns the record."""
        header = np.array(
            [
                (
                    self.identity, self.part, self.unfinished, len(self.sentences), len(self.ids),
                    len(self.data),
                )
            ],
            _HEADER,
        )  # fmt: skip
        arrays = (header, self.sentences, self.ids, self.lengths, self.data)
        return b"".join(array.tobytes() for array in arrays)

    @classmethod
    def unpack(cls, record: bytes | memoryview) -> "StoredDocument":
        """Returns the document of a record."""
        (header,) = np.frombuffer(record, _HEADER, 1)
        position = _HEADER.itemsize

        def take(dtype: type, count: int) -> np.ndarray:
            nonlocal position
            array: np.ndarray = np.frombuffer(record, dtype, count, position)
            position += array.nbytes
            return array

        words = int(header["tokens"]) if header["bytes"] else 0
        return cls(
            int(header["identity"]),
            int(header["part"]),
            bool(header["unfinished"]),
            take(np.int32, int(header["sentences"])),
            take(np.int32, int(header["tokens"])),
            take(np.uint8, words),
            take(np.uint8, int(header["bytes"])),
        )


@dataclasses.dataclass(frozen=True)
class StoredArrays:
    """The arrays of a part of the text, each in a file that any process can read in ranges.

    Attributes:
      folder: the folder of the text.
      number: the number of the part.
    """

    folder: AnyPath
    number: int

    def path(self, name: str) -> AnyPath:
        """Returns the file of an array."""
        return self.folder / f"text-{self.number:05d}.{name}"

    def write(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Writes arrays, whose names are those of `_DTYPES`."""
        for name, array in arrays.items():
            self.path(name).write_bytes(array.astype(_DTYPES[name]).tobytes())

    def read(self, name: str) -> np.ndarray:
        """Returns an array; recently read arrays are cached."""
        return _read(self, name)

    def read_range(self, name: str, begin: int, end: int) -> np.ndarray:
        """Returns the values of an array from `begin` to `end`."""
        dtype = np.dtype(_DTYPES[name])
        with self.path(name).open("rb") as stream:
            stream.seek(begin * dtype.itemsize)
            return np.frombuffer(stream.read((end - begin) * dtype.itemsize), dtype)


@functools.lru_cache(maxsize=64)
def _read(arrays: StoredArrays, name: str) -> np.ndarray:
    return np.frombuffer(arrays.path(name).read_bytes(), _DTYPES[name])


def make_documents(group: Group, settings: Settings, reading: Reading) -> Iterator[Keyed]:
    """Yields the documents of a group, with the keys of their order, and the counts.

    Raises:
      UserError: the text cannot be read.
    """
    # imports TensorFlow
    from official.tokenizers.word_characters import MAX_BYTES
    from tfrecords_tools.pretraining import examples

    for chunk in corpus.read_chunks(group, reading, shared=False):
        words: list[bytes] | None = None
        if settings.segments.sentences:
            text, whole, counts = examples.tokenize_words(chunk, settings)
            counts.totals["cut_words"] = sum(len(word) > MAX_BYTES for word in whole)
            words = [word[:MAX_BYTES] for word in whole]
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
    """Returns the keys of the documents of a copy; copies are ordered one after another."""
    bits = 64 - _PART_BITS
    hashes = (hashes >> np.uint64(_PART_BITS)) + np.uint64(copy << bits)
    return (hashes // np.uint64(copies) << np.uint64(_PART_BITS)) + text.parts.astype(np.uint64)


def _documents(
    text: TokenizedDocuments, identities: np.ndarray, words: Sequence[bytes] | None
) -> Iterator[StoredDocument]:
    """Yields the documents of a chunk."""
    sentence_lengths = np.diff(text.sentences).astype(np.int32)
    lengths, data, ends = np.zeros(0, np.uint8), b"", np.zeros(1, np.int64)
    if words is not None:
        lengths = np.fromiter(map(len, words), np.uint8, len(words))
        data = b"".join(words)
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
