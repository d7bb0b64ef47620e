"""Each operation of exported graphs gives at its edges in ONNX and LiteRT what TensorFlow gives.

What operations there are is read from the graphs of `benchmarks.exported_models`, whose command
compares the whole graphs.
"""

import warnings

import keras
import numpy as np
import onnxruntime
import pytest
import tensorflow as tf

from benchmarks import exported_models
from official.serving.export import litert, onnx, saved_model

# Values at which runtimes could differ: zeros of both signs, ties, tiny and large ones.
EDGES = [-1e4, -3.5, -1.0, -0.0, 0.0, 1e-30, 0.5, 2.5, 2.5, 1e4]
# They compute nothing, read a variable, or only stop a wrong call in TensorFlow.
OTHERS = {
    "Assert", "Const", "Identity", "IdentityN", "NoOp", "PartitionedCall", "Placeholder",
    "ReadVariableOp", "StopGradient",
}  # fmt: skip


def of_floats(x, y):
    """Of [A, 10]: what is computed of floats, without division by 0."""
    size, divisor = tf.abs(x), tf.where(y == 0, 3.0, y)
    best, places = tf.math.top_k(x, 4)
    return {
        "Abs": size,
        "AddV2": x + y,
        "ArgMax": tf.argmax(x, axis=-1, output_type=tf.int32),
        "BiasAdd": tf.nn.bias_add(x, tf.constant(EDGES)),
        "Cos": tf.cos(tf.clip_by_value(x, -50, 50)),
        # LiteRT has neither, and knows them in a GELU.
        "Erf": tf.nn.gelu(x),
        "Erfc": keras.ops.gelu(x, approximate=False),
        "Exp": tf.exp(-size),
        "Log": tf.math.log(tf.maximum(size, 1e-10)),
        "Max": tf.reduce_max(x, axis=-1),
        "Maximum": tf.maximum(x, y),
        "Mean": tf.reduce_mean(x, axis=-1, keepdims=True),
        "Minimum": tf.minimum(x, y),
        "Mul": x * y,
        "Neg": -x,
        "Pow": tf.stack([tf.pow(x, 2.0), tf.pow(x, 3.0)]),
        "RealDiv": x / divisor,
        "Relu": tf.nn.relu(x),
        "Rsqrt": tf.math.rsqrt(size + 1e-12),
        "Sigmoid": tf.sigmoid(x),
        "Sin": tf.sin(tf.clip_by_value(x, -50, 50)),
        "Softmax": tf.nn.softmax(x),
        "Sqrt": tf.sqrt(size),
        "Square": tf.square(x),
        "Sub": x - y,
        "Sum": tf.reduce_sum(x, axis=[0, 1]),
        "Tanh": tf.tanh(x),
        "TopKV2": best,
        "TopKV2_places": places,
        # Of a row that is padding alone all scores are as low.
        "Softmax_of_padding": tf.nn.softmax(x * 0 - 1e9),
    }


def of_shapes(x, y):
    """Of [A, 10]: what moves numbers, with sizes that are computed."""
    rows, columns = tf.unstack(tf.shape(x))
    cube = tf.reshape(x, [rows, 2, 5])
    first, second = tf.split(x, 2, axis=1)
    small, large = tf.split(x, [3, 7], axis=1)
    return {
        "BatchMatMulV2": tf.matmul(cube, tf.reshape(y, [rows, 2, 5]), transpose_b=True),
        "BroadcastTo": tf.broadcast_to(x[:, None], [rows, 3, columns]),
        "ConcatV2": tf.concat([x, y], axis=0),
        "Einsum": tf.einsum("abc,adc->bda", cube, tf.reshape(y, [rows, 2, 5])),
        "ExpandDims": x[:, None],
        "Fill": tf.fill([rows, 2], 0.5),
        "GatherV2": tf.gather(x, [9, 0, 0, 3], axis=1),
        "MatMul": tf.matmul(x, tf.constant(EDGES)[:, None]),
        "Pack": tf.stack([x, y], axis=1),
        "Pad": tf.pad(x, [[0, 0], [2, 1]]),
        "Prod": tf.reshape(cube, [tf.reduce_prod(tf.shape(cube)[:2]), 5]),
        "Range": tf.range(rows),
        "Reshape": tf.reshape(x, [-1, 5]),
        "SelectV2": tf.where(x > y, x, y),
        "Shape": tf.shape(cube),
        "Slice": tf.slice(x, [0, 2], [rows, columns - 5]),
        "Split": first - second,
        "SplitV": tf.concat([large, small], axis=1),
        "StridedSlice": x[:, 1:-2:3],
        "Transpose": tf.transpose(cube, [2, 0, 1]),
        "Unpack": tf.unstack(cube, axis=1)[1],
    }


