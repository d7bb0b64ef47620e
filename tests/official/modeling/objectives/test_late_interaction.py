"""Vectors of tokens: the rows of queries and documents, the scores, the losses and gradients."""

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.config.encoders import TransformerConfig
from official.config.late_interaction import Expansion, LateInteractionConfig, TokenIds
from official.modeling.layers.max_sim import max_sim
from official.modeling.model import Model
from official.modeling.objectives.late_interaction import Objective
from official.utils.errors import UserError

ENCODER = TransformerConfig(
    vocab_size=20, hidden_size=8, num_layers=2, num_heads=2, intermediate_size=16,
    max_positions=12, initializer_range=0.5, pooler=False,
)  # fmt: skip
NONE = TokenIds()
QUERIES = [[(1, 0), (0, 1)], [(0.6, 0.8)]]
DOCUMENTS = [[(0.8, 0.6), (0, -1)], [(-1, 0), (-0.6, 0.8), (0, 1)]]
NEGATIVES = [[(0, 1)], [(1, 0), (-0.8, 0.6)]]
# The scores of a teacher for the documents and the negatives.
TEACHER = [(3.0, 1.0), (1.0, 0.0)]


def padded(texts, width=4):
    """Vectors of tokens, with zeros behind them: [texts, width, 2]."""
    found = np.zeros((len(texts), width, 2))
    for row, text in zip(found, texts, strict=True):
        row[: len(text)] = np.array(text).reshape(-1, 2)
    return found


def objective(**options):
    config = LateInteractionConfig(**{"ids": NONE, "size": 2, **options})
    return Objective(config, ENCODER, dtype="float64")


def loss_of(layer, *columns, **fields):
    """The loss of examples whose texts are these columns, a mean over the examples."""
    batch = {"example_weights": tf.ones(len(columns[0]), "float64"), **fields}
    vectors = tf.constant(np.stack(columns, axis=1))
    (loss,) = layer.terms_of_vectors(vectors, batch).losses.values()
    return float(loss) / len(columns[0])


def test_scores_of_examples_that_were_worked_out():
    queries, documents = padded(QUERIES), padded(DOCUMENTS)
    np.testing.assert_allclose(max_sim(queries, documents), [[1.4, 1.0], [0.96, 0.8]], rtol=1e-12)
    mean = max_sim(queries, documents, mean=True)
    np.testing.assert_allclose(mean, [[0.7, 0.5], [0.96, 0.8]], rtol=1e-12)
    # Padding never wins, and a document without tokens is the last one.
    against = max_sim(padded([[(1, 0)]]), padded([[(-1, 0)], []]))
    np.testing.assert_array_equal(against, [[-1, -1e9]])
    assert np.array_equal(max_sim(padded([[(1, 0)] * 2]), padded([[]]), mean=True), [[-1e9]])


def test_losses_of_examples_that_were_worked_out():
    queries, documents, negatives = map(padded, (QUERIES, DOCUMENTS, NEGATIVES))
    for options, without, whole in (
        ({}, 0.6446795, 1.3273436),
        ({"mean": True}, 0.6872413, 1.3520710),
    ):
        layer = objective(**options)
        assert loss_of(layer, queries, documents) == pytest.approx(without, abs=1e-7)
        assert loss_of(layer, queries, documents, negatives) == pytest.approx(whole, abs=1e-7)
    scores = tf.constant(TEACHER, "float64")
    for options, expected in (
        ({"loss": "distillation"}, 0.1325434),
        ({"loss": "distillation", "temperature": 2.0}, 0.1780550),
        ({"loss": "margin_mse"}, 1.6),
    ):
        layer = objective(**options)
        found = loss_of(layer, queries, documents, negatives, teacher_scores=scores)
        assert found == pytest.approx(expected, abs=1e-7)


def by_hand(x, weights, layer, teacher):
    """The sum of the loss of vectors x [B, C, U, V], by loops; zeros are no tokens."""
    config = layer.config

    def score(query, document):
        query, document = ([v for v in text if v.any()] for text in (query, document))
        if not document:
            return -1e9
        total = sum(max(float(q @ d) for d in document) for q in query)
        return total / len(query) if config.mean else total

    real, total = [i for i in range(len(x)) if weights[i]], 0.0
    for i in real:
        if config.loss == "multiple_negatives":
            others = [(j, c) for c in range(1, x.shape[1]) for j in real]
            logits = [config.scale * score(x[i, 0], x[j, c]) for j, c in others]
            loss = np.log(np.sum(np.exp(logits))) - logits[others.index((i, 1))]
        else:
            scores = np.array([score(x[i, 0], document) for document in x[i, 1:]])
            if config.loss == "margin_mse":
                errors = scores[0] - scores[1:] - (teacher[i, 0] - teacher[i, 1:])
                loss = np.mean(errors**2)
            else:
                t = config.temperature
                ours, theirs = (
                    each / t - np.log(np.sum(np.exp(each / t))) for each in (scores, teacher[i])
                )
                loss = np.sum(np.exp(theirs) * (theirs - ours)) * t**2
        total += weights[i] * loss
    return total


