"""What XLA computes in one pass: the same values and gradients, and only where it is compiled."""

import math

import numpy as np
import pytest
import tensorflow as tf

from official.distribution import numerics  # noqa: F401, which names the compiler
from official.modeling.layers import activation, embeddings, kernels, norm
from official.modeling.layers.kernels import cross_entropy, dropout, softmax
from official.modeling.layers.random import Draws

RNG = np.random.default_rng(0)
KEPT = tf.constant(RNG.random((6, 5)) < 0.7)
TARGETS = tf.constant(RNG.integers(0, 5, 6), tf.int32)


def test_a_worked_cross_entropy():
    """The value that sentence-transformers' CrossEntropyLoss has for these scores and labels."""
    logits = np.float32([[2, 0, -1], [0, 1, 0], [0.5, 0.5, 2]])
    losses, _, _ = cross_entropy(logits, np.int32([0, 1, 0]))
    assert float(np.mean(losses)) == pytest.approx(0.8634240, abs=1e-7)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(kernels, "SMALLEST", 1)


def normal(*shape):
    return tf.constant(RNG.standard_normal(shape))


def dropped(f):
    return lambda x: tf.where(KEPT, f(x) / 0.7, 0)


def exact_gelu(x):
    return x * 0.5 * (1 + tf.math.erf(x / math.sqrt(2)))


def tanh_gelu(x):
    return 0.5 * x * (1 + tf.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def rms(x, scale):
    return x / tf.sqrt(tf.reduce_mean(x * x, axis=-1, keepdims=True) + 1e-3) * scale


def layer_norm(x, scale, offset):
    mean, variance = tf.nn.moments(x, axes=[-1], keepdims=True)
    return (x - mean) / tf.sqrt(variance + 1e-3) * scale + offset


def log_likelihood(logits):
    return -tf.nn.sparse_softmax_cross_entropy_with_logits(TARGETS, logits)


def scores_and_sums(logits):
    return -cross_entropy(logits, TARGETS)[0]


MASK_BIAS = tf.constant([0.0, -1e30, 0.0, 0.0, -0.5], tf.float64)  # of the keys
FUNCTIONS = {
    "gelu": (activation.gelu, exact_gelu, [(6, 5)]),
    "gelu_tanh": (activation.gelu_tanh, tanh_gelu, [(6, 5)]),
    "gelu, dropout": (lambda x: activation.gelu(x, KEPT, 0.3), dropped(exact_gelu), [(6, 5)]),
    "tanh, dropout": (lambda x: activation.gelu_tanh(x, KEPT, 0.3), dropped(tanh_gelu), [(6, 5)]),
    "silu": (activation.silu, tf.nn.silu, [(6, 5)]),
    "silu, dropout": (lambda x: activation.silu(x, KEPT, 0.3), dropped(tf.nn.silu), [(6, 5)]),
    "relu, dropout": (lambda x: activation.relu(x, KEPT, 0.3), dropped(tf.nn.relu), [(6, 5)]),
    "layer norm": (
        lambda *xs: norm.normalize(*xs, epsilon=1e-3),
        layer_norm,
        [(6, 5), (5,), (5,)],
    ),
    "RMS norm": (lambda *xs: norm.divide_by_rms(*xs, epsilon=1e-3), rms, [(6, 5), (5,)]),
    "softmax": (softmax, tf.nn.softmax, [(2, 3, 4, 5)]),
    "softmax, dropout": (
        lambda x: softmax(x, "float64", KEPT, 0.3),
        dropped(tf.nn.softmax),
        [(6, 5)],
    ),
    "softmax, mask": (
        lambda x: softmax(x, kept=KEPT, rate=0.3, mask_bias=MASK_BIAS),
        dropped(lambda x: tf.nn.softmax(x + MASK_BIAS)),
        [(6, 5)],
    ),
}


def value_and_gradients(function, args):
    with tf.GradientTape() as tape:
        tape.watch(args)
        value = function(*args)
        upstream = tf.reshape(tf.sin(tf.range(tf.size(value), dtype=value.dtype)), tf.shape(value))
        loss = tf.reduce_sum(value * upstream)
    return value, *tape.gradient(loss, args)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_are_those_of_the_formula(name):
    ours, reference, shapes = FUNCTIONS[name]
    args = [normal(*shape) for shape in shapes]
    for graph in (False, True):
        function = tf.function(ours) if graph else ours
        for got, wanted in zip(
            value_and_gradients(function, args), value_and_gradients(reference, args), strict=True
        ):
            np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-12)


# Scores of attention are float32, whatever the precision.
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if "softmax" not in name])
def test_in_bfloat16_they_round_once(name):
    ours, reference, shapes = FUNCTIONS[name]
    # The parameters of a norm stay in float32.
    args = [tf.cast(normal(*s), "bfloat16" if len(s) > 1 else "float32") for s in shapes]
    exact = [tf.cast(arg, tf.float64) for arg in args]
    for got, wanted in zip(ours(*args)[None], reference(*exact)[None], strict=True):
        assert got.dtype == tf.bfloat16
        np.testing.assert_allclose(tf.cast(got, tf.float64), wanted, rtol=2**-8, atol=1e-6)


