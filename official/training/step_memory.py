"""The memory of training, estimated from the graph of a step before it runs.

A tensor is in memory from the op that makes it to the last op that reads it. The estimate runs the
graph without its numbers: each op when its inputs are there, first come, first served, as
TensorFlow's executor does with one thread. The most bytes at one time are those of the step: the
activations that the gradients need, and the gradients. Weights and the state of the optimizer are
there before.

What is not in a graph is not known: buffers inside ops, and what the allocator keeps. Constants
stand for it, and `python -m benchmarks.memory` compares the sums with measured peaks. XLA fuses
ops, and a step that it compiles takes less.
"""

import collections
import dataclasses
import math
from collections.abc import Iterable

import keras
import tensorflow as tf

from official.utils import process_memory

# Fitted to the peaks that benchmarks.memory measures.
_KEPT = 1.1  # what an allocator takes for the tensors of a step, relative to these
_OP = 20_000  # bytes that TensorFlow takes for each op when a graph runs first
_THREADS = 60_000_000  # bytes that its threads and the reader of the data take then

# Ops whose output is an input in another shape, or under another name.
_SAME_BUFFER = {
    "Bitcast",
    "EnsureShape",
    "ExpandDims",
    "Identity",
    "IdentityN",
    "PreventGradient",
    "Reshape",
    "Squeeze",
    "StopGradient",
}
# Ops that write over an input of the same size that nobody else reads.
_IN_PLACE = {
    "Add",
    "AddN",
    "AddV2",
    "BiasAdd",
    "DivNoNan",
    "Erf",
    "Exp",
    "Log",
    "LogSoftmax",
    "Maximum",
    "Minimum",
    "Mul",
    "Neg",
    "RealDiv",
    "Relu",
    "Rsqrt",
    "RsqrtGrad",
    "SelectV2",
    "Sigmoid",
    "SigmoidGrad",
    "Softmax",
    "Sqrt",
    "Square",
    "SquaredDifference",
    "Sub",
    "Tanh",
    "TanhGrad",
}
# Ops whose outputs are no memory of the step: variables, constants, what the caller holds.
_OUTSIDE = {"Const", "Placeholder", "ReadVariableOp", "VarHandleOp"}
_LOOPS = {"While", "StatelessWhile"}
# Ops that call functions, and the attributes that name these.
_CALLS = {
    "PartitionedCall": ("f",),
    "StatefulPartitionedCall": ("f",),
    **dict.fromkeys(_LOOPS, ("body",)),
    "If": ("then_branch", "else_branch"),
    "StatelessIf": ("then_branch", "else_branch"),
}
_APPENDS = {"TensorListPushBack", "TensorListSetItem"}  # Their output holds their last input too.
_ALIGNED = 64  # bytes: TensorFlow's allocators round sizes up to them
_STRING = 24  # bytes of a short text


@dataclasses.dataclass(frozen=True)
class Estimate:
    """The memory of a run at the peak of a step, in bytes.

    Attributes:
      weights: that of the weights.
      state: that of the state of the optimizer, such as moments.
      step: that of the activations and the gradients.
      program: that of the process before the first step, with `weights` and `state`, and of what
        TensorFlow makes of the graph; None on a device with memory of its own.
      left: what other programs leave; None = unknown.
    """

    weights: int
    state: int
    step: int
    program: int | None = None
    left: int | None = None

    @property
    def total(self) -> int:
        """All of it."""
        return self.step + (self.weights + self.state if self.program is None else self.program)

    def lines(self) -> list[str]:
        """Returns the estimate in words, and a warning if the memory is not there."""
        weights, state, step = map(shown, (self.weights, self.state, self.step))
        parts = f"{step} of activations and gradients"
        if self.program is None:
            text = f"on each device, {parts}, {weights} of weights and {state} of the optimizer"
        else:
            text = (
                f"{parts}, {shown(self.program)} of the program with {weights} of weights and "
                f"{state} of the optimizer"
            )
        lines = [f"memory: about {shown(self.total)} at the peak of a step ({text})"]
        if self.left is not None and self.total > self.left:
            lines.append(
                f"warning: that is more than the {shown(self.left)} that there are: a smaller "
                "recipe.batch_size, recipe.accumulation (the batch in parts), recipe.recompute: "
                "layers, or for vectors of texts cached_rows take less (docs/memory.md)"
            )
        return lines


