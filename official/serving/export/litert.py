"""Exports a model folder for LiteRT, a small runtime that needs no TensorFlow.

The model has the signature `tokens` of a SavedModel, an encoder without a head also `embed_tokens`,
and a masked LM `fill_mask_tokens`. Its tokenizer lies beside it, and of an encoder what
`official.load` needs to compute vectors of texts without TensorFlow. With int8 the converter stores
each matrix as integers of 8 bits: of an affine map with a scale for each output channel, of the
token table with one scale. The runtime rounds each row of the activations by itself, so the result
for a row does not depend on other rows.

A `Function` is converted and run here: `--runtime=litert`.
"""

import os
import re
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from official.modeling.layers import kernels
from official.saving import text_vectors
from official.serving.compute.length_groups import FIELDS
from official.serving.export import int8_loss, saved_model
from official.serving.light import writing
from official.serving.light.folder import PRECISIONS
from official.serving.light.runs import Runs
from official.serving.signatures.inputs import TOKENS, ServingContext, Signature
from official.serving.signatures.texts import EMBED_TOKENS
from official.utils import atomic
from official.utils.errors import UserError
from official.utils.paths import AnyPath

FILE = "model.tflite"
TOKENIZER = "tokenizer"
SIGNATURE = "batch"  # of a `Function`
_COMPARED = ("tokens", EMBED_TOKENS)  # in int8 and in float32
_filters = threading.Lock()  # of warnings, which all threads share


def export(
    model_dir: str | os.PathLike,
    output: str | os.PathLike,
    checkpoint: str = "best",
    max_length: int | None = None,
    task: str | None = None,
    precision: str = "float32",
) -> tuple[int, float | None]:
    """Writes a folder with `model.tflite` and the tokenizer of the model.

    The arguments are those of `saved_model.export`, and `precision` is one of `PRECISIONS`.

    Returns:
      The maximum length of the input, and of int8 what `int8_loss.share` returns.

    Raises:
      UserError: as in `saved_model.export`; the model has no signature `tokens`; the precision is
        none of `PRECISIONS`; LiteRT lacks an operation of the model; int8 moves the outputs by
        more than `int8_loss.LARGEST`.
    """
    check(precision)
    context, kept = saved_model.restore_for_ids(model_dir, checkpoint, max_length, task, "litert")
    server = tf.Module()
    server.weights = context.weights.module
    if context.filler is not None:
        server.filler = context.filler.weights.module
    with atomic.folder(output, FILE) as folder:
        context.tokenizer.save(folder / TOKENIZER)
        saved_model.write_labels(context, folder)
        content = converted(server, kept, precision, "format")
        moved = share_moved(context, kept, content, precision)
        (folder / FILE).write_bytes(content)
        if EMBED_TOKENS in kept:
            _write_light(folder, context)
    return context.max_length, moved


def _write_light(folder: AnyPath, context: ServingContext) -> None:
    """Writes what `official.load` needs to compute the vectors of texts without TensorFlow."""
    settings, encoder = context.embedding, context.config.encoder
    size = text_vectors.size(encoder, settings, text_vectors.head_of_texts(context.model))
    writing.write(
        folder, context.tokenizer, encoder.text_layout, settings,
        settings.max_length or context.max_length, size, EMBED_TOKENS,
        {field: name for name, field in TOKENS.items()}, int8_loss.TEXTS,
    )  # fmt: skip


def share_moved(
    context: ServingContext, signatures: Mapping[str, Signature], content: bytes, precision: str
) -> float | None:
    """Returns the share by which a file in int8 moves the outputs of a model; None in float32.

    Raises:
      UserError: it is more than `int8_loss.LARGEST`.
    """
    if precision != "int8":
        return None
    interpreter = _interpreter(content)

    def runner(name: str) -> Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]:
        run = interpreter.get_signature_runner(name)
        return lambda given: run(**given)

    return max(
        int8_loss.share(context, signatures[name], runner(name), TOKENS)
        for name in _COMPARED
        if name in signatures
    )


def check(precision: str) -> None:
    """Raises UserError if LiteRT does not compute in a precision."""
    if precision not in PRECISIONS:
        raise UserError(
            f"--precision={precision}: LiteRT computes in {' or '.join(PRECISIONS)} on CPUs"
        )


class Function:
    """A function of a batch of ids that LiteRT computes. Several threads may call it at a time.

    Each call has one thread; see `Runs`.

    Attributes:
      content: the file of LiteRT, with the signature `SIGNATURE`.
    """

    def __init__(
        self,
        function: Callable[[Mapping[str, tf.Tensor]], Mapping[str, tf.Tensor]],
        variables: Iterable[tf.Variable],
        precision: str,
    ):
        """Converts the function.

        Args:
          function: from the fields `length_groups.FIELDS` of a batch, [B, T], to its outputs.
          variables: those that the function reads.
          precision: one of `PRECISIONS`.

        Raises:
          UserError: LiteRT lacks an operation of the function.
        """
        server = tf.Module()
        server.weights = list(variables)
        specs = [tf.TensorSpec([None, None], dtype, name) for name, dtype in FIELDS.items()]
        signature = tf.function(
            lambda *fields: function(dict(zip(FIELDS, fields, strict=True))),
            input_signature=specs,
            autograph=False,
        )
        self.content = converted(server, {SIGNATURE: signature}, precision, "runtime")
        self._run = Runs(lambda: _interpreter(self.content).get_signature_runner(SIGNATURE))

    def __call__(self, batch: Mapping[str, tf.Tensor]) -> dict[str, np.ndarray]:
        """Computes the outputs of a batch."""
        return self._run(**{name: np.asarray(batch[name]) for name in FIELDS})


def _interpreter(content: bytes) -> tf.lite.Interpreter:
    with _filters, warnings.catch_warnings():
        # It asks for the package `ai_edge_litert`, which has the same interpreter.
        warnings.simplefilter("ignore")
        return tf.lite.Interpreter(model_content=content, num_threads=1)


def num_threads() -> int:
    """Returns the number of threads that compute batches: as many as TensorFlow has."""
    return tf.config.threading.get_intra_op_parallelism_threads() or os.cpu_count() or 1


def converted(server: tf.Module, signatures: dict[str, Any], precision: str, flag: str) -> bytes:
    """Returns signatures as a file of LiteRT.

    Args:
      server: has the variables that they read.
      signatures: the functions by name.
      precision: one of `PRECISIONS`.
      flag: the name of the flag for messages.
    """
    with tempfile.TemporaryDirectory() as folder:
        with kernels.using(gradients=False):
            tf.saved_model.save(server, folder, signatures=signatures)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=[*signatures])
        if precision == "int8":
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        return _convert(converter, flag)


def _convert(converter: tf.lite.TFLiteConverter, flag: str) -> bytes:
    try:
        return converter.convert()
    except Exception as error:  # The class of the converter's error is private.
        if type(error).__name__ != "ConverterError":
            raise
        # The message has the whole graph in it.
        operations = ", ".join(sorted(set(re.findall(r"'tf\.(\w+)' op", str(error))))) or "none"
        raise UserError(
            f"--{flag}=litert: not supported for this model: TensorFlow's converter names the "
            f"operations {operations}; remove --{flag}"
        ) from None
