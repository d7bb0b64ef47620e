r"""Prints exact match and F1 of answers to questions, of a baseline or of predictions.

  python -m official.commands.score_answers --data=SHARDS \
      --answers=ANSWERS/predictions.json --null_odds=ANSWERS/null_odds.json

The files have the format of SQuAD's released evaluation: a JSON object with the id of each
question. The metrics are those of this evaluation (`official.evaluation.squad_metrics`), in percent
as it prints them; thresholds are not. `--mode=eval` has fractions. Answers are compared as the
shards say (`build_task_shards --answers`), or as `--answer_rule` says:

  python -m official.commands.score_answers --data=SHARDS \
      --answers=predictions.json \
      --answer_rule=mlqa:hi
"""

from absl import flags

from official.tasks import answer_rules
from official.utils import command_line, errors, paths

FLAGS = flags.FLAGS
_REQUIRED = ("data", "answers")


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string("data", None, "Folder of shards, made with --task=squad1 or squad2.")
    flags.DEFINE_string("split", "validation", "The split of the questions.")
    flags.DEFINE_string("answers", None, 'JSON: {"id": "answer", ...}, "" = no answer.')
    flags.DEFINE_string(
        "null_odds", None, "squad2, JSON: the score of having no answer, by the id of the question."
    )
    flags.DEFINE_float(
        "threshold", 1.0, "squad2: questions with higher null odds count as not answered."
    )
    flags.DEFINE_enum(
        "answer_rule",
        None,
        list(answer_rules.RULES),
        "How exact match and F1 compare answers: as the evaluation of SQuAD (of English), MLQA "
        "(mlqa: and the language), KorQuAD 1.0 or CMRC 2018 does, or by characters. Default: as "
        "the shards were made.",
    )


def main(argv: list[str]) -> None:
    """Prints the metrics of --answers."""
    del argv
    errors.require(FLAGS, *_REQUIRED)
    from official.evaluation import squad_metrics

    odds = paths.path(FLAGS.null_odds) if FLAGS.null_odds else None
    metrics, count, rule = squad_metrics.score_file(
        paths.path(FLAGS.data),
        FLAGS.split,
        paths.path(FLAGS.answers),
        odds,
        FLAGS.threshold,
        FLAGS.answer_rule,
    )
    print(f"{'rule':28} {rule}")
    print(f"{'questions':28} {count}")
    for name, value in squad_metrics.percentages(metrics).items():
        print(f"{name:28} {value:.6f}")


run = command_line.Command(main, define_flags, required=_REQUIRED)


if __name__ == "__main__":
    run()
