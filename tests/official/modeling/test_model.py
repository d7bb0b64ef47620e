import dataclasses
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from official.config.encoders import TransformerConfig
from official.config.heads import ClassificationConfig, Mix, RegressionConfig
from official.config.objectives import MaskedLMConfig, SentencePairConfig, SpanBoundaryConfig
from official.modeling import masks
from official.modeling.layers.random import Draws
from official.modeling.model import Model
from official.utils.errors import UserError
from tests import small

ENCODER = TransformerConfig(
    vocab_size=29,
    hidden_size=12,
    num_layers=2,
    num_heads=3,
    intermediate_size=20,
    max_positions=8,
)
RNG = np.random.default_rng(0)
BATCH = {
    "token_ids": RNG.integers(0, 29, (2, 8)).astype("int32"),
    "segment_ids": RNG.integers(0, 2, (2, 8)).astype("int32"),
    "padding_mask": np.array([[1, 1, 1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 1, 1, 1]], bool),
    "example_weights": np.ones(2, "float32"),
    "masked_positions": np.array([[1, 4, 0], [2, 7, 3]], "int32"),
    "masked_ids": np.array([[7, 2, 0], [10, 28, 1]], "int32"),
    "masked_weights": np.array([[1, 1, 0], [1, 1, 1]], "float32"),
    "next_sentence_label": np.array([0, 1], "int32"),
    "label": np.array([1, 0], "int32"),
    "score": np.array([0.5, 2.0], "float32"),
}
PRETRAINING = (MaskedLMConfig(), SentencePairConfig(weight=0.5))


def make(*objectives, dtype=None, encoder=ENCODER, seed=0):
    config = types.SimpleNamespace(seed=seed, encoder=encoder, objectives=objectives)
    return Model(config, dtype=dtype)


def tensors(batch=BATCH):
    return {name: tf.constant(value) for name, value in batch.items()}


def test_paths_are_the_encoders_and_the_objectives():
    model = make(*PRETRAINING)
    paths = model.variables_by_path()
    encoder = {v.path.removeprefix("model/") for v in model.encoder.variables}
    assert {path for path in paths if path.startswith("encoder/")} == encoder
    assert paths.keys() - encoder == {
        "masked_lm/transform/kernel",
        "masked_lm/transform/bias",
        "masked_lm/norm/scale",
        "masked_lm/norm/offset",
        "masked_lm/output_bias",
        "next_sentence/kernel",
        "next_sentence/bias",
    }
    assert len(paths) == len(model.variables) == len(model.trainable_variables)
    assert {id(v) for v in paths.values()} == {id(v) for v in model.variables}


def test_paths_do_not_depend_on_what_was_made_before():
    assert list(make(*PRETRAINING).variables_by_path()) == list(
        make(*PRETRAINING).variables_by_path()
    )


def test_initial_weights_depend_on_the_seed_and_not_on_the_other_objectives():
    first, again, other = (make(*PRETRAINING, seed=seed) for seed in (1, 1, 2))
    alone = make(PRETRAINING[1], seed=1).variables_by_path()
    for path, variable in first.variables_by_path().items():
        np.testing.assert_array_equal(variable, again.variables_by_path()[path])
        if path in alone:
            np.testing.assert_array_equal(variable, alone[path])
        if path.endswith(("kernel", "table")):
            assert not np.allclose(variable, other.variables_by_path()[path])


def test_terms_are_those_of_the_objectives():
    model = make(*PRETRAINING)
    losses, metrics = model.terms(model.prepare(BATCH))
    assert losses.keys() == {"masked_lm", "next_sentence"} == model.weight_sums(BATCH).keys()
    assert metrics.keys() == {"masked_lm_accuracy", "next_sentence_accuracy"}
    encoded = model.encoder(
        BATCH["token_ids"], BATCH["segment_ids"], masks.padding(BATCH["padding_mask"])
    )
    for objective in model.objectives:
        expected = objective.terms(BATCH, encoded, model.encoder)
        np.testing.assert_allclose(losses[objective.name], expected.losses[objective.name])
    assert model.term_weights == {"masked_lm": 1.0, "next_sentence": 0.5}
    np.testing.assert_allclose(model.weight_sums(BATCH)["masked_lm"], 5)


def test_a_fresh_model_guesses_evenly():
    model = make(*PRETRAINING)
    losses, _ = model.terms(BATCH)
    assert float(losses["masked_lm"]) / 5 == pytest.approx(np.log(29), abs=0.1)
    assert float(losses["next_sentence"]) / 2 == pytest.approx(np.log(2), abs=0.1)


