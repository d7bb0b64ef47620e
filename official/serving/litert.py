"""Exports a model folder for LiteRT, a small runtime that needs no TensorFlow.

The model has the signature `tokens` of a SavedModel, an encoder without a head also `embed_tokens`,
and a masked LM `fill_mask_tokens`. Its tokenizer lies beside it. With int8
the converter stores each matrix as integers of 8 bits, with a scale for each output channel. The
runtime rounds each row of the activations by itself, so the result for a row does not depend on
other rows.
"""

import os
import re
import tempfile

import tensorflow as tf

from official.modeling.layers import kernels
from official.serving import saved_model
from official.utils import atomic
from official.utils.errors import UserError

FILE = "model.tflite"
TOKENIZER = "tokenizer"
PRECISIONS = ("float32", "int8")


def export(
    model_dir: str | os.PathLike,
    output: str | os.PathLike,
    checkpoint: str = "best",
    max_length: int | None = None,
    task: str | None = None,
    precision: str = "float32",
) -> int:
    """Writes a folder with `model.tflite` and the tokenizer of the model.

    The arguments are those of `saved_model.export`, and `precision` is one of `PRECISIONS`.

    Returns:
      The maximum length of the input.

    Raises:
      UserError: as in `saved_model.export`; the model has no signature `tokens`; the precision is
        none of `PRECISIONS`; LiteRT lacks an operation of the model.
    """
    if precision not in PRECISIONS:
        raise UserError(
            f"--precision={precision}: LiteRT computes in {' or '.join(PRECISIONS)} on CPUs"
        )
    context, kept = saved_model.restore_for_ids(model_dir, checkpoint, max_length, task, "litert")
    server = tf.Module()
    server.weights = context.weights.module
    if context.filler is not None:
        server.filler = context.filler.weights.module
    with atomic.folder(output, FILE) as folder, tempfile.TemporaryDirectory() as temporary:
        with kernels.using(gradients=False):
            tf.saved_model.save(server, temporary, signatures=kept)
        context.tokenizer.save(folder / TOKENIZER)
        saved_model.write_labels(context, folder)
        (folder / FILE).write_bytes(_converted(temporary, precision, list(kept)))
    return context.max_length


def _converted(folder: str, precision: str, names: list[str]) -> bytes:
    """Returns some signatures of the SavedModel of a folder as a file of LiteRT."""
    converter = tf.lite.TFLiteConverter.from_saved_model(folder, signature_keys=names)
    if precision == "int8":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    try:
        return converter.convert()
    except Exception as error:  # The class of the converter's error is private.
        if type(error).__name__ != "ConverterError":
            raise
        # The message has the whole graph in it.
        operations = ", ".join(sorted(set(re.findall(r"'tf\.(\w+)' op", str(error))))) or "none"
        raise UserError(
            "--format=litert: not supported for this model: TensorFlow's converter names the "
            f"operations {operations}; remove --format"
        ) from None
