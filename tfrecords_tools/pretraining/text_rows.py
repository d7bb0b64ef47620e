"""Cuts documents into rows of plain text, without [CLS] and [SEP].

A row may begin and end in the middle of a word. Only the last row of a chunk or of a document may
be short.

With the format `blocks`, the text is cut every `max_length` tokens, and a separator follows each
document. The token after each block is stored with it (`next_id`), so that a causal LM predicts
every token of the text except the first. Two documents, a b c and d e, with the separator /, in
blocks of 4:

  block     next_id
  a b c /   d
  d e       /

The text of this chunk is a b c / d e /. Its last token is predicted but not read, so it is in no
block. A document that continues in another chunk has no separator at the end of this one.

With the formats `joined` and `documents`, corruptions make inputs and targets from the rows. With
`joined`, the documents of a chunk are concatenated without separators, and the text is cut every
`max_length` tokens. With `documents`, each document is cut separately (Raffel et al. 2020, section
3.1.4). A row of one token is left out, because no token of it can be removed.

Shapes: E examples.
"""

import dataclasses

import numpy as np

from official.config import Segments
from tfrecords_tools.pretraining.segments import Examples, TokenizedDocuments


def separated(text: TokenizedDocuments, separator: int) -> TokenizedDocuments:
    """Returns a text with a separator after each document that ends in it."""
    ends = text.sentences[text.documents[1:]][~text.unfinished]
    # A separator is the last token of the last sentence of its document.
    shifts = np.searchsorted(ends, text.sentences, side="right")
    return dataclasses.replace(
        text, ids=np.insert(text.ids, ends, separator), sentences=text.sentences + shifts
    )


def cut_blocks(
    text: TokenizedDocuments, settings: Segments, rng: np.random.Generator, between: int = 1
) -> Examples:
    """Cuts a text into blocks.

    Args:
      text: the documents, with separators.
      settings: settings with the format `blocks`. With `duplicates`, the first block of each copy
        has a random length, so that the copies are cut at different positions.
      rng: the generator of this length.
      between: not used, because there is one segment.

    Returns:
      The examples in the order of the text.
    """
    del between
    size = settings.max_length
    first = 1 + int(rng.random() * size) if settings.duplicates > 1 else size
    stop = max(len(text.ids) - 1, 0)
    bounds = np.unique(np.concatenate([[0], np.arange(first, stop, size), [stop]]))
    return Examples.of_rows(bounds[:-1], bounds[1:], cut=np.zeros(len(bounds) - 1, np.int64))


def next_ids(text: TokenizedDocuments, examples: Examples) -> np.ndarray:
    """Returns the token after each block, int32 [E]."""
    return text.ids[examples.runs[:, 1]]


_SHORTEST = 2


def cut(
    text: TokenizedDocuments, settings: Segments, rng: np.random.Generator, between: int = 1
) -> Examples:
    """Cuts a text into rows.

    Args:
      text: the documents.
      settings: settings with the format `joined` or `documents`, whose `max_length` is the number
        of raw tokens. With `duplicates`, the first row of each copy has a random length, so that
        the copies are cut at different positions.
      rng: the generator of this length.
      between: not used, because there is one segment.

    Returns:
      The examples in the order of the text.
    """
    del between
    size = settings.max_length
    first = _SHORTEST + int(rng.random() * (size - 1)) if settings.duplicates > 1 else size
    ends = np.array([0, len(text.ids)])
    if settings.format == "documents":
        ends = text.sentences[text.documents]
    starts = [
        np.append(begin, np.arange(begin + min(first, size), end, size))
        for begin, end in zip(ends[:-1], ends[1:], strict=True)
        if end > begin
    ]
    begins = np.concatenate([*starts, np.zeros(0, np.int64)]).astype(np.int64)
    stops = np.append(begins[1:], len(text.ids))[: len(begins)]
    long = stops - begins >= _SHORTEST
    lost = np.zeros(int(long.sum()), np.int64)
    if len(lost):
        lost[-1] = int((stops - begins)[~long].sum())
    return Examples.of_rows(begins[long], stops[long], lost)
