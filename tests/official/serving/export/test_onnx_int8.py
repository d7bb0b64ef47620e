"""Products and lookups of a file in int8 are those of the formula."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from official.serving.export import onnx_int8
from official.utils.errors import UserError

WIDTH, OUTPUTS, ROWS = 64, 70, 80
RNG = np.random.default_rng(0)
TABLE = RNG.standard_normal((ROWS, WIDTH)).astype(np.float32) * np.linspace(0.1, 9, ROWS)[:, None]
MATRIX = RNG.standard_normal((WIDTH, OUTPUTS)).astype(np.float32) * np.linspace(0.1, 9, OUTPUTS)
SMALL = RNG.standard_normal((OUTPUTS, 3)).astype(np.float32)
IDS = RNG.integers(0, ROWS, (4, 5))


def content():
    """A file: rows of a table, a product, and a product with a small matrix."""
    arrays = {"table": TABLE, "matrix": MATRIX, "small": SMALL}
    graph = helper.make_graph(
        [
            helper.make_node("Gather", ["table", "ids"], ["rows"], "lookup", axis=0),
            helper.make_node("MatMul", ["rows", "matrix"], ["product"], "first"),
            helper.make_node("MatMul", ["product", "small"], ["last"], "second"),
        ],
        "graph",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, [None, None])],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, None, size])
            for name, size in (("rows", WIDTH), ("product", OUTPUTS), ("last", 3))
        ],
        [numpy_helper.from_array(np.float32(array), name) for name, array in arrays.items()],
    )
    opset = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


def run(made, ids):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(made, options).run(None, {"ids": ids})


def test_values():
    made = onnx_int8.converted(content())
    rows, product, last = run(made, IDS)
    scale = np.abs(TABLE).max(axis=1, keepdims=True) / 127
    right = np.rint(TABLE / scale) * scale
    np.testing.assert_allclose(rows, right[IDS], rtol=1e-6)
    columns = np.abs(MATRIX).max(axis=0) / 64
    sizes = np.abs(rows).max(axis=-1, keepdims=True) / 127
    whole = np.rint(rows / sizes) @ np.rint(MATRIX / columns)
    np.testing.assert_allclose(product, whole * sizes * columns, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(last, product @ SMALL, rtol=1e-5, atol=1e-4)
    plain = run(content(), IDS)[1]
    assert 1e-3 < np.abs(product - plain).max() / np.abs(plain).max() < 0.03
    types = {each.name: each.data_type for each in onnx.load_from_string(made).graph.initializer}
    assert types["table/int8"] == types["matrix/int8"] == TensorProto.INT8
    assert "table" not in types and "matrix" not in types and types["small"] == TensorProto.FLOAT


def test_a_row_of_zeros_stays_zero():
    zeros = TABLE.copy()
    zeros[3] = 0
    model = onnx.load_from_string(content())
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.float32(zeros), "table"))
    rows, product, _ = run(onnx_int8.converted(model.SerializeToString()), np.array([[3, 4]]))
    assert not rows[0, 0].any() and not product[0, 0].any() and product[0, 1].all()


def test_small_models_are_refused(monkeypatch):
    monkeypatch.setattr(onnx_int8, "SMALLEST", 10**6)
    with pytest.raises(UserError, match="--precision=int8: no matrix .* give --precision=float32"):
        onnx_int8.converted(content())