@pytest.mark.parametrize(
    "options",
    [
        {"scale": 3.0},
        {"mean": True},
        {"loss": "distillation", "temperature": 1.5},
        {"loss": "margin_mse", "mean": True},
    ],
)
def test_losses_and_gradients_are_those_of_a_loop(options):
    layer, draw = objective(**options, size=3), np.random.default_rng(0)
    weights, teacher = np.array([1, 0, 0.5, 1]), draw.normal(size=(4, 2))
    x = draw.normal(size=(4, 3, 5, 3)) * (np.arange(5) < draw.integers(1, 6, (4, 3, 1)))[..., None]
    x[1::2] = x[1::2, :, ::-1]  # padding before the tokens
    x[3, 2] = 0  # a document without tokens
    if options.get("loss"):
        x[3, 2, 0] = draw.normal(size=3)
    batch = {
        "example_weights": tf.constant(weights),
        "teacher_scores": tf.constant(teacher),
    }
    given = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(given)
        terms = layer.terms_of_vectors(given, batch)
        loss = terms.losses["late_interaction"]
    assert float(loss) == pytest.approx(by_hand(x, weights, layer, teacher), rel=1e-12)
    gradient, step = tape.gradient(loss, given).numpy(), 1e-6
    real = x.any(axis=-1)
    expected = np.zeros_like(x)
    for place in np.argwhere(real):
        for v in range(3):
            away = np.zeros_like(x)
            away[(*place, v)] = step
            values = [by_hand(x + sign * away, weights, layer, teacher) for sign in (1, -1)]
            expected[(*place, v)] = (values[0] - values[1]) / (2 * step)
    np.testing.assert_allclose(gradient[real], expected[real], atol=2e-8)
    assert np.abs(expected).max() > 1e-3 and np.all(gradient[1] == 0)
    if not options.get("loss"):
        ((hits, count),) = terms.metrics.values()
        assert float(count) == 2.5 and 0 <= float(hits) <= 2.5


def rows(layer, is_query, ids, prefixed=True):
    """The rows of texts: token ids, those that are attended to, and those that have a vector."""
    width = max(map(len, ids))
    tokens = np.array([each + [0] * (width - len(each)) for each in ids], np.int32)
    real = np.arange(width) < np.array([[len(each)] for each in ids])
    batch = {"token_ids": tf.constant(tokens), "padding_mask": tf.constant(real)}
    found = layer.rows(batch, tf.constant(is_query), prefixed=prefixed)
    assert not found["segment_ids"].numpy().any()
    names = ("token_ids", "padding_mask", "scored")
    return [found[name].numpy().astype(int).tolist() for name in names]


def test_queries_are_expanded():
    layer = objective(expansion=Expansion(8), ids=TokenIds(expansion=4))
    tokens, attended, scored = rows(layer, [True], [[2, 5, 6, 3]])
    assert tokens == [[2, 5, 6, 3, 4, 4, 4, 4]]
    assert attended == [[1, 1, 1, 1, 0, 0, 0, 0]] and scored == [[1] * 8]
    attend = objective(expansion=Expansion(8, attend=True), ids=TokenIds(expansion=4))
    assert rows(attend, [True], [[2, 5, 6, 3]])[1:] == [[[1] * 8], [[1] * 8]]
    # A longer query is cut, and keeps its end; of `min` it stays whole. Documents are not expanded.
    texts = [[2, 5, 6, 7, 8, 9, 3], [2, 5, 3]]
    for form, first in (("fixed", [2, 5, 6, 7, 3, 0, 0]), ("min", texts[0])):
        layer = objective(expansion=Expansion(5, form), ids=TokenIds(expansion=4))
        tokens, attended, scored = rows(layer, [True, True], texts)
        assert tokens == [first, [2, 5, 3, 4, 4, 0, 0]]
        assert scored == [[int(i > 0) for i in first], [1] * 5 + [0] * 2]
        assert attended[1] == [1, 1, 1, 0, 0, 0, 0]
        assert rows(layer, [False], texts[1:]) == [[[2, 5, 3, 0, 0]], *[[[1, 1, 1, 0, 0]]] * 2]


def test_rows_have_prefixes_and_documents_skip_words():
    ids = TokenIds(query_prefix=(11, 12), document_prefix=(13,), skipped=(6, 7))
    layer = objective(ids=ids, document_length=5)
    texts = [[2, 5, 6, 3], [2, 5, 6, 3], [2, 6, 7, 8, 3], [2, 3]]
    tokens, attended, scored = rows(layer, [True, False, False, False], texts)
    assert tokens == [
        [2, 11, 12, 5, 6, 3, 0],
        [2, 13, 5, 6, 3, 0, 0],
        [2, 13, 6, 7, 3, 0, 0],
        [2, 13, 3, 0, 0, 0, 0],
    ]
    assert attended == [[int(i > 0) for i in row] for row in tokens]
    assert scored == [
        [1, 1, 1, 1, 1, 1, 0],
        [1, 1, 1, 0, 1, 0, 0],
        [1, 1, 0, 0, 1, 0, 0],
        [1, 1, 1, 0, 0, 0, 0],
    ]
    # Texts that have their prefix do not get another one.
    assert rows(layer, [True], texts[:1], prefixed=False)[0] == [[2, 5, 6, 3]]
    # A row has no more tokens than the encoder has positions.
    long = [[2, *[5] * 10, 3]]
    tokens, attended, _ = rows(layer, [True], long)
    assert tokens == [[2, 11, 12, *[5] * 8, 3]] and sum(attended[0]) == 12


