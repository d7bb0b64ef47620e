"""Documents as token ids, and the examples that are cut from them.

An example is a list of runs of consecutive tokens of one or more documents. The modules `pairs`,
`halves`, `full_sentences` and `blocks` cut documents by computing offsets; the ids themselves are
copied only for finished examples.

Shapes: K tokens of the text, S sentences, D documents, E examples, R runs of all examples, G
segments of all examples, L tokens of all examples.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence

import numpy as np

from tfrecords_tools.text.documents import Document


@dataclasses.dataclass(frozen=True)
class TokenizedDocuments:
    """Documents as token ids; no sentence and no document is empty.

    Attributes:
      ids: int32 [K].
      sentences: the row splits of the sentences in `ids`; int64 [S + 1].
      documents: the row splits of the documents among the sentences; int64 [D + 1].
      identities: rows that are equal for parts of the same document; int64 [D, 3].
      parts: the index of each part; 0 = the document begins here; int64 [D].
      unfinished: whether a further part follows elsewhere; bool [D].
    """

    ids: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray
    identities: np.ndarray
    parts: np.ndarray
    unfinished: np.ndarray

    @classmethod
    def from_sentences(
        cls,
        ids: np.ndarray,
        row_splits: np.ndarray,
        counts: Sequence[int],
        read: Sequence[Document],
    ) -> "TokenizedDocuments":
        """Returns the documents of tokenized sentences, without empty sentences and documents.

        Args:
          ids: int32 [K].
          row_splits: the row splits of the tokenized sentences in `ids`.
          counts: the number of sentences of each document.
          read: the documents.
        """
        full = np.diff(row_splits) > 0
        before = np.concatenate([[0], np.cumsum(full)])  # The number of full sentences before each.
        documents = before[np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])]
        kept = np.diff(documents) > 0
        starts = np.concatenate([row_splits[:-1][full], row_splits[-1:]])
        return cls(
            ids,
            starts.astype(np.int64),
            documents[np.concatenate([[True], kept])],
            np.array([document.identity for document in read], np.int64).reshape(-1, 3)[kept],
            np.array([document.part for document in read], np.int64)[kept],
            np.array([document.unfinished for document in read], bool)[kept],
        )

    @property
    def begun(self) -> int:
        """The number of documents that begin here."""
        return int((self.parts == 0).sum())


@dataclasses.dataclass(frozen=True)
class Examples:
    """Examples as runs of tokens.

    Attributes:
      runs: begin and end of each run in `TokenizedDocuments.ids`; int64 [R, 2].
      opens: whether a run begins a segment, as the first run of an example does; bool [R].
      splits: the row splits of the examples among the runs; int64 [E + 1].
      labels: the label of the segments' relation (see `config.Segments`), 0 without one; int64 [E].
      cut: the number of tokens that did not fit, int64 [E].
      closed: whether a [SEP] follows a run, as it does after the last run of a segment; bool [R].
      bare: whether examples consist only of their runs, without special tokens.
    """

    runs: np.ndarray
    opens: np.ndarray
    splits: np.ndarray
    labels: np.ndarray
    cut: np.ndarray
    closed: np.ndarray
    bare: bool = False

    @classmethod
    def of_rows(cls, begins: np.ndarray, ends: np.ndarray, cut: np.ndarray) -> "Examples":
        """Returns rows of plain text: one run each, without special tokens and labels.

        Args:
          begins: the first token of each row, int64 [E].
          ends: the end of each row, int64 [E].
          cut: the number of tokens that did not fit, int64 [E].
        """
        return cls(
            runs=np.stack([begins, ends], axis=1),
            opens=np.ones(len(begins), bool),
            splits=np.arange(len(begins) + 1),
            labels=np.zeros(len(begins), np.int64),
            cut=cut,
            closed=np.ones(len(begins), bool),
            bare=True,
        )

    def __len__(self) -> int:
        """Returns E."""
        return len(self.labels)

    def __getitem__(self, rows: np.ndarray) -> "Examples":
        """Returns the examples `rows`, in that order."""
        index, splits = select_rows(self.splits, rows)
        return Examples(
            self.runs[index],
            self.opens[index],
            splits,
            self.labels[rows],
            self.cut[rows],
            self.closed[index],
            self.bare,
        )

    def lengths(self, between: int = 1) -> np.ndarray:
        """Returns the length of each example with special tokens, int64 [E]; see `assemble`."""
        ends = np.concatenate([[0], np.cumsum(self.run_sizes(between))])
        return np.diff(ends[self.splits])

    def run_sizes(self, between: int = 1) -> np.ndarray:
        """Returns the number of tokens of each run with its special tokens, int64 [R]."""
        sizes = self.runs[:, 1] - self.runs[:, 0]
        if self.bare:
            return sizes
        sizes += self.closed
        sizes[self.splits[:-1]] += 1  # [CLS]
        more = self.opens.copy()
        more[self.splits[:-1]] = False
        sizes[np.flatnonzero(more) - 1] += between - 1
        return sizes


def uniforms(rng: np.random.Generator) -> Callable[[], float]:
    """Returns a function that draws numbers in [0, 1); it draws from `rng` in blocks."""
    return itertools.chain.from_iterable(iter(lambda: rng.random(4096).tolist(), None)).__next__


def select_rows(splits: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Selects rows of a ragged array.

    Args:
      splits: the row splits of the array.
      rows: the indices of the rows.

    Returns:
      The indices of the values of these rows, row by row, and their row splits.
    """
    counts = np.diff(splits)[rows]
    new_splits = np.concatenate([[0], np.cumsum(counts)])
    index = np.repeat(splits[:-1][rows] - new_splits[:-1], counts) + np.arange(new_splits[-1])
    return index, new_splits


