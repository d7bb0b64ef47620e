"""Prints the metrics of a TREC run, a baseline's or one that predict wrote.

  python -m official.score_run --qrels=qrels --run=test.run

They are those that `--mode=eval` prints, means over the queries of the run that are judged.
"""

from pathlib import Path

from absl import flags

from official import tasks
from official.tasks import trec
from official.utils import errors
from official.utils.errors import UserError

FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_string("qrels", None, "What is relevant, in TREC's format.")
    flags.DEFINE_string("run", None, "The run, in TREC's format.")
    flags.DEFINE_list("metrics", None, "Metrics of a ranking. Default: all.")


def score(qrels: Path, run: Path, metrics: tuple[str, ...] = ()) -> tuple[dict[str, float], int]:
    """Computes metrics of a run.

    Returns:
      The metrics by name, and over how many queries they are means.

    Raises:
      UserError: a file that cannot be read, an unknown metric, no judged query.
    """
    from official.evaluation import ranking_metrics

    found, known = trec.read_run(run), trec.read_qrels(qrels)
    judged = {query: known[query] for query in found if query in known}
    if not judged:
        raise UserError(f"{run}: {qrels} judges none of its {len(found):,} queries")
    metrics = ranking_metrics.compute(metrics or tasks.METRICS["ranking"], judged, found)
    return metrics, len(judged)


def main(argv: list[str]) -> None:
    """Scores what the flags name."""
    del argv
    errors.require(FLAGS, "qrels", "run")
    metrics, queries = score(Path(FLAGS.qrels), Path(FLAGS.run), tuple(FLAGS.metrics or ()))
    print(f"{'queries':24} {queries}")
    for name, value in metrics.items():
        print(f"{name:24} {value:.6f}")


if __name__ == "__main__":
    define_flags()
    errors.run(main)
