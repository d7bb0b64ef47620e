"""Exports a model: a SavedModel that takes raw text, or a model for LiteRT or ONNX Runtime.

  python -m official.export --model_dir=MODEL --output=SAVED_MODEL

With --format=litert it writes a model for LiteRT, and with --format=onnx one for ONNX Runtime. They
take token ids and need no TensorFlow. With --layout=hub the latter is a folder as the Hugging Face
hub has it, and with --layout=mediapipe the former has its tokenizer inside, for MediaPipe.

A server needs tensorflow and the ops of tensorflow_text, and nothing of this project. The inputs
are strings. Bytes that are not UTF-8 become U+FFFD. A text may have any length: longer texts than
the model's are cut as in training, and the contexts of questions are read in windows. The
signatures depend on the head of the model: see the table in `official.serving.signatures.table`.
`docs/serving.md` describes their inputs and outputs, with requests to TensorFlow Serving.
"""

from absl import flags

from official.commands import command_flags
from official.serving import PRECISIONS
from official.serving.export import exports
from official.utils import atomic, command_line, errors, flag_table, progress

INPUTS = ("single", "pair")

FLAGS = flags.FLAGS
_REQUIRED = ("model_dir", "output")


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string("model_dir", None, "The model folder.")
    flags.DEFINE_string("output", None, "Folder of the exported model. It must not exist.")
    flags.DEFINE_enum(
        "format",
        "saved_model",
        exports.FORMATS,
        "litert: the folder has model.tflite with the signature `tokens`, and the tokenizer. "
        "LiteRT (the package ai-edge-litert) runs it in a small part of TensorFlow's memory, with "
        "--precision=float32 or int8. onnx: tokens.onnx and the tokenizer, for ONNX Runtime.",
    )
    flags.DEFINE_enum(
        "layout",
        "signatures",
        list(exports.LAYOUTS),
        "With --format=onnx, hub: a folder as the Hugging Face hub has it, onnx/model.onnx with "
        "the inputs and outputs of transformers, config.json and tokenizer.json, which fastembed "
        "reads, and ONNX Runtime with the package tokenizers. With --format=litert, mediapipe: a "
        "model.tflite with the vocabulary and the labels inside, which MediaPipe's TextClassifier "
        "and TextEmbedder read. signatures: a file for each signature.",
    )
    flags.DEFINE_string("checkpoint", "best", "The checkpoint: best, last, a step or a path.")
    flags.DEFINE_integer(
        "max_length",
        None,
        "Texts are cut to this length. Default: the length of training.",
    )
    flags.DEFINE_enum(
        "inputs", None, INPUTS, "The inputs of serving_default. Default: as in training."
    )
    flags.DEFINE_string(
        "task",
        None,
        "The task to serve, for a model of several tasks. Of a model that generates text: a task "
        "of generation.json, whose settings are the defaults.",
    )
    flags.DEFINE_integer(
        "max_new_tokens",
        None,
        "The maximum number of new tokens of a model that generates text. Default: that of "
        "generation.json, or 64, or for a causal LM half of --max_length if that is less.",
    )
    flag_table.define(flag_table.prefixed(flag, ["generate"]) for flag in command_flags.SEARCH)
    flags.DEFINE_enum(
        "precision",
        "float32",
        PRECISIONS,
        "bfloat16: the encoder is stored and computes in bfloat16. It has half the size and is "
        "faster on CPUs with bfloat16 products. int8: the encoder's matrices are stored in 8 bits "
        "and multiplied as integers, and activations are rounded per row. It has a quarter of the "
        "size and is the fastest on CPUs with VNNI. It needs TensorFlow's wheels for x86.",
    )
    command_flags.MAX_BYTES.define()
    flags.DEFINE_string(
        "data",
        None,
        "Shards of the task. Prints the metrics of the validation split in float32 and in the "
        "precision of the export. Default: no metrics.",
    )


def main(argv: list[str]) -> None:
    """Exports --model_dir."""
    del argv
    errors.require(FLAGS, *_REQUIRED)
    atomic.check_new(FLAGS.output)
    if FLAGS.data:
        if FLAGS.format != "saved_model":
            raise errors.UserError(f"--data: not supported for --format={FLAGS.format}; remove it")
        from official.serving.compute import precision

        precision.check_data(FLAGS.model_dir, FLAGS.data, FLAGS.task)
    with progress.signs(f"exporting {FLAGS.model_dir}", progress.say):
        exported = exports.export(
            FLAGS.model_dir,
            FLAGS.output,
            format=FLAGS.format,
            layout=FLAGS.layout,
            checkpoint=FLAGS.checkpoint,
            max_length=FLAGS.max_length,
            inputs=FLAGS.inputs,
            max_new_tokens=FLAGS.max_new_tokens,
            task=FLAGS.task,
            precision=FLAGS.precision,
            max_bytes=FLAGS.max_bytes,
            **command_flags.given_values(
                flag_table.Values(command_flags.SEARCH, FLAGS), command_flags.SEARCH
            ),
        )
    length = exported.max_length
    if exported.moved is not None:
        print(f"int8 moves the outputs by {exported.moved:.1%} of their size")
    if exports.LAYOUTS[FLAGS.layout]:
        print(f"wrote {exported.file}: {exported.signature} of rows of up to {length} tokens")
        return
    if FLAGS.format != "saved_model":
        print(f"wrote {exported.file}: `tokens` takes ids of rows of up to {length} tokens")
        return
    from official.saving import task_file
    from official.serving.signatures import table

    takes = table.described(exported.signature, task_file.read(FLAGS.model_dir))
    print(f"wrote {FLAGS.output}: serving_default takes {takes} {length} tokens")
    if FLAGS.data:
        results = precision.compare_metrics(
            FLAGS.model_dir, FLAGS.data, FLAGS.precision, FLAGS.checkpoint, FLAGS.task
        )
        print(precision.report_table(results))


run = command_line.Command(main, define_flags, required=_REQUIRED, name="official.export")