def test_predictions_of_all_objectives():
    model = make(ClassificationConfig(num_labels=3), RegressionConfig())
    predictions = model.predictions(BATCH)
    assert predictions["probabilities"].shape == (2, 3)
    np.testing.assert_allclose(tf.reduce_sum(predictions["probabilities"], -1), [1, 1], rtol=1e-6)
    assert predictions["score"].shape == (2,)


def test_a_bare_encoder():
    model = make()
    assert not [path for path in model.variables_by_path() if not path.startswith("encoder/")]
    encoded = model.encode({"token_ids": BATCH["token_ids"]})
    assert encoded["sequence_output"].shape == (2, 8, 12)
    assert model.terms(BATCH) == ({}, {})


def test_an_attention_mask_of_the_batch_comes_on_top_of_padding():
    model = make()
    block = np.tril(np.ones((8, 8), bool))[None, None]
    one = model.encode({**BATCH, "attention_mask": block}, output_all=True)
    hidden = ~(block & BATCH["padding_mask"][:, None, None, :])
    weights = one["attentions"][0].numpy()
    # Row 0 of the second example may attend to nothing: its weights are all equal.
    hidden[1, :, 0] = False
    assert (weights[np.broadcast_to(hidden, weights.shape)] == 0).all()


def test_prepare_goes_through_all_objectives_in_order():
    model = make(*PRETRAINING)
    for objective in model.objectives:
        objective.prepare = lambda batch, rng, name=objective.name: {
            **batch,
            "seen": (*batch.get("seen", ()), (name, rng)),
        }
    rng = Draws((1, 2))
    seen = model.prepare(BATCH, rng)["seen"]
    assert seen == (("masked_lm", rng), ("next_sentence", rng))


def loss_and_gradients(model, batch, pair):
    with tf.GradientTape() as tape:
        losses, _ = model.terms(model.prepare(batch, Draws(pair)), Draws(pair))
        loss = tf.add_n(list(losses.values()))
    return loss, tape.gradient(loss, [v.value for v in model.trainable_variables])


@pytest.mark.slow
def test_a_step_compiles_in_float64_and_all_gradients_are_dense():
    """Other types are compared in `tests/official/training/test_graphs.py`."""
    model = make(*PRETRAINING, dtype="float64")
    step = tf.function(lambda b, p: loss_and_gradients(model, b, p), jit_compile=True)
    loss, gradients = step(tensors(), tf.constant([1, 2]))
    again, _ = step(tensors(), tf.constant([1, 2]))
    other, _ = step(tensors(), tf.constant([1, 3]))
    assert loss == again != other
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        assert isinstance(gradient, tf.Tensor), variable.path
        assert gradient.dtype == variable.dtype
        assert np.isfinite(gradient).all(), variable.path


@pytest.mark.slow
@pytest.mark.long
def test_gradients_are_those_of_differences():
    model = make(*PRETRAINING, dtype="float64")
    batch = tensors()
    _, gradients = loss_and_gradients(model, batch, (1, 2))
    rng = np.random.default_rng(1)
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        direction = rng.standard_normal(variable.shape)
        start = variable.numpy()
        around = []
        for sign in (1, -1):
            variable.assign(start + sign * 1e-5 * direction)
            around.append(float(loss_and_gradients(model, batch, (1, 2))[0]))
        variable.assign(start)
        slope = (around[0] - around[1]) / 2e-5
        assert slope == pytest.approx(np.sum(gradient * direction), rel=1e-5, abs=1e-7)


def test_repeated_tokens_add_up_in_the_tables_gradient():
    model = make(MaskedLMConfig(), dtype="float64")
    batch = {**BATCH, "token_ids": np.full((2, 8), 5, "int32")}
    _, gradients = loss_and_gradients(model, tensors(batch), (1, 2))
    table = model.encoder.token_table.table
    index = [id(v) for v in model.trainable_variables].index(id(table))
    direction = np.zeros(table.shape)
    direction[5] = np.linspace(-1, 1, 12)
    start, around = table.numpy(), []
    for sign in (1, -1):
        table.assign(start + sign * 1e-5 * direction)
        around.append(float(loss_and_gradients(model, tensors(batch), (1, 2))[0]))
    slope = (around[0] - around[1]) / 2e-5
    assert slope == pytest.approx(np.sum(gradients[index] * direction), rel=1e-5)


def test_bfloat16_losses_are_near_those_of_float32():
    exact, half = make(*PRETRAINING), make(*PRETRAINING, dtype="mixed_bfloat16")
    for name, loss in half.terms(BATCH)[0].items():
        assert loss.dtype == tf.float32
        assert float(loss) == pytest.approx(float(exact.terms(BATCH)[0][name]), rel=5e-3)


def test_the_global_policy_is_the_default():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = make(*PRETRAINING)
    finally:
        keras.config.set_dtype_policy("float32")
    assert model.encode(BATCH)["sequence_output"].dtype == tf.bfloat16
    assert {v.dtype for v in model.variables} == {"float32"}


