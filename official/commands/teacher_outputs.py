r"""Writes the outputs of teachers for the shards of a task, so that they run only once.

  python -m official.commands.teacher_outputs --teacher=TUNED \
      --data=TASK_SHARDS --output=OUTPUTS

Students then learn from the outputs alone, without the memory and the time of a teacher:
`--override=objectives.distillation.cache=OUTPUTS`. The outputs are refused for other shards, and
for other teachers than those of the config.
"""

import functools

from absl import flags

from official.utils import command_line, errors

FLAGS = flags.FLAGS
_REQUIRED = ("teacher", "data")


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_list(
        "teacher", None, "Model folder of the teacher, or of several, separated by commas."
    )
    flags.DEFINE_string(
        "checkpoint", "best", "The teachers' checkpoint: best, last, a step or a path."
    )
    flags.DEFINE_string("data", None, "Shard folder of the task.")
    flags.DEFINE_list("split", ["train"], "The split, or several, separated by commas.")
    flags.DEFINE_integer("batch_size", 64, "Examples of a batch.", 1)
    flags.DEFINE_string(
        "output", None, "Folder to create. Default: that of --data with `-teacher` at the end."
    )


def main(argv: list[str]) -> None:
    """Writes the outputs."""
    del argv
    errors.require(FLAGS, *_REQUIRED)
    from official.evaluation import teacher_outputs

    output = FLAGS.output or teacher_outputs.default_output(FLAGS.data)
    teacher_outputs.write(
        FLAGS.teacher,
        FLAGS.data,
        FLAGS.split,
        output,
        checkpoint=FLAGS.checkpoint,
        batch_size=FLAGS.batch_size,
        report=functools.partial(print, flush=True),
    )
    print(f"wrote {output}")


run = command_line.Command(main, define_flags, required=_REQUIRED)


if __name__ == "__main__":
    run()
