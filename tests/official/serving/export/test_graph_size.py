import numpy as np
import tensorflow as tf
from tensorflow.python.saved_model import loader_impl

from official.modeling.layers import activation, kernels
from official.serving.export import graph_size


class Module(tf.Module):
    def __init__(self):
        super().__init__()
        self.count = tf.Variable(0)

    @tf.function(input_signature=[tf.TensorSpec([None, None])], autograph=False)
    def __call__(self, x):
        tf.exp(x) + 1  # nothing reads it
        self.count.assign_add(1)  # nor this, but it has an effect
        rows = [tf.reshape(x, [tf.shape(x)[0], tf.shape(x)[1], 1]) * 2.0 for _ in range(3)]
        with tf.control_dependencies([tf.constant(3.0), tf.constant(3.0)]):
            total = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y + 3.0), (0, rows[0]))
        return {"y": total[1] + rows[1] + rows[2], "three": tf.constant(3.0)}


def operations(folder):
    functions = loader_impl.parse_saved_model(str(folder)).meta_graphs[0].graph_def.library.function
    (function,) = [f for f in functions if any(n.op == "AssignAddVariableOp" for n in f.node_def)]
    return sorted(node.op for node in function.node_def)


def test_equal_nodes_are_merged_and_unread_ones_removed(tmp_path):
    module = Module()
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    expected = module(x)
    tf.saved_model.save(module, str(tmp_path))
    before = operations(tmp_path)
    fingerprint = (tmp_path / "fingerprint.pb").read_bytes()
    graph_size.shrink(tmp_path)
    after = operations(tmp_path)
    assert before.count("Shape") == 6 and after.count("Shape") == 1
    assert before.count("Exp") == 1 and "Exp" not in after
    assert before.count("Mul") == 3 and after.count("Mul") == 1
    assert len(set(after) & {"AssignAddVariableOp", "StatelessWhile", "While"}) == 2
    assert (tmp_path / "fingerprint.pb").read_bytes() != fingerprint
    loaded = tf.saved_model.load(str(tmp_path))
    actual = loaded.signatures["serving_default"](tf.constant(x))
    for name, value in expected.items():
        np.testing.assert_array_equal(actual[name], value)
    assert loaded.count.numpy() == 2


class Activations(tf.Module):
    """Each activation as an export computes it, twice in one inner function."""

    def __init__(self):
        super().__init__()
        self.inner = tf.function(
            lambda x: {name: f(f(x)) for name, f in activation.ACTIVATIONS.items()}, autograph=False
        )

    @tf.function(input_signature=[tf.TensorSpec([None, None])], autograph=False)
    def __call__(self, x):
        return self.inner(x)


def test_a_shrunk_graph_of_every_activation_is_loaded(tmp_path):
    module, x = Activations(), tf.constant([[-2.0, 0.0, 3.0]])
    with kernels.using(gradients=False):
        tf.saved_model.save(module, str(tmp_path))
    graph_size.shrink(tmp_path)
    actual = tf.saved_model.load(str(tmp_path)).signatures["serving_default"](x)
    for name, value in module(x).items():
        np.testing.assert_allclose(actual[name], value, rtol=1e-6, atol=1e-7)