def test_errors():
    with pytest.raises(UserError, match="objectives: two have the name masked_lm"):
        small.config(objectives=[{"type": "masked_lm"}, {"type": "masked_lm"}])


def test_a_mean_of_the_last_states_leaves_padding_out():
    model = make(ClassificationConfig(num_labels=3, pooling="mean"))
    longer = dict(BATCH)
    longer["token_ids"] = np.where(BATCH["padding_mask"], BATCH["token_ids"], 5)
    actual, other = (model.predictions(batch)["probabilities"] for batch in (BATCH, longer))
    np.testing.assert_allclose(actual, other, atol=1e-6)
    shorter = {name: BATCH[name][:1, :6] for name in ("token_ids", "segment_ids")}
    alone = model.predictions({**shorter, "padding_mask": BATCH["padding_mask"][:1, :6]})
    np.testing.assert_allclose(actual[:1], alone["probabilities"], atol=1e-6)
    without = model.predictions(shorter)["probabilities"]
    np.testing.assert_allclose(actual[:1], without, atol=1e-6)


LAST = dataclasses.replace(ENCODER, pooled_position="last")
SPANS = {
    "span_left": np.array([[0, 3, 0], [1, 6, 2]], "int32"),
    "span_right": np.array([[2, 5, 0], [3, 1, 4]], "int32"),
    "span_offset": np.array([[0, 1, 0], [0, 2, 1]], "int32"),
    "span_weights": np.array([[1, 1, 0], [1, 1, 1]], "float32"),
}


@pytest.mark.parametrize(
    "objectives, encoder, read",
    [
        ([ClassificationConfig(num_labels=3)], ENCODER, 0),
        ([ClassificationConfig(num_labels=3)], LAST, 0),
        ([ClassificationConfig(num_labels=3, pooling="first"), RegressionConfig()], ENCODER, 1),
        ([ClassificationConfig(num_labels=3), MaskedLMConfig()], LAST, 3),
        ([SentencePairConfig(), MaskedLMConfig()], ENCODER, 3),
        ([MaskedLMConfig()], dataclasses.replace(ENCODER, pooler=False), 3),
    ],
)
def test_of_the_last_layer_only_what_is_read_is_computed(objectives, encoder, read):
    model = make(*objectives, dtype="float64", encoder=encoder)
    batch = tensors()
    states = model.encode_as_read(batch)["states_read"]
    widths = {name: sum(each.shape[1] for each in own) for name, own in states.items()}
    assert sum(widths.values()) == read and widths.keys() == {o.name for o in model.objectives}
    check_as_read(model, batch)


@pytest.mark.parametrize(
    "objectives, batch",
    [
        ([], BATCH),
        ([ClassificationConfig(num_labels=3), RegressionConfig(pooling="mean")], BATCH),
        ([ClassificationConfig(num_labels=3, pooling="mean", mix=Mix())], BATCH),
        ([MaskedLMConfig(), SpanBoundaryConfig()], BATCH | SPANS),  # more than the row has
    ],
)
def test_all_positions_are_computed_where_they_are_read(objectives, batch):
    model = make(*objectives, dtype="float64")
    encoded = model.encode_as_read(tensors(batch))
    assert encoded["sequence_output"].shape == (2, 8, 12) and "states_read" not in encoded


def test_neighbors_of_spans_in_a_longer_row():
    longer = dataclasses.replace(ENCODER, max_positions=16)
    model = make(MaskedLMConfig(), SpanBoundaryConfig(), dtype="float64", encoder=longer)
    rows = ("token_ids", "segment_ids", "padding_mask")
    twice = {name: np.concatenate([BATCH[name]] * 2, axis=1) for name in rows}
    batch = tensors(BATCH | SPANS | twice)
    assert model.encode_as_read(batch)["states_read"].keys() == {"masked_lm", "span_boundary"}
    check_as_read(model, batch)


def check_as_read(model, batch):
    """Compares terms, predictions and gradients with those over all positions."""
    whole = model.encode(batch)
    found, expected = model.predictions(batch), model.predictions(batch, whole)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-10, err_msg=name)
    values = {v.path: v.value for v in model.trainable_variables}
    results = []
    for whole_rows in (False, True):
        with tf.GradientTape() as tape:
            encoded = model.encode(batch) if whole_rows else None
            losses, metrics = model.terms(batch, encoded=encoded)
            total = tf.add_n(list(losses.values()))
        gradients = tape.gradient(total, values, unconnected_gradients="zero")
        results.append((losses, metrics, gradients))
    for ours, theirs in zip(*results, strict=True):
        tf.nest.map_structure(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-12), ours, theirs
        )
