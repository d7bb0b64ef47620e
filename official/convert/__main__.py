"""Converts weights: `python -m official.convert --source=hf --input=DIR --output=DIR`.

`--source=hf|tf1|garden|elmo` makes a model folder from the files of another tool.
`--target=hf|elmo` converts a model folder:
`python -m official.convert --target=hf --input=MODEL_DIR --output=DIR`.
"""

from absl import flags

from official.utils import atomic, errors

FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_enum(
        "source",
        None,
        ["hf", "tf1", "garden", "elmo"],
        "The format of --input: files of Hugging Face (config.json, and "
        "model.safetensors, pytorch_model.bin or tf_model.h5), of a TF1 "
        "release (*.index, and bert_config.json, albert_config.json, xlnet_config.json or, for "
        "ELECTRA and T5, no config), of the TF Model Garden (a checkpoint of TF2's objects) "
        "or of ELMo (*options.json, *weights.hdf5).",
    )
    flags.DEFINE_enum(
        "target", None, ["hf", "elmo"], "The format of --output. --input is a model folder."
    )
    flags.DEFINE_string("input", None, "Folder to read.")
    flags.DEFINE_string("output", None, "Folder to write. It must not exist.")
    flags.DEFINE_string(
        "checkpoint", "best", "With --target, the checkpoint: best, last, a step or a path."
    )
    flags.DEFINE_string(
        "vocab",
        None,
        "With --source=elmo, the vocabulary of the language model, one word per line: <S>, </S>, "
        "<UNK>, then the others. Without it: words.txt of --input, or else these three alone. The "
        "encoder needs none.",
    )


def main(argv: list[str]) -> None:
    """Reads one folder and writes the other."""
    del argv
    if (FLAGS.source is None) == (FLAGS.target is None):
        raise errors.UserError("give either --source=hf|tf1|garden|elmo or --target=hf|elmo")
    errors.require(FLAGS, "input", "output")
    if FLAGS.vocab is not None and FLAGS.source != "elmo":
        raise errors.UserError(
            "--vocab: only supported with --source=elmo; other formats have a vocabulary: remove it"
        )
    atomic.check_new(FLAGS.output)
    if FLAGS.target:
        _write()
    else:
        _read()


def _write() -> None:
    """Writes a model folder in the format of `--target`."""
    if FLAGS.target == "elmo":
        from official.convert import elmo as writer
    else:
        from official.convert import huggingface as writer
    left_out = writer.write(FLAGS.input, FLAGS.output, FLAGS.checkpoint)
    print(f"wrote {FLAGS.output}")
    if left_out:
        print(f"not written, the format does not have them: {', '.join(left_out)}")


def _read() -> None:
    """Writes a model folder from files in the format of `--source`."""
    from official.convert import converted_model

    if FLAGS.source == "elmo":
        from official.convert import elmo

        converted = elmo.read(FLAGS.input, FLAGS.vocab)
    elif FLAGS.source == "hf":
        from official.convert import huggingface

        converted = huggingface.read(FLAGS.input)
    elif FLAGS.source == "garden":
        from official.convert import garden

        converted = garden.read(FLAGS.input)
    else:
        from official.convert import tf1

        converted = tf1.read(FLAGS.input)
    converted_model.write(converted, FLAGS.output)
    count = sum(variable.size for variable in converted.variables.values())
    print(f"wrote {FLAGS.output}: {len(converted.variables)} variables, {count:,} parameters")
    if converted.embedding:
        print(f"vectors of texts as in sentence-transformers: {converted.embedding.described()}")
    for note in converted.notes:
        print(note)
    masked = any(objective.type == "masked_lm" for objective in converted.config.objectives)
    if masked and converted.tokenizer.mask_id is None:
        print("the vocabulary has no mask token: the masked LM cannot fill masks or be trained")
    if spare := converted_model.spare_rows(converted):
        print(f"{spare} of the embedding table: no token has this id")
    if converted.leftover:
        print(f"not converted, this model does not have them: {', '.join(converted.leftover)}")
    if converted.settings_left_out:
        print(
            "not converted, settings of generation that are not supported: "
            f"{', '.join(converted.settings_left_out)}"
        )


run = errors.command(main, define_flags)


if __name__ == "__main__":
    run()
