"""Cuts sentences of whole words into rows that continue from one batch to the next: ELMo.

The documents, in an order drawn from the seed, form one text, in which a mark comes before each
sentence. It is read in two directions (Peters et al., 2018, section 3.1, and the release):

  forward    <S>   the  cat  sat   <S>   no          predicts  the  cat  sat  </S>  no   </S>
  backward   </S>  sat  cat  the   </S>  no          predicts  sat  cat  the  <S>   no   <S>

Sentences keep their order, and the words of each are reversed, so both directions have the same
marks in the same places. A row of the batch gets a part of the text, and its records are windows of
T positions of both directions, one after the other, without padding. A sentence that ends after its
window continues in the next record of the row. Record t · R + b of the shards continues record
(t - 1) · R + b. Positions that are left over at the end of the text are cut off and counted.

(The release reads the two directions from two shuffles of the sentences, so that a batch has
different text in each.)

Shapes: N positions of the text, S sentences, D documents, E records, T positions of a record, Y
bytes of the words.
"""

import dataclasses
import functools
from pathlib import Path

import numpy as np

from official.shards import example_bytes
from tfrecords_tools.pretraining.streams import Plan

IDS, ENDS, BYTES = "text.ids", "text.ends", "text.bytes"
SPLITS = "splits.npz"


@dataclasses.dataclass(frozen=True)
class SentenceText:
    """A text of sentences, which is stored in the order of the input, and read in another.

    The text ends with one more mark, as if a sentence began there.

    Attributes:
      ids: the id of each position, `<S>` of a mark; int32 [N + 1].
      ends: the row splits of the positions in `data`, where a mark has no bytes; int64 [N + 2].
      data: the bytes of the words; uint8 [Y].
      sentences: the row splits of the sentences with their marks, as stored; int64 [S + 2].
      documents: the row splits of the documents, as read; int64 [D + 1].
      places: the stored position of the first mark of each document, and N; int64 [D + 1].
    """

    ids: np.ndarray
    ends: np.ndarray
    data: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray
    places: np.ndarray

    @classmethod
    def open(cls, folder: Path) -> "SentenceText":
        """Opens the text in files, which `sentence_corpus` writes, read-only."""
        splits = np.load(folder / SPLITS)
        return cls(
            np.memmap(folder / IDS, np.int32, mode="r"),
            np.memmap(folder / ENDS, np.int64, mode="r"),
            np.memmap(folder / BYTES, np.uint8, mode="r"),
            splits["sentences"],
            splits["documents"],
            splits["places"],
        )

    def forward(self, positions: np.ndarray) -> np.ndarray:
        """Returns where the tokens at `positions`, up to N, are stored."""
        document = np.searchsorted(self.documents, positions, side="right") - 1
        return self.places[document] + positions - self.documents[document]

    def backward(self, stored: np.ndarray) -> np.ndarray:
        """Returns where the tokens are stored that take the place of `stored` in reverse."""
        sentence = np.searchsorted(self.sentences, stored, side="right") - 1
        first, last = self.sentences[sentence], self.sentences[sentence + 1]
        return np.where(stored == first, stored, first + last - stored)

    def words(self, stored: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the bytes of tokens [K] one after the other, uint8, and their lengths [K]."""
        starts, lengths = self.ends[stored], self.ends[stored + 1] - self.ends[stored]
        before = np.cumsum(lengths) - lengths
        index = np.repeat(starts - before, lengths) + np.arange(lengths.sum())
        return self.data[index], lengths


def make(block: int, plan: Plan) -> list[bytes]:
    """Returns the records of a block of steps; they are the same in any process."""
    text = _text(plan.folder)
    first = block * plan.block
    steps = np.arange(first, min(first + plan.block, plan.steps))
    windows = (np.arange(plan.streams) * plan.steps + steps[:, None]).ravel()  # Step by step.
    length = plan.segments.max_length
    forward = text.forward(windows[:, None] * length + np.arange(length + 1))  # [E, T + 1]
    marks = text.ids[forward] == plan.cls_id
    numbers = {
        "continues": np.repeat(steps, plan.streams) > 0,
        "segment_lengths": np.full(len(windows), length),
    }
    columns = {}
    for prefix, stored, mark in (
        ("", forward, plan.cls_id),
        ("backward_", text.backward(forward), plan.sep_id),
    ):
        ids = np.where(marks, mark, text.ids[stored])
        data, lengths = text.words(stored[:, :-1].ravel())
        splits = np.concatenate([[0], np.cumsum(lengths)])[::length]
        numbers |= {
            f"{prefix}token_ids": ids[:, :-1],
            f"{prefix}next_id": ids[:, -1],
            f"{prefix}word_lengths": lengths,
        }
        columns[f"{prefix}word_bytes"] = data.view("S1"), splits
    columns |= {
        name: example_bytes.rows(np.reshape(values, (len(windows), -1)).astype(np.int64))
        for name, values in numbers.items()
    }
    return example_bytes.serialize(columns)


@functools.lru_cache(maxsize=1)
def _text(folder: str) -> SentenceText:
    return SentenceText.open(Path(folder))
