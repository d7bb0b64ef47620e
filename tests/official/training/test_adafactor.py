"""Adafactor against its algorithm written out in float64, on one device and on two."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.training import optimizers
from tests import small
from tests.official.training import optimizer_variables

STEPS = 200
# One variable with factored moments, one stack of such matrices, and four without.
SHAPES = {
    "kernel": (130, 128),
    "stack": (2, 128, 129),
    "narrow": (300, 127),
    "norm/scale": (7,),
    "scalar": (),
    "zero": (3, 2),
}


@pytest.fixture
def float64():
    keras.config.set_floatx("float64")
    yield
    keras.config.set_floatx("float32")


@pytest.fixture(scope="module")
def draws():
    """Initial values, gradients of changing size and rates."""
    rng = np.random.default_rng(0)
    start = {name: 0.3 * rng.standard_normal(shape) for name, shape in SHAPES.items()}
    start["zero"] = np.zeros(SHAPES["zero"])  # the step size has a lower bound
    patterns = {name: rng.standard_normal((5, *shape)) for name, shape in SHAPES.items()}
    sizes = np.exp(2 * rng.standard_normal(STEPS))
    rates = 0.02 * rng.random(STEPS)

    def gradient(name, step):
        return sizes[step] * patterns[name][step % 5] * (1 + step % 3)

    return start, gradient, rates


class Listed(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, rates):
        self.rates = rates

    def __call__(self, step):
        return tf.gather(tf.constant(self.rates), tf.cast(step, tf.int32))


def by_hand(start, gradient, rates, decayed):
    """The tensors after each update by algorithms 4 and 5."""
    rms = lambda x: np.sqrt(np.mean(np.square(x)))  # noqa: E731
    weights, rows, columns, whole = dict(start), {}, {}, {}
    after, clipped = [], 0
    for step in range(STEPS):
        b = 1 - (step + 1) ** -0.8
        for name, w in weights.items():
            g = gradient(name, step)
            squares = g**2 + 1e-30
            if w.ndim > 1 and min(w.shape[-2:]) >= 128:
                rows[name] = b * rows.get(name, 0) + (1 - b) * squares.mean(-1)
                columns[name] = b * columns.get(name, 0) + (1 - b) * squares.mean(-2)
                mean = rows[name].mean(-1)[..., None, None]
                v = rows[name][..., :, None] * columns[name][..., None, :] / mean
            else:
                v = whole[name] = b * whole.get(name, 0) + (1 - b) * squares
            u = g / np.sqrt(v)
            clipped += rms(u) > 1
            u = u / max(1.0, rms(u))
            decay = 0.1 * w if name in decayed else 0
            weights[name] = w - rates[step] * (max(1e-3, rms(w)) * u + decay)
        after.append(dict(weights))
    return after, clipped


def trajectory(strategy, start, gradient, rates):
    with strategy.scope():
        variables = [optimizer_variables.named(n, v, "float64") for n, v in start.items()]
        optimizer = optimizers.Adafactor(Listed(rates), weight_decay=0.1, no_decay=["norm", "zero"])
        optimizer.build(variables)
    replicas = strategy.num_replicas_in_sync

    @tf.function
    def step(gradients):
        strategy.run(lambda: optimizer.apply([g / replicas for g in gradients], variables))

    after = []
    for number in range(STEPS):
        step([tf.constant(gradient(name, number)) for name in start])
        after.append(
            {
                name: [c.numpy() for c in strategy.experimental_local_results(v.value)]
                for name, v in zip(start, variables, strict=True)
            }
        )
    return after, optimizer


@pytest.mark.parametrize("replicas", [1, 2])
def test_follows_the_algorithm_for_200_steps(draws, float64, mirrored, replicas):
    start, gradient, rates = draws
    wanted, clipped = by_hand(start, gradient, rates, set(SHAPES) - {"norm/scale", "zero"})
    strategy = tf.distribute.get_strategy() if replicas == 1 else mirrored(2)
    actual, optimizer = trajectory(strategy, start, gradient, rates)
    assert 50 < clipped < 6 * STEPS  # some updates are cut, some are not
    for ours, theirs in zip(actual, wanted, strict=True):
        for name in SHAPES:
            for copy in ours[name]:
                np.testing.assert_allclose(copy, theirs[name], rtol=1e-9, atol=1e-12)
    shapes = {path: tuple(slot.shape) for path, slot in optimizer.slots().items()}
    assert shapes == {
        "kernel/v_rows": (130,),
        "kernel/v_columns": (128,),
        "stack/v_rows": (2, 128),
        "stack/v_columns": (2, 129),
        "narrow/v": (300, 127),
        "norm/scale/v": (7,),
        "scalar/v": (),
        "zero/v": (3, 2),
    }
    assert set(shapes) < set(optimizer.variables_by_path())


def test_settings_of_other_optimizers_are_refused():
    for key, value in (("beta_1", 0.5), ("epsilon", 1e-8), ("bias_correction", True)):
        with pytest.raises(ValueError, match=f"{key}: .*: adafactor has no such setting"):
            configs.Optimizer(type="adafactor", **{key: value})


def test_defaults_depend_on_the_type():
    read = small.config(recipe__optimizer={"type": "adafactor", "learning_rate": 1.0}).recipe
    assert (read.optimizer.weight_decay, read.optimizer.clip_norm) == (0.0, 0.0)
    assert (configs.Optimizer().weight_decay, configs.Optimizer().clip_norm) == (0.01, 1.0)
