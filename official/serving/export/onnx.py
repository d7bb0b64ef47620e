"""Exports a model folder for ONNX Runtime and other runtimes that read ONNX.

Each signature that takes token ids is a file: `tokens.onnx`, of an encoder without a head also
`embed_tokens.onnx`, and of a masked LM `fill_mask_tokens.onnx`. The tokenizer lies beside them. The
scores of a tagger with a conditional random field are those of `tokens`; `crf.json` has what
decodes them.
"""

import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from official.modeling.layers import kernels
from official.serving.export import saved_model
from official.serving.signatures.inputs import ServingContext
from official.utils import atomic
from official.utils.errors import UserError

FILE = "{}.onnx"
TOKENIZER = "tokenizer"
CRF = "crf.json"
OPSET = 18
_MAX_BYTES = 2**31 - 1  # of a protobuf
# The optimizer of tf2onnx that is left out: it merges a reshape with a following one to [0, 0, D],
# whose zeros stand for the sizes of what it reads, so that they become those of something else.
_UNSOUND = "remove_back_to_back"


def export(
    model_dir: str | os.PathLike,
    output: str | os.PathLike,
    checkpoint: str = "best",
    max_length: int | None = None,
    task: str | None = None,
) -> tuple[list[str], int]:
    """Writes a folder with a file of ONNX for each signature, and the tokenizer of the model.

    The arguments are those of `saved_model.export`.

    Returns:
      The names of the signatures, and the maximum length of their input.

    Raises:
      UserError: as in `saved_model.export`; the model has no signature `tokens`; ONNX lacks an
        operation of the model; a file would be larger than 2 GiB.
      ModuleNotFoundError: tf2onnx is not installed.
    """
    import tf2onnx  # noqa: F401  (of the extra `onnx`; missed before any work is done)

    context, signatures = saved_model.restore_for_ids(
        model_dir, checkpoint, max_length, task, "onnx"
    )
    check(context)
    with atomic.folder(output, FILE.format("tokens")) as folder:
        for name, function in signatures.items():
            (folder / FILE.format(name)).write_bytes(converted(function))
        context.tokenizer.save(folder / TOKENIZER)
        if (chain := getattr(context.head, "crf", None)) is not None:
            (folder / CRF).write_text(json.dumps(_chain(context.head, chain), ensure_ascii=False))
    return list(signatures), context.max_length


def check(context: ServingContext) -> None:
    """Refuses a model that a file of ONNX cannot hold.

    Raises:
      UserError: its weights are larger than 2 GiB, or it has a loop.
    """
    size = sum(v.dtype.size * v.shape.num_elements() for v in context.weights.module.variables)
    if size > _MAX_BYTES:
        raise UserError(
            f"--format=onnx: {size / 2**30:.1f} GiB of weights: a file of ONNX holds at most 2 "
            "GiB: remove --format, and take the SavedModel"
        )
    head = context.head
    if head is not None and getattr(head, "bilstm", None) is not None:
        raise UserError(
            f"--format=onnx: {head.config.type}.bilstm: tf2onnx cannot convert the loop of "
            "a BiLSTM: remove --format, and take the SavedModel"
        )


def _chain(head: Any, chain: Any) -> dict[str, Any]:
    """Returns the scores of a chain: of pairs of tags (from, to), first tags and last tags."""
    scores = {name: np.asarray(getattr(chain, name)).tolist() for name in ("first", "last")}
    transitions = np.asarray(chain.transitions).tolist()
    return {"labels": list(head.config.labels), "transitions": transitions, **scores}


def converted(
    function: tf.types.experimental.PolymorphicFunction,
    outputs: Sequence[str] | None = None,
    axes: Sequence[str] = (),
) -> bytes:
    """Returns a signature as a file of ONNX.

    Args:
      function: the signature.
      outputs: the names of its outputs in the order of the file; None = that of tf2onnx.
      axes: the names of the first axes of inputs and outputs, where their sizes are open; () =
        those of tf2onnx.

    Raises:
      UserError: ONNX lacks an operation of it.
    """
    import onnx
    import tf2onnx

    with _quiet(), _sound(), kernels.using(gradients=False):
        model, _ = tf2onnx.convert.from_function(
            tf.function(lambda *ids: function(*ids), autograph=False),
            input_signature=function.input_signature,
            opset=OPSET,
            custom_op_handlers={"Erfc": (_erfc, []), "Log1p": (_log1p, [])},
        )
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"--format=onnx: tf2onnx cannot convert this model: {reason}") from None
    inputs = [given.name for given in model.graph.input]
    if inputs != (right := [spec.name for spec in function.input_signature]):
        raise UserError(
            f"--format=onnx: tf2onnx makes the inputs {', '.join(inputs)} of this model, whose "
            f"signature has {', '.join(right)}: remove --format, and take the SavedModel"
        )
    if outputs is not None:
        made = {value.name: value for value in model.graph.output}
        del model.graph.output[:]
        model.graph.output.extend(made[name] for name in outputs)
    for value in (*model.graph.input, *model.graph.output):
        for axis, name in zip(value.type.tensor_type.shape.dim, axes, strict=False):
            if not axis.HasField("dim_value"):
                axis.dim_param = name
    return model.SerializeToString()


@contextlib.contextmanager
def _sound() -> Iterator[None]:
    """Leaves out the optimizer of tf2onnx that changes what a model computes."""
    from tf2onnx import optimizer

    every = optimizer._optimizers
    optimizer._optimizers = {name: made for name, made in every.items() if name != _UNSOUND}
    try:
        yield
    finally:
        optimizer._optimizers = every


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps tf2onnx from logging what its optimizers try."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


def _erfc(graph: Any, node: Any, name: str, args: Any) -> None:
    """Writes erfc(x) as 1 - erf(x): ONNX has only the latter."""
    del args
    _with_one(graph, node, name, lambda x, one, made: ("Sub", [one, made("Erf", [x])]))


def _log1p(graph: Any, node: Any, name: str, args: Any) -> None:
    """Writes log(1 + x), which ONNX has no operation for."""
    del args
    _with_one(graph, node, name, lambda x, one, made: ("Log", [made("Add", [one, x])]))


def _with_one(graph: Any, node: Any, name: str, last: Callable[..., tuple[str, list]]) -> None:
    """Writes an operation on x as two operations on x and 1.

    Args:
      graph: the graph.
      node: the operation.
      name: its name.
      last: returns the second operation and its inputs, given x, 1, and what makes the first one.
    """
    (x,), (output,) = node.input, node.output
    types = {"shapes": node.output_shapes, "dtypes": node.output_dtypes}
    graph.remove_node(node.name)
    one = graph.make_const(f"{name}/one", np.float32(1)).output[0]
    kind, inputs = last(x, one, lambda *given: graph.make_node(*given, **types).output[0])
    graph.make_node(kind, inputs, outputs=[output], name=name, **types)
