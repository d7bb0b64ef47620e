"""Stores the matrices of a file of ONNX as integers of 8 bits, and multiplies integers.

Weights and activations have the scales of `official.serving.compute.int8`: a scale for each output
channel of a matrix, for each row of a table, and for each row of the activations, made when they
come. So a row gives the same whatever other rows a batch has, unlike with `DynamicQuantizeLinear`,
which has one scale for a whole batch.

Shapes: R rows, I input size, O output size, V rows and E columns of a table.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from official.serving.compute.int8 import LARGEST, LARGEST_WEIGHT, quantized
from official.utils.errors import UserError

# Matrices with fewer numbers, such as those of heads, stay in float32.
SMALLEST = 2**12
_HALF = 128  # stands for 0
_TINY = 1e-30  # the scale of a row of zeros


def converted(content: bytes) -> bytes:
    """Returns a file of ONNX with integers in the place of its float32 matrices.

    Raises:
      UserError: no matrix of it is large enough.
    """
    import onnx

    model = onnx.load_from_string(content)
    if not _convert(model.graph):
        raise UserError(
            f"--precision=int8: no matrix of this model has {SMALLEST} numbers: give "
            "--precision=float32"
        )
    onnx.checker.check_model(model)
    return model.SerializeToString()


def runner(content: bytes) -> Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """Returns a function that computes a file, from its inputs by name, without ONNX Runtime."""
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    class MatMulInteger(OpRun):
        """In float64 the sums of integers are exact, and NumPy has a fast product."""

        def _run(self, x, matrix, zero=0, of_matrix=0):
            product = (x - np.float64(zero)) @ (matrix - np.float64(of_matrix))
            return (product.astype(np.int32),)

    evaluator = ReferenceEvaluator(content, new_ops=[MatMulInteger])

    def run(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return dict(zip(evaluator.output_names, evaluator.run(None, given), strict=True))

    return run


def _convert(graph: Any) -> int:
    """Changes the nodes of a graph that read a matrix; returns how many it changes."""
    import onnx

    matrices = {
        each.name: each
        for each in graph.initializer
        if each.data_type == onnx.TensorProto.FLOAT
        and len(each.dims) == 2
        and np.prod(each.dims) >= SMALLEST
    }
    writer = _Writer(graph)
    nodes, changed = list(graph.node), 0
    del graph.node[:]
    for node in nodes:
        if node.op_type == "MatMul" and node.input[1] in matrices:
            writer.product(node, matrices[node.input[1]])
        elif node.op_type == "Gather" and node.input[0] in matrices and not _axis(node):
            writer.rows(node, matrices[node.input[0]])
        else:
            graph.node.append(node)
            continue
        changed += 1
    used = {name for node in graph.node for name in node.input}
    kept = [each for each in graph.initializer if each.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    return changed


def _axis(node: Any) -> int:
    return next((each.i for each in node.attribute if each.name == "axis"), 0)


class _Writer:
    """Appends nodes and constants to a graph."""

    def __init__(self, graph: Any):
        self._graph = graph
        self._names: set[str] = set()
        self._rounded: dict[str, tuple[str, str]] = {}

    def product(self, node: Any, matrix: Any) -> None:
        """Writes a product with a matrix [I, O]."""
        integers, scale = self._integers(matrix, -1, LARGEST_WEIGHT)
        x, (output,) = node.input[0], node.output
        rounded, largest = self._rows_rounded(x)
        zero = self._constant("int8/zero", np.uint8(_HALF))
        whole = self._node("MatMulInteger", [rounded, integers, zero], f"{node.name}/integers")
        real = self._node("Cast", [whole], f"{node.name}/real", to=1)
        scaled = self._node("Mul", [real, largest], f"{node.name}/scaled")
        self._node("Mul", [scaled, scale], output)

    def rows(self, node: Any, table: Any) -> None:
        """Writes a lookup in a table [V, E]."""
        integers, scale = self._integers(table, 0, LARGEST)
        ids, (output,) = node.input[1], node.output
        whole = self._node("Gather", [integers, ids], f"{node.name}/integers", axis=0)
        scales = self._node("Gather", [scale, ids], f"{node.name}/scales", axis=0)
        real = self._node("Cast", [whole], f"{node.name}/real", to=1)
        self._node("Mul", [real, scales], output)

    def _rows_rounded(self, x: str) -> tuple[str, str]:
        """Returns rows as integers, and the scale of each."""
        if x not in self._rounded:
            size = self._node("Abs", [x], f"{x}/size")
            last = self._constant("int8/last", np.array([-1], np.int64))
            largest = self._node("ReduceMax", [size, last], f"{x}/largest", keepdims=1)
            factor = self._constant("int8/factor", np.float32(1 / LARGEST))
            scale = self._node("Mul", [largest, factor], f"{x}/scale")
            tiny = self._constant("int8/tiny", np.float32(_TINY))
            scale = self._node("Max", [scale, tiny], f"{x}/positive")
            parts = self._node("Div", [x, scale], f"{x}/parts")
            whole = self._node("Round", [parts], f"{x}/whole")
            # Kernels without signs are the fast ones of ONNX Runtime.
            half = self._constant("int8/half", np.float32(_HALF))
            shifted = self._node("Add", [whole, half], f"{x}/shifted")
            self._rounded[x] = self._node("Cast", [shifted], f"{x}/int8", to=2), scale
        return self._rounded[x]

    def _integers(self, matrix: Any, axis: int, integer: int) -> tuple[str, str]:
        """Stores a matrix as integers; returns the names of these and of the scales."""
        import onnx

        names = f"{matrix.name}/int8", f"{matrix.name}/scale"
        if names[0] not in self._names:
            values = quantized(onnx.numpy_helper.to_array(matrix), axis, integer)
            for name, value in zip(names, values, strict=True):
                self._constant(name, value)
        return names

    def _constant(self, name: str, value: Any) -> str:
        import onnx

        if name not in self._names:
            self._names.add(name)
            self._graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def _node(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        import onnx

        self._graph.node.append(onnx.helper.make_node(kind, inputs, [output], **attributes))
        return output
