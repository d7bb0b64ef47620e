import numpy as np
import pytest
import tensorflow as tf

from official.modeling.layers import kernels
from official.modeling.layers.kernels import times_transposed, transposed_times

RNG = np.random.default_rng(0)
PRODUCTS = {times_transposed: "...ri,...oi->...ro", transposed_times: "...ir,...io->...ro"}
SHAPES = {times_transposed: ((5, 3), (7, 3)), transposed_times: ((3, 5), (3, 7))}


@pytest.mark.parametrize("leading", [(), (2,), (2, 4)])
@pytest.mark.parametrize("product", PRODUCTS)
def test_products_and_gradients_are_those_of_numpy(product, leading):
    x, y = (RNG.normal(size=(*leading, *shape)) for shape in SHAPES[product])
    upstream = RNG.normal(size=(*leading, 5, 7))

    @tf.function(autograph=False)
    def run(x, y):
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            result = product(x, y)
        return result, *tape.gradient(result, [x, y], upstream)

    result, of_x, of_y = run(tf.constant(x), tf.constant(y))
    np.testing.assert_allclose(result, np.einsum(PRODUCTS[product], x, y), rtol=1e-12)
    left, right = PRODUCTS[product].split("->")[0].split(",")
    wanted = np.einsum(f"...ro,{right}->{left}", upstream, y)
    np.testing.assert_allclose(of_x, wanted, rtol=1e-12)
    wanted = np.einsum(f"...ro,{left}->{right}", upstream, x)
    np.testing.assert_allclose(of_y, wanted, rtol=1e-12)
    with kernels.left_out():
        np.testing.assert_allclose(product(x, y), result, rtol=1e-12)


def test_no_operand_is_written_transposed():
    run = tf.function(lambda x, y: (times_transposed(x, y), transposed_times(x, y)))
    graph = run.get_concrete_function(tf.zeros((4, 4)), tf.zeros((4, 4))).graph
    assert not [op for op in graph.get_operations() if op.type == "Transpose"]
