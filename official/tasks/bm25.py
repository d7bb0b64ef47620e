"""BM25 (Robertson and Zaragoza, 2009) over words of letters and digits.

The words are those of `official.utils.unicode_words.terms`: with their marks, and of scripts
without blanks between words the letters and the pairs of neighbors.

Shapes: Q queries that are scored at once, D documents, W words.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from official.utils import unicode_words
from official.utils.batched import batched
from official.utils.errors import UserError

_K1, _B = 1.2, 0.75  # The usual values.
SCORES_AT_ONCE = 1 << 24  # Q x D, or D if that is more


class Scorer:
    """Scores documents for queries, by the words that they share.

    Args:
      documents: D texts.

    Raises:
      UserError: no document has a word.
    """

    def __init__(self, documents: Iterable[str]):
        from sklearn.feature_extraction.text import CountVectorizer  # of the extra `eval`

        self._vectorizer = CountVectorizer(analyzer=unicode_words.terms, dtype=np.float64)
        try:
            counts = self._vectorizer.fit_transform(documents).tocsr()  # [D, W]
        except ValueError:
            raise UserError("BM25: no document has a word of letters or digits") from None
        lengths = np.asarray(counts.sum(axis=1))[:, 0]
        frequencies = np.diff(counts.tocsc().indptr)
        weights = np.log1p((len(lengths) - frequencies + 0.5) / (frequencies + 0.5))
        norms = _K1 * (1 - _B + _B * lengths / lengths.mean())
        rows = np.repeat(np.arange(len(lengths)), np.diff(counts.indptr))
        counts.data *= (_K1 + 1) * weights[counts.indices] / (counts.data + norms[rows])
        self._by_word, self._size = counts.T.tocsr(), len(lengths)

    @property
    def index_bytes(self) -> int:
        """The bytes of the weights of all words in all documents, without the words themselves."""
        table = self._by_word
        return sum(array.nbytes for array in (table.data, table.indices, table.indptr))

    def scores(self, queries: Iterable[str]) -> Iterator[np.ndarray]:
        """Yields the scores of each query, float64 [D]; 0 where no word is shared."""
        for some in batched(queries, max(1, SCORES_AT_ONCE // self._size)):
            scores = self._vectorizer.transform(some) @ self._by_word  # sparse [Q, D]
            for i in range(len(some)):
                yield scores[i].toarray()[0]
