"""Finds the documents whose vectors are nearest to those of queries: exact, in bounded memory.

The vectors of all queries are in memory. Documents are read, encoded and compared block by block,
and only the best of each query are kept. So memory does not depend on the number of documents, but
for their ids.

Shapes: Q queries, N documents, B documents of a block, D size of a vector, K documents kept.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from official.serving.embedder import Embedder, chunks
from official.serving.text_vectors import EmbeddingSettings
from official.tasks import text_files, trec
from official.utils import atomic, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from official.utils.progress import Progress, Report

TOP_K = 100
BLOCK = 2048  # documents of a block
SCORES = 1 << 22  # scores that are computed at a time, 16 MB
# The prompts of each kind of text in embedding.json, as in sentence-transformers.
PROMPTS = {"query": ("query",), "document": ("document", "passage", "corpus")}


def similarity(queries: np.ndarray, documents: np.ndarray, kind: str) -> np.ndarray:
    """Compares vectors; higher is nearer.

    Args:
      queries: float32 [Q, D].
      documents: float32 [B, D].
      kind: one of `text_vectors.SIMILARITIES`. Of distances the negative is returned. `cosine`
        is the product of vectors that are normalized already.

    Returns:
      float32 [Q, B].
    """
    if kind == "manhattan":
        return -np.stack([np.abs(documents - query).sum(axis=1) for query in queries])
    if kind == "euclidean":
        return -np.stack([np.linalg.norm(documents - query, axis=1) for query in queries])
    return queries @ documents.T


class Best:
    """Keeps the best documents of each query.

    Of documents with the same score, the earlier one is kept.

    Attributes:
      queries: the vectors, float32 [Q, D].
      kind: as in `similarity`.
      numbers: the numbers of the documents, int64 [Q, K], the best first.
      scores: their scores, float32 [Q, K].
    """

    def __init__(self, queries: np.ndarray, top_k: int, kind: str):
        """Begins with no documents.

        Args:
          queries: float32 [Q, D].
          top_k: the maximum of K.
          kind: as in `similarity`.
        """
        self.queries, self.kind, self._top_k = queries, kind, top_k
        self._seen = 0
        self.numbers = np.zeros((len(queries), 0), np.int64)
        self.scores = np.zeros((len(queries), 0), np.float32)

    def add(self, documents: np.ndarray) -> None:
        """Compares the next documents, float32 [B, D]."""
        count = len(documents)
        kept = min(self._top_k, self._seen + count)
        numbers = np.empty((len(self.queries), kept), np.int64)
        scores = np.empty((len(self.queries), kept), np.float32)
        step = max(1, SCORES // max(count, 1))
        for start in range(0, len(self.queries), step):
            rows = slice(start, start + step)
            new = similarity(self.queries[rows], documents, self.kind)
            both = np.concatenate([self.scores[rows], new], axis=1)
            # A stable order: the documents that were there come first.
            order = first_of(both, kept)
            scores[rows] = np.take_along_axis(both, order, axis=1)
            old = self.scores.shape[1]
            fresh = self._seen + order - old
            before = np.take_along_axis(
                np.pad(self.numbers[rows], ((0, 0), (0, 1))), np.minimum(order, old), axis=1
            )
            numbers[rows] = np.where(order < old, before, fresh)
        self.numbers, self.scores = numbers, scores
        self._seen += count


def first_of(scores: np.ndarray, count: int) -> np.ndarray:
    """Returns the columns of the highest scores of each row, the highest first.

    Of equal scores, the columns on the left come first.

    Args:
      scores: [Q, N].
      count: K, at most N.

    Returns:
      int64 [Q, K].
    """
    width = scores.shape[1]
    if count < width:
        # The threshold of a row, and the leftmost columns among those that are equal to it.
        threshold = -np.partition(-scores, count - 1, axis=1)[:, count - 1 : count]
        above = scores > threshold
        equal = scores == threshold
        room = count - above.sum(axis=1, keepdims=True)
        chosen = above | (equal & (np.cumsum(equal, axis=1) <= room))
        columns = np.nonzero(chosen)[1].reshape(len(scores), count)
    else:
        columns = np.broadcast_to(np.arange(width), scores.shape)
    order = np.argsort(-np.take_along_axis(scores, columns, axis=1), axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1)


def nearest(
    embedder: Embedder,
    queries: Sequence[str],
    documents: Iterable[str],
    top_k: int,
    batch_size: int = 32,
    report: Report | None = None,
    count: int | None = None,
) -> Best:
    """Searches documents for queries.

    Args:
      embedder: computes the vectors, with the settings and the prompts of its model.
      queries: Q texts.
      documents: N texts, which are read once.
      top_k: the number of documents for each query.
      batch_size: the number of texts in a batch.
      report: is called with lines of progress; None = there are none.
      count: N, for the progress; None = unknown.

    Raises:
      UserError: `top_k` is less than 1, there are no queries, or one text is given for the list.
    """
    best, blocks = compared(embedder, queries, documents, top_k, batch_size, report, count)
    for vectors in blocks:
        best.add(vectors)
    return best


def compared(
    embedder: Embedder,
    queries: Sequence[str],
    documents: Iterable[str],
    top_k: int,
    batch_size: int = 32,
    report: Report | None = None,
    count: int | None = None,
) -> tuple[Best, Iterator[np.ndarray]]:
    """Returns an empty `Best`, and the vectors of the documents in blocks, float32 [B, D].

    Arguments and errors are those of `nearest`, which adds all blocks.
    """
    check_top_k(top_k)
    settings = embedder.settings
    if settings.similarity == "cosine":
        settings = settings.with_values(normalize=True)
    best = Best(
        _encoded(embedder, queries, settings, "query", batch_size), top_k, settings.similarity
    )

    def vectors() -> Iterator[np.ndarray]:
        progress = Progress(count, report, unit="documents")
        for block in chunks(documents, BLOCK):
            yield _encoded(embedder, block, settings, "document", batch_size)
            progress(len(block))

    return best, vectors()


def write(
    embedder: Embedder,
    queries: Mapping[str, str],
    documents: AnyPath,
    output: str | os.PathLike,
    top_k: int,
    name: str,
    report: Report | None = None,
    own: bool = True,
) -> list[str]:
    """Searches a file of documents, and writes a TREC run.

    Args:
      embedder: as in `nearest`.
      queries: id → text.
      documents: a file of ids and texts: see `official.tasks.text_files`.
      output: the file, which appears when it is complete.
      top_k: as in `nearest`.
      name: the name of the run.
      report: as in `nearest`.
      own: whether a document may be found whose id is that of the query.

    Returns:
      The ids of the documents.

    Raises:
      UserError: the file cannot be read, or an id occurs twice.
    """
    check_output(output)
    check_top_k(top_k)
    count = sum(1 for _ in text_files.texts_of(documents))
    ids: list[str] = []

    def texts() -> Iterator[str]:
        for identity, text in text_files.unique(documents):
            ids.append(identity)
            yield text

    wanted = top_k if own else top_k + 1
    best = nearest(embedder, list(queries.values()), texts(), wanted, report=report, count=count)
    with atomic.file(output) as stream:
        for query, numbers, scores in zip(queries, best.numbers, best.scores, strict=True):
            pairs = zip((ids[number] for number in numbers), scores, strict=True)
            found = [pair for pair in pairs if own or pair[0] != query]
            trec.write_run(stream, {query: dict(found[:top_k])}, name)
    return ids


def check_top_k(top_k: int) -> None:
    """Raises UserError for a number of documents below 1."""
    if top_k < 1:
        raise UserError(f"top_k: {top_k} is less than 1")


def check_output(output: str | os.PathLike) -> None:
    """Refuses a file whose name is not that of a run."""
    paths.check_suffix(output, "TREC runs", (trec.SUFFIX,))


def _encoded(
    embedder: Embedder,
    texts: Sequence[str],
    settings: EmbeddingSettings,
    kind: str,
    batch_size: int,
) -> np.ndarray:
    """Returns the vectors of texts with the prompt of their kind, one of `PROMPTS`."""
    prompt = next((name for name in PROMPTS[kind] if name in settings.prompts), None)
    return embedder.texts(texts, settings, batch_size=batch_size, prompt=prompt)
