"""All-tokens MLM against a loop, and Replace MLM as masked LM behind a generator."""

import numpy as np
import pytest
import tensorflow as tf

from official.config.objectives import AllTokensLMConfig, MaskedLMConfig
from official.modeling.layers.random import Draws
from tests.official.modeling.objectives.test_replaced_tokens import BATCH, IDS, THIRD, make, tensors


@pytest.mark.parametrize("example_weights", [[1, 1], [0, 1]])
def test_copying_and_writing_share_the_chance(example_weights):
    batch = {**BATCH, "example_weights": np.array(example_weights, "float32")}
    model = make(THIRD, AllTokensLMConfig(weight=2.0))
    objective = model.objectives[1]
    rng = np.random.default_rng(1)
    for variable in objective.variables:
        variable.assign(rng.standard_normal(variable.shape))
    v = {path: x.numpy() for path, x in model.variables_by_path().items()}
    prepared = model.prepare(batch)
    hidden = model.encode(prepared)["sequence_output"].numpy()
    loss, of_replaced = 0.0, []
    for b in range(2):
        for t in np.flatnonzero(IDS[b]):
            logits = objective.logits(hidden[b, t][None], model.encoder).numpy()[0]
            softmax = np.exp(logits) / np.exp(logits).sum()
            copy = hidden[b, t] @ v["all_tokens_lm/copy/kernel"] + v["all_tokens_lm/copy/bias"]
            copy = 1 / (1 + np.exp(-copy[0]))
            chances = (1 - copy) * softmax
            chances[prepared["token_ids"][b, t]] += copy
            np.testing.assert_allclose(chances.sum(), 1)
            loss -= example_weights[b] * np.log(chances[IDS[b, t]])
            if prepared["token_ids"][b, t] != IDS[b, t] and example_weights[b]:
                of_replaced.append(-np.log(chances[IDS[b, t]]))
    losses, metrics = model.terms(prepared)
    np.testing.assert_allclose(losses["all_tokens_lm"], loss)
    np.testing.assert_allclose(
        metrics["all_tokens_lm_replaced"], (sum(of_replaced), len(of_replaced))
    )
    real = (IDS > 0).sum(1) @ example_weights
    np.testing.assert_allclose(model.weight_sums(batch)["all_tokens_lm"], real)
    assert model.term_weights["all_tokens_lm"] == 2.0
    assert objective.config.needs() <= {"padding_mask"} | THIRD.gives()


def test_scores_that_are_far_apart_stay_finite():
    model = make(THIRD, AllTokensLMConfig(), dtype="float32")
    for sign in (1, -1):
        model.objectives[1].copy.bias.assign([sign * 1e4])
        with tf.GradientTape() as tape:
            loss = model.terms(model.prepare(tensors()))[0]["all_tokens_lm"]
        gradient = tape.gradient(loss, model.objectives[1].copy.bias.value)
        assert np.isfinite(loss) and np.isfinite(gradient).all()


def test_masked_lm_behind_a_generator_reads_draws_in_place_of_masks():
    model = make(THIRD, MaskedLMConfig())
    prepared = model.prepare(BATCH)
    losses, _ = model.terms(prepared)
    encoded = model.encode({**BATCH, "token_ids": prepared["token_ids"]})
    expected = model.objectives[1].terms(BATCH, encoded, model.encoder).losses["masked_lm"]
    np.testing.assert_allclose(losses["masked_lm"], expected)
    assert set(losses) == {"generator", "masked_lm"}


@pytest.mark.slow
def test_a_step_with_masked_lm_behind_a_generator_compiles():
    model = make(THIRD, MaskedLMConfig(), dtype="float32")

    @tf.function(jit_compile=True)
    def step(batch):
        with tf.GradientTape() as tape:
            losses, _ = model.terms(model.prepare(batch, Draws((1, 2))), Draws((1, 2)))
            loss = tf.add_n(list(losses.values()))
        return tape.gradient(loss, [v.value for v in model.trainable_variables])

    assert all(np.isfinite(gradient).all() for gradient in step(tensors()))
