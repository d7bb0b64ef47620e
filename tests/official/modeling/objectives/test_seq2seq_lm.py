"""Seq2seq LM: shifted targets, the loss with its z-loss by a loop, and packed rows."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.config.objectives import Seq2SeqLMConfig
from official.modeling.encoders import encoder_decoder
from official.modeling.encoders.inputs import encode
from official.modeling.layers.random import Draws
from official.modeling.model import Model
from official.modeling.objectives import seq2seq_lm
from official.utils.errors import UserError
from tests.official.modeling.encoders.test_encoder_decoder import T5

TARGETS = np.array([[5, 6, 7, 1, 0], [8, 1, 0, 0, 0], [9, 9, 9, 9, 1]], np.int32)
BATCH = {
    "token_ids": np.array([[3, 4, 5, 1], [6, 1, 0, 0], [2, 2, 2, 1]], np.int32),
    "padding_mask": np.array([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1]], bool),
    "target_ids": TARGETS,
    "target_mask": (TARGETS > 0).astype("int32"),
    "example_weights": np.array([1, 1, 0], np.float32),
}


def make(encoder_config=T5, **options):
    encoder = encoder_decoder.Encoder(encoder_config, dtype="float64")
    objective = seq2seq_lm.Objective(Seq2SeqLMConfig(**options), encoder_config, dtype="float64")
    for layer in (encoder, objective):
        layer.build()
    return objective, encoder


def test_targets_are_shifted_behind_a_start_token():
    objective, _ = make(start_id=4)
    shifted = objective.prepare(BATCH)["decoder_ids"]
    np.testing.assert_array_equal(shifted, [[4, 5, 6, 7, 1], [4, 8, 1, 0, 0], [4, 9, 9, 9, 9]])
    parts = np.array([[0, 0, 1, 1, 2], [0, 0, 1, 1, 1], [0, 0, 0, 0, 0]], np.int32)
    shifted = objective.prepare({**BATCH, "target_part_ids": parts})["decoder_ids"]
    np.testing.assert_array_equal(shifted, [[4, 5, 4, 7, 4], [4, 8, 4, 0, 0], [4, 9, 9, 9, 9]])


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "own kernel"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_loss_by_a_loop(tied, training):
    config = dataclasses.replace(
        T5, tied_output=tied, scale_output=tied, dropout=0, attention_dropout=0, inner_dropout=0
    )
    objective, encoder = make(config, z_loss=0.01)
    rng = Draws((1, 2)) if training else None
    batch = objective.prepare({k: tf.constant(v) for k, v in BATCH.items()}, rng)
    encoded = encode(encoder, batch, rng)
    terms = objective.terms(batch, encoded, encoder, rng)
    table = encoder.token_table.table.numpy()
    kernel = table.T * 10**-0.5 if tied else objective.output_projection.kernel.numpy()
    loss, hits, count = 0.0, 0, 0
    for row in range(2):
        for u in range(5):
            if not BATCH["target_mask"][row, u]:
                continue
            logits = encoded["decoder_output"].numpy()[row, u] @ kernel
            log_z = math.log(sum(math.exp(x) for x in logits))
            loss += log_z - logits[TARGETS[row, u]] + (0.01 * log_z**2 if training else 0)
            hits += logits.argmax() == TARGETS[row, u]
            count += 1
    np.testing.assert_allclose(terms.losses["seq2seq_lm"], loss, rtol=1e-12)
    assert [float(x) for x in terms.metrics["seq2seq_lm_accuracy"]] == [hits, count]
    assert float(objective.weight_sums(batch)["seq2seq_lm"]) == count == 6


def loss_and_gradients(objective, encoder, batch):
    """The summed loss of a training step, the accuracy, and the gradient of each variable."""
    rng = Draws((1, 2))
    variables = [*encoder.trainable_variables, *objective.trainable_variables]
    with tf.GradientTape() as tape:
        batch = objective.prepare({k: tf.constant(v) for k, v in batch.items()}, rng)
        terms = objective.terms(batch, encode(encoder, batch, rng), encoder, rng)
        loss = terms.losses["seq2seq_lm"]
    gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
    figures = [
        loss,
        *terms.metrics["seq2seq_lm_accuracy"],
        objective.weight_sums(batch).popitem()[1],
    ]
    return (
        np.array([float(x) for x in figures]),
        {
            v.path: tf.convert_to_tensor(g).numpy()
            for v, g in zip(variables, gradients, strict=True)
        },
    )


def packed_row(pairs, length, targets):
    """A row [1, length] and its targets [1, targets] with all pairs one behind the other."""

    def side(sequences, size):
        ids, parts, positions = (np.zeros((1, size), np.int32) for _ in range(3))
        parts += len(sequences)
        start = 0
        for part, sequence in enumerate(sequences):
            where = slice(start, start := start + len(sequence))
            ids[0, where], parts[0, where] = sequence, part
            positions[0, where] = range(len(sequence))
        return ids, parts, positions, np.arange(size)[None] < start

    read, written = side([a for a, _ in pairs], length), side([b for _, b in pairs], targets)
    names = "token_ids", "part_ids", "positions", "padding_mask"
    target_names = "target_ids", "target_part_ids", "target_positions", "target_mask"
    row = dict(zip(names, read, strict=True)) | dict(zip(target_names, written, strict=True))
    return {**row, "example_weights": np.ones([1], np.float32)}


@pytest.mark.parametrize("positions", ["relative", "sinusoidal"])
def test_packed_rows_have_the_loss_and_gradients_of_their_examples(positions):
    """The rows have padding, and parts whose inputs are longer or shorter than their targets."""
    plain = {"positions": "sinusoidal", "norm": "layer", "norm_position": "post", "use_bias": True}
    config = dataclasses.replace(
        T5, dropout=0, attention_dropout=0, inner_dropout=0, tied_output=False, scale_output=None,
        **(plain if positions == "sinusoidal" else {}),
    )  # fmt: skip
    objective, encoder = make(config, start_id=4, z_loss=0.01)
    rng = np.random.default_rng(3)
    for variable in [*encoder.weights, *objective.variables]:
        noise = 0.4 * rng.standard_normal(variable.shape)
        variable.assign(1 + noise if variable.path.endswith("scale") else noise)
    rows = [
        [([3, 5, 1], [7, 8, 9, 1]), ([6, 2, 9, 9, 1], [1]), ([1], [5, 1])],
        [([7, 7, 1], [12, 1]), ([7, 7, 8, 1], [14, 13, 12, 11, 1])],
    ]
    packed = [packed_row(row, 11, 8) for row in rows]
    batch = {name: np.concatenate([row[name] for row in packed]) for name in packed[0]}
    figures, gradients = loss_and_gradients(objective, encoder, batch)
    assert figures[2] == figures[3] == 14
    pairs = [pair for row in rows for pair in row]
    single = {
        "token_ids": np.zeros((5, 6), np.int32), "padding_mask": np.zeros((5, 6), bool),
        "target_ids": np.zeros((5, 7), np.int32), "target_mask": np.zeros((5, 7), bool),
        "example_weights": np.ones([5], np.float32),
    }  # fmt: skip
    for number, (a, b) in enumerate(pairs):
        single["token_ids"][number, : len(a)], single["padding_mask"][number, : len(a)] = a, True
        single["target_ids"][number, : len(b)], single["target_mask"][number, : len(b)] = b, True
    wanted_figures, wanted = loss_and_gradients(objective, encoder, single)
    np.testing.assert_allclose(figures, wanted_figures, rtol=1e-12)
    for path, gradient in gradients.items():
        np.testing.assert_allclose(gradient, wanted[path], rtol=1e-10, atol=1e-12, err_msg=path)
        assert np.abs(gradient).max() > 1e-3, path
    # Examples that are not kept apart have another loss.
    del batch["part_ids"], batch["target_part_ids"]
    joined, _ = loss_and_gradients(objective, encoder, batch)
    assert abs(joined[0] - figures[0]) > 1e-3


def test_an_encoder_without_a_decoder_is_refused():
    with pytest.raises(UserError, match="seq2seq_lm: encoder.type: transformer has no decoder"):
        configs.from_dict(
            {
                "name": "x",
                "encoder": {"type": "transformer"},
                "objectives": [{"type": "seq2seq_lm"}],
                "recipe": {"steps": 1},
            }
        )


def test_the_logits_are_a_product_as_those_of_the_encoder():
    encoder = dataclasses.replace(T5, tied_output=False, scale_output=False)
    config = configs.Config("t5", encoder=encoder, objectives=(Seq2SeqLMConfig(),))
    model = Model(config, dtype="bfloat16", head_dtype="float32")
    (objective,) = model.objectives
    assert objective.output_projection.kernel.dtype == "bfloat16"
    hidden = tf.random.normal((3, T5.hidden_size), seed=1)
    logits = objective.logits(tf.cast(hidden, tf.bfloat16), model.encoder)
    assert logits.dtype == tf.float32
    kernel = tf.cast(objective.output_projection.kernel.value, tf.float32)
    np.testing.assert_allclose(logits, tf.matmul(hidden, kernel), atol=0.03)
