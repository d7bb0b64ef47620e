"""Training steps with sparse gradients: equal to dense ones, on one device and on two."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from official.config.objectives import BidirectionalLMConfig
from official.modeling.objectives import bilm
from official.training import optimizers
from official.training.train_step import TrainStep
from tests.official.modeling.objectives.test_bilm import ENCODER, P, V

pytestmark = pytest.mark.slow
ROWS, LENGTH, STEPS = 4, 2, 5


class TableModel(keras.Layer):
    """States are the rows of a table of words; the objective is a bidirectional LM."""

    def __init__(self, samples):
        super().__init__(name="model")
        self.objective = bilm.Objective(
            BidirectionalLMConfig(weight=20.0, samples=samples), ENCODER
        )
        self.objectives = [self.objective]
        self.table = self.add_weight((V, 2 * P), "zeros", name="table")
        self.objective.build()
        rng = np.random.default_rng(2)
        for variable in self.trainable_variables:
            variable.assign(rng.standard_normal(variable.shape))
        self.built = True

    @property
    def term_weights(self):
        return self.objective.term_weights

    def ramps(self, step):
        return self.objective.ramps(step)

    def weight_sums(self, batch):
        return self.objective.weight_sums(batch)

    def prepare(self, batch, rng=None, objectives=None):
        return batch

    def encode_as_read(self, batch, rng=None, objectives=None):
        return {"sequence_output": ops.take(self.table, batch["token_ids"], axis=0)}

    def terms(self, batch, rng=None, encoded=None, objectives=None):
        terms = self.objective.terms(batch, encoded, None, rng)
        return terms.losses, terms.metrics


class Dense(optimizers.Adagrad):
    updates_rows = False


def batches():
    rng = np.random.default_rng(3)
    for _ in range(STEPS):
        fields = {
            name: rng.integers(0, V, (ROWS, LENGTH)).astype(np.int32)
            for name in ("token_ids", "target_ids", "backward_target_ids")
        }
        yield {
            **fields,
            "padding_mask": np.ones((ROWS, LENGTH), bool),
            "example_weights": np.ones(ROWS, np.float32),
        }


def train(strategy, kind, accumulation=1, samples=8):
    """The variables and slots after some steps, and the losses and norms of the steps."""
    replicas = strategy.num_replicas_in_sync
    share = ROWS // replicas
    with strategy.scope():
        model = TableModel(samples)
        optimizer = kind(0.2, clip_norm=3.0)
        optimizer.build(model.trainable_variables)
    step = TrainStep(model, optimizer, strategy, seed=1, accumulation=accumulation)
    parts = [
        {name: value[r * share : (r + 1) * share] for name, value in batch.items()}
        for batch in batches()
        for r in range(replicas)
    ]
    whole = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    data = tf.data.Dataset.from_tensor_slices(whole)
    if replicas > 1:
        replica_step = tf.function(lambda x: strategy.run(step.replica_step, (x,)))
        rows = []
        for batch in data.batch(replicas, drop_remainder=True):
            value = strategy.experimental_distribute_values_from_function(
                lambda context, batch=batch: {
                    name: each[context.replica_id_in_sync_group] for name, each in batch.items()
                }
            )
            result = strategy.experimental_local_results(replica_step(value))
            rows.append(result[0].numpy())
    else:
        taken = step.run(iter(data), STEPS)
        rows = np.concatenate([taken.sums, taken.gradient_norms[:, None]], axis=1)
    state = {variable.path: variable.numpy() for variable in model.trainable_variables}
    state |= {path: slot.numpy() for path, slot in optimizer.slots().items()}
    return state, np.array(rows)[:, : len(step.statistics.names) + 1], step


@pytest.mark.parametrize("accumulation", [1, 2])
def test_sparse_updates_are_those_of_dense_gradients(accumulation):
    strategy = tf.distribute.get_strategy()
    sparse, sums, step = train(strategy, optimizers.Adagrad, accumulation)
    dense, other, plain = train(strategy, Dense, accumulation)
    # The table of the states, kernel and bias have fewer slices than rows.
    assert step.stages[0].sparse == [True] * 3 and not any(plain.stages[0].sparse)
    np.testing.assert_allclose(sums, other, rtol=1e-5)
    assert (sums[:, -1] > 3).any()  # The norm before clipping.
    for path, value in dense.items():
        np.testing.assert_allclose(sparse[path], value, rtol=1e-5, atol=1e-6, err_msg=path)


def test_two_devices_are_one(mirrored):
    one, sums, _ = train(tf.distribute.get_strategy(), optimizers.Adagrad)
    two, other, _ = train(mirrored(2), optimizers.Adagrad)
    np.testing.assert_allclose(sums, other, rtol=1e-5)
    for path, value in one.items():
        np.testing.assert_allclose(two[path], value, rtol=1e-5, atol=1e-6, err_msg=path)
    unread = np.flatnonzero((one["model/table/sum"] == 1).all(1))
    assert 10 < len(unread) < V
