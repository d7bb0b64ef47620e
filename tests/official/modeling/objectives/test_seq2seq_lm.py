"""Seq2seq LM: shifted targets, and the loss with its z-loss by a loop."""

import math

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.config.objectives import Seq2SeqLMConfig
from official.modeling.encoders import encoder_decoder
from official.modeling.encoders.inputs import encode
from official.modeling.layers.random import Draws
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
    import dataclasses

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
