r"""Starts a student from some layers of its teacher.

  python -m official.commands.students --teacher=MODEL --layers=0,2,4,7,9,11 \
      --output=STUDENT

The student is a model folder, which `official.main --init=STUDENT` trains with the objective
`distillation`. It has the embeddings of the teacher, these layers and the output bias of masked LM.
The segment table is added to the position table, so that texts of one segment have the embeddings
that they have in the teacher. There is no pooler, and the hidden layer of masked LM is fresh.

An ELMo that reads a table of the words of its vocabulary, in the place of their characters:

  python -m official.commands.students --teacher=ELMO --word_table \
      --output=FASTER
"""

from absl import flags

from official.utils import atomic, command_line, errors

FLAGS = flags.FLAGS
_SEGMENTS = ("add", "drop", "keep")
_REQUIRED = ("teacher", "output")


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string("teacher", None, "Model folder of the teacher.")
    flags.DEFINE_string(
        "checkpoint", "best", "The teacher's checkpoint: best, last, a step or a path."
    )
    flags.DEFINE_list(
        "layers",
        None,
        "The teacher's layers that become those of the student, from 0. DistilBERT has "
        "0,2,4,7,9,11.",
    )
    flags.DEFINE_integer(
        "hidden", None, "The hidden size of the student, which is that of the teacher.", 1
    )
    flags.DEFINE_enum(
        "segments",
        _SEGMENTS[0],
        _SEGMENTS,
        "The segment table: add its first row to the position table, drop it (the release of "
        "DistilBERT), or keep it (DistilRoBERTa).",
    )
    flags.DEFINE_bool("keep_pooler", False, "Copy the pooler.")
    flags.DEFINE_bool("copy_transform", False, "Copy the hidden layer of masked LM.")
    flags.DEFINE_bool(
        "word_table",
        False,
        "Of an ELMo: keep all layers, and put a table of the vectors of the vocabulary's words in "
        "the place of the convolutions over characters. Other words are <UNK> then.",
    )
    flags.DEFINE_integer("seed", 0, "The seed of the fresh weights.", 0)
    flags.DEFINE_string("output", None, "Model folder to write. It must not exist.")


def main(argv: list[str]) -> None:
    """Writes the model folder of a student."""
    del argv
    errors.require(FLAGS, *_REQUIRED)
    atomic.check_new(FLAGS.output)
    if FLAGS.word_table:
        _write_word_table()
        return
    errors.require(FLAGS, "layers")
    from official.saving import derived_models, model_folder

    layers = derived_models.parse_layers(FLAGS.layers)
    config, tokenizer, model = model_folder.restore(FLAGS.teacher, FLAGS.checkpoint, finished=True)
    plan = derived_models.StudentPlan(
        layers=layers,
        hidden_size=FLAGS.hidden,
        segments=FLAGS.segments,
        pooler=FLAGS.keep_pooler,
        transform=FLAGS.copy_transform,
        seed=FLAGS.seed,
    )
    variables = {path: variable.numpy() for path, variable in model.variables_by_path().items()}
    student, arrays = derived_models.make_student(config, variables, plan, FLAGS.teacher)
    model_folder.write_new(student, tokenizer, arrays, FLAGS.output)
    count = sum(array.size for array in arrays.values())
    print(f"wrote {FLAGS.output}: {len(layers)} layers, {count:,} parameters")


def _write_word_table() -> None:
    """Writes an ELMo with a table of words."""
    from official.saving import derived_models, model_folder

    if FLAGS.layers:
        raise errors.UserError(
            "--layers: not supported with --word_table, which keeps all layers; remove it"
        )
    config, tokenizer, model = model_folder.restore(FLAGS.teacher, FLAGS.checkpoint)
    config, arrays = derived_models.with_word_table(config, tokenizer, model, FLAGS.teacher)
    model_folder.write_new(config, tokenizer, arrays, FLAGS.output)
    print(f"wrote {FLAGS.output}: a table of {len(tokenizer.pieces):,} words")


run = command_line.Command(main, define_flags, required=_REQUIRED)


if __name__ == "__main__":
    run()
