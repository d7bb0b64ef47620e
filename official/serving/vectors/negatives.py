"""Hard negatives: documents that a search finds for a query, and that are not known to suit it.

A pair has a query and a positive, a text that suits it. Among the documents that are near a query,
some suit it although no pair says so. Ranks and margins leave out the nearest ones (Qu et al.,
2021, RocketQA, section 3.3; Moreira et al., 2024, NV-Retriever, section 3.2).

Shapes: Q queries, N pairs, D documents, K documents found for a query.
"""

import collections
import dataclasses
import json
import os
from collections.abc import Iterable

import numpy as np

from official.evaluation.nearest_vectors import first_of
from official.serving.vectors import search
from official.serving.vectors.embedder import Embedder
from official.tasks import bm25
from official.utils import atomic, host_seeding, paths
from official.utils.errors import UserError
from official.utils.progress import Progress, Report

SAMPLINGS = ("top", "random")


@dataclasses.dataclass(frozen=True)
class Settings:
    """Which documents become negatives.

    Attributes:
      count: the number of negatives of each pair.
      first_rank: the lowest rank of a negative, from 1, among the documents that are no positives
        of the query.
      last_rank: the highest rank.
      margin: the score of a negative is at least this much below that of the positive; None = any.
      relative_margin: the same as a part of the size of the positive's score; None = any.
      sampling: `top` takes those of the lowest ranks, `random` draws among all.
      seed: of the draws.

    Raises:
      UserError: there are fewer ranks than negatives, or a value is out of range.
    """

    count: int = 1
    first_rank: int = 1
    last_rank: int = 100
    margin: float | None = None
    relative_margin: float | None = None
    sampling: str = "top"
    seed: int = 0

    def __post_init__(self):
        if self.count < 1 or self.first_rank < 1:
            raise UserError("the number of negatives and the first rank are at least 1")
        ranks = self.last_rank - self.first_rank + 1
        if ranks < self.count:
            raise UserError(
                f"ranks {self.first_rank} to {self.last_rank} are fewer than the {self.count} "
                "negatives of a pair: increase the last rank"
            )

    def limit(self, score: float) -> float:
        """Returns the highest score of a negative, for the score of the positive."""
        limits = [np.inf]
        if self.margin is not None:
            limits.append(score - self.margin)
        if self.relative_margin is not None:
            limits.append(score - self.relative_margin * abs(score))
        return min(limits)


@dataclasses.dataclass(frozen=True)
class Found:
    """What a search finds.

    Attributes:
      numbers: of the documents of each query, the best first: Q arrays int64 [K].
      scores: their scores.
      positives: the score of each pair, float64 [N].
    """

    numbers: list[np.ndarray]
    scores: list[np.ndarray]
    positives: np.ndarray

    @property
    def nothing(self) -> int:
        """The number of queries that find no document."""
        return sum(not len(numbers) for numbers in self.numbers)


class Pairs:
    """Different pairs, with their queries and all documents.

    Attributes:
      queries: the Q texts of the queries.
      documents: the D texts of the documents, those of the pairs first; each is there once.
      numbers: int64 [N, 2], the numbers of the query and of the document of each pair.
      left_out: the number of pairs that are not among these, by reason.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]], documents: Iterable[str] = ()):
        """Takes the pairs; their positives are documents too.

        Raises:
          UserError: there are no pairs.
        """
        self.left_out: collections.Counter[str] = collections.Counter()
        queries: dict[str, int] = {}
        texts: dict[str, int] = {}
        numbers: dict[tuple[int, int], None] = {}
        for query, positive in pairs:
            if query == positive:
                self.left_out["whose texts are the same"] += 1
                continue
            pair = queries.setdefault(query, len(queries)), texts.setdefault(positive, len(texts))
            if pair in numbers:
                self.left_out["that occur again"] += 1
            numbers[pair] = None
        if not numbers:
            raise UserError("there are no pairs of two different texts")
        for document in documents:
            texts.setdefault(document, len(texts))
        self.queries, self.documents = list(queries), list(texts)
        self.numbers = np.array(list(numbers), np.int64)
        # No negatives: the positives of a query, and its own text.
        self._never = [{texts[query]} if query in texts else set() for query in queries]
        for number, of_positive in numbers:
            self._never[number].add(of_positive)

    @property
    def most_excluded(self) -> int:
        """The largest number of documents that are no negatives of a query."""
        return max(map(len, self._never))

    def ranked(self, pair: int, found: Found) -> list[tuple[int, float]]:
        """Returns the documents of a pair's query that may be negatives, and their scores."""
        query = self.numbers[pair, 0]
        both = zip(found.numbers[query].tolist(), found.scores[query].tolist(), strict=True)
        return [
            (number, score)
            for number, score in both
            if number not in self._never[query] and score > -np.inf
        ]


