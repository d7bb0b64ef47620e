"""The methods of an export, beside those of the model folder that it is made of."""

import numpy as np
import pytest
import tensorflow as tf

import official
from official.serving.exported_model import ExportedModel
from official.utils.errors import UserError
from tests.official.web import models

TEXTS = ["the cat sat on the mat", "", "a dog", "the the the the the the the the the the"]
SECOND = TEXTS[::-1]
QUESTIONS = (["who", "what"], "the cat sat on the mat")
CHOICES = (["the cat", "a"], ["who", ""], [["a dog", "a cat", "the mat"], ["the", "mat"]])
CASES = {
    "classification": [("classify", (TEXTS,)), ("classify", (TEXTS, SECOND))],
    "multi_label": [("classify", (TEXTS,))],
    "regression": [("score", (TEXTS, SECOND))],
    "ranking": [("rank", ("the cat", TEXTS))],
    "token_classification": [("tag", (TEXTS,)), ("tag", ([text.split() for text in TEXTS],))],
    "span_answer": [("answer", QUESTIONS)],
    "multiple_choice": [("choose", CHOICES)],
}
SIZES = {"span_answer": {"max_query_length": 4, "doc_stride": 4, "no_answers": False}}


def alike(first, second):
    """Compares results: tuples of texts, numbers and dicts of them."""
    if isinstance(second, float | np.ndarray | np.floating):
        np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-5)
    elif isinstance(second, dict):
        assert list(first) == list(second)
        alike(list(first.values()), list(second.values()))
    elif isinstance(second, list | tuple):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            alike(one, other)
    else:
        assert first == second


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("kind", CASES)
def test_heads(tmp_path, kind):
    model = models.head(kind, tmp_path / "model", **SIZES.get(kind, {}))
    official.export(tmp_path / "model", tmp_path / "export")
    exported = ExportedModel(tmp_path / "export")
    for method, arguments in CASES[kind]:
        alike(getattr(exported, method)(*arguments), getattr(model, method)(*arguments))
        assert exported.methods == (method,)
    with pytest.raises(UserError, match="task: 'x': an export has one head"):
        exported._objective(method, "x")
    other = "tag" if method != "tag" else "score"
    with pytest.raises(
        UserError, match=f"{other}: this export has no such signature; it can {method}"
    ):
        getattr(exported, other)(TEXTS)
    if method == "answer":
        with pytest.raises(UserError, match="no_answers: an export has this inside"):
            exported.answer(*QUESTIONS, no_answers=True)


@pytest.mark.slow
def test_vectors(tmp_path):
    folder = models.masked_lm(tmp_path / "model")
    (folder / "embedding.json").write_text('{"pooling": ["mean"], "normalize": true}')
    official.export(folder, tmp_path / "export")
    exported = ExportedModel(tmp_path / "export")
    vectors = exported.embedder.texts(TEXTS, batch_size=3)
    np.testing.assert_allclose(vectors, official.load(folder).encode(TEXTS), atol=1e-5)
    assert exported.embedder.texts([]).shape == (0, 0)
    with pytest.raises(UserError, match="prompt: 'query': an export has its prompt inside"):
        exported.embedder.texts(TEXTS, prompt="query")


@pytest.mark.slow
@pytest.mark.long
def test_generation(tmp_path):
    model = models.t5(tmp_path / "model")
    official.export(tmp_path / "model", tmp_path / "export", max_new_tokens=5)
    exported = ExportedModel(tmp_path / "export")
    assert exported.generate(TEXTS) == model.generate(TEXTS, max_new_tokens=5)
    drawn = exported.generate(TEXTS, temperature=2.0, seed=3)
    assert drawn == exported.generate(TEXTS, temperature=2.0, seed=3)
    assert drawn != exported.generate(TEXTS, temperature=2.0, seed=4)
    assert exported.generate([]) == []


def test_what_is_no_export(tmp_path):
    with pytest.raises(UserError, match="not a SavedModel, which has the file saved_model.pb"):
        ExportedModel(tmp_path)
    other = tf.Module()
    graph = tf.function(lambda x: {"y": x}, input_signature=[tf.TensorSpec([2], name="x")])
    tf.saved_model.save(other, tmp_path / "other", signatures={"embed_sparse": graph})
    message = r"its signatures \(embed_sparse\) are none that is served: take the model folder"
    with pytest.raises(UserError, match=message):
        ExportedModel(tmp_path / "other")
