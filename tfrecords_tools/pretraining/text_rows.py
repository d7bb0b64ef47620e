"""Cuts documents into rows of text alone, for corruptions that make inputs and targets of them.

With the format `joined` the documents of a chunk follow one another with nothing between them, and
the text is cut every `max_length` tokens. With `documents` each document is cut by itself (Raffel
et al. 2020, section 3.1.4). A row may begin and end in the middle of a word. Only the last row of a
chunk or of a document may be short. A row of one token is left out, because nothing of it can be
removed.

Shapes: E examples.
"""

import numpy as np

from official.config import Segments
from tfrecords_tools.pretraining.segments import Examples, TokenizedDocuments

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
