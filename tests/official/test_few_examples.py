"""`official.finetune(few=True)`: pairs of the examples, and a logistic regression as the head."""

import itertools
import json

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import official
from official.fine_tuning import few
from official.utils.errors import UserError
from tests.official.serving.test_predictor import BERT, load

WORDS = "the a cat dog ran sat mat on".split()


@pytest.mark.parametrize(("counts", "alike", "others"), [((8, 8), 72, 64), ((3, 2), 9, 6)])
def test_pairs_are_all_pairs_by_turns(counts, alike, others):
    labels = [label for label, count in zip("xy", counts, strict=True) for _ in range(count)]
    pairs = few.drawn(labels, seed=3)
    # Of 8 and 8 examples SetFit 1.2.0 has 144 pairs, and of 3 and 2 it has 18.
    assert len(pairs) == 2 * max(alike, others)
    assert [score for *_, score in pairs] == [1, 0] * (len(pairs) // 2)
    every = set(itertools.combinations_with_replacement(range(len(labels)), 2))
    assert {(i, j) for i, j, _ in pairs} == every
    assert all((labels[i] == labels[j]) == bool(score) for i, j, score in pairs)
    first = {pair[:2]: pairs.count(pair) for pair in pairs}
    more = [
        n for pair, n in first.items() if (labels[pair[0]] == labels[pair[1]]) == (alike > others)
    ]
    assert set(more) == {1}  # the larger kind is not repeated
    assert few.drawn(labels, seed=3) == pairs != few.drawn(labels, seed=4)


def examples():
    rng = np.random.default_rng(0)
    texts, labels = [], []
    for label, word in (("animals", "cat"), ("things", "mat"), ("deeds", "ran")):
        for _ in range(4):
            texts.append(" ".join([word, *rng.choice(WORDS[:2], 3)]))
            labels.append(label)
    return texts, labels


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("normalize", [True, False])
def test_the_head_is_a_logistic_regression_of_the_vectors(tmp_path, normalize):
    texts, labels = examples()
    load(tmp_path / "init", encoder=BERT, max_length=16)
    settings = {"pooling": ["mean"], "normalize": normalize, "default_prompt": "query"}
    settings |= {"prompts": {"query": "sat sat "}}
    (tmp_path / "init" / "embedding.json").write_text(json.dumps(settings))
    lines = []
    model = official.finetune(
        texts, labels, init=tmp_path / "init", model_dir=tmp_path / "few", few=True,
        epochs=2, learning_rate=3e-3, report=lines.append,
    )  # fmt: skip
    assert lines[0].startswith("12 texts, 96 pairs of them: 2 epochs, batches of 16")
    found = model.classify(texts)
    # The probabilities are those of a regression on the vectors of the encoder that was trained.
    vectors = model.encode(texts, pooling="mean", normalize=False, max_length=16)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    # It learns from directions, and reads vectors with their lengths.
    learned = vectors / lengths if normalize else vectors
    head = LogisticRegression(max_iter=1000).fit(learned, labels)
    expected = head.predict_proba(vectors / lengths.mean() if normalize else vectors)
    assert list(found[0].probabilities) == list(head.classes_)
    actual = [list(each.probabilities.values()) for each in found]
    np.testing.assert_allclose(actual, expected, atol=1e-4)
    assert [each.label for each in found] == list(head.classes_[expected.argmax(axis=1)])
    # Texts of a class have come closer than in the model that it began with.
    before = official.load(tmp_path / "init").encode(texts, prompt="query", normalize=True)
    unit = vectors / lengths

    def apart(x):
        same = np.equal.outer(labels, labels)
        return (x @ x.T)[same].mean() - (x @ x.T)[~same].mean()

    assert apart(unit) > apart(before) + 0.05
    with pytest.raises(UserError, match="is there already"):
        official.finetune(
            texts, labels, init=tmp_path / "init", model_dir=tmp_path / "few", few=True
        )


def test_two_classes_have_one_regression():
    x = np.random.default_rng(0).normal(size=(20, 3))
    y = (x[:, 0] > 0).astype(int)
    head = LogisticRegression().fit(x, y)
    kernel, bias = few._softmax(head.coef_, head.intercept_)
    logits = x @ kernel + bias
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(chances, head.predict_proba(x), atol=1e-6)


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        (["a", "b", "c"], ["x", "x", "y"], "few: the label 'y' has 1 example"),
        (["a"] * 2001, ["x"] + ["y"] * 2000, "few: 2,001 examples are not few"),
        (["a", "b"], [["x"], []], "few: for texts with one class each"),
        (["a", "b"], [0.5, 1.5], "few: for texts with one class each"),
        (["a", "b"], ["x", "x"], "expected at least two classes"),
    ],
)
def test_what_has_no_pairs_is_refused(tmp_path, texts, labels, message):
    load(tmp_path / "init", encoder=BERT)
    with pytest.raises(UserError, match=message):
        official.finetune(
            texts, labels, init=tmp_path / "init", model_dir=tmp_path / "few", few=True,
            report=lambda line: None,
        )  # fmt: skip
    assert not (tmp_path / "few").exists()


def test_vectors_that_no_classification_reads_are_refused(tmp_path):
    load(tmp_path / "init", encoder=BERT)
    (tmp_path / "init" / "embedding.json").write_text('{"pooling": ["mean", "max"]}')
    with pytest.raises(UserError, match="few: pooling: mean,max, and a classification has one of"):
        official.finetune(
            ["a", "b", "c", "d"], [0, 0, 1, 1], init=tmp_path / "init",
            model_dir=tmp_path / "few", few=True,
        )  # fmt: skip
