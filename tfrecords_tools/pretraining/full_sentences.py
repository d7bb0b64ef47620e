"""Cuts documents into single segments of as many whole sentences as fit.

The segments of RoBERTa's FULL-SENTENCES continue into the next document, with a separator between
the documents. Those of its DOC-SENTENCES, like the single segments of SpanBERT, end with the
document (Liu et al. 2019, section 4.2; Joshi et al. 2020, section 3.3). A sentence that is longer
than a sequence is cut into parts that fit, so no token is lost.

Shapes: S sentences, R runs.
"""

import bisect

import numpy as np

from official.config import Segments
from tfrecords_tools.pretraining.segments import Examples, TokenizedDocuments

_SPECIALS = 2  # [CLS] … [SEP]


def cut(
    text: TokenizedDocuments, settings: Segments, rng: np.random.Generator, between: int = 1
) -> Examples:
    """Cuts documents into examples; every sentence is in one of them.

    Args:
      text: the documents.
      settings: settings with the format `full_sentences` or `doc_sentences`.
      rng: the generator of the shorter targets, which are drawn for each example.
      between: not used, because there is one segment.

    Returns:
      The examples in the documents' order.
    """
    del between
    room = settings.max_length - _SPECIALS
    sentences, documents = _parts(text, room)
    document = np.repeat(
        np.arange(len(documents) - 1), np.diff(documents)
    )  # [S]: the document of each sentence.
    # The begin and end of sentences if each document except the first has a separator before it.
    begins = (sentences[:-1] + document).tolist()
    ends = (sentences[1:] + document).tolist()
    crossing = settings.format == "full_sentences"
    last_of = documents[1:][document].tolist()  # [S]: the end of the document of each sentence.
    firsts: list[int] = []  # The first sentence of each example.
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
    return Examples(runs, opens, splits, none, none, closed=np.ones(len(runs), bool))


def _parts(text: TokenizedDocuments, room: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns `text.sentences` and `text.documents`, with sentences of at most `room` tokens."""
    counts = -(-np.diff(text.sentences) // room)
    before = np.concatenate([[0], np.cumsum(counts)])
    # The index of each part in its sentence.
    number = np.arange(before[-1]) - np.repeat(before[:-1], counts)
    sentences = np.repeat(text.sentences[:-1], counts) + number * room
    return np.append(sentences, text.sentences[-1]), before[text.documents]
