"""AdamW against a closed-form loop, and the faults of Keras' optimizers that ours must not have."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from official.training import optimizers
from official.training.optimizers import moments
from tests.official.training import optimizer_variables

RNG = np.random.default_rng(0)


def variables(dtype="float64"):
    shapes = {
        "kernel": (3, 4),
        "bias": (4,),
        "norm/scale": (4,),
        "table": (5, 2),
        "deep": (2, 2, 2),
    }
    result = []
    for name, shape in shapes.items():
        result.append(optimizer_variables.named(name, RNG.normal(size=shape).astype(dtype), dtype))
    return result


@pytest.fixture(params=["one_device", "mirrored"])
def strategy(request, mirrored):
    return tf.distribute.get_strategy() if request.param == "one_device" else mirrored(2)


@pytest.fixture(params=[0, moments.COMPILED_SIZE], ids=["compiled", "plain"])
def compiled_size(request, monkeypatch):
    monkeypatch.setattr(moments, "COMPILED_SIZE", request.param)


def numpy_adamw(values, gradients, rate, *, clip, decays, b1=0.9, b2=0.999, eps=1e-6, wd=0.01):
    """The release's update, written out."""
    values = [value.copy() for value in values]
    first = [np.zeros_like(value) for value in values]
    second = [np.zeros_like(value) for value in values]
    for step, grads in enumerate(gradients):
        norm = np.sqrt(sum((g**2).sum() for g in grads))
        factor = clip / max(norm, clip)
        for i, g in enumerate(grads):
            g = g * factor
            first[i] = b1 * first[i] + (1 - b1) * g
            second[i] = b2 * second[i] + (1 - b2) * g * g
            update = first[i] / (np.sqrt(second[i]) + eps)
            if decays[i]:
                update = update + wd * values[i]
            values[i] = values[i] - rate(step) * update
    return values


@pytest.mark.usefixtures("compiled_size")
def test_adamw_follows_the_closed_form_for_200_steps(strategy):
    keras.config.set_floatx("float64")
    try:
        rate = lambda step: 1e-2 / (1 + step)  # noqa: E731

        class Falling(keras.optimizers.schedules.LearningRateSchedule):
            def __call__(self, step):
                return 1e-2 / (1 + keras.ops.cast(step, "float64"))

        with strategy.scope():
            ours = variables()
            optimizer = optimizers.AdamW(Falling(), clip_norm=1.0)
            optimizer.build(ours)
        start = [np.array(v.numpy()) for v in ours]
        gradients = [[RNG.normal(size=v.shape) * 0.3 for v in start] for _ in range(200)]
        replicas = strategy.num_replicas_in_sync

        @tf.function
        def step(grads):
            # Each replica hands in its share of the sum.
            strategy.run(lambda: optimizer.apply([g / replicas for g in grads], ours))

        for grads in gradients:
            step([tf.constant(g) for g in grads])
        decays = [True, False, False, True, True]
        wanted = numpy_adamw(start, gradients, rate, clip=1.0, decays=decays)
        for variable, value in zip(ours, wanted, strict=True):
            np.testing.assert_allclose(variable.numpy(), value, rtol=1e-9, atol=1e-12)
        assert int(optimizer.iterations.numpy()) == 200
    finally:
        keras.config.set_floatx("float32")


@pytest.mark.usefixtures("compiled_size")
def test_bias_correction_is_that_of_adam():
    variable = keras.Variable(np.float32([1.0, -2.0]), name="kernel")
    optimizer = optimizers.AdamW(0.1, weight_decay=0.0, clip_norm=0.0, bias_correction=True)
    reference = keras.Variable(np.float32([1.0, -2.0]), name="kernel")
    adam = keras.optimizers.Adam(0.1, epsilon=1e-12)
    optimizer.epsilon = 1e-12
    optimizer.build([variable])
    for gradient in np.float32([[0.5, 1.0], [-1.0, 3.0], [0.1, 0.1]]):
        optimizer.apply([tf.constant(gradient)], [variable])
        adam.apply([tf.constant(gradient)], [reference])
    np.testing.assert_allclose(variable.numpy(), reference.numpy(), rtol=1e-5)


