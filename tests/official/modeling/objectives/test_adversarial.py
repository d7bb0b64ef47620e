"""The adversarial generator and the frozen one: what trains what, in numbers."""

import numpy as np
import pytest
import tensorflow as tf

from official.config.objectives import GeneratorConfig, ReplacedTokensConfig
from official.utils.errors import UserError
from tests import small
from tests.official.modeling.objectives.test_generator import (
    BATCH,
    CHOSEN,
    THIRD,
    make,
    own,
    tensors,
)
from tests.official.training.test_electra import CORRUPTION

BASELINE = GeneratorConfig(size=1 / 3, sharing="none", baseline=True, weight=0.0)
ADVERSARIAL = ReplacedTokensConfig(adversarial_weight=2.0)


def randomised():
    model = make(BASELINE, ADVERSARIAL)
    rng = np.random.default_rng(1)
    for objective in model.objectives:
        for variable in objective.variables:
            variable.assign(rng.standard_normal(variable.shape) / 2)
    return model


def test_the_losses_are_those_of_reinforce():
    model = randomised()
    prepared = model.prepare(BATCH)
    losses, _ = model.terms(prepared)
    hidden = model.encode(prepared)["sequence_output"]
    z = model.objectives[1].logits(hidden).numpy()  # [2, 8]
    logits = prepared["generator_logits"].numpy().reshape(2, 3, 13)
    guesses = prepared["baseline_logits"].numpy()
    adversarial = baseline = 0.0
    for b, p in [(0, 0), (1, 0), (1, 1), (1, 2)]:
        position = BATCH["masked_positions"][b, p]
        drawn = prepared["token_ids"][b, position].numpy()
        fake = drawn != BATCH["masked_ids"][b, p]
        chance = 1 / (1 + np.exp(-z[b, position]))  # that it is a fake, says the encoder
        reward = -np.log(chance if fake else 1 - chance)
        softmax = np.exp(logits[b, p]) / np.exp(logits[b, p]).sum()
        expected = 1 / (1 + np.exp(-guesses[b, p]))
        adversarial -= (reward + np.log(expected)) * np.log(softmax[drawn])
        right = np.exp(-reward)
        baseline -= right * np.log(expected) + (1 - right) * np.log(1 - expected)
    np.testing.assert_allclose(losses["adversarial"], adversarial)
    np.testing.assert_allclose(losses["adversarial_baseline"], baseline)
    sums = model.weight_sums(BATCH)
    assert float(sums["adversarial"]) == float(sums["adversarial_baseline"]) == CHOSEN.sum()
    assert model.term_weights == {
        "generator": 0.0, "replaced_tokens": 50.0, "adversarial": 2.0, "adversarial_baseline": 2.0,
    }  # fmt: skip


def test_the_policy_gradient_is_a_score_times_a_surprise():
    """The gradient of one draw's log chance is one-hot minus softmax."""
    model = randomised()
    with tf.GradientTape() as tape:
        prepared = model.prepare(tensors())
        loss = model.terms(prepared)[0]["adversarial"]
    gradient = tape.gradient(loss, prepared["generator_logits"]).numpy().reshape(2, 3, 13)
    logits = prepared["generator_logits"].numpy().reshape(2, 3, 13)
    z = model.objectives[1].logits(model.encode(prepared)["sequence_output"]).numpy()
    position, drawn = 4, prepared["token_ids"][1, 4].numpy()
    sign = 1 if drawn != BATCH["masked_ids"][1, 1] else -1
    surprise = np.log1p(np.exp(-sign * z[1, position]))
    surprise -= np.log1p(np.exp(-prepared["baseline_logits"].numpy()[1, 1]))
    softmax = np.exp(logits[1, 1]) / np.exp(logits[1, 1]).sum()
    np.testing.assert_allclose(gradient[1, 1], -surprise * (np.eye(13)[drawn] - softmax))
    np.testing.assert_allclose(gradient[0, 1:], 0)  # no predictions there


def test_who_learns_from_what():
    model = randomised()
    with tf.GradientTape(persistent=True) as tape:
        losses, _ = model.terms(model.prepare(tensors()))
    paths = model.variables_by_path()
    values = {path: v.value for path, v in paths.items()}

    def reached(term):
        return {p for p, g in tape.gradient(losses[term], values).items() if g is not None}

    baseline = {"generator/baseline/kernel", "generator/baseline/bias"}
    assert reached("adversarial") == own(model) - baseline
    assert reached("adversarial_baseline") == baseline
    assert reached("replaced_tokens") == paths.keys() - own(model)


def test_temperature_is_part_of_the_policy():
    warm = make(GeneratorConfig(size=1 / 3, baseline=True, temperature=3.0), ADVERSARIAL)
    prepared = warm.prepare(BATCH)
    logits = prepared["generator_logits"].numpy().reshape(2, 3, 13) / 3
    drawn = prepared["token_ids"][0, 2].numpy()
    expected = logits[0, 0, drawn] - np.log(np.exp(logits[0, 0]).sum())
    np.testing.assert_allclose(prepared["sample_log_probs"][0, 0], expected)


def test_a_frozen_generator_has_no_trainable_variable_and_no_dropout():
    model = make(GeneratorConfig(size=1.0, sharing="none", frozen=True), ADVERSARIAL_OFF)
    trained = {v.path.removeprefix("model/") for v in model.trainable_variables}
    assert trained == model.variables_by_path().keys() - own(model) and own(model)
    assert model.term_weights == {"generator": 0.0, "replaced_tokens": 50.0}


ADVERSARIAL_OFF = ReplacedTokensConfig()


def test_errors():
    for options, message in [
        ({"sharing": "token", "size": 1.0}, "frozen: with sharing: token the encoder would train"),
        ({"sharing": "none", "size": 0.5}, "frozen: generator and encoder start from the same"),
        ({"sharing": "none", "size": 1.0, "num_layers": 2}, "frozen: generator and encoder start"),
        ({"sharing": "none", "size": 1.0, "baseline": True}, "frozen: what does not learn needs"),
    ]:
        with pytest.raises(ValueError, match=message):
            GeneratorConfig(frozen=True, **options)
    with pytest.raises(ValueError, match="adversarial_weight: -1.0 is negative"):
        ReplacedTokensConfig(adversarial_weight=-1.0)
    with pytest.raises(UserError, match="replaced_tokens needs baseline_logits, sample_log_probs"):
        small.config(
            objectives=[
                {"type": "generator"},
                {"type": "replaced_tokens", "adversarial_weight": 1.0},
            ],
            corruption=CORRUPTION,
        )
    assert THIRD.gives() == {"original_ids", "masked", "replaced"}
    frozen = {"type": "generator", "frozen": True, "size": 1.0, "sharing": "none"}
    with pytest.raises(UserError, match="recipe.init_weights: encoder, and a generator is frozen"):
        small.config(objectives=[frozen], corruption=CORRUPTION)
    with pytest.raises(UserError, match="recipe.init_weights: generator, and no generator is fro"):
        small.config(recipe__init_weights="generator")
    assert BASELINE.type == "generator"
