"""A document of a stream as a record.

Shapes: K tokens, S sentences, Y bytes of the words.
"""

from typing import NamedTuple

import numpy as np

_HEADER = np.dtype(
    [("identity", "<u8"), ("part", "<i4"), ("unfinished", "<i4"), ("sentences", "<i4"),
     ("tokens", "<i4"), ("bytes", "<i8")]
)  # fmt: skip


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
            array = np.frombuffer(record, dtype, count, position)
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
