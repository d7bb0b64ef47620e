#!/usr/bin/env bash
# A reduction over the last axis of an array without rows, as of a batch that is empty.
#
# Expected: the shape (0,) for an input of shape (0, 10), whether the axis is called 1 or -1, which
#   are the same one by the specification of ONNX; with `keepdims` (0, 1).
# What happens: with the axis 1 it is so. With -1 ONNX Runtime returns the shape (0, 10), that of its
#   input, for all reductions; a warning about the shape is all it says, and what follows in the graph
#   works with an array of the wrong rank. The evaluator of the onnx package gives (0,) for both.
# Versions: onnxruntime 1.31.1 on a CPU, onnx 1.23.2, opset 18, Python 3.11.
# Consequence: tf2onnx writes -1 for `tf.reduce_all(x, axis=-1)` and its like, so a converted model
#   answers an empty batch with an output of the wrong shape, or fails in a later node.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
  onnx==1.23.2 onnxruntime==1.31.1 numpy==2.4.6
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import numpy as np
import onnxruntime
from onnx import TensorProto, checker, helper
from onnx.reference import ReferenceEvaluator

x = np.zeros((0, 10), np.float32)
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
for kind in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2"):
    shapes = {}
    for axis in (1, -1):
        node = helper.make_node(kind, ["x", "axes"], ["y"], keepdims=0)
        graph = helper.make_graph(
            [node],
            "reduction",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 10])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows"])],
            [helper.make_tensor("axes", TensorProto.INT64, [1], [axis])],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
        checker.check_model(model)
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        (found,) = session.run(None, {"x": x})
        (reference,) = ReferenceEvaluator(model).run(None, {"x": x})
        if reference.shape != (0,):
            sys.exit(f"changed: the evaluator of onnx gives {reference.shape}")
        shapes[axis] = found.shape
    print(kind, {f"axis {axis}": shape for axis, shape in shapes.items()})
    if shapes != {1: (0,), -1: (0, 10)}:
        sys.exit("changed: expected (0,) with the axis 1 and (0, 10) with the axis -1")
print("as described: the axis -1 of an array without rows is not reduced")
PYTHON
