r"""Writes by how much a ranker prefers the positive of a query to each of its negatives.

  python -m official.commands.teacher_margins --model_dir=RANKER \
      --input=triples.jsonl --output=margins.jsonl
  python -m tfrecords_tools.build_task_shards --task=embedding \
      --train_file=margins.jsonl --text_column=query \
      --text_pair_column=positive --negative_columns=negative \
      --label_column=margin ...

--input is what `official.commands.mine_negatives` writes. A line of the output has `query`,
`positive`, `negative` and `margin`, the score of the positive minus that of the negative, times
--scale. The loss `margin_mse` of `sentence_embedding` learns them. Vectors of the length 1 have
margins of at most 2, so --scale brings those of the teacher into that range.
"""

from absl import flags

from official.utils import command_line, errors, progress

FLAGS = flags.FLAGS
_REQUIRED = ("model_dir", "input", "output")


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string("model_dir", None, "Model folder of the ranker.")
    flags.DEFINE_string(
        "checkpoint", "best", "The checkpoint of --model_dir: best, last, a step or a path."
    )
    flags.DEFINE_string("input", None, "Pairs with negatives, .jsonl; it may be .gz.")
    flags.DEFINE_string("output", None, "The file to write, .jsonl.")
    flags.DEFINE_float("scale", 1.0, "The factor of the differences of scores.", lower_bound=0.0)


def main(argv: list[str]) -> None:
    """Writes the margins."""
    del argv
    errors.require(FLAGS, *_REQUIRED)
    from official.serving import loaded_model, teacher_margins

    teacher_margins.check_output(FLAGS.output)
    model = loaded_model.load(FLAGS.model_dir, FLAGS.checkpoint)
    margins = teacher_margins.write(model, FLAGS.input, FLAGS.output, FLAGS.scale, progress.say)
    print(
        f"{FLAGS.output}: {len(margins):,} negatives; mean margin {margins.mean():.4f}, standard "
        f"deviation {margins.std():.4f}; the teacher prefers {(margins < 0).mean():.1%} of the "
        "negatives to their positives"
    )


run = command_line.Command(main, define_flags, required=_REQUIRED)


if __name__ == "__main__":
    run()
