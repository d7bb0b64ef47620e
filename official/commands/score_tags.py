r"""Prints F1 of entities in a file of predictions, beside a file with the right ones.

  python -m official.commands.score_tags --gold=dev.conll \
      --predicted=predictions.conll
  python -m official.commands.score_tags --gold=dev.jsonl \
      --predicted=predictions.jsonl
  python -m official.commands.score_tags --gold=both.conll \
      --predicted=both.conll \
      --gold_column=1 --predicted_column=2

The files are CoNLL, CoNLL-U or JSON, as `build_task_shards --task=tagging` reads them and
`--mode=predict` writes them. Both have the same texts in the same order: words, or texts with
spans. The metrics are those of `--mode=eval`; `surface_f1` is the second figure of WNUT 2017: F1 of
the different surface forms (Derczynski et al., 2017).
"""

from absl import flags

from official.tasks import conllu
from official.utils import command_line, errors, paths

FLAGS = flags.FLAGS
_REQUIRED = ("gold", "predicted")


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string("gold", None, "The file with the right tags or spans.")
    flags.DEFINE_string("predicted", None, "The file with the predicted tags or spans.")
    flags.DEFINE_string("text_column", "0", "CoNLL: the index of the column of the word.")
    flags.DEFINE_string("gold_column", "-1", "CoNLL: the column of the tag in --gold; -1 = last.")
    flags.DEFINE_string("predicted_column", "-1", "CoNLL: the column of the tag in --predicted.")
    flags.DEFINE_enum(
        "multiword_tokens", conllu.WORDS, list(conllu.MULTIWORD),
        "CoNLL-U: what is read of words that stand as one in the text, as in build_task_shards.",
    )  # fmt: skip
    flags.DEFINE_list("labels", None, "JSON Lines: the names of tags that are numbers, from 0.")


def main(argv: list[str]) -> None:
    """Prints the metrics of --predicted."""
    del argv
    errors.require(FLAGS, *_REQUIRED)
    from official.evaluation import tags
    from official.tasks.task import Columns

    metrics, count = tags.score_files(
        paths.path(FLAGS.gold),
        paths.path(FLAGS.predicted),
        Columns(FLAGS.text_column, None, FLAGS.gold_column, header=False),
        Columns(FLAGS.text_column, None, FLAGS.predicted_column, header=False),
        FLAGS.labels or (),
        FLAGS.multiword_tokens,
    )
    print(f"{'texts':24} {count}")
    for name, value in metrics.items():
        print(f"{name:24} {value:.6f}")


run = command_line.Command(main, define_flags, required=_REQUIRED)


if __name__ == "__main__":
    run()