def concatenate(parts: Sequence[Examples]) -> Examples:
    """Returns the examples of all parts, in order."""
    counts = np.concatenate([np.diff(part.splits) for part in parts])
    return Examples(
        np.concatenate([part.runs for part in parts]),
        np.concatenate([part.opens for part in parts]),
        np.concatenate([[0], np.cumsum(counts)]),
        np.concatenate([part.labels for part in parts]),
        np.concatenate([part.cut for part in parts]),
        np.concatenate([part.closed for part in parts]),
        parts[0].bare,
    )


def assemble(
    text: TokenizedDocuments, examples: Examples, cls_id: int, sep_id: int, between: int = 1
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Concatenates the tokens of examples, with special tokens.

    An example is a [CLS] and its runs, with a [SEP] after each run that is closed. A `bare` example
    is only its runs.

    Args:
      text: the text of the examples.
      examples: at least one example.
      cls_id: the id of [CLS].
      sep_id: the id of [SEP].
      between: the number of [SEP] between two segments.

    Returns:
      The ids, int32 [L], and the row splits of the examples, int64 [E + 1]. Then the segments as a
      pair: the length of each, int64 [G], and the row splits of the examples, int64 [E + 1]. A
      [CLS] counts with the first segment, and a [SEP] with the segment that it ends.
    """
    lengths = examples.runs[:, 1] - examples.runs[:, 0]
    sizes = examples.run_sizes(between)
    ends = np.concatenate([[0], np.cumsum(sizes)])  # The end of each run in the result.
    firsts = ends[:-1].copy()  # The first token of each run that is not a special token.
    firsts[examples.splits[:-1]] += not examples.bare
    target = np.repeat(firsts - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
    ids = np.full(ends[-1], sep_id, np.int32)
    ids[target] = text.ids[np.repeat(examples.runs[:, 0] - firsts, lengths) + target]
    if not examples.bare:
        ids[ends[examples.splits[:-1]]] = cls_id
    opening = np.flatnonzero(examples.opens)
    segments = np.diff(ends[np.append(opening, len(sizes))])
    return (
        ids,
        ends[examples.splits],
        (segments, np.searchsorted(opening, examples.splits)),
    )
