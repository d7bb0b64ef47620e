"""Plain baselines for comparison with an encoder: majority classes, and TF-IDF with linear models.

The strength of the penalty is chosen by cross-validation on the training rows. Shapes: N rows, F
features.
"""

import re
from collections.abc import Callable, Sequence

import numpy as np
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold, cross_val_predict
from sklearn.multiclass import OneVsRestClassifier

from official.evaluation import squad_metrics

FOLDS = 3
# With more rows, the penalty is not searched.
SEARCHED = 20_000

Metric = Callable[[np.ndarray, np.ndarray], float]


def majority(train: np.ndarray, count: int) -> np.ndarray:
    """Returns the most frequent class of the training rows, `count` times."""
    return np.full(count, np.bincount(train).argmax())


class Overlap:
    """The overlap of two texts as features, and their TF-IDF vectors."""

    def __init__(self, texts: Sequence[str], ngrams: int = 1):
        """Learns the weights of words from texts."""
        self.vectorizer = TfidfVectorizer(
            ngram_range=(1, ngrams), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b"
        )
        self.vectorizer.fit(texts)

    def vectors(self, texts: Sequence[str]) -> sparse.csr_matrix:
        """Returns TF-IDF vectors, [N, F]."""
        return self.vectorizer.transform(texts)

    def cosines(self, first: Sequence[str], second: Sequence[str]) -> np.ndarray:
        """Returns the cosine of each pair, [N]."""
        shared = self.vectors(first).multiply(self.vectors(second))
        return np.asarray(shared.sum(axis=1))[:, 0]

    def simple(self, first: Sequence[str], second: Sequence[str]) -> np.ndarray:
        """Returns the cosine, the shares of common words, and the lengths, [N, 7]."""
        rows = []
        for a, b in zip(first, second, strict=True):
            left, right = (re.findall(r"\w+", text.lower()) for text in (a, b))
            one, other = set(left), set(right)
            shared = len(one & other)
            rows.append(
                (
                    shared / max(1, len(one | other)),
                    shared / max(1, len(one)),
                    shared / max(1, len(other)),
                    np.log1p(len(left)),
                    np.log1p(len(right)),
                    abs(len(left) - len(right)) / max(1, len(left) + len(right)),
                )
            )
        return np.column_stack([self.cosines(first, second), np.array(rows)])

    def pairs(self, texts: Sequence[tuple[str, ...]]) -> sparse.csr_matrix:
        """Returns all features of rows of one or two texts, [N, F]."""
        first = [row[0] for row in texts]
        if len(texts[0]) == 1:
            return self.vectors(first)
        second = [row[1] for row in texts]
        a, b = self.vectors(first), self.vectors(second)
        simple = sparse.csr_matrix(self.simple(first, second))
        return sparse.hstack([a, b, a.multiply(b), simple]).tocsr()


def classify(
    train: Sequence[tuple[str, ...]],
    labels: np.ndarray,
    others: Sequence[Sequence[tuple[str, ...]]],
    metric: Metric,
) -> list[np.ndarray]:
    """Fits a logistic regression on TF-IDF of words and bigrams, and on the overlap of two texts.

    Args:
      train: the texts of the training rows.
      labels: the class ids of the training rows, [N].
      others: the texts of other splits.
      metric: a function of labels and predictions, by which the penalty is chosen.

    Returns:
      Class ids for each of `others`.
    """
    overlap = Overlap([text for row in train for text in row], ngrams=2)
    features = overlap.pairs(train)
    strengths = [0.1, 1, 10] if len(train) <= SEARCHED else [10]

    def made(strength: float):
        model = LogisticRegression(C=strength, solver="liblinear")
        return model if labels.max() < 2 else OneVsRestClassifier(model)

    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)
    best = _best(strengths, made, features, labels, folds, metric)
    model = made(best).fit(features, labels)
    return [model.predict(overlap.pairs(texts)) for texts in others]


def score(
    train: Sequence[tuple[str, ...]],
    scores: np.ndarray,
    others: Sequence[Sequence[tuple[str, ...]]],
    metric: Metric,
) -> list[np.ndarray]:
    """Fits a ridge regression on TF-IDF and overlap of two texts; returns scores of `others`."""
    overlap = Overlap([text for row in train for text in row])
    features = overlap.pairs(train)
    folds = KFold(FOLDS, shuffle=True, random_state=0)
    best = _best([0.1, 0.3, 1, 3, 10], Ridge, features, scores, folds, metric)
    model = Ridge(best).fit(features, scores)
    return [model.predict(overlap.pairs(texts)) for texts in others]


def _best(values, make, features, targets, folds, metric, groups=None):
    """Returns the value that is best in cross-validation."""
    if len(values) == 1:
        return values[0]

    def figure(value):
        actual = cross_val_predict(make(value), features, targets, cv=folds, groups=groups)
        return metric(targets, actual)

    return max(values, key=figure)


