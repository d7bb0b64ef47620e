"""Metrics of texts whose vectors are compared, against scipy, scikit-learn and loops."""

import dataclasses
import json

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from official.evaluation import embeddings
from official.utils.errors import UserError
from tests import embedding_tasks

CONFIG = embedding_tasks.config()


def unit(x):
    return x / np.linalg.norm(x)


def test_cosines_and_the_metrics_of_scores():
    rng = np.random.default_rng(0)
    vectors, scores = rng.normal(size=(40, 2, 5)), rng.random(40)
    vectors[3, 1] = 0  # has no direction
    expected = [0.0 if not b.any() else unit(a) @ unit(b) for a, b in vectors]
    found = embeddings.similarities(vectors)
    assert found.dtype == np.float32 and found.shape == (40, 1)
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-6)
    computed = embeddings.compute(["spearman", "pearson"], vectors, np.zeros((40, 2), int), scores)
    assert computed == pytest.approx(
        {
            "spearman": stats.spearmanr(expected, scores).statistic,
            "pearson": stats.pearsonr(expected, scores).statistic,
        },
        abs=1e-6,
    )
    classes = (scores > 0.7).astype(float)
    computed = embeddings.compute(["average_precision"], vectors, np.zeros((40, 2), int), classes)
    assert computed["average_precision"] == pytest.approx(
        metrics.average_precision_score(classes, found[:, 0])
    )
    nothing = np.zeros(40)
    assert embeddings.compute(["average_precision"], vectors, nothing[:, None], nothing) == {
        "average_precision": 0.0
    }


def test_vectors_of_tokens_are_compared_by_their_best_products():
    """Zeros are no tokens; the scores of a query and its document are those of a loop."""
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(12, 3, 5, 4)).astype(np.float32)
    vectors *= (np.arange(5) < rng.integers(1, 6, (12, 3, 1)))[..., None]

    def score(query, document):
        query, document = (x[x.any(axis=-1)] for x in (query, document))
        return (query @ document.T).max(axis=1).mean()

    expected = np.array([[score(x[0], other) for other in x[1:]] for x in vectors])
    found = embeddings.similarities(vectors, "mean_max_sim")
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    hashes = np.arange(36).reshape(12, 3)
    scores = np.array(
        [[score(x[0], other) for c in (1, 2) for other in vectors[:, c]] for x in vectors]
    )
    ranks = 1 + np.sum(scores > np.diagonal(scores)[:, None], axis=1)
    computed = embeddings.compute(["accuracy", "mrr"], vectors, hashes, None, "mean_max_sim")
    assert computed["mrr"] == pytest.approx(np.mean(1 / ranks)) and computed["mrr"] < 1
    assert computed["accuracy"] == np.mean(ranks == 1)


def slow_ranks(vectors, hashes):
    """Each second text among all others of the block, by a loop."""
    found = []
    for i, (first, second, *_) in enumerate(hashes):
        own = unit(vectors[i, 0]) @ unit(vectors[i, 1])
        rank = 1
        for j, others in enumerate(hashes):
            for c in range(1, len(others)):
                if others[c] in (first, second) or (c == 1 and others[0] == first):
                    continue
                rank += unit(vectors[i, 0]) @ unit(vectors[j, c]) >= own
        found.append(rank)
    return found


@pytest.mark.parametrize("texts", [2, 4])
def test_ranks_among_the_texts_of_a_block(monkeypatch, texts):
    rng = np.random.default_rng(texts)
    hashes = rng.integers(0, 40, (21, texts))
    of_hashes = rng.normal(size=(40, 6))  # the same text has the same vector
    vectors = of_hashes[hashes] + 0.0
    assert embeddings.ranks(vectors, hashes).tolist() == slow_ranks(vectors, hashes)
    assert len(set(slow_ranks(vectors, hashes))) > 5
    monkeypatch.setattr(embeddings, "BLOCK", 8)
    found = embeddings.ranks(vectors, hashes)
    blocks = [slice(0, 7), slice(7, 14), slice(14, 21)]  # of equal size
    expected = [rank for block in blocks for rank in slow_ranks(vectors[block], hashes[block])]
    assert found.tolist() == expected
    computed = embeddings.compute(["accuracy", "mrr"], vectors, hashes, None)
    assert computed["accuracy"] == np.mean(found == 1)
    assert computed["mrr"] == pytest.approx(np.mean(1 / found))


def test_equal_vectors_are_not_right():
    """A model that gives all texts one vector has found nothing."""
    vectors, hashes = np.ones((10, 2, 3)), np.arange(20).reshape(10, 2)
    assert embeddings.ranks(vectors, hashes).tolist() == [10] * 10


def test_what_has_no_metric():
    vectors, hashes = np.ones((4, 2, 3)), np.arange(8).reshape(4, 2)
    with pytest.raises(UserError, match="texts alone, which have nothing to compare: name the fol"):
        embeddings.compute(["accuracy"], vectors[:, :1], hashes[:, :1], None)
    with pytest.raises(UserError, match="the split has no scores to compare with"):
        embeddings.compute(["spearman"], vectors, hashes, None)
    with pytest.raises(UserError, match="average_precision needs scores of 0 and 1"):
        embeddings.compute(["average_precision"], vectors, hashes, np.array([0, 1, 0.5, 1]))


class Source:
    """What the files of predictions read of a source."""

    num_examples, folder, split = 3, "run/pairs", "test"

    class task:
        sequences = {"test": 3, "train": 1}


@pytest.mark.parametrize("suffix", [".tsv", ".jsonl"])
def test_the_cosines_of_a_file(tmp_path, suffix):
    scorer, path = embeddings.Scorer(CONFIG, Source), tmp_path / f"out{suffix}"
    vectors = np.random.default_rng(0).normal(size=(3, 3, 4)).astype(np.float32)
    scorer.check_output(path)
    scorer.write({"row": np.array([4, 0, 2]), "vectors": vectors}, path)
    expected = embeddings.similarities(vectors)
    if suffix == ".tsv":
        header, *lines = (line.split("\t") for line in path.read_text().splitlines())
        assert header == ["row", "cosine", "cosine_2"]
    else:
        lines = [list(json.loads(line).values()) for line in path.read_text().splitlines()]
    values = np.array(lines, np.float64)
    np.testing.assert_array_equal(values[:, 0], [0, 2, 4])
    np.testing.assert_array_equal(values[:, 1:].astype(np.float32), expected[[1, 2, 0]])


def test_files_that_cannot_be_written(tmp_path):
    class Alone(Source):
        split = "train"

    with pytest.raises(UserError, match="no objective sentence_embedding or .*: its objectives"):
        embeddings.Scorer(dataclasses.replace(CONFIG, objectives=()), Source)
    with pytest.raises(UserError, match="out.csv"):
        embeddings.Scorer(CONFIG, Source).check_output(tmp_path / "out.csv")
    with pytest.raises(UserError, match="texts alone, which are not compared: --mode=embed"):
        embeddings.Scorer(CONFIG, Alone).check_output(tmp_path / "out.tsv")
