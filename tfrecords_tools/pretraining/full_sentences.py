"""Whole sentences, as many as fit, one after the other: one segment.

RoBERTa's FULL-SENTENCES go on into the next document where one ends, with a separator between them;
its DOC-SENTENCES, SpanBERT's single segments too, end with the document (Liu et al. 2019, section
4.2; Joshi et al. 2020, section 3.3). A sentence that is longer than a sequence is cut into parts
that fit, so no token is lost.

Shapes: S sentences, R runs.
"""

import bisect

import numpy as np

from official.config import Segments
from tfrecords_tools.pretraining.segments import Examples, TokenizedDocuments

_SPECIALS = 2  # [CLS] … [SEP]


def cut(
    piece: TokenizedDocuments, settings: Segments, rng: np.random.Generator, between: int = 1
) -> Examples:
    """Cuts the documents of a piece into examples; every sentence is in one of them.

    Args:
      piece: the documents.
      settings: of the format `full_sentences` or `doc_sentences`.
      rng: of the shorter targets, drawn for each example.
      between: not used: there is one segment.

    Returns:
      The examples in the documents' order.
    """
    del between
    room = settings.max_length - _SPECIALS
    sentences, documents = _parts(piece, room)
    document = np.repeat(np.arange(len(documents) - 1), np.diff(documents))  # [S]: of each sentence
    # Where sentences begin and end if each document but the first has a separator before it.
    begins = (sentences[:-1] + document).tolist()
    ends = (sentences[1:] + document).tolist()
    crossing = settings.format == "full_sentences"
    last_of = documents[1:][document].tolist()  # [S]: where the sentence's document ends
    firsts: list[int] = []  # sentence of each example
    start = 0
    while start < len(ends):
        firsts.append(start)
        target = room
        if rng.random() < settings.short_seq_prob:
            target = 2 + int(rng.random() * (room - 1))
        limit = len(ends) if crossing else last_of[start]
        start = bisect.bisect_right(ends, begins[start] + target, start + 1, limit)
    # A run begins where an example or a document does.
    starts = np.union1d(np.array(firsts, np.int64), documents[:-1])
    opens = np.isin(starts, firsts)
    bounds = sentences[np.append(starts, len(ends))]
    runs = np.stack([bounds[:-1], bounds[1:]], axis=1)
    splits = np.append(np.flatnonzero(opens), len(starts))
    none = np.zeros(len(firsts), np.int64)
    return Examples(runs, opens, splits, none, none)


def _parts(piece: TokenizedDocuments, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns `piece.sentences` and `.documents` with sentences of at most `room` tokens."""
    counts = -(-np.diff(piece.sentences) // room)
    before = np.concatenate([[0], np.cumsum(counts)])
    number = np.arange(before[-1]) - np.repeat(before[:-1], counts)  # of each part in its sentence
    sentences = np.repeat(piece.sentences[:-1], counts) + number * room
    return np.append(sentences, piece.sentences[-1]), before[piece.documents]
