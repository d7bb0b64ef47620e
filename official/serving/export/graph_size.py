"""Makes the graph of a SavedModel smaller, so that a process that loads it needs less memory.

Tracing adds a constant wherever a number is used, the shape of a tensor wherever it is asked for,
and slopes that only gradients read. Half of the nodes of an encoder are such copies, or read by
nothing. A process that loads a SavedModel in Python keeps each function several times, some 25 kB
for each node.
"""

from collections.abc import Container

from tensorflow.core.framework import function_pb2
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.saved_model import fingerprinting_utils

from official.utils.paths import AnyPath

# Operations whose results are equal if their inputs and attributes are, and that do nothing else.
_PURE = {
    "AddV2", "Bitcast", "Cast", "ConcatV2", "Const", "Exp", "Fill", "Mul", "Pack", "Reshape",
    "Shape", "Softmax", "StridedSlice", "Sub",
}  # fmt: skip


def shrink(folder: AnyPath) -> None:
    """Merges equal nodes in all functions of a SavedModel, and removes those that nothing reads.

    Args:
      folder: of the SavedModel. Its graph and its fingerprint are written again.
    """
    file = folder / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    for meta in model.meta_graphs:
        for function in meta.graph_def.library.function:
            merge(function)
            remove_unread(function)
    file.write_bytes(model.SerializeToString(deterministic=True))
    fingerprinting_utils.write_fingerprint(str(folder))


def merge(function: function_pb2.FunctionDef) -> None:
    """Merges equal nodes of a function, until there are none."""
    while names := _equal(function):
        _remove(function, names)
        for node in function.node_def:
            node.input[:] = [_renamed(value, names) for value in node.input]
        for results in (function.ret, function.control_ret):
            for key, value in results.items():
                results[key] = _renamed(value, names)


def remove_unread(function: function_pb2.FunctionDef) -> None:
    """Removes nodes whose results are not read, until there are none."""
    while names := _unread(function):
        _remove(function, names)


def _remove(function: function_pb2.FunctionDef, names: Container[str]) -> None:
    kept = [node for node in function.node_def if node.name not in names]
    del function.node_def[:]
    function.node_def.extend(kept)


def _unread(function: function_pb2.FunctionDef) -> set[str]:
    """Returns the names of the nodes that nothing reads and that have no effect."""
    references = [value for node in function.node_def for value in node.input]
    references += [*function.ret.values(), *function.control_ret.values()]
    read = {value.removeprefix("^").partition(":")[0] for value in references}
    return {node.name for node in function.node_def if node.op in _PURE} - read


def _equal(function: function_pb2.FunctionDef) -> dict[str, str]:
    """Returns the names of nodes that are equal to an earlier one, with the name of that one."""
    first: dict[tuple, str] = {}
    names = {}
    for node in function.node_def:
        if node.op in _PURE:
            attributes = sorted(
                (name, value.SerializeToString(deterministic=True))
                for name, value in node.attr.items()
            )
            key = node.op, node.device, tuple(node.input), tuple(attributes)
            if (name := first.setdefault(key, node.name)) != node.name:
                names[node.name] = name
    return names


def _renamed(value: str, names: dict[str, str]) -> str:
    """Returns a reference to a node, `name`, `^name` or `name:output:0`, with the new name."""
    control = "^" if value.startswith("^") else ""
    name, colon, output = value.removeprefix("^").partition(":")
    return f"{control}{names.get(name, name)}{colon}{output}"
