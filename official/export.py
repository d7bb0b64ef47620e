"""Writes a SavedModel that takes raw text: `python -m official.export --model_dir= --output=`.

A server needs tensorflow and the ops of tensorflow_text, nothing of this project. What it takes is
text, any string; bytes that are not UTF-8 become U+FFFD. Text of any length is taken: longer than
the model's, it is cut as in training, and in questions a context is read in windows. Which
signatures there are depends on the model's head: `official.serving.signatures.table` has the table,
`docs/serving.md` says what they take and give, with requests to TensorFlow Serving.
"""

import os

import tensorflow as tf
from absl import flags

from official.modeling.layers import gradient
from official.saving import model_folder
from official.serving import precision_report
from official.serving.generator import why_not
from official.serving.precision import PRECISIONS, Weights
from official.serving.signatures import table as serving
from official.serving.signatures.inputs import Parts
from official.serving.task_head import with_one_head
from official.utils import atomic, errors
from official.utils.errors import UserError

INPUTS = ("single", "pair")

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_string("model_dir", None, "The model folder.")
    flags.DEFINE_string("output", None, "Folder of the SavedModel; must not be there.")
    flags.DEFINE_string("checkpoint", "best", "best, last, a step or a path.")
    flags.DEFINE_integer(
        "max_length", None, "Cut texts to this many tokens. Default: the length of training."
    )
    flags.DEFINE_enum(
        "inputs", None, INPUTS, "What serving_default takes. Default: what it was trained on."
    )
    flags.DEFINE_string("task", None, "Which head, of a model of several tasks.")
    flags.DEFINE_integer(
        "max_new_tokens",
        None,
        "The most tokens that a causal LM writes to a text. Default: 64, or half of its length.",
    )
    flags.DEFINE_enum(
        "precision",
        "float32",
        PRECISIONS,
        "bfloat16: the encoder's weights are stored and its products computed in it, half the size "
        "and faster where the CPU has bfloat16 products. int8: its matrices are stored in 8 bits "
        "and multiplied as integers, rows rounded when they come: a quarter of the size, the "
        "fastest where the CPU has VNNI; for TensorFlow's wheels for x86 alone.",
    )
    flags.DEFINE_string(
        "data",
        None,
        "Shards of the task: prints the figures of the validation split in float32 and in the "
        "precision of the export. Default: prints none.",
    )


def export(
    model_dir: str | os.PathLike,
    output: str | os.PathLike,
    checkpoint: str = "best",
    max_length: int | None = None,
    inputs: str | None = None,
    max_new_tokens: int | None = None,
    task: str | None = None,
    precision: str = "float32",
) -> tuple[str, int]:
    """Writes a SavedModel (see above).

    Returns:
      The signature that is `serving_default`, and the longest input in tokens.

    Raises:
      UserError: `model_dir` is no model folder, its labels have no names, `max_length` does not
        fit the model, or `max_new_tokens` that, `inputs` are given where there is no choice; `task`
        names no head, or none is named where there are several; this TensorFlow has no products of
        int8; or `output` is there already.
    """
    config, tokenizer, model = model_folder.restore(model_dir, checkpoint, precision)
    config = with_one_head(config, model, task)
    kind, head = serving.kind_of(config, model)
    about = model_folder.task(model_dir)
    about = about.get("tasks", {}).get(task, about)
    if inputs is not None and inputs not in kind.default:
        ((name, takes),) = kind.default.items()
        raise UserError(f"--inputs={inputs}: this model has `{name}`, of {takes}: leave it out")
    if inputs is None:
        inputs = (
            "pair" if about.get("pair") and "pair" in kind.default else next(iter(kind.default))
        )
    if max_length is None:
        max_length = model_folder.max_length(model_dir, config)
    most = config.encoder.max_positions
    if not 4 <= max_length <= most:
        raise UserError(
            f"--max_length={max_length}: must be from 4 to {most}, the positions of this encoder"
        )
    reason = why_not(model)
    if max_new_tokens is not None and reason:
        raise UserError(f"--max_new_tokens: {reason}")
    count = min(64, max_length // 2) if max_new_tokens is None else max_new_tokens
    if not 1 <= count < max_length:
        raise UserError(
            f"--max_new_tokens={count}: must be from 1 to {max_length - 1}, less than --max_length"
        )
    about = {**about, "pair": inputs == "pair"}
    weights = Weights([layer for layer in (model.encoder, head) if layer], precision)
    parts = Parts(config, tokenizer, model, weights, max_length, about, head)
    with atomic.folder(output) as temporary, gradient.left_out():
        server, signatures = serving.make(parts, kind, inputs, count)
        tf.saved_model.save(server, str(temporary), signatures=signatures)
    return inputs, max_length


def main(argv: list[str]) -> None:
    """Exports what the flags name."""
    del argv
    errors.require(FLAGS, "model_dir", "output")
    inputs, length = export(
        FLAGS.model_dir,
        FLAGS.output,
        FLAGS.checkpoint,
        FLAGS.max_length,
        FLAGS.inputs,
        FLAGS.max_new_tokens,
        FLAGS.task,
        FLAGS.precision,
    )
    kind = next(kind for kind in serving.KINDS.values() if inputs in kind.default)
    takes = kind.default[inputs]
    print(f"wrote {FLAGS.output}: serving_default takes {takes}, {kind.long} {length} tokens")
    if FLAGS.data:
        found = precision_report.compare(
            FLAGS.model_dir, FLAGS.data, FLAGS.precision, FLAGS.checkpoint, FLAGS.task
        )
        print(precision_report.table(found))


if __name__ == "__main__":
    define_flags()
    errors.run(main)