def lookup_gradient(table):
    """The gradient of a lookup of rows 1, 3, 1: slices, row 1 twice."""
    with tf.GradientTape() as tape:
        rows = tf.gather(table.value, [1, 3, 1])
        loss = tf.reduce_sum(rows * tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    gradient = tape.gradient(loss, table.value)
    assert isinstance(gradient, tf.IndexedSlices)
    return gradient


@pytest.mark.usefixtures("compiled_size")
def test_repeated_rows_are_summed_before_they_are_squared_and_clipped():
    dense = np.float32([[0, 0], [6, 8], [0, 0], [3, 4]])
    results = []
    for gradient in (lookup_gradient, lambda table: tf.constant(dense)):
        table = keras.Variable(np.ones((4, 2), "float32"), name="table")
        optimizer = optimizers.AdamW(0.1, clip_norm=1.0)
        optimizer.build([table])
        optimizer.apply([gradient(table)], [table])
        results.append((table.numpy(), optimizer.gradient_norm.numpy()))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    # 6² + 8² + 3² + 4²; Keras takes 1² + 2² + ... of the slices.
    assert results[0][1] == pytest.approx(np.sqrt(125.0), rel=1e-6)


@pytest.mark.usefixtures("compiled_size")
def test_clipping_comes_after_the_sum_over_replicas(mirrored):
    strategy = mirrored(2)
    with strategy.scope():
        variable = keras.Variable(np.zeros(2, "float32"), name="kernel")
        optimizer = optimizers.AdamW(1.0, weight_decay=0.0, clip_norm=1.0)
        optimizer.build([variable])
        shares = tf.constant([[30.0, 40.0], [-30.0, -36.0]])

    @tf.function
    def step():
        def replica():
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            optimizer.apply([shares[number]], [variable])

        strategy.run(replica)

    step()
    # The sum is (0, 4), clipped to (0, 1). Clipping the shares first would give (0, 0.03).
    assert optimizer.gradient_norm.numpy() == pytest.approx(4.0)
    moment = optimizer.slots()[f"{variable.path}/m"].numpy()
    np.testing.assert_allclose(moment, [0.0, 0.1], rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_one_bad_replica_stops_the_update_of_all(bad, mirrored):
    strategy = mirrored(2)
    with strategy.scope():
        kernel = keras.Variable(np.ones(2, "float32"), name="kernel")
        bias = keras.Variable(np.ones(1, "float32"), name="bias")
        optimizer = optimizers.AdamW(1.0)
        optimizer.build([kernel, bias])

    @tf.function
    def step(value):
        def replica():
            number = tf.distribute.get_replica_context().replica_id_in_sync_group
            share = tf.where(number == 1, value, 1.0)  # replica 1 alone is bad
            optimizer.apply([tf.ones(2), tf.reshape(share, [1])], [kernel, bias])

        strategy.run(replica)

    step(tf.constant(bad, tf.float32))
    before = {path: v.numpy() for path, v in optimizer.slots().items()}
    for copy in (*kernel.value.values, *bias.value.values):
        np.testing.assert_array_equal(copy.numpy(), np.ones(copy.shape))
    assert all((value == 0).all() for value in before.values())
    assert not np.isfinite(optimizer.gradient_norm.numpy())
    assert optimizer.bad_variable.numpy() == 1
    assert optimizer.iterations.numpy() == 1
    step(tf.constant(1.0))
    assert optimizer.bad_variable.numpy() == -1
    assert (kernel.numpy() != 1).all() and (bias.numpy() != 1).all()


def test_paths_name_every_variable():
    result = variables("float32")
    optimizer = optimizers.AdamW(0.1)
    optimizer.build(result)
    named = optimizer.variables_by_path()
    assert {id(v) for v in named.values()} == {id(v) for v in optimizer.variables}
    assert {"kernel/m", "kernel/v", "norm/scale/m", "iteration"} <= set(named)


def test_weight_decay_leaves_norms_and_biases_alone():
    result = variables("float32")
    optimizer = optimizers.AdamW(0.1)
    optimizer.build(result)
    before = [variable.numpy() for variable in result]
    optimizer.apply([tf.zeros(variable.shape) for variable in result], result)
    decayed = [v.path for v, old in zip(result, before, strict=True) if (v.numpy() != old).any()]
    assert decayed == ["kernel", "table", "deep"]


@pytest.mark.parametrize("make", [optimizers.AdamW, optimizers.LAMB])
@pytest.mark.parametrize("bias_correction", [False, True])
def test_a_head_without_examples_is_as_if_there_had_been_no_step(make, bias_correction, strategy):
    """Its weights go the way of a run that has its own steps alone."""
    gradients = RNG.normal(size=(6, 4)).astype("float32")
    asked = [True, False, False, True, False, True]

    def run(steps, heads):
        with strategy.scope():
            ones = np.ones(4, "float32")
            result = {
                name: optimizer_variables.named(f"{name}/kernel", ones, "float32") for name in "ab"
            }
            optimizer = make(
                0.1, weight_decay=0.5, clip_norm=0.0, bias_correction=bias_correction, heads=heads
            )
            optimizer.build(list(result.values()))

        @tf.function
        def step(gradient, is_asked):
            share = gradient / strategy.num_replicas_in_sync
            told = {"b": is_asked} if heads else {}
            strategy.run(lambda: optimizer.apply([share, share], list(result.values()), told))

        for number in steps:
            step(tf.constant(gradients[number]), tf.constant(asked[number]))
        named = {**optimizer.slots(), **{v.path: v for v in result.values()}}
        return {path: v.numpy() for path, v in named.items()}

    actual = run(range(6), {"b/kernel": "b"})
    whole, alone = run(range(6), {}), run([0, 3, 5], {})
    for path, value in actual.items():
        expected = (alone if path.startswith("b/") else whole)[path]
        np.testing.assert_array_equal(value, expected, err_msg=path)
    assert (whole["b/kernel"] != alone["b/kernel"]).all()
