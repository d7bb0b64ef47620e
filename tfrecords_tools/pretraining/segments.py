"""Documents as token ids, and the examples that are cut from them.

An example is some runs of a document's (or several documents') consecutive tokens, so all cutting
is done on offsets: only finished examples touch the ids. How documents are cut is said by
`segments_pairs`, `segments_halves`, `segments_sentences` and `segments_blocks`.

Shapes: K tokens of the piece, S sentences, D documents, E examples, R runs of all examples, G
segments of all examples, L tokens of all examples.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class TokenizedDocuments:
    """Some documents as token ids; no sentence and no document is empty.

    Attributes:
      ids: int32 [K].
      sentences: where each sentence begins in `ids`, and the end; int64 [S + 1].
      documents: where each document begins among the sentences, and the end; int64 [D + 1].
      continues: whether the first document began in an earlier piece.
      unfinished: whether the last document goes on in a later piece.
      lent: how many of the last documents are of other pieces. Random second segments come from
        them, and nothing else does.
    """

    ids: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray
    continues: bool = False
    unfinished: bool = False
    lent: int = 0

    @classmethod
    def from_sentences(
        cls,
        ids: np.ndarray,
        row_splits: np.ndarray,
        counts: Sequence[int],
        continues: bool = False,
        unfinished: bool = False,
    ) -> "TokenizedDocuments":
        """Makes a piece of tokenized sentences, leaving out what came to no token.

        Args:
          ids: int32 [K].
          row_splits: where each tokenized sentence begins in `ids`, and the end.
          counts: how many of these sentences each document has.
          continues: whether the first of these documents began in an earlier piece.
          unfinished: whether the last of them goes on in a later piece.
        """
        full = np.diff(row_splits) > 0
        before = np.concatenate([[0], np.cumsum(full)])  # full sentences before each sentence
        documents = before[np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])]
        kept = np.diff(documents) > 0
        starts = np.concatenate([row_splits[:-1][full], row_splits[-1:]])
        return cls(
            ids,
            starts.astype(np.int64),
            documents[np.concatenate([[True], kept])],
            continues and bool(kept[:1].any()),
            unfinished and bool(kept[-1:].any()),
        )

    def with_others(self, others: "TokenizedDocuments") -> "TokenizedDocuments":
        """Returns the piece with the documents of another one, lent to it, behind its own."""
        return dataclasses.replace(
            self,
            ids=np.concatenate([self.ids, others.ids]),
            sentences=np.append(self.sentences[:-1], others.sentences + len(self.ids)),
            documents=np.append(self.documents[:-1], others.documents + len(self.sentences) - 1),
            lent=len(others.documents) - 1,
        )


@dataclasses.dataclass(frozen=True)
class Examples:
    """Examples as runs of a piece's tokens.

    Attributes:
      runs: begin and end of each run in `TokenizedDocuments.ids`; int64 [R, 2].
      opens: whether a run begins a segment (the first one of an example does); bool [R].
      splits: where each example begins among the runs, and the end; int64 [E + 1].
      labels: of the segments' relation (see `config.Segments`), 0 where there is none; int64 [E].
      cut: tokens that did not fit, int64 [E].
      closed: whether a [SEP] stands after a run (after the last one of a segment it does); bool
        [R]. None = after each.
      bare: whether examples are their runs alone, without special tokens around them.
    """

    runs: np.ndarray
    opens: np.ndarray
    splits: np.ndarray
    labels: np.ndarray
    cut: np.ndarray
    closed: np.ndarray | None = None
    bare: bool = False

    def __post_init__(self):
        if self.closed is None:
            object.__setattr__(self, "closed", np.ones(len(self.runs), bool))

    def __len__(self) -> int:
        """Returns E."""
        return len(self.labels)

    def __getitem__(self, rows: np.ndarray) -> "Examples":
        """Returns the examples `rows`, in that order."""
        index, splits = taken(self.splits, rows)
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
        """Returns the tokens of each example, specials counted, int64 [E]; see `assemble`."""
        ends = np.concatenate([[0], np.cumsum(self._with_specials(between))])
        return np.diff(ends[self.splits])

    def _with_specials(self, between: int) -> np.ndarray:
        """Returns the tokens of each run and of the specials that belong to it, int64 [R]."""
        sizes = self.runs[:, 1] - self.runs[:, 0]
        if self.bare:
            return sizes
        sizes += self.closed
        sizes[self.splits[:-1]] += 1  # [CLS]
        more = self.opens.copy()
        more[self.splits[:-1]] = False
        sizes[np.flatnonzero(more) - 1] += between - 1
        return sizes


def taken(splits: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Picks rows of a ragged array.

    Args:
      splits: where each row begins among the values, and the end.
      rows: numbers of the rows wanted.

    Returns:
      The numbers of their values, one row after the other, and the splits of these.
    """
    counts = np.diff(splits)[rows]
    made = np.concatenate([[0], np.cumsum(counts)])
    return np.repeat(splits[:-1][rows] - made[:-1], counts) + np.arange(made[-1]), made


def concatenate(parts: Sequence[Examples]) -> Examples:
    """Returns the examples of all `parts`, in order."""
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
    piece: TokenizedDocuments, examples: Examples, cls_id: int, sep_id: int, between: int = 1
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """Puts the tokens of examples one after the other, with their specials.

    An example is a [CLS] and its runs, a [SEP] after each that is closed; or, of `bare` examples,
    the runs alone.

    Args:
      piece: that the examples are of.
      examples: at least one.
      cls_id: of [CLS].
      sep_id: of [SEP].
      between: how many [SEP] stand where another segment begins.

    Returns:
      ids int32 [L]; where each example begins, and the end, int64 [E + 1]; tokens of each segment
      int64 [G], [CLS] counted with the first one and each [SEP] with what it ends, and where each
      example begins among the segments, and the end, int64 [E + 1].
    """
    lengths = examples.runs[:, 1] - examples.runs[:, 0]
    sizes = examples._with_specials(between)
    ends = np.concatenate([[0], np.cumsum(sizes)])  # of each run in the result
    firsts = ends[:-1].copy()  # of each run's own tokens
    firsts[examples.splits[:-1]] += not examples.bare
    text = np.repeat(firsts - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
    ids = np.full(ends[-1], sep_id, np.int32)
    ids[text] = piece.ids[np.repeat(examples.runs[:, 0] - firsts, lengths) + text]
    if not examples.bare:
        ids[ends[examples.splits[:-1]]] = cls_id
    opening = np.flatnonzero(examples.opens)
    segments = np.diff(ends[np.append(opening, len(sizes))])
    return (
        ids,
        ends[examples.splits],
        (segments, np.searchsorted(opening, examples.splits)),
    )
