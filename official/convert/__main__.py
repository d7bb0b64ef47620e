"""Converts weights: `python -m official.convert --source=hf|tf1 --input=DIR --output=DIR`.

`--source` makes a model folder from the files of another tool. `--target=hf` converts a model
folder: `python -m official.convert --target=hf --input=MODEL_DIR --output=DIR`.
"""

from absl import flags

from official.utils import errors

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_enum(
        "source",
        None,
        ["hf", "tf1"],
        "The format of --input: files of Hugging Face (config.json, model.safetensors) or of a TF1 "
        "release (*.index, and bert_config.json, albert_config.json, xlnet_config.json or, for "
        "ELECTRA and T5, no config).",
    )
    flags.DEFINE_enum("target", None, ["hf"], "The format of --output. --input is a model folder.")
    flags.DEFINE_string("input", None, "Folder to read.")
    flags.DEFINE_string("output", None, "Folder to write. It must not exist.")
    flags.DEFINE_string(
        "checkpoint", "best", "With --target, the checkpoint: best, last, a step or a path."
    )


def main(argv: list[str]) -> None:
    """Reads one folder and writes the other."""
    del argv
    if (FLAGS.source is None) == (FLAGS.target is None):
        raise errors.UserError("give either --source=hf, --source=tf1 or --target=hf")
    errors.require(FLAGS, "input", "output")
    if FLAGS.target:
        from official.convert import huggingface

        huggingface.write(FLAGS.input, FLAGS.output, FLAGS.checkpoint)
        print(f"wrote {FLAGS.output}")
        return
    from official.convert import converted_model

    if FLAGS.source == "hf":
        from official.convert import huggingface as reader
    else:
        from official.convert import tf1 as reader
    converted = reader.read(FLAGS.input)
    converted_model.write(converted, FLAGS.output)
    count = sum(variable.size for variable in converted.variables.values())
    print(f"wrote {FLAGS.output}: {len(converted.variables)} variables, {count:,} parameters")
    if converted.leftover:
        print(f"left out, nothing here has a place for them: {', '.join(converted.leftover)}")


def run() -> None:
    """Defines the flags and runs the command line."""
    define_flags()
    errors.run(main)


if __name__ == "__main__":
    run()
