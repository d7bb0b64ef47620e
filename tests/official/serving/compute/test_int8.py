import numpy as np
import pytest
import tensorflow as tf

from official.config.blocks import FeedForwardParts
from official.modeling.layers import kernels
from official.modeling.layers.block import FeedForward
from official.modeling.layers.embeddings import Table
from official.modeling.layers.linear import Linear
from official.modeling.layers.random import Initializers
from official.serving.compute import int8
from official.utils.errors import UserError

RNG = np.random.default_rng(0)


def test_integers_are_within_half_a_step_of_what_they_stand_for():
    array = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    array[:, 2] = 0
    for axis, shape in ((-1, (1, 7)), (0, (5, 1))):
        actual, scale = int8.quantized(array, axis)
        assert actual.dtype == np.int8 and scale.dtype == np.float32 and scale.shape == shape
        assert (np.abs(actual * scale - array) <= scale * 0.5001).all()
        largest = np.abs(actual).max(axis=1 if axis == 0 else 0)
        assert set(largest[np.abs(array).max(axis=1 if axis == 0 else 0) > 0]) == {127}
    assert not int8.quantized(array, -1)[0][:, 2].any()


@pytest.mark.parametrize("rows", [0, 1, 9])
def test_products_are_those_of_integers(rows):
    x = RNG.integers(-127, 128, (rows, 40)).astype(np.int8)
    matrix = RNG.integers(-64, 65, (40, 24)).astype(np.int8)
    x[:1], matrix[:, :1] = 127, 64  # the largest sum that there is
    x[1:2], matrix[:, 1:2] = -127, -64
    largest = RNG.uniform(0.1, 5, 24).astype(np.float32)
    actual = tf.function(int8.product)(x, matrix, largest)
    assert actual.dtype == tf.float32 and actual.shape == (rows, 24)
    expected = (x.astype(np.int64) @ matrix.astype(np.int64)) * (largest.astype(float) / 127)
    np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)


def test_scales_are_those_of_the_call():
    # oneDNN keeps what it made for shapes that it has seen; scales are not to be among it.
    x, matrix = RNG.integers(-64, 65, (2, 8, 16)).astype(np.int8)
    matrix = np.ascontiguousarray(matrix.T)
    largest = tf.Variable(np.ones(8, np.float32))
    function = tf.function(lambda: int8.product(tf.constant(x), matrix, largest))
    for step in range(10):
        largest.assign(np.full(8, step + 1.0))
        exact = (x.astype(np.int64) @ matrix.astype(np.int64)) * ((step + 1) / 127)
        np.testing.assert_allclose(function(), exact, rtol=1e-6)


def test_a_map_is_traced_once_for_rows_of_any_number(monkeypatch):
    kernel, bias = RNG.normal(size=(16, 8)).astype(np.float32), np.arange(8, dtype=np.float32)
    layer, plain = int8.Int8Linear(kernel, tf.constant(bias)), int8.rounded
    calls = []
    monkeypatch.setattr(int8, "rounded", lambda x: calls.append(tf.executing_eagerly()) or plain(x))
    for shape in ((3, 16), (2, 5, 16), (1, 16), (2, 1, 3, 16)):
        x = RNG.normal(size=shape).astype(np.float32)
        expected = x @ np.asarray(layer.kernel) + bias
        y = layer(x)
        assert y.shape == (*shape[:-1], 8)
        np.testing.assert_allclose(y, expected, rtol=0, atol=0.02 * np.abs(x).max() * 16**0.5)
    assert calls == [False]


def test_rows_are_rounded_each_by_its_own_scale():
    x = RNG.normal(size=(4, 30)).astype(np.float32) * [[1], [1e-6], [1e6], [0]]
    actual, largest = (v.numpy() for v in int8.rounded(tf.constant(x, tf.float32)))
    assert actual.dtype == np.int8
    np.testing.assert_allclose(largest[:3], np.abs(x[:3]).max(axis=1, keepdims=True), rtol=1e-6)
    np.testing.assert_array_equal(np.abs(actual[:3]).max(axis=1), 127)
    assert (np.abs(actual * largest / 127 - x) <= 0.501 * largest / 127).all()
    assert not actual[3].any()


@pytest.mark.parametrize("bias", [None, RNG.normal(size=10).astype(np.float32)])
def test_a_map_is_near_the_one_of_its_layer(bias):
    kernel = RNG.normal(size=(48, 10)).astype(np.float32) * RNG.uniform(0.01, 3, 10)
    result = int8.Int8Linear(kernel.astype(np.float32), None if bias is None else tf.Variable(bias))
    x = RNG.normal(size=(3, 5, 48)).astype(np.float32)
    x[1, 2] = 0
    actual = result(tf.constant(x)).numpy()
    exact = x @ kernel + (0 if bias is None else bias)
    # By NumPy, with integers alone until the end.
    rows, largest = (v.numpy() for v in int8.rounded(tf.constant(x.reshape(15, 48))))
    steps = result.scale.numpy().astype(float)
    by_hand = rows.astype(np.int64) @ result.integers.numpy().astype(np.int64)
    by_hand = by_hand * steps * (largest / 127)
    by_hand = by_hand.reshape(3, 5, 10) + (0 if bias is None else bias)
    np.testing.assert_allclose(actual, by_hand, rtol=1e-5, atol=1e-5)
    assert 1e-5 < np.abs(actual - exact).max() < 0.02 * np.abs(exact).max()
    # Nothing but the bias is left of a row of zeros, and no row depends on another.
    np.testing.assert_array_equal(actual[1, 2], np.zeros(10) if bias is None else bias)
    np.testing.assert_array_equal(result(tf.constant(x[2:])), actual[2:])
    assert result(tf.zeros([0, 48])).shape == (0, 10)
    np.testing.assert_allclose(result.kernel, kernel, atol=np.abs(kernel).max() / 127)


