"""Ranks candidates by BM25 and writes the files of a ranking.

Shapes: Q queries that are ranked at once, D documents.
"""

import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from official.tasks import SPLITS, trec
from official.utils import atomic
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from tfrecords_tools.tasks.readers.collections import Collection

K1, B = 1.2, 0.75  # The usual values.
SCORES_AT_ONCE = 1 << 24  # Q x D, or D if that is more


def rank(
    collection: Collection, candidates: Mapping[str, list[str] | None], depth: int
) -> trec.Run:
    """Returns a ranking by BM25 (Robertson and Zaragoza, 2009) over words of letters and digits.

    Args:
      collection: the queries and documents; the word counts are those of its documents.
      candidates: query → the documents to rank; None = all that share a word with it.
      depth: the largest number of documents of a query.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    vectorizer = CountVectorizer(token_pattern=r"(?u)\w+", dtype=np.float64)
    counts = vectorizer.fit_transform(collection.documents.values()).tocsr()  # [documents, words]
    lengths = np.asarray(counts.sum(axis=1))[:, 0]
    frequencies = np.diff(counts.tocsc().indptr)
    weights = np.log1p((len(lengths) - frequencies + 0.5) / (frequencies + 0.5))
    norms = K1 * (1 - B + B * lengths / lengths.mean())
    rows = np.repeat(np.arange(len(lengths)), np.diff(counts.indptr))
    counts.data *= (K1 + 1) * weights[counts.indices] / (counts.data + norms[rows])
    by_word = counts.T.tocsr()
    names = list(collection.documents)
    numbers = {name: i for i, name in enumerate(names)}

    def score_rows() -> Iterator[np.ndarray]:
        """Yields the scores of each query, float64 [D]."""
        queries, size = iter(candidates), max(1, SCORES_AT_ONCE // len(names))
        while some := list(itertools.islice(queries, size)):
            words = vectorizer.transform(collection.queries[query] for query in some)
            scores = words @ by_word  # sparse [Q, D]
            for i in range(len(some)):
                yield scores[i].toarray()[0]

    run: trec.Run = {}
    for (query, given), row in zip(candidates.items(), score_rows(), strict=True):
        among = np.nonzero(row)[0] if given is None else [numbers[name] for name in given]
        scores = row[among].astype(np.float32)
        if len(scores) > depth:  # those that are equal to the last one are kept for `ordered`
            best = scores >= np.partition(scores, -depth)[-depth]
            among, scores = np.asarray(among)[best], scores[best]
        pairs = zip(among, scores.tolist(), strict=True)
        if ranked := trec.ordered({names[i]: score for i, score in pairs})[:depth]:
            run[query] = dict(ranked)
    return run


def write(collection: Collection, folder: AnyPath, depth: int) -> dict[str, int]:
    """Writes the files of a ranking.

    Returns:
      The number of queries of each split.

    Raises:
      UserError: a split has no queries.
    """
    sizes = {}
    with atomic.folder(folder, "qrels") as temporary:
        for name in ("queries", "documents"):
            with open(temporary / f"{name}.tsv", "w", encoding="utf-8") as stream:
                stream.write("id\ttext\n")
                texts = getattr(collection, name).items()
                stream.writelines(f"{key}\t{' '.join(text.split())}\n" for key, text in texts)
        with open(temporary / "qrels", "w", encoding="utf-8") as stream:
            trec.write_qrels(stream, collection.qrels)
        for split in (s for s in SPLITS if s in collection.splits):
            run = rank(collection, collection.splits[split], depth)
            if not run:
                raise UserError(f"the {split} split has no query: give it a larger share")
            sizes[split] = len(run)
            with open(temporary / f"{split}.run", "w", encoding="utf-8") as stream:
                trec.write_run(stream, run, "bm25")
    return sizes
