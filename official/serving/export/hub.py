"""Exports a model folder as ONNX in the layout of the Hugging Face hub: `--layout=hub`.

The graph has the names of transformers, so that what reads folders of the hub reads it: ONNX
Runtime and OpenVINO with the package `tokenizers`, and fastembed. Its files have the names that
transformers.js and sentence-transformers look for. All but the graph are the
files of `official.conversion.huggingface`, without its weights:

  onnx/model.onnx                         the graph; in int8 onnx/model_quantized.onnx
  config.json                             with the labels
  tokenizer.json, tokenizer_config.json   with the length at which texts are cut
  special_tokens_map.json
  modules.json, 1_Pooling/config.json     of vectors of texts, with what they name

The inputs are `input_ids` and `attention_mask`, int64 [B, T], and `token_type_ids` where the
tokenizer in transformers gives types. The outputs, float32:

| model | outputs |
|---|---|
| classification, multi_label | logits [B, C] |
| regression, ranking | logits [B, 1]; of a ranking without its sigmoid |
| multiple_choice, whose inputs are [B, K, T] | logits [B, K] |
| token_classification | logits [B, T, C] |
| span_answer | start_logits, end_logits [B, T] |
| masked_lm | logits [B, T, V] |
| vectors of texts | last_hidden_state [B, T, D], sentence_embedding [B, S] |
| an encoder alone | last_hidden_state [B, T, D] |

A row gives the same whatever padding follows it, and in systems that count positions from the
padding (RoBERTa, MPNet) also whatever padding stands before it.

Shapes: B batch, T tokens of the longest row, K choices, C classes, V vocabulary, D hidden, S size
of a vector.
"""

import dataclasses
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from official.config.parts import ObjectiveConfig
from official.conversion import huggingface, tokenizer_files
from official.conversion.any_folder import open_folder
from official.conversion.sentence_transformers.sentence_transformer import SentenceTransformer
from official.saving import embedding_settings, text_vectors
from official.saving.model_folder import ModelFolder
from official.serving.export import int8_loss, onnx, onnx_int8, saved_model
from official.serving.generation import generator
from official.serving.signatures.inputs import ServingContext, Signature, signature
from official.tokenizers import file_formats, tokenizer_json
from official.tokenizers.wordpiece import WordPiece
from official.utils import atomic, json_files
from official.utils.errors import UserError
from official.utils.paths import AnyPath

FOLDER = "onnx"
FILES = {"float32": "model.onnx", "int8": "model_quantized.onnx"}
SPECIALS = "special_tokens_map.json"
# The fields of a batch by the inputs of transformers.
_FIELDS = {
    "input_ids": "token_ids",
    "attention_mask": "padding_mask",
    "token_type_ids": "segment_ids",
}
# The names of the axes of the inputs, by their number.
_AXES = {
    2: ("batch_size", "sequence_length"),
    3: ("batch_size", "num_choices", "sequence_length"),
}
_TOKENS = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
_WAY_OUT = "remove --layout: the files then have the inputs and outputs of this project"

Tensors = dict[str, tf.Tensor]