def test_pairs_of_the_largest_products_are_not_cut_off():
    # CPUs without VNNI add pairs of products in 16 bits.
    x = tf.constant(RNG.choice([-1.0, 1.0], (5, 64)), tf.float32)
    kernel = RNG.choice([-1.0, 1.0], (64, 8)).astype(np.float32)
    kernel[:, :2] = 1, -1
    x = tf.concat([x, tf.ones([1, 64]), -tf.ones([1, 64])], axis=0)
    np.testing.assert_allclose(int8.Int8Linear(kernel)(x), x @ kernel, rtol=1e-6, atol=1e-5)


def test_a_table_gives_the_rows_of_its_integers():
    table = Table(9, 4, initializer="glorot_normal", name="table")
    table.build()
    whole = []

    def restore(integers, scale):
        whole.append(tf.cast(integers, tf.float32) * scale)
        return whole[-1]

    twin = int8.Int8Table(table, restore)
    exact = twin.integers.numpy() * twin.scale.numpy()
    assert (np.abs(exact - np.asarray(table.table)) <= 0.501 * twin.scale.numpy()).all()
    ids = np.array([[1, 8], [0, 1]])
    np.testing.assert_array_equal(twin(ids), exact[ids])
    np.testing.assert_array_equal(twin.first(tf.constant(3), 2), exact[2:5])
    assert not whole  # these need some rows only
    x, bias = RNG.normal(size=(2, 4)).astype(np.float32), RNG.normal(size=9).astype(np.float32)
    np.testing.assert_allclose(twin.scores(x), x @ exact.T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(twin.scores(x, bias), x @ exact.T + bias, rtol=1e-5, atol=1e-6)


@pytest.fixture
def network():
    layer = FeedForward(
        6, FeedForwardParts(10, "gelu"), Initializers("glorot_normal"), name="network"
    )
    layer.build()
    return layer


def twins(layer):
    return {part: int8.Int8Linear.from_layer(part) for part in int8.linear_layers(layer)}


def test_layers_are_swapped_within_a_block(network):
    x = tf.constant(RNG.normal(size=(2, 3, 6)), tf.float32)
    exact, inner = network(x), network.inner
    paths = [variable.path for variable in network.variables]
    with int8.swapped(network, twins(network)):
        assert isinstance(network.inner, int8.Int8Linear) and network.inner.name == "inner"
        assert isinstance(network.outer, int8.Int8Linear)
        assert 0 < np.abs(network(x) - exact).max() < 0.1
        assert [variable.path for variable in network.variables] == paths  # no others
    assert network.inner is inner
    np.testing.assert_array_equal(network(x), exact)


def test_a_block_that_fails_gives_the_layers_back(network):
    inner = network.inner
    with pytest.raises(ZeroDivisionError), int8.swapped(network, twins(network)):
        raise ZeroDivisionError
    assert network.inner is inner


def test_a_gelu_after_integers_is_our_formula_in_an_export(network):
    with int8.swapped(network, twins(network)), kernels.using(gradients=False):
        function = tf.function(network.call).get_concrete_function(tf.TensorSpec([2, 3, 6]))
    kinds = {operation.type for operation in function.graph.get_operations()}
    assert "Erf" in kinds and "Erfc" not in kinds  # which takes three times as long


def test_the_activation_is_not_fused_with_integers(network, monkeypatch):
    def never(x):
        raise AssertionError("the backend's activation is for products that it can fuse")

    monkeypatch.setattr(network, "plain_activation", never)
    with int8.swapped(network, twins(network)):
        network(tf.ones([1, 2, 6]))


def test_columns_of_several_inputs_are_those_of_the_whole_output(network):
    twin = int8.Int8Linear.from_layer(network.inner)
    size, width = network.inner.kernel.shape
    inputs = [np.random.default_rng(i).normal(size=(3, size)).astype(np.float32) for i in (0, 1)]
    first, second = twin.by_columns(inputs, [2, width - 2])
    np.testing.assert_array_equal(first, twin(inputs[0])[:, :2])
    np.testing.assert_array_equal(second, twin(inputs[1])[:, 2:])


def test_code_that_splits_the_kernel_gets_the_matrix_of_the_integers():
    layer = Linear(4, 3, initializer="glorot_normal", name="map")
    layer.build()
    twin = int8.Int8Linear.from_layer(layer)
    steps = np.abs(layer.kernel).max(axis=0) / int8.LARGEST_WEIGHT
    assert (np.abs(twin.kernel - layer.kernel) <= 0.501 * steps).all()
    assert twin.bias is layer.bias.value


def test_a_tensorflow_without_such_products_is_told_at_once(monkeypatch):
    int8.check()
    monkeypatch.setattr(int8, "_OP", "_NoSuchProduct")
    with pytest.raises(UserError, match="--precision=int8: this TensorFlow has no products of 8-b"):
        int8.check()
