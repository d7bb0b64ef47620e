"""Prints the metrics of a TREC run, of a baseline or of predictions.

  python -m official.commands.score_run --qrels=qrels --run=test.run

The metrics are those of `--mode=eval`: means over the judged queries of the run.
"""

from absl import flags

from official.utils import command_line, errors, paths

FLAGS = flags.FLAGS
_REQUIRED = ("qrels", "run")


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string("qrels", None, "The relevance judgments, in TREC's format.")
    flags.DEFINE_string("run", None, "The run, in TREC's format.")
    flags.DEFINE_list("metrics", None, "Metrics of a ranking. Default: all.")


def main(argv: list[str]) -> None:
    """Prints the metrics of --run."""
    del argv
    errors.require(FLAGS, *_REQUIRED)
    from official import tasks
    from official.evaluation import rankings

    names = FLAGS.metrics or tasks.METRICS["ranking"]
    metrics, queries = rankings.score_run(paths.path(FLAGS.qrels), paths.path(FLAGS.run), names)
    print(f"{'queries':24} {queries}")
    for name, value in metrics.items():
        print(f"{name:24} {value:.6f}")


run = command_line.Command(main, define_flags, required=_REQUIRED)


if __name__ == "__main__":
    run()
