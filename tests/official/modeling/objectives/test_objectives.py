"""The values of every objective against loops by hand."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from official.config.encoders import TransformerConfig
from official.config.heads import ClassificationConfig, RegressionConfig
from official.config.objectives import MaskedLMConfig, SentencePairConfig, SpanBoundaryConfig
from official.config.registry import layer_of
from official.modeling.encoders import transformer
from official.modeling.layers.random import Draws
from official.modeling.objectives import base
from official.utils.errors import UserError

ENCODER = TransformerConfig(
    vocab_size=11,
    hidden_size=8,
    num_layers=1,
    num_heads=2,
    intermediate_size=8,
    max_positions=5,
    norm_epsilon=1e-6,
)
RNG = np.random.default_rng(0)
BATCH = {
    "token_ids": np.zeros((3, 5), "int32"),
    "example_weights": np.array([1, 1, 0], "float32"),
    "masked_positions": np.array([[1, 4], [2, 0], [3, 3]], "int32"),
    "masked_ids": np.array([[7, 2], [10, 0], [5, 5]], "int32"),
    "masked_weights": np.array([[1, 1], [1, 0], [1, 1]], "float32"),
    "next_sentence_label": np.array([0, 1, 1], "int32"),
    "sentence_order_label": np.array([1, 1, 0], "int32"),
    "label": np.array([2, 0, 1], "int32"),
    "score": np.array([0.5, -1.5, 9.0], "float32"),
}
ENCODED = {
    "sequence_output": RNG.standard_normal((3, 5, 8)),
    "pooled_output": RNG.standard_normal((3, 8)),
}


def make(config, dtype="float64", encoder_config=ENCODER, **options):
    """An objective with random values in every variable, and an encoder."""
    encoder = transformer.Encoder(encoder_config, dtype=dtype)
    encoder.build()
    config = config(**options)
    objective = layer_of(config)(config, encoder_config, dtype=dtype)
    objective.build()
    for variable in [*objective.variables, encoder.token_table.table]:
        variable.assign(RNG.standard_normal(variable.shape))
    return objective, encoder, {v.path: v.numpy() for v in objective.variables}


def cross_entropy(logits, label):
    return math.log(sum(math.exp(x) for x in logits)) - logits[label]


def check_terms(terms, name, losses, hits=None):
    """Losses and hits by example (or prediction) with their weights."""
    total = sum(weight * loss for weight, loss in losses)
    np.testing.assert_allclose(terms.losses[name], total, rtol=1e-9)
    assert terms.losses.keys() == {name}
    if hits is not None:
        hit, weight = terms.metrics[f"{name}_accuracy"]
        np.testing.assert_allclose(hit, sum(w * h for w, h in hits), rtol=1e-9)
        np.testing.assert_allclose(weight, sum(w for w, _ in hits), rtol=1e-9)


@pytest.mark.parametrize("embedding_size", [None, 6])
def test_masked_lm(embedding_size):
    config = dataclasses.replace(ENCODER, embedding_size=embedding_size)
    objective, encoder, v = make(MaskedLMConfig, encoder_config=config)
    table = encoder.token_table.table.numpy()
    # Let one prediction be right, so that hits are counted.
    v["masked_lm/output_bias"][7] += 100 * (np.arange(11) == 7)[7]
    objective.output_bias.assign(v["masked_lm/output_bias"])
    losses, hits = [], []
    for b in range(3):
        for p in range(2):
            hidden = ENCODED["sequence_output"][b, BATCH["masked_positions"][b, p]]
            hidden = hidden @ v["masked_lm/transform/kernel"] + v["masked_lm/transform/bias"]
            u = math.sqrt(2 / math.pi) * (hidden + 0.044715 * hidden**3)
            hidden = 0.5 * hidden * (1 + np.tanh(u))
            hidden = (hidden - hidden.mean()) / np.sqrt(hidden.var() + 1e-6)
            hidden = hidden * v["masked_lm/norm/scale"] + v["masked_lm/norm/offset"]
            logits = table @ hidden + v["masked_lm/output_bias"]
            target = BATCH["masked_ids"][b, p]
            weight = BATCH["masked_weights"][b, p] * BATCH["example_weights"][b]
            losses.append((weight, cross_entropy(logits, target)))
            hits.append((weight, logits.argmax() == target))
    assert 0 < sum(w * h for w, h in hits) < 3
    check_terms(objective.terms(BATCH, ENCODED, encoder), "masked_lm", losses, hits)
    np.testing.assert_allclose(objective.weight_sums(BATCH)["masked_lm"], 3)
    assert objective.predictions(BATCH, ENCODED, encoder) == {}
    assert objective.config.needs() <= BATCH.keys()


def gelu(x):
    return 0.5 * x * (1 + np.array([math.erf(value / math.sqrt(2)) for value in x]))


@pytest.mark.parametrize("embedding_size", [None, 6])
def test_span_boundary(embedding_size):
    config = dataclasses.replace(ENCODER, embedding_size=embedding_size, activation="gelu")
    objective, encoder, v = make(
        SpanBoundaryConfig, encoder_config=config, offset_size=3, max_targets=2
    )
    batch = BATCH | {
        "masked_ids": np.array([[7, 2, 9], [10, 0, 0], [5, 5, 5]], "int32"),
        "span_left": np.array([[0, 0, 0], [1, 0, 0], [0, 0, 1]], "int32"),
        "span_right": np.array([[4, 4, 4], [3, 0, 0], [2, 2, 3]], "int32"),
        "span_offset": np.array([[0, 1, 2], [0, 0, 0], [0, 1, 0]], "int32"),
        "span_weights": np.array([[1, 1, 1], [1, 0, 0], [1, 1, 1]], "float32"),
    }
    assert objective.config.needs() <= batch.keys()
    table = encoder.token_table.table.numpy()
    losses, hits = [], []
    for b in range(3):
        for p in range(3):
            # The third token of a span is one too many.
            weight = batch["span_weights"][b, p] * (p < 2) * BATCH["example_weights"][b]
            sequence = ENCODED["sequence_output"][b]
            x = np.concatenate(
                [
                    sequence[batch["span_left"][b, p]],
                    sequence[batch["span_right"][b, p]],
                    v["span_boundary/offset_embedding/table"][min(batch["span_offset"][b, p], 1)],
                ]
            )
            for i in range(2):
                x = x @ v[f"span_boundary/transform_{i}/kernel"]
                x = gelu(x + v[f"span_boundary/transform_{i}/bias"])
                x = (x - x.mean()) / np.sqrt(x.var() + 1e-6)
                x = x * v[f"span_boundary/norm_{i}/scale"] + v[f"span_boundary/norm_{i}/offset"]
            logits = table @ x + v["span_boundary/output_bias"]
            losses.append((weight, cross_entropy(logits, batch["masked_ids"][b, p])))
            hits.append((weight, logits.argmax() == batch["masked_ids"][b, p]))
    check_terms(objective.terms(batch, ENCODED, encoder), "span_boundary", losses, hits)
    np.testing.assert_allclose(objective.weight_sums(batch)["span_boundary"], 3)
    shapes = {path: value.shape for path, value in v.items()}
    assert shapes["span_boundary/offset_embedding/table"] == (2, 3)
    assert shapes["span_boundary/transform_0/kernel"] == (19, 8)
    assert shapes["span_boundary/transform_1/kernel"] == (8, embedding_size or 8)


def test_span_boundary_settings():
    assert SpanBoundaryConfig() == SpanBoundaryConfig(15, 200, 1.0)
    for name in ("max_targets", "offset_size"):
        with pytest.raises(ValueError, match=f"{name}: 0 is less than 1"):
            SpanBoundaryConfig(**{name: 0})


@pytest.mark.parametrize("relation", ["next_sentence", "sentence_order"])
def test_relations_of_two_segments(relation):
    objective, encoder, v = make(SentencePairConfig, relation=relation)
    assert v.keys() == {f"{relation}/kernel", f"{relation}/bias"}
    logits = ENCODED["pooled_output"] @ v[f"{relation}/kernel"] + v[f"{relation}/bias"]
    labels, weights = BATCH[f"{relation}_label"], BATCH["example_weights"]
    losses = [(w, cross_entropy(x, y)) for w, x, y in zip(weights, logits, labels, strict=True)]
    hits = [(w, x.argmax() == y) for w, x, y in zip(weights, logits, labels, strict=True)]
    check_terms(objective.terms(BATCH, ENCODED, encoder), relation, losses, hits)
    np.testing.assert_allclose(objective.weight_sums(BATCH)[relation], 2)
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(
        objective.predictions(BATCH, ENCODED, encoder)[f"{relation}_probabilities"],
        probabilities,
        rtol=1e-9,
    )


@pytest.mark.parametrize("options", [{"labels": ("a", "b", "c")}, {"num_labels": 3}])
def test_classification(options):
    objective, encoder, v = make(ClassificationConfig, **options)
    assert v.keys() == {"classification/output/kernel", "classification/output/bias"}
    logits = ENCODED["pooled_output"] @ v["classification/output/kernel"]
    logits += v["classification/output/bias"]
    labels, weights = BATCH["label"], BATCH["example_weights"]
    losses = [(w, cross_entropy(x, y)) for w, x, y in zip(weights, logits, labels, strict=True)]
    hits = [(w, x.argmax() == y) for w, x, y in zip(weights, logits, labels, strict=True)]
    check_terms(objective.terms(BATCH, ENCODED, encoder), "classification", losses, hits)
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(
        objective.predictions(BATCH, ENCODED, encoder)["probabilities"], probabilities, rtol=1e-9
    )
    np.testing.assert_allclose(objective.weight_sums(BATCH)["classification"], 2)


def test_regression():
    objective, encoder, v = make(RegressionConfig)
    scores = ENCODED["pooled_output"] @ v["regression/output/kernel"]
    scores = (scores + v["regression/output/bias"])[:, 0]
    squares = (scores - BATCH["score"]) ** 2
    losses = list(zip(BATCH["example_weights"], squares, strict=True))
    terms = objective.terms(BATCH, ENCODED, encoder)
    check_terms(terms, "regression", losses)
    total, weight = terms.metrics["regression_squared_error"]
    np.testing.assert_allclose([total, weight], [squares[:2].sum(), 2])
    np.testing.assert_allclose(
        objective.predictions(BATCH, ENCODED, encoder)["score"], scores, rtol=1e-9
    )


@pytest.mark.parametrize(
    "config, options, fields",
    [
        (MaskedLMConfig, {}, {"masked_positions", "masked_ids", "masked_weights"}),
        (SentencePairConfig, {}, {"next_sentence_label"}),
        (SentencePairConfig, {"relation": "sentence_order"}, {"sentence_order_label"}),
        (ClassificationConfig, {"num_labels": 3}, {"label"}),
        (RegressionConfig, {}, {"score"}),
    ],
)
class TestEvery:
    def test_needs(self, config, options, fields):
        assert config(**options).needs() == fields

    def test_missing_example_weights_are_ones(self, config, options, fields):
        objective, encoder, _ = make(config, **options)
        batch = {k: v for k, v in BATCH.items() if k != "example_weights"}
        ones = {**batch, "example_weights": np.ones(3, "float32")}
        for a, b in [
            (objective.weight_sums(batch), objective.weight_sums(ones)),
            (objective.terms(batch, ENCODED, encoder).losses, None),
        ]:
            b = b or objective.terms(ones, ENCODED, encoder).losses
            np.testing.assert_allclose(a[objective.name], b[objective.name])

    def test_sums_add_up_over_parts_of_a_batch(self, config, options, fields):
        objective, encoder, _ = make(config, **options)
        whole = objective.terms(BATCH, ENCODED, encoder).losses[objective.name]
        parts = 0
        for part in (slice(0, 1), slice(1, 3)):
            batch, encoded = ({k: v[part] for k, v in d.items()} for d in (BATCH, ENCODED))
            parts += objective.terms(batch, encoded, encoder).losses[objective.name]
        np.testing.assert_allclose(parts, whole, rtol=1e-9)

    def test_losses_are_float32_under_bfloat16_and_float64_under_float64(
        self, config, options, fields
    ):
        for dtype, expected in [("mixed_bfloat16", tf.float32), ("float64", tf.float64)]:
            objective, encoder, _ = make(config, dtype, **options)
            encoded = {k: tf.cast(v, objective.compute_dtype) for k, v in ENCODED.items()}
            terms = objective.terms(BATCH, encoded, encoder)
            tensors = tf.nest.flatten(
                [terms.losses, terms.metrics, objective.weight_sums(BATCH)]
            ) + list(objective.predictions(BATCH, encoded, encoder).values())
            assert {x.dtype for x in tensors} == {expected}

    def test_prepare_changes_nothing_and_weights_come_from_the_config(
        self, config, options, fields
    ):
        objective, _, _ = make(config, weight=2.5, **options)
        assert objective.prepare(BATCH, Draws((1, 2))) is BATCH
        assert objective.term_weights == {objective.name: 2.5}


@pytest.mark.parametrize(
    "config, options", [(ClassificationConfig, {"num_labels": 3}), (RegressionConfig, {})]
)
def test_dropout_of_the_pooled_output(config, options):
    objective, encoder, _ = make(config, dropout=0.5, **options)
    losses = [
        float(objective.terms(BATCH, ENCODED, encoder, rng).losses[objective.name])
        for rng in (None, None, Draws((1, 2)), Draws((1, 2)), Draws((1, 3)))
    ]
    assert losses[0] == losses[1] != losses[2] == losses[3] != losses[4]


@pytest.mark.parametrize(
    "config, options", [(ClassificationConfig, {"num_labels": 3}), (RegressionConfig, {})]
)
def test_the_activation_of_the_pooled_output(config, options):
    objective, encoder, variables = make(config, activation="relu", **options)
    kernel, bias = variables.values()
    expected = np.maximum(ENCODED["pooled_output"], 0) @ kernel + bias
    np.testing.assert_allclose(objective.outputs(ENCODED), expected, rtol=1e-9)


@pytest.mark.parametrize(
    "config, options", [(ClassificationConfig, {"num_labels": 3}), (RegressionConfig, {})]
)
def test_the_first_position_in_place_of_a_pooler(config, options):
    encoder_config = dataclasses.replace(ENCODER, pooler=False)
    objective, encoder, _ = make(config, encoder_config=encoder_config, pooling="first", **options)
    encoded = {"sequence_output": ENCODED["sequence_output"]}
    actual = objective.predictions(BATCH, encoded, encoder)
    pooler, _, _ = make(config, **options)
    for a, b in zip(pooler.variables, objective.variables, strict=True):
        a.assign(b)
    expected = pooler.predictions(
        BATCH, {"pooled_output": ENCODED["sequence_output"][:, 0]}, encoder
    )
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value)


@pytest.mark.parametrize(
    "config, options", [(ClassificationConfig, {"num_labels": 3}), (RegressionConfig, {})]
)
def test_the_mean_of_what_is_no_padding_in_place_of_a_pooler(config, options):
    encoder_config = dataclasses.replace(ENCODER, pooler=False)
    objective, encoder, _ = make(config, encoder_config=encoder_config, pooling="mean", **options)
    pooler, _, _ = make(config, **options)
    for a, b in zip(pooler.variables, objective.variables, strict=True):
        a.assign(b)
    states = ENCODED["sequence_output"]
    count, length = states.shape[:2]
    real = np.arange(length) < np.arange(2, 2 + count)[:, None]
    changed = np.where(real[:, :, None], states, 1e3)  # what padding holds does not matter
    for mask, given in ((real, states), (real, changed), (None, states)):
        encoded = {"sequence_output": given}
        encoded |= {} if mask is None else {"padding_mask": mask}
        actual = objective.predictions(BATCH, encoded, encoder)
        rows = [row if mask is None else row[keep] for row, keep in zip(given, real, strict=True)]
        means = np.stack([row.mean(axis=0) for row in rows])
        expected = pooler.predictions(BATCH, {"pooled_output": means}, encoder)
        for name, value in expected.items():
            np.testing.assert_allclose(actual[name], value, rtol=1e-5, atol=1e-6)


def test_the_output_of_masked_lm_is_the_token_table_itself():
    objective, encoder, paths = make(MaskedLMConfig)
    assert not [path for path in paths if "table" in path]
    with tf.GradientTape() as tape:
        loss = objective.terms(BATCH, ENCODED, encoder).losses["masked_lm"]
    assert np.abs(tape.gradient(loss, encoder.token_table.table.value)).sum() > 0


def test_class_terms_of_a_confident_guess():
    logits = np.array([[1000.0, 0.0], [1000.0, 0.0]], "float32")
    terms = base.class_terms("x", logits, np.array([0, 1]), np.ones(2, "float32"))
    np.testing.assert_allclose(terms.losses["x"], 1000)
    np.testing.assert_allclose(terms.metrics["x_accuracy"], [1, 2])


def test_errors():
    no_pooler = dataclasses.replace(ENCODER, pooler=False)
    for config, options in [
        (ClassificationConfig, {"num_labels": 2}),
        (RegressionConfig, {}),
    ]:
        with pytest.raises(ValueError, match="reads the pooled output: set encoder.pooler to true"):
            config(**options).check_encoder(no_pooler)
    with pytest.raises(ValueError, match="reads the pooled output: set encoder.pooler to true"):
        SentencePairConfig().check_encoder(no_pooler)
    last = dataclasses.replace(ENCODER, pooled_position="last")
    for config, options in [(ClassificationConfig, {"num_labels": 2}), (RegressionConfig, {})]:
        with pytest.raises(ValueError, match="pooling: 'max' is not one of pooled, first, mean"):
            config(pooling="max")
        with pytest.raises(
            ValueError, match=r"pooling: first, but this encoder has .*: last: take"
        ):
            config(pooling="first", **options).check_encoder(last)
    with pytest.raises(UserError, match="classification: neither labels nor num_labels is set"):
        make(ClassificationConfig)
    with pytest.raises(ValueError, match="num_labels: 3, but there are 2 labels"):
        ClassificationConfig(labels=("a", "b"), num_labels=3)
    with pytest.raises(ValueError, match="num_labels: 1 is less than 2"):
        ClassificationConfig(num_labels=1)
    for config in (ClassificationConfig, RegressionConfig):
        with pytest.raises(ValueError, match=r"dropout: 1.5 is not in \[0, 1\)"):
            config(dropout=1.5)
    with pytest.raises(ValueError, match="relation: 'before' is not one of next_sentence"):
        SentencePairConfig(relation="before")
