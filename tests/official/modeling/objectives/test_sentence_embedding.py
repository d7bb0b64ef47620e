"""The losses of vectors of texts, and their gradients, against loops by hand."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.config.distillation import DistillationConfig
from official.config.encoders import BilmConfig, TransformerConfig
from official.config.heads import ClassificationConfig, Mix
from official.config.sentence_embedding import Projection, SentenceEmbeddingConfig
from official.modeling.layers.random import Draws
from official.modeling.model import Model
from official.modeling.objectives.sentence_embedding import Objective
from official.saving import teachers
from official.utils.errors import UserError

ENCODER = TransformerConfig(
    vocab_size=20, hidden_size=8, num_layers=2, num_heads=2, intermediate_size=16,
    max_positions=12, dropout=0.1, attention_dropout=0.1, initializer_range=0.5,
)  # fmt: skip
SCORES = np.array([0.9, 0.1, 0.5, 0.5, 1.0])
WEIGHTS = np.array([1.0, 1.0, 0.0, 0.5, 1.0])
LABELS = np.array([2, 0, 1, 1, 0, 2, 1])


def cosine(x, y):
    return x @ y / math.sqrt(x @ x) / math.sqrt(y @ y)


def softmax_loss(logits, right):
    return math.log(sum(math.exp(x) for x in logits)) - logits[right]


def by_hand(layer, x, scores=SCORES, weights=WEIGHTS):
    """The sum of the loss over the examples of vectors x [B, C, V], by its definition."""
    config = layer.config
    real = [i for i in range(len(x)) if weights[i] > 0]
    losses = np.zeros(len(x))
    if config.loss in ("triplet", "margin_mse", "softmax") and config.normalize:
        x = x / np.linalg.norm(x, axis=-1, keepdims=True)
    if config.loss == "multiple_negatives":
        for i in real:
            logits, right = [], None
            for column in range(1, x.shape[1]):
                for j in real:
                    right = len(logits) if (column, j) == (1, i) else right
                    added = config.hard_negative_weight if column > 1 and j == i else 0
                    logits.append(config.scale * cosine(x[i, 0], x[j, column]) + added)
            losses[i] = softmax_loss(logits, right)
            if config.symmetric:
                back = [config.scale * cosine(x[j, 0], x[i, 1]) for j in real]
                losses[i] = (losses[i] + softmax_loss(back, real.index(i))) / 2
    elif config.loss in ("cosent", "angle"):
        values = []
        for one, other in x[:, :2]:
            if config.loss == "cosent":
                values.append(cosine(one, other))
                continue
            half = len(one) // 2
            z, w = one[:half] + 1j * one[half:], other[:half] + 1j * other[half:]
            product = np.sum(z * w.conj())
            norms = np.linalg.norm(one) * np.linalg.norm(other)
            values.append(abs(product.real + product.imag) / norms)
        total = sum(
            math.exp(config.scale * (values[i] - values[j]))
            for i in real
            for j in real
            if scores[i] < scores[j]
        )
        losses[:] = math.log(1 + total)
    elif config.loss == "triplet":
        for i, (query, document, *others) in enumerate(x):
            near = np.linalg.norm(query - document)
            away = [near - np.linalg.norm(query - other) + config.margin for other in others]
            losses[i] = sum(max(0, each) for each in away) / len(others)
    elif config.loss == "margin_mse":
        for i, (query, document, other) in enumerate(x):
            losses[i] = (query @ document - query @ other - scores[i]) ** 2
    elif config.loss == "softmax":
        kernel, bias = (each.numpy() for each in layer.classifier.weights)
        for i, (one, other) in enumerate(x):
            read = [*one, *other, *(abs(a - b) for a, b in zip(one, other, strict=True))]
            logits = [
                sum(read[v] * kernel[v, k] for v in range(len(read))) + bias[k] for k in range(3)
            ]
            losses[i] = softmax_loss(logits, LABELS[i])
    else:
        for i, (one, other) in enumerate(x):
            value = cosine(one, other)
            if config.loss == "cosine":
                losses[i] = (value - scores[i]) ** 2
            else:
                away = 1 - value
                apart = max(0, config.margin - away) ** 2
                losses[i] = (scores[i] * away**2 + (1 - scores[i]) * apart) / 2
    return float(losses @ weights)


def objective(**options):
    """An objective; the classifier of `softmax` has weights that are drawn."""
    layer = Objective(SentenceEmbeddingConfig(**options), ENCODER, dtype="float64")
    if layer.classifier is not None:
        layer.classifier.build()
        draw = np.random.default_rng(2)
        for variable in layer.classifier.weights:
            variable.assign(draw.normal(size=variable.shape))
    return layer


def value_and_gradient(layer, x, scores=SCORES, weights=WEIGHTS):
    batch = {
        "score": tf.constant(scores),
        "label": tf.constant(LABELS[: len(scores)]),
        "example_weights": tf.constant(weights),
    }
    x = tf.constant(x, "float64")
    with tf.GradientTape() as tape:
        tape.watch(x)
        terms = layer.terms_of_vectors(x, batch)
        loss = terms.losses[layer.name]
    assert float(layer.weight_sums(batch)[layer.name]) == weights.sum()
    return float(loss), tape.gradient(loss, x).numpy(), terms.metrics


CASES = {
    "multiple_negatives": ({}, 2),
    "symmetric": ({"symmetric": True, "scale": 5.0}, 2),
    "hard_negatives": ({"hard_negative_weight": 0.7}, 4),
    "symmetric_hard": ({"symmetric": True, "scale": 3.0}, 3),
    "cosent": ({"loss": "cosent"}, 2),
    "angle": ({"loss": "angle", "scale": 10.0}, 2),
    "cosine": ({"loss": "cosine"}, 2),
    "triplet": ({"loss": "triplet", "normalize": False}, 3),
    "triplet_of_unit_vectors": ({"loss": "triplet", "margin": 0.6}, 4),
    "contrastive": ({"loss": "contrastive"}, 2),
    "margin_mse": ({"loss": "margin_mse", "normalize": False}, 3),
    "margin_mse_of_unit_vectors": ({"loss": "margin_mse"}, 3),
    "softmax": ({"loss": "softmax", "labels": ("n", "e", "c"), "normalize": False}, 2),
    "softmax_of_unit_vectors": ({"loss": "softmax", "labels": ("n", "e", "c")}, 2),
    "sizes": ({"sizes": (8, 2, 4)}, 2),
    "sizes_triplet": ({"loss": "triplet", "sizes": (4, 8), "margin": 1.0}, 3),
    "sizes_margin_mse": ({"loss": "margin_mse", "sizes": (3, 8)}, 3),
    "sizes_angle": ({"loss": "angle", "sizes": (2, 8)}, 2),
}


@pytest.mark.parametrize("name", CASES)
def test_losses_and_gradients_are_those_of_a_loop(name):
    options, count = CASES[name]
    layer = objective(**options)
    config = layer.config
    x = np.random.default_rng(1).normal(size=(5, count, 8))

    def loss(x):
        return sum(by_hand(layer, x[..., :size]) for size in config.sizes or (8,))

    value, gradient, metrics = value_and_gradient(layer, x)
    assert value == pytest.approx(loss(x), rel=1e-12)
    expected, step = np.zeros_like(x), 1e-6
    for place in np.ndindex(*x.shape):
        away = np.zeros_like(x)
        away[place] = step
        expected[place] = (loss(x + away) - loss(x - away)) / (2 * step)
    np.testing.assert_allclose(gradient, expected, atol=2e-8)
    assert np.abs(gradient).max() > 1e-3
    assert np.all(gradient[2] == 0)  # an example of weight 0 is no negative, either
    if config.loss == "softmax":
        ((hits, weight),) = metrics.values()
        one, other = x.swapaxes(0, 1)
        if config.normalize:
            one, other = (each / np.linalg.norm(each, axis=1)[:, None] for each in (one, other))
        kernel, bias = (each.numpy() for each in layer.classifier.weights)
        logits = np.concatenate([one, other, np.abs(one - other)], axis=1) @ kernel + bias
        assert float(hits) == np.sum((logits.argmax(axis=1) == LABELS[:5]) * WEIGHTS)
        assert float(weight) == 3.5
    if config.loss == "multiple_negatives":
        ((total, weight),) = metrics.values()
        unit = x / np.linalg.norm(x, axis=-1, keepdims=True)
        cosines = np.einsum("iv,jcv->icj", unit[:, 0], unit[[0, 1, 3, 4], 1:]).reshape(5, -1)
        added = np.zeros_like(cosines)
        for place, i in enumerate([0, 1, 3, 4]):
            added[i, 4 + place :: 4] = config.hard_negative_weight / config.scale
        hits = [(cosines + added)[i].argmax() == [0, 1, None, 2, 3][i] for i in range(5)]
        assert float(total) == np.sum(np.array(hits) * WEIGHTS) and float(weight) == 3.5


def test_values_of_examples_that_were_worked_out():
    queries = [(1, 0), (0, 1), (0.6, 0.8)]
    documents = [(0.8, 0.6), (0.6, 0.8), (1, 0)]
    x, ones = np.stack([queries, documents], axis=1), np.ones(3)
    value, _, _ = value_and_gradient(objective(), x, ones, ones)
    assert value / 3 == pytest.approx(4.135987, abs=1e-6)
    value, _, _ = value_and_gradient(objective(symmetric=True), x, ones, ones)
    assert value / 3 == pytest.approx(4.611241, abs=1e-6)
    # Cosines of 0.8, 0.8 and 0.6.
    x = np.stack([[(1, 0)] * 3, [(0.8, 0.6), (0.8, -0.6), (0.6, 0.8)]], axis=1)
    scores = np.array([0.9, 0.1, 0.5])
    value, _, _ = value_and_gradient(objective(loss="cosent"), x, scores, ones)
    assert value / 3 == pytest.approx(4.036300, abs=1e-6)
    # One pair in the wrong order: the similarity of the first one is 1.1926, of the second one 0.
    x = np.array([[(1, 2, 3, 4), (2, 1, 0, 1)], [(1, 0, 0, 0), (0, 1, 0, 0)]])
    value, _, _ = value_and_gradient(
        objective(loss="angle", scale=1.0), x, np.array([0.0, 1.0]), np.ones(2)
    )
    assert math.log(math.exp(value / 2) - 1) == pytest.approx(1.1926, abs=1e-4)


def texts(count, rng):
    """Four examples of `count` texts, padded differently."""
    lengths = rng.integers(3, 8, (4, count, 1))
    real = np.arange(7) < lengths
    return {
        "token_ids": rng.integers(5, 20, (4, count, 7)).astype("int32") * real,
        "segment_ids": np.zeros((4, count, 7), "int32"),
        "padding_mask": real,
        "example_weights": np.ones(4, "float32"),
    }


def make(encoder=ENCODER, **options):
    config = configs.Config("x", encoder=encoder, objectives=(SentenceEmbeddingConfig(**options),))
    model = Model(config, dtype="float64")
    for variable in model.variables:
        variable.assign(np.random.default_rng(3).normal(0, 0.5, variable.shape))
    return model


def prepared(model, batch, rng=None):
    batch = {name: tf.constant(value) for name, value in batch.items()}
    batch = model.prepare(batch, rng)
    return batch, model.encode_as_read(batch, rng)


def test_vectors_are_pooled_and_projected():
    batch = texts(3, np.random.default_rng(0))
    model = make(pooling="mean, first,last", projection=Projection(size=6))
    ready, encoded = prepared(model, batch)
    states, real = encoded["sequence_output"].numpy(), ready["padding_mask"].numpy()
    parts = [
        np.concatenate([row[:n].mean(axis=0), row[0], row[n - 1]])
        for row, n in zip(states, real.sum(axis=1), strict=True)
    ]
    projection = model.objectives[0].projection
    projected = np.tanh(parts @ projection.kernel.numpy() + projection.bias.numpy())
    vectors = model.objectives[0].vectors(ready, encoded).numpy()
    assert vectors.shape == (4, 3, 6)
    np.testing.assert_allclose(vectors.reshape(12, 6), projected, rtol=1e-10)
    found = model.predictions(ready, encoded)["vectors"].numpy().reshape(12, 6)
    unit = projected / np.linalg.norm(projected, axis=1, keepdims=True)
    np.testing.assert_allclose(found, unit, rtol=1e-10)
    # A projection that is for training alone, and vectors of their own lengths.
    model = make(
        pooling="mean,first,last", normalize=False, projection=Projection(size=6, keep=False)
    )
    found = model.predictions(*prepared(model, batch))["vectors"].numpy()
    np.testing.assert_allclose(found.reshape(12, 24), parts, rtol=1e-10)


def test_only_positions_that_are_read_are_computed():
    batch = texts(2, np.random.default_rng(0))
    whole, few = make(pooling="mean,last,first,pooled"), make(pooling="last,first,pooled")
    _, encoded = prepared(few, batch)
    assert "sequence_output" not in encoded
    found = few.predictions(*prepared(few, batch))["vectors"].numpy()
    expected = whole.predictions(*prepared(whole, batch))["vectors"].numpy()[..., 8:]
    expected /= np.linalg.norm(expected, axis=-1, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_a_text_alone_is_read_twice_with_different_dropout():
    batch = texts(1, np.random.default_rng(0))
    model = make()
    ready, encoded = prepared(model, batch, Draws((5, 0), 0, 4))
    np.testing.assert_array_equal(ready["token_ids"][::2], batch["token_ids"][:, 0])
    np.testing.assert_array_equal(ready["token_ids"][1::2], batch["token_ids"][:, 0])
    vectors = model.objectives[0].vectors(ready, encoded).numpy()
    assert vectors.shape == (4, 2, 8)
    assert np.abs(vectors[:, 0] - vectors[:, 1]).max(axis=1).min() > 0.01
    # What dropout keeps does not depend on the other rows: a replica with the last two examples.
    half = {name: value[2:] for name, value in batch.items()}
    ready, encoded = prepared(model, half, Draws((5, 0), 2, 2))
    np.testing.assert_allclose(model.objectives[0].vectors(ready, encoded), vectors[2:], rtol=1e-10)
    # In an evaluation there is no dropout, so there is nothing to compare.
    ready, encoded = prepared(model, batch)
    assert model.predictions(ready, encoded)["vectors"].shape == (4, 1, 8)
    assert model.terms(ready, encoded=encoded) == ({}, {})


def test_the_vectors_of_a_teacher():
    """The mean squared error over texts and dimensions, with a projection to their size."""
    wide = dataclasses.replace(ENCODER, hidden_size=12, num_heads=3)
    taught = DistillationConfig(logits=1.0, teacher_size=12, teacher_layers=2)
    head = SentenceEmbeddingConfig(weight=0.0, projection=Projection(size=12, activation=None))
    whole = configs.Config("x", encoder=ENCODER, objectives=(head, taught))
    for objective in whole.objectives:
        objective.check(whole)
    student, teacher = Model(whole, dtype="float64"), make(wide)
    student.objectives[1].attach_teachers([teacher])
    for count in (1, 3):
        batch = texts(count, np.random.default_rng(0))
        batch["example_weights"] = np.array([1, 1, 0, 1], "float32")
        # With dropout of the student, a text alone is not read twice.
        rng = Draws((5, 0), 0, 4)
        ready, encoded = prepared(student, batch, rng)
        losses, _ = student.terms(ready, rng, encoded)
        ours = student.objectives[0].vectors(ready, encoded).numpy()
        ours /= np.linalg.norm(ours, axis=-1, keepdims=True)
        theirs = teacher.predictions(*prepared(teacher, batch))["vectors"].numpy()
        assert ours.shape == theirs.shape == (4, count, 12)
        errors = ((ours - theirs) ** 2).mean(axis=(1, 2))
        expected = errors[[0, 1, 3]].sum()
        assert losses.keys() == {"distillation_logits"}
        assert float(losses["distillation_logits"]) == pytest.approx(expected, rel=1e-10)
        sums = student.weight_sums({name: tf.constant(value) for name, value in batch.items()})
        assert float(sums["distillation_logits"]) == pytest.approx(3)
    # Translations learn the vectors that the teacher gives to their sources.
    taught = dataclasses.replace(taught, texts="first")
    student = Model(dataclasses.replace(whole, objectives=(head, taught)), dtype="float64")
    student.objectives[1].attach_teachers([teacher])
    batch = texts(2, np.random.default_rng(0))
    batch["example_weights"] = np.array([1, 1, 0, 1], "float32")
    ready, encoded = prepared(student, batch)
    losses, _ = student.terms(ready, encoded=encoded)
    ours = student.objectives[0].vectors(ready, encoded).numpy()
    ours /= np.linalg.norm(ours, axis=-1, keepdims=True)
    sources = {name: value[:, :1] if value.ndim == 3 else value for name, value in batch.items()}
    theirs = teacher.predictions(*prepared(teacher, sources))["vectors"].numpy()
    assert ours.shape == (4, 2, 12) and theirs.shape == (4, 1, 12)
    expected = ((ours - theirs) ** 2).mean(axis=(1, 2))[[0, 1, 3]].sum()
    assert float(losses["distillation_logits"]) == pytest.approx(expected, rel=1e-10)
    with pytest.raises(ValueError, match="texts: first is only for sentence_embedding, and the"):
        taught.check(
            configs.Config("x", objectives=(ClassificationConfig(labels=("a", "b")), taught))
        )
    with pytest.raises(ValueError, match="texts: first is only for the vectors of texts: give log"):
        hidden = dataclasses.replace(taught, hidden=1.0)
        hidden.check(configs.Config("x", objectives=(head, hidden)))
    with pytest.raises(ValueError, match="cross_entropy: vectors have no classes: take logits"):
        soft = dataclasses.replace(taught, cross_entropy=1.0)
        soft.check(configs.Config("x", objectives=(head, soft)))
    with pytest.raises(UserError, match="size 12, and the student 8: give it sentence_embedding"):
        teachers._check_sizes(8, 12, "folder")


def test_an_example_of_weight_0_changes_nothing():
    batch = texts(2, np.random.default_rng(0))
    batch["example_weights"] = np.array([1, 1, 0, 1], "float32")
    model = make()
    losses, metrics = model.terms(*[prepared(model, batch)[0]])
    batch["token_ids"][2] = 0
    again, others = model.terms(*[prepared(model, batch)[0]])
    assert losses["sentence_embedding"] > 0
    assert losses["sentence_embedding"].numpy() == again["sentence_embedding"].numpy()
    assert metrics == others


@pytest.mark.parametrize(
    ("count", "options", "message"),
    [
        (2, {"loss": "triplet"}, "loss: triplet: takes at least 3 texts, but an example has 2"),
        (3, {"loss": "cosine"}, "loss: cosine: takes two texts and a score, but an example has 3"),
        (2, {"loss": "cosent"}, "loss: cosent: needs a score, but the examples have none"),
        (2, {"loss": "margin_mse"}, "takes three texts and a score, but an example has 2"),
        (3, {"loss": "margin_mse"}, "needs a score, but the examples have none"),
        (3, {"loss": "softmax", "labels": ("a", "b")}, "takes two texts and a label, but"),
        (2, {"loss": "softmax", "labels": ("a", "b")}, "needs a label, but the examples have"),
    ],
)
def test_examples_without_the_texts_of_the_loss(count, options, message):
    model = make(**options)
    batch = texts(count, np.random.default_rng(0))
    with pytest.raises(UserError, match=message):
        model.terms(prepared(model, batch)[0], Draws((1, 0), 0, 4))
    ready, encoded = prepared(model, batch)
    assert model.terms(ready, encoded=encoded) == ({}, {})  # of an evaluation
    with pytest.raises(UserError, match="a batch of one example has no negatives"):
        value_and_gradient(objective(), np.ones((1, 2, 4)), np.ones(1), np.ones(1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "cosin"}, "loss: 'cosin' is not one of .* \\(did you mean 'cosine'"),
        ({"pooling": "mean,frist"}, "pooling: 'frist' is not one of .* \\(did you mean 'first'"),
        ({"pooling": ""}, "pooling: is empty: take mean"),
        ({"scale": 0.0}, "scale: 0.0 is not above 0"),
        ({"loss": "cosine", "scale": 5.0}, "scale: 5.0: not supported for the loss cosine"),
        ({"loss": "cosent", "symmetric": True}, "symmetric: True: not supported for the loss"),
        ({"margin": 1.0}, "margin: 1.0: not supported for the loss multiple_negatives"),
        ({"loss": "triplet", "cached_rows": 4}, "cached_rows: 4: .* or take recipe.accumulation"),
        ({"cached_rows": 0}, "cached_rows: 0 is less than 1"),
        ({"loss": "softmax", "sizes": (8,)}, r"sizes: \(8,\): not supported for the loss softmax"),
        ({"labels": ("a", "b")}, "labels: .*: not supported for the loss multiple_negatives"),
        ({"sizes": (4, 4)}, r"sizes: expected different numbers from 1 on, got \[4, 4\]"),
        (
            {"sizes": (8,), "projection": Projection(keep=False)},
            "sizes: the trained model does not keep the projection",
        ),
    ],
)
def test_values_that_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SentenceEmbeddingConfig(**options)


ELMO = BilmConfig(
    vocab_size=20, num_layers=1, character_size=4, filters=((1, 5),), highway_layers=1,
    cell_size=9, projection_size=3,
)  # fmt: skip


@pytest.mark.parametrize(
    ("encoder", "options", "message"),
    [
        (ENCODER, {"sizes": (16, 8)}, "sizes: 16 is larger than the vector, of size 8"),
        (ENCODER, {"sizes": (4, 2)}, r"sizes: \[4, 2\] lacks 8, the size of the full vector"),
        (
            ENCODER,
            {"loss": "angle", "projection": Projection(size=5)},
            "loss: angle: reads a vector as complex numbers, but its size 5 is odd",
        ),
        (ENCODER, {"mix": Mix()}, "mix: not supported for transformer, only for bilm"),
        (ELMO, {}, "mix: missing: the vectors of an ELMo are pooled"),
        (
            dataclasses.replace(ENCODER, pooler=False),
            {"pooling": "pooled"},
            "pooling: reads the pooled output: set encoder.pooler to true, or take another",
        ),
    ],
)
def test_encoders_that_do_not_fit(encoder, options, message):
    with pytest.raises(ValueError, match=message):
        SentenceEmbeddingConfig(**options).check_encoder(encoder)


@pytest.mark.parametrize(
    ("options", "recipe", "message"),
    [
        (
            {},
            {"accumulation": 2},
            "compares all rows of a batch.* take accumulation: 1, and cached",
        ),
        ({"loss": "cosent"}, {"batch_size": 1}, "recipe.batch_size: 1 has only one row: raise it"),
    ],
)
def test_recipes_that_do_not_fit(options, recipe, message):
    raw = {
        "name": "x",
        "objectives": [{"type": "sentence_embedding", **options}],
        "recipe": {"steps": 1, **recipe},
    }
    with pytest.raises(UserError, match=message):
        configs.from_dict(raw)
    raw["objectives"][0] = {"type": "sentence_embedding", "loss": "triplet"}
    assert configs.from_dict(raw).objectives[0].margin == 5.0


@pytest.mark.parametrize("weight", [1.0, 0.0])
def test_cached_rows_are_for_one_objective(weight):
    """With weight 0 the rows are not compared, and the objective that teaches them is another."""
    head = {"type": "sentence_embedding", "cached_rows": 4, "weight": weight}
    raw = {
        "name": "x",
        "objectives": [head, {"type": "distillation", "teachers": ["a"], "logits": 1.0}],
        "recipe": {"steps": 1},
    }
    with pytest.raises(UserError, match="cached_rows: not supported with other objectives: rem"):
        configs.from_dict(raw)
