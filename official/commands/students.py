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

Static vectors of the pieces of any encoder, as model2vec makes them: a text takes microseconds.

  python -m official.commands.students --teacher=MODEL --static \
      --dimensions=256 --output=STATIC
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
    flags.DEFINE_bool(
        "static",
        False,
        "Make static vectors: each piece is read alone, its vector is the mean of all states, and "
        "a text has the mean of the vectors of its pieces.",
    )
    flags.DEFINE_string(
        "dimensions",
        "256",
        "--static: the size of the vectors, which are the first principal components: a number; "
        "below 1, as many as keep this share of the variance; or all.",
    )
    flags.DEFINE_float(
        "sif_coefficient",
        1e-4,
        "--static: a; a piece with the probability p has the factor a / (a + p). 0 = none.",
        0,
    )
    flags.DEFINE_string(
        "frequencies",
        None,
        "--static: a file of texts in which pieces are counted: .jsonl, .tsv, .parquet, or one "
        "text a line. Without it, the places of pieces in the vocabulary say how frequent they "
        "are.",
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
    if FLAGS.static:
        _write_static()
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

    _refuse_layers("--word_table")
    config, tokenizer, model = model_folder.restore(FLAGS.teacher, FLAGS.checkpoint)
    config, arrays = derived_models.with_word_table(config, tokenizer, model, FLAGS.teacher)
    model_folder.write_new(config, tokenizer, arrays, FLAGS.output)
    print(f"wrote {FLAGS.output}: a table of {len(tokenizer.pieces):,} words")


def _write_static() -> None:
    """Writes a model of static vectors."""
    from official.saving import model_folder, static_vectors
    from official.serving import loaded_model
    from official.tasks import text_files
    from official.utils import strict

    _refuse_layers("--static")
    model = loaded_model.load(FLAGS.teacher, FLAGS.checkpoint)
    texts = None
    if FLAGS.frequencies:
        texts = (text for _, text in text_files.texts_of(FLAGS.frequencies))
    student = static_vectors.make(
        model.embedder.pieces,
        model.config,
        model.tokenizer,
        static_vectors.parse(FLAGS.dimensions),
        FLAGS.sif_coefficient,
        texts,
    )
    model_folder.write_new(
        student.config,
        model.tokenizer,
        {static_vectors.TABLE: student.table},
        FLAGS.output,
        embedding=strict.to_dict(student.settings),
    )
    size = student.table.shape[1]
    print(
        f"wrote {FLAGS.output}: {student.pieces:,} pieces, vectors of {size} with "
        f"{student.share:.1%} of the variance"
    )


def _refuse_layers(flag: str) -> None:
    """Refuses --layers beside a flag that reads all layers."""
    if FLAGS.layers:
        raise errors.UserError(
            f"--layers: not supported with {flag}, which keeps all layers; remove it"
        )


run = command_line.Command(main, define_flags, required=_REQUIRED)


if __name__ == "__main__":
    run()