def rank(
    queries: Sequence[str], texts: Sequence[str], relevant: np.ndarray, others: Sequence
) -> list[np.ndarray]:
    """Fits a logistic regression on the overlap of query and document, and TF-IDF of documents.

    Args:
      queries: the queries of the training pairs.
      texts: the documents of the training pairs.
      relevant: 0 or 1 for each training pair, [N].
      others: pairs of lists of queries and documents.

    Returns:
      A score for each pair of `others`.
    """
    overlap = Overlap([*queries, *texts])

    def features(first, second):
        return sparse.hstack(
            [sparse.csr_matrix(overlap.simple(first, second)), overlap.vectors(second)]
        ).tocsr()

    model = LogisticRegression(C=1, max_iter=300, class_weight="balanced")
    model.fit(features(queries, texts), relevant)
    return [model.decision_function(features(*pair)) for pair in others]


class Chooser:
    """Predicts the choice that shares the most words with a text."""

    def __init__(self, questions: Sequence):
        """Learns from `choice_files.Question`s."""
        texts = {q.context for q in questions} | {c for q in questions for c in q.choices}
        self._overlap = Overlap(sorted(texts))
        features = self._features(questions)
        right = np.array([i == q.answer for q in questions for i in range(len(q.choices))])
        groups = np.repeat(np.arange(len(questions)), len(questions[0].choices))
        folds = GroupKFold(FOLDS)
        best = max(
            (0.01, 0.1, 1),
            key=lambda strength: self._figure(strength, features, right, groups, folds),
        )
        self._model = LogisticRegression(C=best, max_iter=300).fit(features, right)

    def _figure(self, strength, features, right, groups, folds):
        model = LogisticRegression(C=strength, max_iter=300)
        actual = cross_val_predict(
            model, features, right, cv=folds, groups=groups, method="decision_function"
        )
        count = groups.max() + 1
        chosen = actual.reshape(count, -1).argmax(axis=1)
        return np.mean(chosen == right.reshape(count, -1).argmax(axis=1))

    def __call__(self, questions: Sequence) -> np.ndarray:
        """Returns the number of the most probable choice of each question."""
        scores = self._model.decision_function(self._features(questions))
        return scores.reshape(len(questions), -1).argmax(axis=1)

    def _features(self, questions: Sequence) -> sparse.csr_matrix:
        """Returns the features of each choice, and their difference from other choices, [N, F]."""
        contexts = [q.context for q in questions for _ in q.choices]
        choices = [choice for q in questions for choice in q.choices]
        asked = [f"{q.text} {choice}" for q in questions for choice in q.choices]
        actual = [
            self._overlap.simple(contexts, choices)[:, [0, 2, 4]],
            self._overlap.simple(contexts, asked)[:, [0, 2]],
            self._sentences(questions)[:, None],
        ]
        own = np.concatenate(actual, axis=1)
        grouped = own.reshape(len(questions), -1, own.shape[1])
        relative = (grouped - grouped.mean(axis=1, keepdims=True)).reshape(own.shape)
        vectors = self._overlap.vectors(choices)
        return sparse.hstack([own, relative, vectors]).tocsr()

    def _sentences(self, questions: Sequence) -> np.ndarray:
        """Returns the cosine of question and choice with the most similar sentence."""
        actual, known = [], {}
        for q in questions:
            if q.context not in known:
                known[q.context] = self._overlap.vectors(sentences(q.context))
            asked = self._overlap.vectors([f"{q.text} {choice}" for choice in q.choices])
            actual.append((known[q.context] @ asked.T).toarray().max(axis=0))
        return np.concatenate(actual)


_NAME = r"(?:[A-Z][\w'-]*|\d[\d,.]*\d|\d)"
_NAMES = re.compile(rf"{_NAME}(?:\s+(?:of\s+|the\s+)?{_NAME})*")


def sentences(text: str) -> list[str]:
    """Splits a text after full stops and at line ends."""
    return [part for part in re.split(r"(?<=[.!?])\s+|\n+", text) if part.strip()] or [text]


def answer(train: Sequence, asked: Sequence) -> tuple[dict[str, str], dict[str, float]]:
    """Answers questions with the longest name or number of the most similar sentence.

    Args:
      train: `official.shards.side_texts.Question`s, of which the weights of words are learned.
      asked: the questions to answer.

    Returns:
      The answers by id, and the distance of the sentence from the question (1 - cosine).
    """
    overlap = Overlap([*{q.context for q in train}, *(q.text for q in train)])
    answers, odds, known = {}, {}, {}
    for q in asked:
        if q.context not in known:
            parts = sentences(q.context)
            known[q.context] = parts, overlap.vectors(parts)
        parts, vectors = known[q.context]
        cosines = (vectors @ overlap.vectors([q.text]).T).toarray()[:, 0]
        best = parts[int(cosines.argmax())]
        words = set(squad_metrics.normalize(q.text).split())
        names = [
            name
            for name in _NAMES.findall(best)
            if not set(squad_metrics.normalize(name).split()) <= words
        ]
        answers[q.id] = max(names, key=len) if names else best
        odds[q.id] = 1 - float(cosines.max())
    return answers, odds
