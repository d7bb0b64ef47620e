"""Scores and losses of rankings against loops by hand, and a cross-encoder of transformers."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.config.encoders import TransformerConfig
from official.config.heads import KernelRankingConfig, RankingConfig
from official.conversion import huggingface
from official.distribution.statistics import Statistics
from official.modeling.layers.random import Draws
from official.modeling.model import Model
from tests import GOLDEN

ENCODER = TransformerConfig(
    vocab_size=20, hidden_size=8, num_layers=1, num_heads=2, intermediate_size=16,
    max_positions=12, dropout=0.1, attention_dropout=0.1, initializer_range=0.5,
)  # fmt: skip
RNG = np.random.default_rng(0)


def batch():
    """Three examples of two documents: [CLS] query [SEP] document [SEP], padded differently."""
    token_ids = RNG.integers(5, 20, (3, 2, 9)).astype("int32")
    segment_ids = np.zeros_like(token_ids)
    padding_mask = np.zeros(token_ids.shape, bool)
    text_mask = np.zeros(token_ids.shape, bool)
    for i, (query, document) in enumerate([(2, 3), (1, 5), (3, 1), (2, 4), (4, 2), (1, 1)]):
        row = np.unravel_index(i, (3, 2))
        ends = query + 1, query + document + 2  # of the two [SEP]
        padding_mask[row][: ends[1] + 1] = True
        segment_ids[row][ends[0] + 1 : ends[1] + 1] = 1
        text_mask[row][1 : ends[1]] = True
        text_mask[row][ends[0]] = False
        token_ids[row][[0, *ends]] = 2, 3, 3
    return {
        "token_ids": np.where(padding_mask, token_ids, 0),
        "segment_ids": segment_ids,
        "padding_mask": padding_mask,
        "text_mask": text_mask,
        "example_weights": np.array([1, 1, 0], "float32"),
    }


def make(config, **options):
    """A model with random values in every variable."""
    settings = configs.Config(
        "ranks",
        encoder=ENCODER,
        objectives=(config(**options),),
    )
    model = Model(settings, dtype="float64")
    for variable in model.variables:
        variable.assign(np.random.default_rng(3).normal(0, 0.5, variable.shape))
    return model, model.objectives[0]


def prepared(model, given):
    given = model.prepare({name: tf.constant(value) for name, value in given.items()})
    return given, model.encode(given)


def test_cross_encoder_scores_the_pooled_output():
    given = batch()
    model, objective = make(RankingConfig)
    ready, encoded = prepared(model, given)
    assert ready["token_ids"].shape == (6, 9)
    np.testing.assert_array_equal(ready["token_ids"][3], given["token_ids"][1, 1])
    output = objective.output_projection
    expected = encoded["pooled_output"].numpy() @ output.kernel.numpy()[:, 0] + output.bias.numpy()
    scores = model.predictions(ready, encoded)["score"].numpy()
    np.testing.assert_allclose(scores, expected, rtol=1e-12)
    # A document alone gets the score that it has beside others.
    alone = {name: value[1:2, 1:2] for name, value in given.items() if value.ndim == 3}
    alone["example_weights"] = np.ones(1, "float32")
    np.testing.assert_allclose(model.predictions(*prepared(model, alone))["score"], scores[3:4])
    # And there is nothing to learn from it.
    losses, metrics = model.terms(*[prepared(model, alone)[0]])
    assert (losses, metrics) == ({}, {})


@pytest.mark.parametrize("loss", ["pairwise", "pointwise", "softmax"])
def test_only_predictions_have_the_sigmoid(loss):
    """The loss compares what is before it, as does a distillation."""
    given = {name: tf.constant(value) for name, value in batch().items()}
    results = {}
    for output in ("logits", "sigmoid"):
        model, objective = make(RankingConfig, loss=loss, output=output)
        with tf.GradientTape() as tape:
            ready = model.prepare(given)
            encoded = model.encode(ready)
            total = model.terms(ready, encoded=encoded)[0][objective.name]
        gradients = tape.gradient(total, objective.trainable_variables)
        outputs = objective.matched_outputs(ready, encoded, model.encoder)
        results[output] = [total, *gradients, outputs]
        scores = model.predictions(ready, encoded)["score"].numpy()
        right = outputs.numpy().ravel()
        right = 1 / (1 + np.exp(-right)) if output == "sigmoid" else right
        np.testing.assert_allclose(scores, right, rtol=1e-12)
    for one, other in zip(*results.values(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.abs(results["sigmoid"][1]).max() > 0.01


def test_the_sigmoid_of_large_scores_in_float32():
    """Above 16 documents are equal; `rank(raw=True)` tells them apart."""
    _, objective = make(RankingConfig, output="sigmoid")
    given = tf.constant([[16.0], [17.0], [40.0], [0.0]], "float32")
    scores = objective.predictions_of(given, {})["score"].numpy()
    assert scores.tolist() == [np.float32(0.9999999), 1, 1, 0.5]


@pytest.mark.parametrize("config", [RankingConfig, KernelRankingConfig])
def test_the_losses_that_keras_collects_of_a_layer_are_a_list(config):
    _, objective = make(config)
    assert objective.losses == []


@pytest.mark.parametrize("config", [RankingConfig, KernelRankingConfig])
@pytest.mark.parametrize("loss", ["pairwise", "pointwise", "softmax"])
def test_losses_are_those_of_a_loop(config, loss):
    model, objective = make(config, loss=loss, margin=0.7)
    ready, encoded = prepared(model, batch())
    scores = model.predictions(ready, encoded)["score"].numpy()
    expected, hits = 0.0, 0.0
    for example in range(2):  # the third one has no weight
        relevant, other = scores[2 * example], scores[2 * example + 1]
        hits += relevant > other
        if loss == "pairwise":
            expected += max(0.0, 0.7 - relevant + other)
        elif loss == "softmax":
            expected -= math.log(math.exp(relevant) / (math.exp(relevant) + math.exp(other)))
        else:
            right, wrong = 1 / (1 + math.exp(-relevant)), 1 / (1 + math.exp(-other))
            expected -= (math.log(right) + math.log(1 - wrong)) / 2
    losses, metrics = model.terms(ready, encoded=encoded)
    assert losses[objective.name].numpy() == pytest.approx(expected, rel=1e-12)
    assert expected > 0
    total, weight = metrics[f"{objective.name}_accuracy"]
    assert (float(total), float(weight)) == (hits, 2)
    assert float(model.weight_sums(ready)[objective.name]) == 2


@pytest.mark.parametrize("config", [RankingConfig, KernelRankingConfig])
@pytest.mark.parametrize("ready", [False, True])
def test_lists_have_grades_and_documents_that_fill_them(config, ready):
    """An example of weight 1/2, and one whose second document does not count."""
    given = batch()
    given["grades"] = np.array([[1.0, 3.0], [2.0, 0.0], [1.0, 0.0]], "float32")
    given["documents_mask"] = np.array([[True, True], [True, True], [True, False]])
    given["example_weights"] = np.array([1, 0.5, 1], "float32")
    model, objective = make(config, loss="rank_net")
    prepared_batch, encoded = prepared(model, given)
    scores = model.predictions(prepared_batch, encoded)["score"].numpy().reshape(3, 2)
    differences = np.array([scores[0, 1] - scores[0, 0], scores[1, 0] - scores[1, 1]])
    expected = np.log2(1 + np.exp(-differences)) @ [1, 0.5]
    losses, metrics = model.terms(prepared_batch, encoded=encoded)
    assert float(losses[objective.name]) == pytest.approx(expected, rel=1e-12)
    sums = model.weight_sums(prepared_batch if ready else given)
    assert float(sums[objective.name]) == 1.5  # one pair, and one of half the weight
    total, weight = metrics[f"{objective.name}_accuracy"]
    assert float(total) == (differences > 0) @ [1, 0.5] and float(weight) == 1.5


@pytest.mark.parametrize("ready", [False, True])
def test_tokens_of_all_sequences_are_counted(ready):
    given = batch()
    model, _ = make(RankingConfig)
    statistics = Statistics()
    result = model.prepare({name: tf.constant(value) for name, value in given.items()})
    row = statistics.pack({}, {}, {}, result if ready else given)
    assert statistics.names == ["tokens"]
    assert float(row[0]) == given["padding_mask"][:2].sum()  # the third has no weight
    # A ranking is evaluated without a loss, and then there is none.
    assert statistics.summarize(np.array([[3.0]]), {}) == {}


def test_a_tie_is_half_right():
    model, objective = make(RankingConfig)
    for variable in objective.variables:
        variable.assign(tf.zeros_like(variable))
    losses, metrics = model.terms(prepared(model, batch())[0])
    assert float(losses["ranking"]) == 2  # the margin, of each
    assert [float(x) for x in metrics["ranking_accuracy"]] == [1, 2]


def test_kernels_are_those_of_a_loop():
    given = batch()
    model, objective = make(KernelRankingConfig)
    means_and_widths = [(1.0, 1e-3)] + [(0.9 - 0.2 * k, 0.1) for k in range(10)]
    np.testing.assert_allclose(objective.config.means_and_widths, means_and_widths, atol=1e-12)
    # Some documents repeat what the query says, at the same place, so that it has the same state.
    for row in ((0, 0), (1, 1)):
        (second,) = np.nonzero(given["segment_ids"][row])
        given["token_ids"][row][second[0]] = given["token_ids"][row][0]
    ready, encoded = prepared(model, given)
    states = encoded["sequence_output"].numpy()
    segments = given["segment_ids"].reshape(6, 9)
    text = given["text_mask"].reshape(6, 9)
    expected = np.zeros((6, 11))
    for n in range(6):
        for k, (mean, width) in enumerate(means_and_widths):
            for i in range(9):
                if not text[n, i] or segments[n, i] != 0:
                    continue
                count = 0.0
                for j in range(9):
                    if text[n, j] and segments[n, j] == 1:
                        a, b = states[n, i], states[n, j]
                        cosine = a @ b / math.sqrt((a @ a) * (b @ b))
                        count += math.exp(-((cosine - mean) ** 2) / (2 * width**2))
                expected[n, k] += 0.01 * math.log(max(count, 1e-10))
    features = objective.features(ready, encoded).numpy()
    np.testing.assert_allclose(features, expected, atol=1e-6)
    assert (features.std(axis=0) > 0).all()
    output = objective.output_projection
    scores = model.predictions(ready, encoded)["score"].numpy()
    np.testing.assert_allclose(
        scores, expected @ output.kernel.numpy()[:, 0] + output.bias.numpy(), atol=1e-6
    )


def test_query_and_document_are_read_apart():
    """Each as the encoder reads it when it stands alone, padded otherwise."""
    given = batch()
    model, _ = make(KernelRankingConfig)
    _, encoded = prepared(model, given)
    states = encoded["sequence_output"].numpy()
    flat = {name: value.reshape(6, 9) for name, value in given.items() if value.ndim == 3}
    for n in range(6):
        for segment in (0, 1):
            (places,) = np.nonzero(flat["padding_mask"][n] & (flat["segment_ids"][n] == segment))
            ids = flat["token_ids"][n][places]
            alone = model.encoder(
                np.pad(ids, (0, 2))[None],
                attention_mask=np.pad(np.ones(len(ids), bool), (0, 2))[None, None, None],
            )
            np.testing.assert_allclose(
                states[n][places], alone["sequence_output"][0][: len(ids)], atol=1e-10
            )


def test_the_encoder_of_kernels_does_not_learn():
    model, objective = make(KernelRankingConfig)
    ready = {name: tf.constant(value) for name, value in batch().items()}
    variables = model.trainable_variables
    with tf.GradientTape() as tape:
        ready = model.prepare(ready)
        rng = Draws(tf.constant([1, 2]))
        losses, _ = model.terms(ready, rng, model.encode(ready, rng))
        loss = losses["kernel_ranking"]
    gradients = tape.gradient(loss, [v.value for v in variables])
    learns = {v.path for v, g in zip(variables, gradients, strict=True) if g is not None}
    assert learns == {v.path for v in objective.variables}
    # Nor is anything dropped in it; in a cross-encoder it is.
    plain = model.encode(ready)["sequence_output"]
    np.testing.assert_array_equal(model.encode(ready, rng)["sequence_output"], plain)
    other, _ = make(RankingConfig)
    ready = other.prepare({name: tf.constant(value) for name, value in batch().items()})
    dropped = other.encode(ready, rng)["sequence_output"] - other.encode(ready)["sequence_output"]
    assert np.abs(dropped).max() > 0.1


def test_a_query_or_a_document_of_unknown_words_has_a_score():
    given = batch()
    given["text_mask"][0, 0] = False
    given["text_mask"][1, 1] &= given["segment_ids"][1, 1] == 0
    model, _ = make(KernelRankingConfig)
    scores = model.predictions(*prepared(model, given))["score"].numpy()
    assert np.isfinite(scores).all()


def test_scores_are_those_of_transformers():
    """BertForSequenceClassification with one label (tests/golden/make_ranking_golden.py)."""
    golden = np.load(GOLDEN / "ranking.npz")
    source = huggingface.read(GOLDEN / "hf_files" / "pretraining")
    encoder = dataclasses.replace(source.config.encoder, pooler=True)
    settings = configs.Config("ranks", encoder=encoder, objectives=(RankingConfig(),))
    model = Model(settings, dtype="float32")
    arrays = {**source.variables, **{f"ranking/output/{k}": golden[k] for k in ("kernel", "bias")}}
    for path, variable in model.variables_by_path().items():
        variable.assign(arrays[path])
    given = {
        "token_ids": golden["input_ids"],
        "segment_ids": golden["token_type_ids"],
        "padding_mask": golden["attention_mask"] > 0,
    }
    scores = model.predictions(model.prepare(given))["score"].numpy()
    assert np.ptp(scores) > 0.1
    np.testing.assert_allclose(scores, golden["logits"], atol=1e-5)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: RankingConfig(loss="listwise"), "loss: 'listwise' is not one of pairwise, poin"),
        (lambda: RankingConfig(margin=0), "margin: 0 is not above 0"),
        (lambda: RankingConfig(dropout=1.0), "dropout: 1.0 is not in [0, 1)"),
        (lambda: RankingConfig(pooling="max"), "pooling: 'max' is not one of pooled, first, mean"),
        (lambda: KernelRankingConfig(kernels=1), "kernels: 1 is less than 2"),
        (lambda: KernelRankingConfig(sigma=0.0), "sigma: 0.0 is not above 0"),
        (lambda: KernelRankingConfig(loss="x"), "loss: 'x' is not one of"),
    ],
)
def test_settings_that_cannot_be(make, message):
    with pytest.raises(ValueError) as error:
        make()
    assert str(error.value).startswith(message)


def test_a_cross_encoder_wants_something_to_pool():
    encoder = dataclasses.replace(ENCODER, pooler=False)
    with pytest.raises(ValueError, match="reads the pooled output: set encoder.pooler"):
        RankingConfig().check_encoder(encoder)
    RankingConfig(pooling="first").check_encoder(encoder)
