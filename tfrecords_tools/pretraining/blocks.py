"""Blocks: the documents one after the other, cut every `max_length` tokens wherever that is.

A separator follows each document, and a block has no other special token: it may begin and end in
the middle of a word. The token after each block travels with it (`next_id`), so that a causal LM is
asked for every token of the text but the first. Two documents, a b c and d e, with the separator /,
in blocks of 4:

  block     next_id
  a b c /   d
  d e       /

The text of a piece is a b c / d e /. Its last token is asked for and not read, so it stands in no
block. Only the last block of a piece may be short. A document that goes on in the next piece has no
separator at the end of this one.

Shapes: E examples.
"""

import dataclasses

import numpy as np

from official.config import Segments
from tfrecords_tools.pretraining.segments import Examples, TokenizedDocuments


def separated(piece: TokenizedDocuments, separator: int) -> TokenizedDocuments:
    """Returns a piece with a separator after each document that ends in it."""
    ends = piece.sentences[piece.documents[1:]]
    if piece.unfinished:
        ends = ends[:-1]
    # A separator is the last token of its document's last sentence.
    shifts = np.searchsorted(ends, piece.sentences, side="right")
    return dataclasses.replace(
        piece, ids=np.insert(piece.ids, ends, separator), sentences=piece.sentences + shifts
    )


def cut(
    piece: TokenizedDocuments, settings: Segments, rng: np.random.Generator, between: int = 1
) -> Examples:
    """Cuts a piece into blocks.

    Args:
      piece: the documents, with separators.
      settings: of the format `blocks`. With `duplicates`, the first block of each copy has a drawn
        length, so that the copies are cut in different places.
      rng: of that draw.
      between: not used: there is one segment.

    Returns:
      The examples in the order of the text.
    """
    del between
    size = settings.max_length
    first = 1 + int(rng.random() * size) if settings.duplicates > 1 else size
    stop = max(len(piece.ids) - 1, 0)
    bounds = np.unique(np.concatenate([[0], np.arange(first, stop, size), [stop]]))
    count = len(bounds) - 1
    none = np.zeros(count, np.int64)
    return Examples(
        runs=np.stack([bounds[:-1], bounds[1:]], axis=1),
        opens=np.ones(count, bool),
        splits=np.arange(count + 1),
        labels=none,
        cut=none,
        bare=True,
    )


def next_ids(piece: TokenizedDocuments, examples: Examples) -> np.ndarray:
    """Returns the token after each block, int32 [E]."""
    return piece.ids[examples.runs[:, 1]]
