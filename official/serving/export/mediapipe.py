"""Exports a model folder as a file that MediaPipe's text tasks read: `--layout=mediapipe`.

TextClassifier loads a model of classes or of several labels, TextEmbedder one of vectors of texts.
`model.tflite` has all that they need:

  the graph       ids, mask and types int32 [1, L] to probabilities float32 [1, C] or a vector
                  float32 [1, S]
  metadata        a buffer `TFLITE_METADATA` with the parts of the schema of TFLite's metadata that
                  are named below: what the inputs and the output are, and the tokenizer
  vocab.txt       the pieces, and
  labels.txt      the labels, in a zip file behind the model

MediaPipe makes the row [CLS] text [SEP] by a WordPiece of its own, which always lower-cases A to Z,
no other letters, and removes no accents.

Shapes: L maximum length, C classes, S size of a vector.
"""

import io
import os
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import flatbuffers
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.tools import flatbuffer_utils

from official.serving.export import litert, saved_model
from official.serving.signatures import texts
from official.serving.signatures.inputs import TOKENS, ServingContext, Signature, signature
from official.tokenizers.pair_forms import RIGHT
from official.tokenizers.wordpiece import WordPiece
from official.utils import atomic
from official.utils.errors import UserError

VOCABULARY = "vocab.txt"
METADATA = "TFLITE_METADATA"
IDENTIFIER = b"M001"  # of the schema of the metadata
_PARSER = "1.1.0"  # the first version of the schema with tokenizers
_HEADS = ("classification", "multi_label")
_SPECIALS = {"unk_id": "[UNK]", "cls_id": "[CLS]", "sep_id": "[SEP]"}
# The inputs, as MediaPipe names them.
_INPUTS = {"input_word_ids": "ids", "input_mask": "mask", "input_type_ids": "segment_ids"}
_WAY_OUT = "remove --layout: the file then takes token ids"

# The slots of the tables of the schema, and the numbers of its types.
_NAME = 0  # of most tables
_SUBGRAPHS, _MIN_PARSER = 3, 7  # of the model
_OF_INPUTS, _OF_OUTPUTS, _INPUT_UNITS = 2, 3, 5  # of a subgraph
_CONTENT, _FILES = 3, 6  # of a tensor
_FILE_TYPE, _AXIS_LABELS, _PIECES = 2, 2, 5  # of a file
_FEATURE, _BERT_TOKENIZER = 1, 4  # of unions


def export(
    model_dir: str | os.PathLike,
    output: str | os.PathLike,
    checkpoint: str = "best",
    max_length: int | None = None,
    task: str | None = None,
    precision: str = "float32",
) -> tuple[str, int, float | None]:
    """Writes a folder with `model.tflite`; the arguments are those of `litert.export`.

    Returns:
      The name of the output, `probabilities` or `vectors`, the maximum length of the input, and of
      int8 what `int8_loss.share` returns.

    Raises:
      UserError: as in `litert.export`; no task of MediaPipe has the output of the model, or its
        tokenizer does not read texts as the model does.
    """
    litert.check(precision)
    context, kept = saved_model.restore_for_ids(model_dir, checkpoint, max_length, task, "litert")
    _check(context)
    files: dict[str, Sequence[str]] = {VOCABULARY: context.tokenizer.pieces}
    if context.head is not None:
        name, output_name, length = "tokens", "probabilities", context.max_length
        files[saved_model.LABELS] = context.labels
    elif texts.EMBED_TOKENS in kept:
        name, output_name = texts.EMBED_TOKENS, "vectors"
        length = context.embedding.max_length or context.max_length
    else:
        raise _refused(f"MediaPipe has no task for sparse vectors or late interaction; {_WAY_OUT}")
    server = tf.Module()
    server.weights = context.weights.module
    function = _of_one_row(kept[name], output_name, length)
    content = litert.converted(server, {name: function}, precision, "format")
    moved = litert.share_moved(context, {name: function}, content, precision)
    with atomic.folder(output, litert.FILE) as folder:
        (folder / litert.FILE).write_bytes(_packed(content, files))
    return output_name, length, moved


def _refused(reason: str) -> UserError:
    return UserError(f"--layout=mediapipe: {reason}")