def export(
    model_dir: str | os.PathLike,
    output: str | os.PathLike,
    checkpoint: str = "best",
    max_length: int | None = None,
    task: str | None = None,
    precision: str = "float32",
) -> tuple[str, tuple[str, ...], int, float | None]:
    """Writes a folder as the hub has it; the arguments are those of `saved_model.export`.

    `precision` is one of `FILES`.

    Returns:
      The file of the graph in `output`, the names of its outputs, the maximum length of its input,
      and of int8 what `int8_loss.share` returns.

    Raises:
      UserError: as in `saved_model.export`; transformers has no class or no `tokenizer.json` for
        the model; ONNX lacks an operation of it; the graph would be larger than 2 GiB; int8
        moves the outputs by more than `int8_loss.LARGEST`.
      ModuleNotFoundError: tf2onnx is not installed.
    """
    import tf2onnx  # noqa: F401  (of the extra `onnx`; missed before any work is done)

    if precision not in FILES:
        raise UserError(f"--precision={precision}: --layout=hub has {' and '.join(FILES)}")
    folder = open_folder(model_dir, checkpoint)
    if folder.config.encoder.pools_texts:
        raise _refused(
            "static vectors are a table: `official.convert --target=hf` writes them as "
            "model2vec does, for sentence-transformers"
        )
    context, *_ = saved_model.restore(model_dir, checkpoint, max_length, task=task, groups=False)
    onnx.check(context)
    saved_model.warn_of_windows(context, "onnx")
    source, outputs = _described(folder, context)
    variables = context.model.variables_by_path()
    try:
        described = huggingface.Described.of(
            source, {path: np.asarray(value) for path, value in variables.items()}
        )
    except UserError as error:
        raise _refused(f"{error}; {_WAY_OUT}") from None
    function, moved = _function(context, described, outputs), None
    with atomic.folder(output, huggingface.CONFIG) as temporary:
        described.save(temporary)
        _save_special_tokens(temporary, context)
        _name_class(temporary, context, [spec.name for spec in function.input_signature])
        graph = onnx.converted(function, outputs.names, _AXES[outputs.rank])
        if precision == "int8":
            graph = onnx_int8.converted(graph)
            moved = int8_loss.share(context, function, onnx_int8.runner(graph), _FIELDS)
        (temporary / FOLDER).mkdir()
        (temporary / FOLDER / FILES[precision]).write_bytes(graph)
    return f"{FOLDER}/{FILES[precision]}", outputs.names, described.max_length, moved


def _refused(reason: str) -> UserError:
    return UserError(f"--layout=hub: {reason}")


class Outputs(NamedTuple):
    """What a model gives in the names of transformers.

    Attributes:
      names: the names of the outputs, in their order.
      of_batch: computes them from the fields of a batch.
      rank: the number of axes of the inputs.
    """

    names: tuple[str, ...]
    of_batch: Callable[[Tensors], Sequence[tf.Tensor]]
    rank: int = 2


def _described(folder: ModelFolder, context: ServingContext) -> tuple[ModelFolder, Outputs]:
    """Returns the folder with the only head that is exported, and the outputs.

    Raises:
      UserError: the model is of a kind that the readers of such folders do not have.
    """
    head, model = context.head, context.model
    kept: tuple[ObjectiveConfig, ...] = ()  # the heads that config.json describes
    outputs: Outputs
    source = dataclasses.replace(
        folder,
        config=context.config,
        max_length=context.max_length,
        embedding=context.embedding,
        has_embedding=folder.has_embedding and head is None,
    )
    if generator.objective(model) is not None:
        raise _refused(f"a model that generates text has several graphs there; {_WAY_OUT}")
    if head is not None:
        kept, outputs = (head.config,), _of_head(context)
    elif others := source.config.of_types("late_interaction", "sparse_embedding"):
        raise _refused(f"fastembed takes no model with {others[0].type} of one's own; {_WAY_OUT}")
    elif SentenceTransformer().is_of(source):
        learned = embedding_settings.objective_of(source.config)
        kept = () if learned is None else (learned,)
        outputs = Outputs(("last_hidden_state", "sentence_embedding"), _vectors(context))
    elif (masked_lm := model.objective("masked_lm")) is not None:
        kept, outputs = (masked_lm.config,), Outputs(("logits",), _words(context, masked_lm))
    else:
        outputs = Outputs(("last_hidden_state",), _states(context))
    config = dataclasses.replace(source.config, objectives=kept)
    return dataclasses.replace(source, config=config), outputs


def _of_head(context: ServingContext) -> Outputs:
    """Returns the outputs of the head of a task.

    Raises:
      UserError: the head is none of transformers.
    """
    head = context.task_head
    kind = head.config.type

    def pooled(batch):
        return [head.outputs(context.encode(batch))]

    def chosen(batch):
        shape = tf.shape(batch["token_ids"])
        rows = tf.stack([shape[0] * shape[1], shape[2]])
        flat = {name: tf.reshape(value, rows) for name, value in batch.items()}
        return [tf.reshape(pooled(flat)[0], shape[:2])]

    if kind in ("classification", "multi_label", "regression", "ranking"):
        return Outputs(("logits",), pooled)
    if kind == "multiple_choice":
        return Outputs(("logits",), chosen, rank=3)
    if kind == "token_classification":
        return Outputs(("logits",), lambda batch: [head.logits(context.encode(batch))])
    if kind == "span_answer" and head.config.form == "independent":
        return Outputs(
            ("start_logits", "end_logits"),
            lambda batch: head.boundary_logits(head.states(context.encode(batch))),
        )
    raise _refused(f"transformers has no output for the head {kind}; {_WAY_OUT}")


