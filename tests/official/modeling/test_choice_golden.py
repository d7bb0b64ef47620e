"""Multiple choice against transformers' BertForMultipleChoice (tests/golden/make_choice_golden)."""

import json
import types

import numpy as np
import pytest
import tensorflow as tf

from official.config.heads import MultipleChoiceConfig
from official.conversion.bert import BERT
from official.conversion.mapping import linear
from official.modeling.model import Model
from official.training.optimizers import AdamW
from official.training.schedules import Schedule
from tests import GOLDEN
from tests.official.modeling.bert_reference import _DROPOUT, batch_of, brought_in


def load_model(reference):
    """Our model with the weights of the reference, and the table of names."""
    config = {"type_vocab_size": 2, **_DROPOUT, **json.loads(str(reference["config"]))}
    encoder = BERT.encoder_config(config, "golden data")
    model = Model(
        types.SimpleNamespace(seed=0, encoder=encoder, objectives=(MultipleChoiceConfig(),))
    )
    rows = [*BERT.rows(encoder, ()), *linear("multiple_choice/output", "classifier")]
    variables = model.variables_by_path()
    for path, value in brought_in(reference, "weight/", rows, variables).items():
        variables[path].assign(value)
    return model, rows


def loss_of(model, batch):
    batch = model.prepare({**batch, "example_weights": tf.ones(tf.shape(batch["answer"]))})
    losses, _ = model.terms(batch)
    return losses["multiple_choice"] / model.weight_sums(batch)["multiple_choice"]


def compare(reference):
    """Asserts that logits, loss and gradients of the first step agree, then 100 losses."""
    model, rows = load_model(reference)
    batch = batch_of(reference, 0)
    prepared = model.prepare({**batch, "example_weights": tf.ones(5)})
    (head,) = model.objectives
    logits = head.logits(prepared, model.encode(prepared))
    np.testing.assert_allclose(logits, reference["logits"], rtol=0, atol=1e-5)
    variables = model.variables_by_path()
    with tf.GradientTape() as tape:
        loss = loss_of(model, batch)
    np.testing.assert_allclose(loss, reference["losses"][0], rtol=0, atol=1e-5)
    gradients = tape.gradient(loss, [variable.value for variable in variables.values()])
    expected = brought_in(reference, "gradient/", rows, variables)
    for path, gradient in zip(variables, gradients, strict=True):
        # A softmax does not change with what all scores have in common: that bias has none.
        scale = max(np.linalg.norm(expected[path]), 1e-3)
        assert np.linalg.norm(gradient - expected[path]) < 1e-4 * scale, path

    steps = len(reference["losses"])
    assert steps == 100
    optimizer = AdamW(Schedule("bert", peak=1e-3, total_steps=steps, warmup_steps=10))
    trained = model.trainable_variables
    optimizer.build(trained)

    @tf.function
    def step(batch):
        with tf.GradientTape() as tape:
            loss = loss_of(model, batch)
        optimizer.apply(tape.gradient(loss, [v.value for v in trained]), trained)
        return loss

    losses = []
    for i in range(steps):
        assert float(optimizer.learning_rate) == pytest.approx(reference["learning_rates"][i])
        losses.append(step(batch_of(reference, i)).numpy())
    np.testing.assert_allclose(losses, reference["losses"], rtol=1e-3)


@pytest.mark.slow
def test_logits_gradients_and_100_losses_agree_with_transformers():
    with np.load(GOLDEN / "choice.npz") as reference:
        compare(dict(reference))


def test_every_choice_has_padding_of_its_own():
    with np.load(GOLDEN / "choice.npz") as reference:
        real = reference["batch/padding_mask"][0]
    assert len({tuple(row) for row in real[0].tolist()}) == 3
    assert real[..., 0].any() and not real[..., 0].all()
    assert real[..., -1].any() and not real[..., -1].all()