def test_scores_plus_a_bias_have_the_dtype_of_the_bias():
    scores, bias = tf.cast(normal(6, 5), tf.bfloat16), tf.cast(normal(5), tf.float32)
    got = value_and_gradients(embeddings.plus_bias, [scores, bias])
    wanted = value_and_gradients(tf.add, [tf.cast(scores, tf.float32), bias])
    assert [each.dtype for each in got] == [tf.float32, tf.bfloat16, tf.float32]
    np.testing.assert_array_equal(got[0], wanted[0])
    np.testing.assert_array_equal(got[1], tf.cast(wanted[1], tf.bfloat16))
    np.testing.assert_allclose(got[2], wanted[2], rtol=1e-6)


def test_the_gradient_of_cross_entropy():
    logits = tf.cast(normal(6, 5), tf.float32)
    got = value_and_gradients(scores_and_sums, [logits])
    wanted = value_and_gradients(log_likelihood, [tf.cast(logits, tf.float64)])
    for ours, theirs in zip(got, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_the_weights_of_attention_in_bfloat16(dtype):
    scores, bias = tf.cast(normal(2, 3, 6, 5), dtype), tf.cast(MASK_BIAS, tf.float32)
    ours = lambda x: softmax(x, "bfloat16", KEPT, 0.3, bias)  # noqa: E731
    got = value_and_gradients(ours, [scores])
    assert [x.dtype for x in got] == [tf.bfloat16, dtype]
    exact = tf.cast(scores, tf.float64)
    reference = dropped(lambda x: tf.nn.softmax(x + MASK_BIAS))
    for ours, theirs in zip(got, value_and_gradients(reference, [exact]), strict=True):
        np.testing.assert_allclose(tf.cast(ours, tf.float64), theirs, rtol=0.02, atol=0.01)


def test_dropout_keeps_what_is_drawn_and_so_does_its_gradient():
    x = normal(40, 30)
    kept = np.array(Draws((3, 4)).keep((40, 30), 0.25))
    value, gradient = value_and_gradients(lambda x: dropout(x, 0.25, Draws((3, 4))), [x])
    np.testing.assert_allclose(value, np.where(kept, x / 0.75, 0), rtol=1e-12)
    upstream = np.sin(np.arange(x.numpy().size)).reshape(x.shape)
    np.testing.assert_allclose(gradient, np.where(kept, upstream / 0.75, 0), rtol=1e-12)


def test_it_is_compiled_only_where_that_pays(monkeypatch):
    compiled = []

    @kernels.one_pass
    def twice(x):
        # Inside a compiled function, x is symbolic.
        compiled.append(not isinstance(x, tf.__internal__.EagerTensor))
        return 2 * x

    twice(tf.ones([3]))
    assert compiled.pop()
    with kernels.using(gradients=False):
        twice(tf.ones([3]))
    assert not compiled.pop()
    monkeypatch.setattr(kernels, "SMALLEST", 4)
    twice(tf.ones([3]))
    assert not compiled.pop()


def test_a_dynamic_dimension(monkeypatch):
    """One graph serves all lengths, and a dynamic dimension counts as 32."""
    graphs = []

    @kernels.one_pass
    def twice(x):
        graphs.append(tf.compat.v1.get_default_graph())
        return 2 * x

    def run(smallest):
        monkeypatch.setattr(kernels, "SMALLEST", smallest)
        dynamic = tf.function(twice, input_signature=[tf.TensorSpec([None, 8])])
        for length in (2, 5):
            got = dynamic(tf.ones([length, 8]))
            np.testing.assert_array_equal(got, np.full((length, 8), 2))
        return graphs.pop(), dynamic.get_concrete_function().graph

    inner, outer = run(smallest=32 * 8)
    assert inner is not outer and not graphs
    inner, outer = run(smallest=32 * 8 + 1)
    assert inner is outer and not graphs


def test_dropout_and_its_gradient_at_every_length():
    @tf.function(input_signature=[tf.TensorSpec([None, 30], tf.float64)])
    def dynamic(x):
        return value_and_gradients(lambda x: dropout(x, 0.25, Draws((3, 4))), [x])

    for length in (1, 7, 40):
        x = normal(length, 30)
        wanted = value_and_gradients(lambda x: dropout(x, 0.25, Draws((3, 4))), [x])
        for ours, theirs in zip(dynamic(x), wanted, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_a_layer_under_a_strategy_of_two_devices():
    """The compiled functions run in every replica, and in its backward pass."""
    devices = tf.config.list_logical_devices("CPU")
    strategy = tf.distribute.MirroredStrategy([device.name for device in devices[:2]])
    assert strategy.num_replicas_in_sync == 2
    x = normal(4, 6)

    def gradient(x):
        return value_and_gradients(activation.gelu, [x])[1]

    @tf.function
    def step():
        values = strategy.experimental_distribute_values_from_function(
            lambda context: x[2 * context.replica_id_in_sync_group :][:2]
        )
        return strategy.experimental_local_results(strategy.run(gradient, (values,)))

    got = step()
    for replica in range(2):
        np.testing.assert_allclose(got[replica], gradient(x[2 * replica :][:2]), rtol=1e-9)