def _states(context: ServingContext) -> Callable[[Tensors], list[tf.Tensor]]:
    return lambda batch: [context.encode(batch)["sequence_output"]]


def _vectors(context: ServingContext) -> Callable[[Tensors], list[tf.Tensor]]:
    """Returns a function to the states and the vectors of texts, whose prompts are pooled too."""
    head = text_vectors.head_of_texts(context.model)
    text_vectors.size(context.config.encoder, context.embedding, head)  # is checked

    def of_batch(batch):
        encoded = context.encode(batch)
        states, real = encoded["sequence_output"], batch["padding_mask"]
        pooler = encoded.get("pooled_output")
        return [
            states,
            text_vectors.pooled(states, real, context.embedding, None, pooler, head),
        ]

    return of_batch


def _words(context: ServingContext, masked_lm: Any) -> Callable[[Tensors], list[tf.Tensor]]:
    """Returns a function to the scores of the vocabulary at each position."""
    encoder = context.model.encoder

    def of_batch(batch):
        with context.weights.read():
            states = masked_lm.states(batch, encoder)
            shape = tf.shape(states)
            logits = masked_lm.logits(tf.reshape(states, [-1, states.shape[-1]]), encoder)
        return [tf.reshape(logits, tf.stack([shape[0], shape[1], logits.shape[-1]]))]

    return of_batch


def _function(
    context: ServingContext, described: huggingface.Described, outputs: Outputs
) -> Signature:
    """Returns the graph as a function of the inputs of transformers."""
    read = tokenizer_files.input_names(context.tokenizer, context.config.encoder)
    names = [name for name in _FIELDS if name in read]
    counted = described.system.encoder.padded_positions

    def of_inputs(*given):
        batch = {
            _FIELDS[name]: tf.cast(value, tf.int32)
            for name, value in zip(names, given, strict=True)
        }
        mask = batch["padding_mask"]
        batch["padding_mask"] = tf.cast(mask, tf.bool)
        batch.setdefault("segment_ids", tf.zeros_like(mask))
        if counted:
            # The tables of these systems are as long as the rows, and rows may be padded to more.
            batch["positions"] = tf.maximum(tf.cumsum(mask, axis=-1) - 1, 0)
        values = [tf.cast(value, tf.float32) for value in outputs.of_batch(batch)]
        return dict(zip(outputs.names, values, strict=True))

    specs = (tf.TensorSpec([None] * outputs.rank, tf.int64, name) for name in names)
    return signature(of_inputs, *specs)


def _name_class(folder: AnyPath, context: ServingContext, inputs: Sequence[str]) -> None:
    """Names a class of tokenizers whose rows have types, where a model reads types.

    transformers.js follows `tokenizer.json` with any class, but gives types for some alone, and
    zeros for others. transformers 4 follows the file, too; for version 5 see `tokenizer_files`.
    """
    if "token_type_ids" in inputs and isinstance(context.tokenizer, WordPiece):
        file = folder / file_formats.SETTINGS_FILE
        settings = json_files.read(file) | {"tokenizer_class": "BertTokenizer"}
        file.write_text(json.dumps(settings, ensure_ascii=False, indent=2) + "\n", "utf-8")


def _save_special_tokens(folder: AnyPath, context: ServingContext) -> None:
    """Writes `special_tokens_map.json`.

    Raises:
      UserError: there is no `tokenizer.json`, or no token for padding.
    """
    if not (folder / tokenizer_json.FILE).exists():
        raise _refused(
            f"the tokenizer {type(context.tokenizer).__name__} of this model has no form in "
            f"{tokenizer_json.FILE}, which the readers of such a folder need; {_WAY_OUT}"
        )
    settings: Mapping[str, Any] = json_files.read(folder / file_formats.SETTINGS_FILE)
    tokens = {name: settings[name] for name in _TOKENS if settings.get(name) is not None}
    if "pad_token" not in tokens:
        raise _refused(f"the vocabulary has no token for padding; {_WAY_OUT}")
    (folder / SPECIALS).write_text(json.dumps(tokens, ensure_ascii=False, indent=2) + "\n", "utf-8")