def test_a_whole_model():
    config = LateInteractionConfig(
        size=3,
        expansion=Expansion(9),
        ids=TokenIds(query_prefix=(11,), document_prefix=(12,), expansion=4, skipped=(6,)),
    )
    model = Model(configs.Config("x", encoder=ENCODER, objectives=(config,)), dtype="float64")
    draw = np.random.default_rng(3)
    for variable in model.variables:
        variable.assign(draw.normal(0, 0.5, variable.shape))
    real = np.arange(7) < draw.integers(3, 8, (4, 2, 1))
    batch = {
        "token_ids": tf.constant(draw.integers(5, 20, (4, 2, 7)).astype("int32") * real),
        "segment_ids": tf.zeros((4, 2, 7), "int32"),
        "padding_mask": tf.constant(real),
        "example_weights": tf.ones(4),
    }
    ready = model.prepare(batch)
    encoded = model.encode_as_read(ready)
    found = model.predictions(ready, encoded)["token_vectors"].numpy()
    assert found.shape == (4, 2, 9, 3)
    states = encoded["sequence_output"].numpy() @ model.objectives[0].projection.kernel.numpy()
    unit = states / np.linalg.norm(states, axis=-1, keepdims=True)
    scored = ready["scored"].numpy()
    np.testing.assert_allclose(found.reshape(8, 9, 3), unit * scored[..., None], atol=1e-12)
    assert scored[::2].all() and not scored[1::2].all()
    # Tokens that nobody attends to do not change the others.
    lone = {**ready, "token_ids": tf.where(ready["padding_mask"], ready["token_ids"], 19)}
    other = model.predictions(lone, model.encode_as_read(lone))["token_vectors"].numpy()
    kept = ready["padding_mask"].numpy().reshape(4, 2, 9)
    np.testing.assert_allclose(other[kept], found[kept], atol=1e-12)
    assert np.abs(other - found).max() > 0.01
    losses, metrics = model.terms(ready, None, encoded)
    layer = model.objectives[0]
    expected = by_hand(found, np.ones(4), layer, None)
    assert float(losses["late_interaction"]) == pytest.approx(expected, rel=1e-6)
    assert set(metrics) == {"late_interaction_accuracy"}


def test_what_is_refused():
    layer = objective(loss="distillation")
    two = np.ones((2, 2, 3, 2))
    weights = {"example_weights": tf.ones(2)}
    with pytest.raises(UserError, match="takes at least 3 texts, but an example has 2"):
        layer.terms_of_vectors(tf.constant(two), weights)
    assert not layer.terms_of_vectors(tf.constant(two), weights, training=False).losses
    with pytest.raises(UserError, match="needs teacher_scores, but the examples have none"):
        layer.terms_of_vectors(tf.constant(np.ones((2, 3, 3, 2))), weights)
    with pytest.raises(UserError, match="a batch of one example has no negatives"):
        objective().terms_of_vectors(tf.constant(two[:1]), {"example_weights": tf.ones(1)})
    assert not objective(weight=0.0).terms_of_vectors(tf.constant(two), weights).losses
    with pytest.raises(UserError, match="ids: unknown: they are filled in from the tokenizer"):
        _ = objective(ids=None).ids


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "cosine"}, "loss: 'cosine' is not one of multiple_negatives"),
        ({"loss": "margin_mse", "scale": 2.0}, "scale: 2.0: not supported for the loss margin_mse"),
        ({"temperature": 2.0}, "temperature: 2.0: not supported for the loss multiple_negatives"),
        ({"loss": "distillation", "cached_rows": 4}, "cached_rows: 4: not supported for the loss"),
        ({"query_length": 16, "expansion": Expansion(32)}, "query_length: 16 is less than"),
        ({"size": 0}, "size: 0 is less than 1"),
    ],
)
def test_settings_that_do_not_suit_each_other(options, message):
    with pytest.raises(ValueError, match=message):
        LateInteractionConfig(**options)


def test_encoders_that_are_refused():
    xlnet = configs.from_dict({"name": "x", "encoder": {"type": "transformer_xl"}}).encoder
    with pytest.raises(ValueError, match="not supported for encoder.type: transformer_xl"):
        LateInteractionConfig().check_encoder(xlnet)
    with pytest.raises(ValueError, match="expansion.length: 13 is more than encoder.max_positions"):
        LateInteractionConfig(expansion=Expansion(13)).check_encoder(ENCODER)
