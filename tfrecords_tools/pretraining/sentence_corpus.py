"""Stores the sentences of a corpus in files, from which rows of whole words are cut.

The text is read once and kept in a temporary folder, in the order of the input.
`sentence_rows.make` can then cut any part of it in any process, with the documents in random order.
The memory needed grows with the number of sentences, not with that of the words.
"""

import dataclasses
import shutil
from pathlib import Path

import numpy as np

from official import tokenizers
from official.tokenizers.characters import BEGIN_ID
from official.tokenizers.word_characters import MAX_BYTES
from official.utils import seeding
from official.utils.errors import UserError
from tfrecords_tools.pretraining import examples, sentence_rows
from tfrecords_tools.pretraining.chunks import DocumentChunk
from tfrecords_tools.pretraining.segments import TokenizedDocuments
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.pretraining.streams import Plan


def check(tokenizer: tokenizers.Tokenizer, folder: str) -> None:
    """Checks that the tokenizer in `folder` is one of words.

    Raises:
      UserError: it is not.
    """
    if not isinstance(tokenizer, tokenizers.Characters):
        raise UserError(
            f"{folder}: segments.sentences: true has rows of whole words, and {tokenizer.FILE} "
            f"splits them: make a vocabulary with build_vocab --type=words"
        )


@dataclasses.dataclass(frozen=True)
class Words:
    """The sentences of a chunk, with a mark before each.

    Attributes:
      ids: the id of each word, and of `<S>` for a mark; int32 [K].
      lengths: the number of bytes of each word, 0 for a mark; uint8 [K].
      data: the bytes of the words; uint8.
      sentences: the number of positions of each sentence; int64.
      tokens: the documents without marks.
    """

    ids: np.ndarray
    lengths: np.ndarray
    data: np.ndarray
    sentences: np.ndarray
    tokens: TokenizedDocuments


def read_chunk(chunk: DocumentChunk, settings: Settings) -> tuple[Words, examples.Records]:
    """Returns the words of a chunk, at most `MAX_BYTES` bytes of each, and their counts."""
    tokens, words, counts = examples.tokenize_words(chunk, settings)
    long = sum(len(word) > MAX_BYTES for word in words)
    cut = [word[:MAX_BYTES] for word in words]
    begins = tokens.sentences[:-1]
    lengths = np.fromiter(map(len, cut), np.uint8, len(cut))
    marked = Words(
        np.insert(tokens.ids, begins, BEGIN_ID),
        np.insert(lengths, begins, 0),
        np.frombuffer(b"".join(cut), np.uint8),
        np.diff(tokens.sentences) + 1,
        tokens,
    )
    return marked, counts._replace(more={"cut_words": long})


class Corpus:
    """The words of a corpus in files, of which any process can read any part.

    Args:
      folder: the folder to create; `close` removes it.
    """

    def __init__(self, folder: Path):
        folder.mkdir()
        self.folder = folder
        self._sentences: list[np.ndarray] = []  # The positions of each sentence.
        self._documents: list[np.ndarray] = []  # The positions of each document.
        self._unfinished = False  # Whether the last document continues in the next chunk.
        self._ids = open(folder / sentence_rows.IDS, "wb")
        self._ends = open(folder / sentence_rows.ENDS, "wb")
        self._data = open(folder / sentence_rows.BYTES, "wb")
        np.zeros(1, np.int64).tofile(self._ends)
        self._end = 0

    def close(self) -> None:
        """Removes the files."""
        for file in (self._ids, self._ends, self._data):
            file.close()
        shutil.rmtree(self.folder)

    def add(self, words: Words) -> None:
        """Appends the words of a chunk."""
        words.ids.astype(np.int32).tofile(self._ids)
        ends = self._end + np.cumsum(words.lengths, dtype=np.int64)
        ends.tofile(self._ends)
        self._end += len(words.data)
        words.data.tofile(self._data)
        self._sentences.append(words.sentences)
        positions = np.concatenate([[0], np.cumsum(words.sentences)])
        lengths = np.diff(positions[words.tokens.documents])
        if self._unfinished and words.tokens.continues:
            self._documents[-1][-1] += lengths[0]
            lengths = lengths[1:]
        if len(lengths):
            self._documents.append(lengths)
        self._unfinished = words.tokens.unfinished

    def arrange(self, plan: Plan) -> tuple[Plan, examples.Records]:
        """Draws the order of the documents.

        Args:
          plan: the plan without its steps.

        Returns:
          The plan with its steps, and counts: the positions in no record, and the longest text
          before a row.

        Raises:
          UserError: the text is too short for the rows.
        """
        np.full(1, plan.cls_id, np.int32).tofile(self._ids)
        np.full(1, self._end).tofile(self._ends)
        for file in (self._ids, self._ends, self._data):
            file.close()
        lengths = np.concatenate([*self._documents, np.zeros(0, np.int64)])
        starts = np.cumsum(lengths) - lengths
        order = np.concatenate(
            [
                seeding.numpy_rng(plan.seed, i).permutation(len(lengths))
                for i in range(plan.segments.duplicates)
            ]
        )
        stored = int(lengths.sum())
        documents = np.concatenate([[0], np.cumsum(lengths[order])])
        np.savez(
            self.folder / sentence_rows.SPLITS,
            sentences=np.cumsum([0, *np.concatenate([*self._sentences, [1]])]),
            documents=documents,
            places=np.append(starts[order], stored),
        )
        length, rows = plan.segments.max_length, plan.segments.rows
        total = int(documents[-1])
        steps = total // length // rows
        if not steps:
            raise UserError(
                f"{total:,} words and marks give {total // length:,} rows of {length}, and "
                f"segments.rows: {rows} needs {rows}: lower segments.rows or max_length, or take "
                "more text"
            )
        return dataclasses.replace(plan, steps=steps), examples.Records(
            cut=total - steps * rows * length, more={"longest_memory": (steps - 1) * length}
        )
