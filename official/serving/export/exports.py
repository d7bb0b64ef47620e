"""Exports a model folder as a SavedModel, or for LiteRT or ONNX Runtime: `official.export`."""

import os
from typing import Any, NamedTuple

from official.utils.errors import UserError

FORMATS = ("saved_model", "litert", "onnx")
# The layouts, and the format that each is of.
LAYOUTS = {"signatures": None, "hub": "onnx", "mediapipe": "litert"}


class Exported(NamedTuple):
    """A model that was exported.

    Attributes:
      file: the file that a runtime loads; of a SavedModel, its folder.
      signature: the name of the signature that is the default; in the layouts `hub` and
        `mediapipe`, that of the first output.
      max_length: the maximum length of its input, in tokens.
      moved: of int8 for LiteRT and ONNX, the share of the outputs that the integers move; see
        `official.serving.export.int8_loss`.
    """

    file: str
    signature: str
    max_length: int
    moved: float | None = None


def export(
    model_dir: str | os.PathLike,
    output: str | os.PathLike,
    *,
    format: str = "saved_model",
    layout: str = "signatures",
    checkpoint: str = "best",
    max_length: int | None = None,
    inputs: str | None = None,
    max_new_tokens: int | None = None,
    task: str | None = None,
    precision: str = "float32",
    max_bytes: int | None = None,
    **generation: Any,
) -> Exported:
    """Exports a model folder for a server that has nothing of this project.

    Example:
    ```python
    official.export("run/finetuned", "run/saved_model", precision="bfloat16")
    ```

    Args:
      model_dir: the model folder.
      output: the folder to write, which must not exist.
      format: `saved_model` takes raw text; `litert` and `onnx` take token ids and have the
        tokenizer beside the model.
      layout: `signatures`, a file for each signature; or with `onnx` also `hub`, a folder as the
        Hugging Face hub has it: `onnx/model.onnx` with the inputs and outputs of transformers,
        beside `config.json`, `tokenizer.json` and the files of sentence-transformers; or with
        `litert` also `mediapipe`, a `model.tflite` that MediaPipe's text tasks read.
      checkpoint: `best`, `last`, a step or a path.
      max_length: longer texts are cut to this number of tokens; None = the length of training.
      inputs: `single` or `pair`, the inputs of `serving_default`; None = as in training.
      max_new_tokens: the maximum number of new tokens of a model that generates text.
      task: the head of a model of several tasks, or the task of `generation.json`.
      precision: `float32`, `bfloat16` or `int8`; LiteRT has no bfloat16, ONNX float32
        alone, and in the layout of the hub int8.
      max_bytes: the largest number of bytes of a text in a request to a SavedModel; 0 = any, None =
        1,000,000. It bounds the memory of a request; how much of a text is read is `max_length`.
      **generation: the fields of `official.saving.generation_settings.Settings`, but for those of
        sampling.

    Returns:
      The file, the default signature, and the maximum length of its input.

    Raises:
      UserError: `model_dir` is not a model folder; an argument is out of range, or not supported
        for the format or the model; `output` exists; int8 moves the outputs by more than a
        quarter of their size.
      ModuleNotFoundError: the format is `onnx`, and tf2onnx is not installed.
    """
    if format not in FORMATS:
        raise UserError(f"--format={format}: the formats are {', '.join(FORMATS)}")
    if layout not in LAYOUTS:
        raise UserError(f"--layout={layout}: the layouts are {', '.join(LAYOUTS)}")
    if (right := LAYOUTS[layout]) not in (None, format):
        raise UserError(
            f"--layout={layout}: not supported for --format={format}: give --format={right}"
        )
    if format == "saved_model":
        from official.serving.export import saved_model

        signature, length = saved_model.export(
            model_dir, output, checkpoint, max_length, inputs, max_new_tokens, task, precision,
            max_bytes, **generation,
        )  # fmt: skip
        return Exported(os.fspath(output), signature, length)
    of_texts = {"inputs": inputs, "max_new_tokens": max_new_tokens, "max_bytes": max_bytes}
    for name, value in {**of_texts, **generation}.items():
        if value is not None:
            raise UserError(f"--{name}: not supported for --format={format}; remove it")
    common = (model_dir, output, checkpoint, max_length, task)
    if layout == "mediapipe":
        from official.serving.export import litert, mediapipe

        name, length, moved = mediapipe.export(*common, precision)
        return Exported(os.path.join(output, litert.FILE), name, length, moved)
    if format == "litert":
        from official.serving.export import litert

        length, moved = litert.export(*common, precision)
        return Exported(os.path.join(output, litert.FILE), "tokens", length, moved)
    if layout == "hub":
        from official.serving.export import hub

        file, outputs, length, moved = hub.export(*common, precision)
        return Exported(os.path.join(output, file), outputs[0], length, moved)
    if precision != "float32":
        raise UserError(
            f"--precision={precision}: --format=onnx has float32 only, and int8 with --layout=hub"
        )
    from official.serving.export import onnx

    names, length = onnx.export(*common)
    return Exported(os.path.join(output, onnx.FILE.format(names[0])), names[0], length)