def _check(context: ServingContext) -> None:
    """Raises UserError if MediaPipe has no task for a model, or reads texts in another way."""
    tokenizer, head = context.tokenizer, context.head
    if head is not None and head.config.type not in _HEADS:
        raise _refused(f"MediaPipe has no task for the head {head.config.type}; {_WAY_OUT}")
    if context.task.get("pair"):
        raise _refused(f"MediaPipe gives a model one text, and this one reads pairs; {_WAY_OUT}")
    if not isinstance(tokenizer, WordPiece):
        kind = type(tokenizer).__name__
        raise _refused(f"only WordPiece is packed, and this model has {kind}; {_WAY_OUT}")
    if not tokenizer.lower_case:
        raise _refused(
            f"MediaPipe lower-cases every text, and the vocabulary of this model is cased; "
            f"{_WAY_OUT}"
        )
    layout = context.config.encoder.text_layout
    names = [tokenizer.pieces[getattr(tokenizer, key)] for key in _SPECIALS]
    right = tokenizer.pairs.cut_side == RIGHT
    if layout != "cls_first" or names != list(_SPECIALS.values()) or not right:
        raise _refused(
            f"MediaPipe makes rows of [CLS], the beginning of a text and [SEP], and splits other "
            f"words to [UNK]: this model has other rows ({', '.join(names)}, {layout}); {_WAY_OUT}"
        )


def _of_one_row(function: Signature, output: str, length: int) -> Signature:
    """Returns a signature for one row [1, L], with one of its outputs."""
    specs = (tf.TensorSpec([1, length], tf.int32, name) for name in TOKENS)
    return signature(lambda *ids: {output: function(*ids)[output]}, *specs)


def _packed(content: bytes, files: Mapping[str, Sequence[str]]) -> bytes:
    """Returns a model with metadata, and files behind it.

    Args:
      content: the model, with one signature.
      files: the lines of each file by its name.
    """
    model = flatbuffer_utils.convert_bytearray_to_object(bytearray(content))
    (signature,) = model.signatureDefs
    names = {each.tensorIndex: each.name.decode() for each in signature.inputs}
    inputs = [_INPUTS[names[index]] for index in model.subgraphs[0].inputs]
    buffer, metadata = schema.BufferT(), schema.MetadataT()
    buffer.data = list(_described(inputs, saved_model.LABELS in files))
    metadata.name, metadata.buffer = METADATA.encode(), len(model.buffers)
    model.buffers.append(buffer)
    model.metadata = [*(model.metadata or ()), metadata]
    made = io.BytesIO()
    made.write(flatbuffer_utils.convert_object_to_bytearray(model))
    with zipfile.ZipFile(made, "a") as archive:
        for name, lines in files.items():
            # Not by its name alone, which would have the time of now.
            archive.writestr(zipfile.ZipInfo(name), "".join(f"{line}\n" for line in lines))
    return made.getvalue()


def _described(inputs: list[str], labels: bool) -> bytes:
    """Returns the metadata of a model.

    Args:
      inputs: the names of the inputs in the order of the file.
      labels: whether the output has labels.
    """
    feature: dict[int, Any] = {0: _FEATURE, 1: {}}  # the content of a tensor
    pieces = {_NAME: VOCABULARY, _FILE_TYPE: _PIECES}
    score: dict[int, Any] = {_NAME: "score" if labels else "embedding", _CONTENT: feature}
    if labels:
        score[_FILES] = [{_NAME: saved_model.LABELS, _FILE_TYPE: _AXIS_LABELS}]
    graph = {
        _OF_INPUTS: [{_NAME: name, _CONTENT: feature} for name in inputs],
        _OF_OUTPUTS: [score],
        _INPUT_UNITS: [{0: _BERT_TOKENIZER, 1: {0: [pieces]}}],
    }
    name = "TextClassifier" if labels else "TextEmbedder"
    builder = flatbuffers.Builder()
    builder.Finish(
        _written(builder, {_NAME: name, _SUBGRAPHS: [graph], _MIN_PARSER: _PARSER}), IDENTIFIER
    )
    return bytes(builder.Output())


def _written(builder: flatbuffers.Builder, value: str | list | dict[int, Any]) -> int:
    """Writes a value of a flatbuffer; returns where it is.

    Args:
      builder: takes it.
      value: a string, a vector of tables, or a table: its fields by their slots, where a number is
        one of 8 bits.
    """
    if isinstance(value, str):
        return builder.CreateString(value)
    if isinstance(value, list):
        places = [_written(builder, each) for each in value]
        builder.StartVector(4, len(places), 4)
        for place in reversed(places):
            builder.PrependUOffsetTRelative(place)
        return builder.EndVector()
    fields = {
        slot: each if isinstance(each, int) else _written(builder, each)
        for slot, each in value.items()
    }
    builder.StartObject(max(fields, default=-1) + 1)
    for slot, field in fields.items():
        if isinstance(value[slot], int):
            builder.PrependUint8Slot(slot, field, 0)
        else:
            builder.PrependUOffsetTRelativeSlot(slot, field, 0)
    return builder.EndObject()