def by_vectors(
    embedder: Embedder,
    pairs: Pairs,
    top_k: int,
    batch_size: int = 32,
    report: Report | None = None,
) -> Found:
    """Finds documents by the vectors of an encoder, as `search.nearest` does.

    Args:
      embedder: computes the vectors, with the settings and the prompts of its model.
      pairs: the pairs.
      top_k: K.
      batch_size: the number of texts in a batch.
      report: is called with lines of progress; None = there are none.
    """
    count = len(pairs.documents)
    best, blocks = search.compared(
        embedder, pairs.queries, pairs.documents, top_k, batch_size, report, count
    )
    asked, given = pairs.numbers.T
    positives, start = np.zeros(len(given)), 0
    for vectors in blocks:
        best.add(vectors)
        (rows,) = np.nonzero((given >= start) & (given < start + len(vectors)))
        for row in rows:
            positives[row] = best.score(asked[row], vectors, given[row] - start)
        start += len(vectors)
    real = best.found.scores > -np.inf
    numbers, scores = (
        [row[own] for row, own in zip(table, real, strict=True)] for table in best.found
    )
    return Found(numbers, scores, positives)


def by_words(pairs: Pairs, top_k: int, report: Report | None = None) -> Found:
    """Finds documents by BM25; documents without a word of the query are not found.

    Args:
      pairs: the pairs.
      top_k: K.
      report: is called with lines of progress; None = there are none.
    """
    found = Found([], [], np.zeros(len(pairs.numbers)))
    of_query = collections.defaultdict[int, list[int]](list)
    for row, query in enumerate(pairs.numbers[:, 0].tolist()):
        of_query[query].append(row)
    progress = Progress(len(pairs.queries), report, unit="queries")
    scorer = bm25.Scorer(pairs.documents)
    for query, scores in enumerate(scorer.scores(pairs.queries)):
        count = min(top_k, int(np.count_nonzero(scores)))
        (best,) = first_of(scores[None], count) if count else np.zeros((1, 0), np.int64)
        found.numbers.append(best)
        found.scores.append(scores[best])
        rows = of_query[query]
        found.positives[rows] = scores[pairs.numbers[rows, 1]]
        progress(1)
    return found


def write(
    pairs: Pairs, found: Found, settings: Settings, output: str | os.PathLike
) -> tuple[int, float, float]:
    """Writes pairs with negatives as JSON Lines: `query`, `positive`, and the list `negatives`.

    Pairs with fewer negatives than `settings.count` are left out and counted.

    Args:
      pairs: the pairs.
      found: what a search has found for them, of at least `settings.last_rank` documents and
        `pairs.most_excluded` more.
      settings: which documents become negatives.
      output: the file, which appears when it is complete.

    Returns:
      The number of lines, and the mean scores of their positives and of their negatives.

    Raises:
      UserError: no pair has enough negatives.
    """
    check_output(output)
    lines, positive_sum, negative_sum = 0, 0.0, 0.0
    with atomic.file(output) as stream:
        for pair, (query, positive) in enumerate(pairs.numbers):
            limit = settings.limit(found.positives[pair])
            ranked = pairs.ranked(pair, found)[settings.first_rank - 1 : settings.last_rank]
            allowed = [each for each in ranked if each[1] <= limit]
            if len(allowed) < settings.count:
                pairs.left_out[f"with fewer than {settings.count} negatives"] += 1
                continue
            chosen = allowed[: settings.count]
            if settings.sampling == "random":
                rng = host_seeding.numpy_rng(settings.seed, pair)
                places = rng.choice(len(allowed), settings.count, replace=False)
                chosen = [allowed[i] for i in sorted(places)]
            line = {
                "query": pairs.queries[query],
                "positive": pairs.documents[positive],
                "negatives": [pairs.documents[number] for number, _ in chosen],
            }
            stream.write(json.dumps(line, ensure_ascii=False) + "\n")
            lines += 1
            positive_sum += found.positives[pair]
            negative_sum += float(np.mean([score for _, score in chosen]))
        if not lines:
            raise UserError(
                f"no pair has {settings.count} negatives: take other ranks or margins, or fewer "
                "negatives"
            )
    return lines, positive_sum / lines, negative_sum / lines


def check_output(output: str | os.PathLike) -> None:
    """Refuses a file that `write` cannot write."""
    paths.check_suffix(output, "pairs with negatives", (".jsonl",))
