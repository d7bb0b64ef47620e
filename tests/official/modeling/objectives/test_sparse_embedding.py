"""Sparse vectors and their losses, against values that were worked out and loops by hand."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.config.encoders import BilmConfig, TransformerConfig
from official.config.objectives import MaskedLMConfig
from official.config.sparse_embedding import SparseEmbeddingConfig
from official.modeling.model import Model
from official.modeling.objectives import sparse_embedding
from official.modeling.objectives.sparse_embedding import Objective
from official.utils import strict
from official.utils.errors import UserError

ENCODER = TransformerConfig(
    vocab_size=23, hidden_size=8, num_layers=1, num_heads=2, intermediate_size=16,
    max_positions=40, dropout=0.0, attention_dropout=0.0, initializer_range=0.5, pooler=False,
)  # fmt: skip
# Scores of two texts of three and two words; the last row of each is padding or not.
LOGITS = np.array(
    [[(2, -1, 0.5), (1, 3, -2), (9, 9, 9)], [(-1, -2, 0.25), (0, 0, 0), (0.1, -1, 1)]]
)
REAL = np.array([[True, True, False], [True, True, True]])
POOLED = {
    ("max", 1): [(1.0986123, 1.3862944, 0.4054651), (0.0953102, 0, 0.6931472)],
    ("sum", 1): [(1.7917595, 1.3862944, 0.4054651), (0.0953102, 0, 0.9162908)],
    ("max", 2): [(0.7412763, 0.8697417, 0.3403683), (0.0910376, 0, 0.5265890)],
}
QUERIES = [(1, 0, 2), (0, 1, 0)]
DOCUMENTS = [(1, 1, 1), (0, 2, 1)]
NEGATIVES = [(0, 0, 1), (2, 0, 0)]


def pooled(logits, real, **options):
    """Pools scores that are given: an identity in the place of the table."""
    size = logits.shape[-1]
    return sparse_embedding._pooled(
        tf.constant(logits), tf.eye(size, dtype=tf.float64), tf.zeros(size, tf.float64),
        tf.constant(real), **options,
    )  # fmt: skip


@pytest.mark.parametrize(("pooling", "logarithms"), POOLED)
def test_worked_vectors(pooling, logarithms, monkeypatch):
    sums = pooling == "sum"
    for chunk in (16, 2, 1):
        monkeypatch.setattr(sparse_embedding, "CHUNK", chunk)
        found = pooled(LOGITS, REAL, sums=sums, logarithms=logarithms)
        found = found if sums else sparse_embedding._weights(found, logarithms)
        np.testing.assert_allclose(found, POOLED[pooling, logarithms], atol=5e-8)


def by_hand(rows, table, bias, real, sums, logarithms):
    """The vectors of rows [R, T, E], by their definition, in operations with gradients."""
    x = tf.einsum("rte,ve->rtv", rows, table) + bias
    x = tf.where(real[..., None], x, 0)
    x = tf.nn.relu(x)
    for _ in range(logarithms):
        x = tf.math.log1p(x)
    return tf.reduce_sum(x, axis=1) if sums else tf.reduce_max(x, axis=1)


@pytest.mark.parametrize("sums", [False, True])
@pytest.mark.parametrize("logarithms", [1, 2])
@pytest.mark.parametrize("length", [1, 16, 37])
def test_vectors_and_gradients_are_those_of_all_scores_at_once(sums, logarithms, length):
    rng = np.random.default_rng(0)
    rows, table, bias = (
        tf.constant(rng.normal(size=shape)) for shape in ((3, length, 5), (11, 5), (11,))
    )
    real = np.arange(length) < rng.integers(1, length + 1, (3, 1))
    real[1] = real[1, ::-1]
    away = rng.normal(size=(3, 11))
    inputs, found = [rows, table, bias], {}
    for name in ("chunks", "once"):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            if name == "once":
                x = by_hand(*inputs, real, sums, logarithms)
            else:
                x = sparse_embedding._pooled(*inputs, real, sums=sums, logarithms=logarithms)
                x = x if sums else sparse_embedding._weights(x, logarithms)
            loss = tf.reduce_sum(x * away)
        found[name] = [x, *tape.gradient(loss, inputs)]
    for one, other in zip(found["chunks"], found["once"], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)
    assert np.all(found["chunks"][1].numpy()[~real] == 0)


def largest(graph):
    """The largest number of elements of a tensor in a graph and in the functions that it calls."""
    graphs, most = [graph], 0
    graphs += [f.graph for f in graph._functions.values() if hasattr(f, "graph")]
    for each in graphs:
        for operation in each.get_operations():
            for tensor in operation.outputs:
                most = max(most, tensor.shape.num_elements() or 0)
    return most


def test_scores_of_all_tokens_are_never_in_memory():
    rows, length, words = 2, 64, 500

    def gradients(hidden, table, bias):
        real = tf.ones((rows, length), tf.bool)
        x = sparse_embedding._pooled(hidden, table, bias, real, sums=False, logarithms=1)
        return tf.gradients(x, [hidden, table, bias])

    shapes = (rows, length, 4), (words, 4), (words,)
    specs = [tf.TensorSpec(shape, tf.float32) for shape in shapes]
    graph = tf.function(gradients, autograph=False).get_concrete_function(*specs).graph
    assert largest(graph) == rows * sparse_embedding.CHUNK * words


def layer_of(**options):
    options = {"document_flops": 0.0, "query_flops": 0.0, **options}
    return Objective(SparseEmbeddingConfig(**options), ENCODER, dtype="float64")


def terms_of(layer, texts, weights=None, **fields):
    """The mean losses of vectors of texts, and their gradient."""
    x = tf.constant(np.stack(texts, axis=1), "float64")
    weights = np.ones(len(x)) if weights is None else weights
    batch = {"example_weights": tf.constant(weights), **fields}
    with tf.GradientTape() as tape:
        tape.watch(x)
        terms = layer.terms_of_vectors(x, batch)
        total = tf.add_n(list(terms.losses.values()))
    sums = layer.weight_sums({**batch, "token_ids": x})
    means = {name: float(loss / sums[name]) for name, loss in terms.losses.items()}
    return means, tape.gradient(total, x).numpy(), terms.metrics


def test_worked_losses():
    name = "sparse_embedding"
    ranked = layer_of()
    loss, _, metrics = terms_of(ranked, [QUERIES, DOCUMENTS])
    assert loss[name] == pytest.approx(0.3132617, abs=5e-8)
    assert [float(x) for x in metrics[f"{name}_accuracy"]] == [2, 2]
    assert [float(x) for x in metrics[f"{name}_query_words"]] == [3, 2]
    assert [float(x) for x in metrics[f"{name}_document_words"]] == [5, 2]
    three = [QUERIES, DOCUMENTS, NEGATIVES]
    assert terms_of(ranked, three)[0][name] == pytest.approx(0.6187400, abs=5e-8)
    margins = {"score": tf.constant([2.0, 1.0], tf.float64)}
    loss, _, _ = terms_of(layer_of(loss="margin_mse"), three, **margins)
    assert loss[name] == pytest.approx(1.0, abs=1e-12)
    margins = {"score": tf.constant([3.0, 1.0], tf.float64)}  # of the scores (5, 2), (1, 0)
    loss, _, _ = terms_of(layer_of(loss="margin_mse"), three, **margins)
    assert loss[name] == pytest.approx(2.5, abs=1e-12)
    regularized = layer_of(document_flops=3e-5, query_flops=5e-5)
    loss, _, _ = terms_of(regularized, three)
    assert loss[f"{name}_document_flops"] == pytest.approx(1.6875, abs=1e-12)
    assert loss[f"{name}_query_flops"] == pytest.approx(1.5, abs=1e-12)
    assert regularized.term_weights == {
        name: 1.0, f"{name}_document_flops": 3e-5, f"{name}_query_flops": 5e-5,
    }  # fmt: skip


@pytest.mark.parametrize(("threshold", "value"), [(0, 1.1385530), (2, 0.8232908)])
def test_worked_regularizer(threshold, value):
    layer = layer_of(document_flops=1.0, flops_threshold=threshold)
    rows = np.array(POOLED["max", 1])
    loss, _, _ = terms_of(layer, [rows, rows])
    assert loss["sparse_embedding_document_flops"] == pytest.approx(value, abs=1e-7)


def test_an_example_of_weight_0_changes_nothing():
    layer = layer_of(document_flops=1.0, query_flops=1.0)
    texts = [np.array(each, float) for each in (QUERIES, DOCUMENTS, NEGATIVES)]
    wanted, gradient, _ = terms_of(layer, texts)
    more = [np.concatenate([each, [(5, 5, 5)]]) for each in texts]
    found, slopes, _ = terms_of(layer, more, np.array([1.0, 1.0, 0.0]))
    assert found == pytest.approx(wanted, rel=1e-12)
    np.testing.assert_allclose(slopes[:2], gradient, rtol=1e-9, atol=1e-12)
    assert np.all(slopes[2] == 0)


def test_ramps():
    steps = [1, 5, 9, 10, 30]
    for ramp, values in (
        ("quadratic", [3e-7, 7.5e-6, 2.43e-5, 3e-5, 3e-5]),
        ("linear", [3e-6, 1.5e-5, 2.7e-5, 3e-5, 3e-5]),
    ):
        layer = Objective(SparseEmbeddingConfig(ramp=ramp), ENCODER)
        layer.total_steps = 30
        term = "sparse_embedding_document_flops"
        found = [3e-5 * float(layer.ramps(tf.constant(step))[term]) for step in steps]
        np.testing.assert_allclose(found, values, rtol=1e-6)
        assert float(layer.ramps(tf.constant(0))[term]) == 0
        assert set(layer.ramps(tf.constant(1))) == {term, "sparse_embedding_query_flops"}
    assert Objective(SparseEmbeddingConfig(ramp="none"), ENCODER).ramps(tf.constant(1)) == {}
    given = Objective(SparseEmbeddingConfig(ramp="linear", ramp_steps=4), ENCODER)
    assert float(given.ramps(tf.constant(1))[term]) == 0.25


def make(**options):
    options = {"document_flops": 0.0, "query_flops": 0.0, **options}
    objectives = (SparseEmbeddingConfig(**options), MaskedLMConfig())
    model = Model(configs.Config("x", encoder=ENCODER, objectives=objectives), dtype="float64")
    for variable in model.variables:
        variable.assign(np.random.default_rng(3).normal(0, 0.5, variable.shape))
    return model


def texts(count, length=9):
    rng = np.random.default_rng(5)
    real = np.arange(length) < rng.integers(4, length, (4, count, 1))
    return {
        "token_ids": tf.constant((rng.integers(5, 23, (4, count, length)) * real), tf.int32),
        "segment_ids": tf.zeros((4, count, length), tf.int32),
        "padding_mask": tf.constant(real),
        "text_mask": tf.constant(real & (np.arange(length) > 0)),
        "example_weights": tf.ones(4, tf.float64),
    }


def test_vectors_are_the_largest_weights_of_the_masked_lm():
    model, batch = make(), texts(2)
    sparse, masked = model.objectives
    for ours, theirs in zip(sparse.variables, masked.variables, strict=True):
        assert ours.path.replace("sparse_embedding", "masked_lm") == theirs.path
        ours.assign(theirs)
    prepared = sparse.prepare(batch)
    encoded = model.encode(prepared)
    scores = masked.logits(tf.reshape(encoded["sequence_output"], (-1, 8)), model.encoder)
    scores = scores.numpy().reshape(8, 9, 23)
    real = np.asarray(batch["padding_mask"]).reshape(8, 9)
    wanted = [np.log1p(np.maximum(s[r], 0).max(axis=0)) for s, r in zip(scores, real, strict=True)]
    found = sparse.predictions(prepared, encoded, model.encoder)["vectors"]
    np.testing.assert_allclose(np.reshape(found, (8, 23)), wanted, atol=1e-12)
    assert 0 < np.mean(found == 0) < 1


def test_queries_by_a_table():
    model, batch = make(queries="table"), texts(3)
    layer = model.objectives[0]
    table = layer.query_weights.numpy()
    prepared = layer.prepare(batch)
    assert prepared["token_ids"].shape == (8, 9)  # the queries are not encoded
    encoded = model.encode(prepared)
    found = layer.vectors(prepared, encoded).numpy()
    ids, words = batch["token_ids"].numpy()[:, 0], batch["text_mask"].numpy()[:, 0]
    for i in range(4):
        wanted = np.zeros(23)
        wanted[ids[i][words[i]]] = table[ids[i][words[i]]]  # once, however often
        np.testing.assert_array_equal(found[i, 0], wanted)
    rows = layer.of_rows(encoded["sequence_output"], prepared["padding_mask"]).numpy()
    np.testing.assert_array_equal(found[:, 1:].reshape(8, 23), rows)
    with tf.GradientTape() as tape:
        loss = layer.terms(prepared, model.encode(prepared), model.encoder).losses
        loss = loss["sparse_embedding"]
    gradient = tape.gradient(loss, layer.query_weights.value).numpy()
    present = np.zeros(23, bool)
    present[np.concatenate([i[w] for i, w in zip(ids, words, strict=True)])] = True
    assert np.all(gradient[~present] == 0) and np.abs(gradient[present]).max() > 1e-5


def test_an_evaluation_tells_queries_from_documents():
    model = make(queries="table")
    layer = model.objectives[0]
    batch = {**texts(1), "is_query": tf.constant([True, False, False, True])}
    prepared = layer.prepare(batch)
    encoded = model.encode(prepared)
    found = layer.predictions(prepared, encoded, model.encoder)["vectors"].numpy()
    queries = layer.of_queries(batch["token_ids"][:, 0], batch["text_mask"][:, 0]).numpy()
    rows = layer.of_rows(encoded["sequence_output"], prepared["padding_mask"]).numpy()
    np.testing.assert_array_equal(found[[0, 3], 0], queries[[0, 3]])
    np.testing.assert_array_equal(found[[1, 2], 0], rows[[1, 2]])


def test_settings_that_are_refused():
    for options, message in (
        ({"loss": "cosent"}, "loss: 'cosent' is not one of multiple_negatives, margin_mse"),
        ({"pooling": "mean"}, "pooling: 'mean' is not one of max, sum"),
        ({"logarithms": 0}, "logarithms: 0 is not 1 or 2"),
        ({"queries": "idf"}, "queries: 'idf' is not one of encoder, table"),
        ({"loss": "margin_mse", "scale": 2.0}, "scale: 2.0: not supported for the loss margin"),
        ({"document_flops": -1.0}, "document_flops"),
    ):
        with pytest.raises(UserError) as error:
            strict.build(SparseEmbeddingConfig, options, "c.yaml")
        assert message in str(error.value)
    assert SparseEmbeddingConfig().query_flops == 5e-5
    assert SparseEmbeddingConfig(queries="table").query_flops == 0
    with pytest.raises(ValueError, match="tied to a token table"):
        SparseEmbeddingConfig().check_encoder(BilmConfig())
    recipe = configs.Recipe(steps=1, batch_size=4, accumulation=2)
    whole = configs.Config("x", objectives=(SparseEmbeddingConfig(),), recipe=recipe)
    with pytest.raises(ValueError, match="compares all rows of a batch"):
        whole.objectives[0].check(whole)


def test_the_head_starts_from_a_masked_lm():
    sparse = SparseEmbeddingConfig()
    initial = configs.Config("x", objectives=(MaskedLMConfig(form="linear"),))
    assert sparse.started(initial) == dataclasses.replace(sparse, form="linear")
    assert sparse.started(None) == sparse
    initial = configs.Config("x")
    with pytest.raises(ValueError, match=r"no.*objectives: none.*ForMaskedLM"):
        sparse.started(initial)
    decoder = MaskedLMConfig(enhanced_mask_decoder=True)
    with pytest.raises(ValueError, match="enhanced_mask_decoder"):
        sparse.started(configs.Config("x", objectives=(decoder,)))


def test_examples_without_negatives_are_refused():
    layer, x = layer_of(), [QUERIES]
    with pytest.raises(UserError, match="takes at least 2 texts, but an example has 1"):
        terms_of(layer, x)
    assert not layer.terms_of_vectors(
        tf.constant(np.stack(x, axis=1), "float64"),
        {"example_weights": tf.ones(2, tf.float64)},
        training=False,
    ).losses
    assert math.isclose(float(layer.config.scale), 1.0)