def estimate(
    graph: tf.Graph,
    length: int,
    weights: Iterable[keras.Variable],
    state: Iterable[keras.Variable],
    devices: int,
) -> Estimate:
    """Estimates the memory of a run.

    Args:
      graph: that of a step.
      length: the tokens of a row, which stand for unknown dimensions.
      weights: the variables of the model.
      state: those of the optimizer.
      devices: the number of devices with memory of their own that the step runs on; 0 = it runs
        in the memory of this process.
    """
    step = round(_KEPT * peak(graph, length))
    held = _variables(weights), _variables(state)
    resident = process_memory.resident()
    if devices or resident is None:
        return Estimate(*held, step // max(devices, 1))
    program = resident + _THREADS + _OP * _count(graph)
    available = process_memory.available()
    left = None if available is None else resident + available
    return Estimate(*held, step, program, left)


def shown(size: int) -> str:
    """Returns a number of bytes in MB, or in GB from a thousand of these."""
    return f"{size / 1e6:,.0f} MB" if size < 1e9 else f"{size / 1e9:,.1f} GB"


def peak(graph: tf.Graph, unknown: int = 1) -> int:
    """Returns the most bytes that the tensors of a traced function take at one time.

    Args:
      graph: the graph of a concrete function.
      unknown: stands for each dimension that is not known before the graph runs.
    """
    return _Walk(graph, unknown).run()


class _Walk:
    """Executes the ops of a graph in turn, and adds up the bytes of the tensors that are alive."""

    def __init__(self, graph: tf.Graph, unknown: int):
        self._graph = graph
        self._unknown = unknown
        self._ops = _needed(graph)
        self._readers = collections.Counter(
            tensor.ref() for op in self._ops for tensor in op.inputs
        )
        self._readers.update(tensor.ref() for tensor in graph.outputs)
        # The buffer of each tensor that is alive, the number of these tensors, and its bytes.
        self._buffers: dict = {}
        self._holders: collections.Counter = collections.Counter()
        self._bytes: dict = {}
        self._alive = self._most = 0

    def run(self) -> int:
        """Returns the most bytes at one time."""
        waits, followers = {}, collections.defaultdict(list)
        for op in self._ops:
            before = _before(op)
            waits[op] = len(before)
            for each in before:
                followers[each].append(op)
        ready = collections.deque(op for op in self._ops if not waits[op])
        while ready:
            op = ready.popleft()
            self._execute(op)
            for each in followers[op]:
                waits[each] -= 1
                if not waits[each]:
                    ready.append(each)
        return self._most

    def _execute(self, op: tf.Operation) -> None:
        if op.type in _IN_PLACE:
            self._release(op)
            self._make(op)
            return
        if op.type in _SAME_BUFFER:
            for made, read in zip(op.outputs, op.inputs, strict=False):
                self._share(made, read)
        elif op.type in _APPENDS:
            self._share(op.outputs[0], op.inputs[0])
            self._grow(op.outputs[0], self._size(op.inputs[-1]))
        elif op.type not in _OUTSIDE:
            self._make(op)
        self._release(op)

    def _make(self, op: tf.Operation) -> None:
        """Adds the outputs of an op, and for that time what the functions it calls take."""
        functions = _functions(self._graph, op)
        inside = max((peak(each, self._unknown) for each in functions), default=0)
        sizes = [self._size(tensor) for tensor in op.outputs]
        inside = max(0, inside - sum(sizes))  # The function has made its outputs.
        if op.type in _LOOPS and functions:
            turns = self._turns(op)
            for tensor, inner in zip(op.inputs, functions[0].inputs, strict=False):
                self._shrink(tensor, turns * self._taken(inner))
            lists = [turns * self._appended(tensor) for tensor in functions[0].outputs]
            sizes = [max(pair) for pair in zip(sizes, lists, strict=True)]
        elif op.type == "TensorListFromTensor":
            sizes = [self._size(op.inputs[0])]
        for tensor, size in zip(op.outputs, sizes, strict=True):
            self._hold(tensor, size)
        self._most = max(self._most, self._alive + inside)

    def _turns(self, loop: tf.Operation) -> int:
        """Returns how often a loop runs, as far as the tensors say that it reads or fills."""
        made = [tensor.op for tensor in loop.inputs if tensor.dtype == tf.variant]
        read = [each.inputs[0].shape[0] for each in made if each.type == "TensorListFromTensor"]
        filled = [
            tf.get_static_value(each.inputs[1]) for each in made if each.type == "TensorListReserve"
        ]
        known = [int(each) for each in [*read, *filled] if each is not None]
        return max(known, default=self._unknown if read or filled else 1)

    def _appended(self, tensor: tf.Tensor) -> int:
        """Returns the bytes that a turn of a loop adds to a list that it hands on."""
        op = tensor.op
        if op.type in _APPENDS:
            return self._size(op.inputs[-1]) + self._appended(op.inputs[0])
        return self._appended(op.inputs[0]) if op.type in _SAME_BUFFER else 0

    def _taken(self, tensor: tf.Tensor) -> int:
        """Returns the bytes that a turn of a loop takes from a list that it gets."""
        takers = [op for op in tensor.consumers() if op.type == "TensorListPopBack"]
        return sum(self._size(op.outputs[1]) for op in takers)

    def _hold(self, tensor: tf.Tensor, size: int) -> None:
        """Adds a buffer for a tensor, which is freed at once if nobody reads it."""
        self._most = max(self._most, self._alive + size)
        key = tensor.ref()
        if self._readers[key]:
            self._buffers[key], self._holders[key], self._bytes[key] = key, 1, size
            self._alive += size

    def _share(self, made: tf.Tensor, read: tf.Tensor) -> None:
        """Gives a tensor the buffer of another one."""
        buffer = self._buffers.get(read.ref())
        if buffer is not None and self._readers[made.ref()]:
            self._buffers[made.ref()] = buffer
            self._holders[buffer] += 1

    def _grow(self, tensor: tf.Tensor, size: int) -> None:
        """Adds to the buffer of a list. Those of the caller grow in the caller's graph."""
        buffer = self._buffers.get(tensor.ref())
        if buffer is not None:
            self._bytes[buffer] += size
            self._alive += size
            self._most = max(self._most, self._alive)

    def _shrink(self, tensor: tf.Tensor, size: int) -> None:
        """Takes from the buffer of a list that nobody else reads."""
        buffer = self._buffers.get(tensor.ref())
        if size and buffer is not None and self._readers[tensor.ref()] == 1:
            size = min(size, self._bytes[buffer])
            self._bytes[buffer] -= size
            self._alive -= size

    def _release(self, op: tf.Operation) -> None:
        """Frees the buffers of inputs that nobody else reads."""
        for tensor in op.inputs:
            key = tensor.ref()
            self._readers[key] -= 1
            buffer = self._buffers.get(key)
            if buffer is not None and not self._readers[key]:
                self._holders[buffer] -= 1
                if not self._holders[buffer]:
                    self._alive -= self._bytes[buffer]

    def _size(self, tensor: tf.Tensor) -> int:
        """Returns the bytes of a tensor; what lists hold is counted where it is added."""
        if tensor.dtype in (tf.resource, tf.variant) or tensor.shape.rank is None:
            return 0
        each = _STRING if tensor.dtype == tf.string else tensor.dtype.size
        size = each * math.prod(self._unknown if n is None else n for n in tensor.shape)
        return -(-size // _ALIGNED) * _ALIGNED


def _needed(graph: tf.Graph) -> list[tf.Operation]:
    """Returns the ops of a function that are executed, in the order in which they were made."""
    found: set[tf.Operation] = set()
    rest = [tensor.op for tensor in graph.outputs] + list(graph.control_outputs)
    while rest:
        op = rest.pop()
        if op not in found:
            found.add(op)
            rest += _before(op)
    return [op for op in graph.get_operations() if op in found]


def _before(op: tf.Operation) -> list[tf.Operation]:
    return [*(tensor.op for tensor in op.inputs), *op.control_inputs]


def _functions(graph: tf.Graph, op: tf.Operation) -> list[tf.Graph]:
    """Returns the graphs of the functions that an op calls, as far as they were traced here."""
    names = [op.get_attr(name).name for name in _CALLS.get(op.type, ())]
    # No public function returns the graph of a function inside a graph.
    found = [getattr(graph._get_function(name), "graph", None) for name in names]
    return [each for each in found if each is not None]


def _count(graph: tf.Graph) -> int:
    """Returns the number of ops of a graph and of the functions that it calls."""
    ops = graph.get_operations()
    return len(ops) + sum(_count(each) for op in ops for each in _functions(graph, op))


def _variables(variables: Iterable[keras.Variable]) -> int:
    return sum(math.prod(each.shape) * tf.as_dtype(each.dtype).size for each in variables)
