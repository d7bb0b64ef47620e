"""Writes a SavedModel that takes raw text: `python -m official.export --model_dir= --output=`.

A server needs tensorflow and the ops of tensorflow_text, nothing of this project. What it takes is
text, any string; bytes that are not UTF-8 become U+FFFD. Text of any length is taken: longer than
the model's, it is cut as in training, and in questions a context is read in windows. Which
signatures there are depends on the model's head: `official.serving.signatures.table` has the table,
`docs/serving.md` says what they take and give, with requests to TensorFlow Serving.
"""

from absl import flags

from official.serving import PRECISIONS
from official.utils import errors

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
        "Shards of the task: prints the metrics of the validation split in float32 and in the "
        "precision of the export. Default: prints none.",
    )


def main(argv: list[str]) -> None:
    """Exports what the flags name."""
    del argv
    errors.require(FLAGS, "model_dir", "output")
    from official.serving import precision_report, saved_model
    from official.serving.signatures import table

    inputs, length = saved_model.export(
        FLAGS.model_dir,
        FLAGS.output,
        FLAGS.checkpoint,
        FLAGS.max_length,
        FLAGS.inputs,
        FLAGS.max_new_tokens,
        FLAGS.task,
        FLAGS.precision,
    )
    takes = table.described(inputs)
    print(f"wrote {FLAGS.output}: serving_default takes {takes} {length} tokens")
    if FLAGS.data:
        found = precision_report.compare(
            FLAGS.model_dir, FLAGS.data, FLAGS.precision, FLAGS.checkpoint, FLAGS.task
        )
        print(precision_report.table(found))


if __name__ == "__main__":
    define_flags()
    errors.run(main)
