"""Scores of candidates against a loop over a masked LM, and losses against worked numbers."""

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.config.encoders import TransformerConfig, TransformerXLConfig
from official.config.heads import CandidateLMConfig
from official.config.objectives import MaskedLMConfig
from official.data.fields import candidate_fields
from official.modeling.model import Model

ENCODER = TransformerConfig(
    vocab_size=20, hidden_size=8, num_layers=1, num_heads=2, intermediate_size=16,
    max_positions=12, dropout=0.1, attention_dropout=0.1, initializer_range=0.5,
)  # fmt: skip
MASK = 4
# Two examples of two sentences with candidates of one to three tokens, and their lengths.
LENGTHS = [[7, 8], [9, 6]]
CANDIDATES = [[{2: 11}, {2: 12, 3: 5}], [{4: 9, 5: 9, 6: 17}, {1: 6}]]  # position → token


def model_of(objective):
    """A model with values in all variables, which depend on their paths alone."""
    model = Model(configs.Config("x", encoder=ENCODER, objectives=(objective,)), dtype="float64")
    for number, (_, variable) in enumerate(sorted(model.variables_by_path().items())):
        variable.assign(np.random.default_rng(number).normal(0, 0.5, variable.shape))
    return model


def batch():
    draw = np.random.default_rng(0)
    shape = (2, 2, 9)
    token_ids, hidden = draw.integers(5, 20, shape).astype("int32"), np.full(shape, -1, "int32")
    padding_mask = np.zeros(shape, bool)
    for place in np.ndindex(2, 2):
        length = LENGTHS[place[0]][place[1]]
        padding_mask[place][:length] = True
        token_ids[place][[0, length - 1]] = 2, 3
        for position, token in CANDIDATES[place[0]][place[1]].items():
            token_ids[place][position], hidden[place][position] = MASK, token
    made = candidate_fields(tf.constant(hidden.reshape(4, 9)), 3)
    return {
        "token_ids": np.where(padding_mask, token_ids, 0),
        "segment_ids": np.zeros_like(token_ids),
        "padding_mask": padding_mask,
        "text_mask": padding_mask,
        "example_weights": np.array([1, 1], "float32"),
        **{name: value.numpy().reshape(2, 2, 3) for name, value in made.items()},
    }


def test_fields_have_the_tokens_of_each_candidate_in_their_order():
    ids = tf.constant([[-1, 7, -1, 8], [-1, -1, -1, 0], [-1, -1, -1, -1]])
    made = candidate_fields(ids, 3)
    np.testing.assert_array_equal(made["candidate_ids"], [[7, 8, -1], [0, -1, -1], [-1, -1, -1]])
    np.testing.assert_array_equal(made["candidate_positions"], [[1, 3, 0], [3, 0, 0], [0, 0, 0]])
    assert candidate_fields(ids, 6)["candidate_ids"].shape == (3, 6)  # rows shorter than P


@pytest.mark.parametrize("settings", [{}, {"enhanced_mask_decoder": True}, {"form": "linear"}])
def test_scores_are_those_of_masked_lm_and_losses_those_of_a_loop(settings):
    model = model_of(CandidateLMConfig(**settings))
    pretrained = model_of(MaskedLMConfig(**settings))
    assert model.variables_by_path().keys() == pretrained.variables_by_path().keys()
    given = batch()
    # Each sentence by itself through the masked LM of pretraining, without padding.
    expected = np.zeros((2, 2))
    for place in np.ndindex(2, 2):
        length = LENGTHS[place[0]][place[1]]
        alone = {
            name: tf.constant(given[name][place][None, :length])
            for name in ("token_ids", "segment_ids", "padding_mask")
        }
        head = pretrained.objectives[0]
        logits = head.matched_outputs(alone, pretrained.encode(alone), pretrained.encoder).numpy()
        logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        tokens = CANDIDATES[place[0]][place[1]]
        expected[place] = np.mean([logs[at, token] for at, token in tokens.items()])
    ready = model.prepare({name: tf.constant(value) for name, value in given.items()})
    read = model.encode_as_read(ready)  # the states at the masks alone
    assert set(read["states_read"]) == {"masked_lm"}
    scores = model.predictions(ready, read)["score"].numpy()
    np.testing.assert_allclose(scores.reshape(2, 2), expected, rtol=1e-10)
    if "enhanced_mask_decoder" not in settings:
        encoded = model.encode(ready)
        np.testing.assert_allclose(model.predictions(ready, encoded)["score"], scores, rtol=1e-12)

    losses, metrics = model.terms(ready, encoded=read)
    total = sum(-a + 20 * max(0, b - a + 0.2) for a, b in expected)
    assert float(losses["masked_lm"]) == pytest.approx(total, rel=1e-10)
    assert [float(x) for x in metrics["masked_lm_accuracy"]] == [sum(a > b for a, b in expected), 2]
    assert float(model.weight_sums(ready)["masked_lm"]) == 2


@pytest.mark.parametrize(
    "settings, expected",
    [
        # 2 + 20 * max(0, -2.5 + 2 + 0.2), 3 + 20 * max(0, -2.9 + 3 + 0.2)
        ({}, [2, 9]),
        # 2 + 5 * (0 + 0.4) / 2 of two others
        ({"margin_weight": 5.0, "margin": 0.4}, [2, 5.5]),
        # log(1 + exp(-0.5)), log(1 + exp(0.1))
        ({"loss": "softmax"}, [0.4740769842, 0.7443966600]),
    ],
)
def test_losses_are_the_worked_numbers(settings, expected):
    layer = model_of(CandidateLMConfig(**settings)).objectives[0]
    scores = tf.constant([[-2, -2.5], [-3, -2.9]], tf.float64)
    np.testing.assert_allclose(layer.pair_losses(scores), expected, rtol=1e-9)
    if settings.get("margin") == 0.4:  # the mean over several others
        several = tf.constant([[-2, -2.5, -2.2], [-3, -2.9, -9]], tf.float64)
        np.testing.assert_allclose(layer.pair_losses(several), [2 + 5 * 0.2 / 2, 3 + 5 * 0.5 / 2])


def test_what_it_does_not_fit():
    objective = CandidateLMConfig()
    with pytest.raises(ValueError, match="layout cls_last: take an encoder of a masked LM"):
        objective.check_encoder(TransformerXLConfig())
    for wrong, message in (({"loss": "pairwise"}, "loss"), ({"margin": 0.0}, "margin")):
        with pytest.raises(ValueError, match=message):
            CandidateLMConfig(**wrong)