def of_whole_numbers(x, y):
    """Of [A, 10] whole numbers from -5 to 5: comparisons, logic, conversions, places."""
    one, other = tf.cast(x, tf.int32), tf.cast(y, tf.int32)
    low, positive = one < other, other > 0
    return {
        "All": tf.reduce_all(low, axis=-1),
        "Any": tf.reduce_any(low, axis=-1),
        "Cast": tf.cast(x * 0.75, tf.int32),
        "Cast_of_booleans": tf.cast(low, tf.float32),
        "Equal": tf.equal(one, other),
        # Not of negative ones: what follows cuts them towards 0 in ONNX.
        "FloorDiv": tf.abs(one) // 3,
        "GreaterEqual": one >= other,
        "Less": low,
        "LessEqual": one <= other,
        "LogicalAnd": tf.logical_and(low, positive),
        "LogicalNot": tf.logical_not(low),
        "OneHot": tf.one_hot(tf.abs(one), 6),
    }


def batches():
    """Pairs of arrays [A, 10]."""
    rng = np.random.default_rng(0)
    for rows in (1, 2, 12):
        x = np.array([rng.permutation(EDGES) for _ in range(rows)], np.float32)
        y = np.array([rng.permutation(EDGES) for _ in range(rows)], np.float32)
        yield x.reshape(rows, 10), y.reshape(rows, 10)


@pytest.mark.slow
@pytest.mark.parametrize("function", [of_floats, of_shapes, of_whole_numbers])
def test_edges(function):
    specs = [tf.TensorSpec([None, 10], name=name) for name in ("x", "y")]
    server = tf.Module()
    server.signature = tf.function(function, input_signature=specs, autograph=False)
    content = litert.converted(server, {"edges": server.signature}, "float32", "format")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*ai_edge_litert")
        run = tf.lite.Interpreter(model_content=content).get_signature_runner("edges")
    session = onnxruntime.InferenceSession(onnx.converted(server.signature))
    names = [output.name for output in session.get_outputs()]
    for x, y in batches():
        if function is of_whole_numbers:
            x, y = (np.round(np.clip(value, -5, 5)) for value in (x, y))
        expected = {
            name: value.numpy() for name, value in function(*map(tf.constant, (x, y))).items()
        }
        found = {"ONNX": dict(zip(names, session.run(names, {"x": x, "y": y}), strict=True))}
        if len(x):  # LiteRT has no tensors without elements
            found["LiteRT"] = run(x=x, y=y)
        for runtime, outputs in found.items():
            assert outputs.keys() == expected.keys()
            for name, right in expected.items():
                message = f"{name} in {runtime}, {len(x)} rows"
                assert outputs[name].shape == right.shape, message
                np.testing.assert_allclose(
                    outputs[name], right, rtol=1e-5, atol=1e-6, err_msg=message
                )


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "encoder, head",
    [
        ("bert", "kernel_ranking"),
        ("xlnet", "multiple_choice"),
        ("modernbert", "multi_label"),
        ("deberta", "masked_lm"),
        ("t5", "vectors"),
    ],
)
def test_every_operation_is_among_them(tmp_path, encoder, head):
    exported_models.make_model(tmp_path / "model", encoder, head)
    _, signatures = saved_model.restore_for_ids(tmp_path / "model", "last", None, None, "onnx")
    found = {
        operation.type
        for signature in signatures.values()
        for operation in exported_models.operations_of(signature.get_concrete_function().graph)
    }
    row = tf.zeros([1, 10])
    tested = {name for each in (of_floats, of_shapes, of_whole_numbers) for name in each(row, row)}
    assert found - OTHERS <= tested
