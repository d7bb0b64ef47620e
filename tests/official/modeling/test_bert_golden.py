"""BERT against stored results of transformers (`tests/golden/make_bert_golden.py`)."""

import numpy as np
import pytest
import tensorflow as tf

from official.training.optimizers import AdamW
from official.training.schedules import Schedule
from tests import GOLDEN
from tests.official.modeling import bert_reference


@pytest.mark.parametrize("name", ["small", "deep", "wide"])
def test_outputs_and_gradients_agree_with_transformers(name):
    with np.load(GOLDEN / f"bert_{name}.npz") as reference:
        bert_reference.compare(dict(reference))


def test_stored_batches_are_padded_on_both_sides():
    for name in ["small", "deep", "wide"]:
        with np.load(GOLDEN / f"bert_{name}.npz") as reference:
            real = reference["batch/padding_mask"]
        assert real[0, 0] and not real[0, -1]
        assert not real[1, 0] and real[1, -1]


@pytest.mark.slow
def test_50_losses_of_training_agree_with_pytorch():
    with np.load(GOLDEN / "bert_losses.npz") as file:
        reference = dict(file)
    model, _ = bert_reference.load_model(reference)
    steps = len(reference["losses"])
    optimizer = AdamW(Schedule("bert", peak=1e-3, total_steps=steps, warmup_steps=10))
    variables = model.trainable_variables
    optimizer.build(variables)

    @tf.function
    def step(batch):
        with tf.GradientTape() as tape:
            loss = bert_reference.joint_loss(model, batch)
        optimizer.apply(tape.gradient(loss, [v.value for v in variables]), variables)
        return loss

    losses = []
    for i in range(steps):
        assert float(optimizer.learning_rate) == pytest.approx(reference["learning_rates"][i])
        losses.append(step(bert_reference.batch_of(reference, i)).numpy())
    np.testing.assert_allclose(losses, reference["losses"], rtol=1e-3)
