"""Adagrad against its formula in float64, by sparse and dense gradients, on one device and two."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.training import optimizers
from tests.official.training import optimizer_variables

STEPS = 60
SHAPES = {"kernel": (3, 4), "bias": (4,), "table": (40, 3), "offsets": (40,), "small": (4, 2)}
# The rows that each of two replicas reads in a step; some more than once.
READ = {"table": 6, "offsets": 6, "small": 5}


@pytest.fixture
def float64():
    keras.config.set_floatx("float64")
    yield
    keras.config.set_floatx("float32")


def draws(number):
    """The gradients of a step for two replicas: arrays, or pairs of values and their rows."""
    rng = np.random.default_rng(number)
    size = np.exp(2 * rng.standard_normal())
    gradients = {}
    for name, shape in SHAPES.items():
        count = READ.get(name)
        values = size * rng.standard_normal((2, *(shape if count is None else (count, *shape[1:]))))
        rows = None if count is None else rng.integers(0, shape[0] // 2, (2, count))
        gradients[name] = values if rows is None else (values, rows)
    return gradients


class Watched(optimizers.Adagrad):
    """Notes the variables whose gradients are dense."""

    dense: set[int]

    def update_step(self, gradient, variable, learning_rate, index):
        self.dense = {*getattr(self, "dense", ()), index}
        super().update_step(gradient, variable, learning_rate, index)


def by_hand(start, clip, rate):
    """The weights and the sums after each step, by dense gradients."""
    weights = {name: value.copy() for name, value in start.items()}
    sums = {name: np.full(shape, 0.5) for name, shape in SHAPES.items()}
    clipped = 0
    for number in range(STEPS):
        dense = {name: np.zeros(shape) for name, shape in SHAPES.items()}
        for name, given in draws(number).items():
            values, rows = given if isinstance(given, tuple) else (given, None)
            if rows is None:
                dense[name] = values.sum(0)
            else:
                np.add.at(dense[name], rows.ravel(), values.reshape(-1, *values.shape[2:]))
        norm = np.sqrt(sum((g**2).sum() for g in dense.values()))
        clipped += norm > clip
        for name, gradient in dense.items():
            gradient = gradient * min(1.0, clip / norm)
            sums[name] += gradient**2
            weights[name] -= rate * gradient / np.sqrt(sums[name])
    return weights, sums, clipped


@pytest.mark.parametrize(
    ("replicas", "static_shapes"), [(1, False), (2, False), (1, True), (2, True)]
)
def test_follows_the_formula(float64, mirrored, replicas, static_shapes):
    rng = np.random.default_rng(5)
    start = {name: rng.standard_normal(shape) for name, shape in SHAPES.items()}
    strategy = tf.distribute.get_strategy() if replicas == 1 else mirrored(2)
    with strategy.scope():
        variables = [optimizer_variables.named(n, v, "float64") for n, v in start.items()]
        optimizer = Watched(0.2, clip_norm=10.0, initial_accumulator=0.5)
        optimizer.build(variables)
    optimizer.static_shapes = static_shapes

    @tf.function(jit_compile=static_shapes and replicas == 1)
    def step(given):
        def replica_step():
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            mine = lambda x: x[replica] if replicas == 2 else tf.concat([x[0], x[1]], 0)  # noqa: E731
            gradients = []
            for name in SHAPES:
                if name in READ:
                    values, rows = given[name]
                    slices = tf.IndexedSlices(mine(values), mine(rows), SHAPES[name])
                    gradients.append(slices)
                elif replicas == 2:
                    gradients.append(mine(given[name]))
                else:
                    gradients.append(given[name][0] + given[name][1])
            optimizer.apply(gradients, variables)

        strategy.run(replica_step)

    for number in range(STEPS):
        step(tf.nest.map_structure(tf.constant, draws(number)))
    weights, sums, clipped = by_hand(start, 10.0, 0.2)
    assert 10 < clipped < STEPS - 10
    for variable in variables:
        for copy in strategy.experimental_local_results(variable.value):
            np.testing.assert_allclose(copy.numpy(), weights[variable.path], rtol=1e-9, atol=1e-12)
    slots = optimizer.slots()
    assert set(slots) == {f"{name}/sum" for name in SHAPES} < set(optimizer.variables_by_path())
    for name in SHAPES:
        np.testing.assert_allclose(slots[f"{name}/sum"].numpy(), sums[name], rtol=1e-9)
    # Only tables with more rows than a step reads have sparse gradients.
    assert optimizer.dense == {list(SHAPES).index(name) for name in ("kernel", "bias", "small")}
    # Rows that were never read keep their first values.
    np.testing.assert_array_equal(variables[2].numpy()[20:], start["table"][20:])
    assert (slots["table/sum"].numpy()[20:] == 0.5).all()


def test_an_update_that_is_not_finite_changes_nothing():
    table = keras.Variable(np.ones((9, 2), "float32"), name="table")
    optimizer = optimizers.Adagrad(0.1)
    optimizer.build([table])
    bad = tf.constant([[1.0, 2.0], [np.nan, 1.0]])
    optimizer.apply([tf.IndexedSlices(bad, tf.constant([1, 3]), (9, 2))], [table])
    assert (table.numpy() == 1).all() and int(optimizer.bad_variable.numpy()) == 0
    assert (optimizer.slots()["table/sum"].numpy() == 1).all()


def test_other_optimizers_take_dense_gradients():
    slices = tf.IndexedSlices(tf.ones((2, 2)), tf.constant([1, 3]), (9, 2))
    table = keras.Variable(np.ones((9, 2), "float32"), name="table")
    assert optimizers.Adagrad(0.1).takes_rows(slices, table)
    assert not optimizers.AdamW(0.1).takes_rows(slices, table)
    assert not optimizers.Adagrad(0.1).takes_rows(tf.ones((9, 2)), table)


def test_settings():
    read = configs.Optimizer(type="adagrad", learning_rate=0.2)
    assert (read.weight_decay, read.clip_norm, read.initial_accumulator) == (0.0, 1.0, 1.0)
    for key, value, message in (
        ("beta_1", 0.5, "beta_1: 0.5: not supported for the type adagrad; remove it"),
        ("weight_decay", 0.1, "weight_decay: 0.1: not supported for adagrad; remove it"),
        ("initial_accumulator", 0.0, "initial_accumulator"),
    ):
        with pytest.raises(ValueError, match=message):
            configs.Optimizer(type="adagrad", **{key: value})
    with pytest.raises(
        ValueError, match="initial_accumulator: 0.1: not supported for the type adamw"
    ):
        configs.Optimizer(initial_accumulator=0.1)
