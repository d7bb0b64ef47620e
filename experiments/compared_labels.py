r"""Makes labels of rows that are compared with each other of the scores that a model gave them.

  python -m experiments.compared_labels --input=run/qnli --split=validation \
      --scores=new.run [--threshold=0.5] [--output=labels.tsv] [--submission=GLUE]

--input is a folder of `experiments.compared_rows`, and --scores a run: what `--mode=predict` or
`experiments.candidate_lm` writes for the split. Of the rows with one query, the first one with the
highest score gets the label of the best row, and all others get the other label. A row whose
document is the only one of its query gets it if its score is above --threshold. A row without a
query is never the best one.

Prints the accuracy of all rows and that of the rows that are compared with others, if the labels
are known.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags

from experiments.compared_rows import TASK
from official import tasks
from official.tasks import trec
from official.utils import atomic, command_line, errors, paths
from official.utils.errors import UserError

FLAGS = flags.FLAGS
_REQUIRED = ("input", "scores")


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string("input", None, "Folder of experiments.compared_rows.")
    flags.DEFINE_string("split", "validation", "The split that was scored.")
    flags.DEFINE_string("scores", None, "The run with the scores.")
    flags.DEFINE_float(
        "threshold", 0.0, "The score above which the only document of a query is the best one."
    )
    flags.DEFINE_string("output", None, "The .tsv file to write, with row, label and score.")
    flags.DEFINE_string("submission", None, "Folder for a file in the format of GLUE.")


def best_rows(rows: Sequence[Mapping[str, Any]], run: trec.Run, threshold: float) -> list[bool]:
    """Returns whether each row is the best one of its query.

    Args:
      rows: the records of `rows-SPLIT.jsonl`.
      run: the score of each document of each query.
      threshold: the score above which the only document of a query is the best one.

    Raises:
      UserError: a row has no score.
    """
    for row in rows:
        if "query" in row and row["document"] not in run.get(row["query"], {}):
            raise UserError(
                f"--scores: row {row['row']}, the document {row['document']} of "
                f"{row['query']}, has no score: write the run of the whole split, without --top_k"
            )
    first: dict[tuple[str, str], int] = {}  # the same two texts may stand in several rows
    for number, row in enumerate(rows):
        if "query" in row:
            first.setdefault((row["query"], row["document"]), number)
    best = [False] * len(rows)
    for query, scores in run.items():
        document, score = trec.ordered(scores)[0]
        number = first.get((query, document), -1)
        if number >= 0 and (len(scores) > 1 or score > threshold):
            best[number] = True
    return best


def main(argv: list[str]) -> None:
    """Writes the labels and prints the accuracy."""
    del argv
    errors.require(FLAGS, *_REQUIRED)
    from official.evaluation import glue_submission

    folder = paths.path(FLAGS.input)
    path = folder / f"rows-{FLAGS.split}.jsonl"
    if not path.exists():
        raise UserError(f"there is no {path}: --split={FLAGS.split} is not in --input")
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    task = json.loads((folder / TASK).read_text("utf-8"))
    run = trec.read_run(paths.path(FLAGS.scores))
    best = best_rows(rows, run, FLAGS.threshold)
    right, other = task["labels"]
    if FLAGS.output:
        paths.check_suffix(FLAGS.output, "labels", (".tsv",))
        with atomic.file(FLAGS.output) as stream:
            stream.write("row\tlabel\tscore\n")
            for row, chosen in zip(rows, best, strict=True):
                score = run[row["query"]][row["document"]] if "query" in row else ""
                stream.write(f"{row['row']}\t{right if chosen else other}\t{score}\n")
    if FLAGS.submission:
        glue_submission.check(task["name"], FLAGS.split)
        labels = tasks.find(task["name"]).labels
        classes = [labels.index(right if chosen else other) for chosen in best]
        numbers = np.array([row["row"] for row in rows])
        outputs = {"probabilities": np.eye(2)[classes]}
        glue_submission.write(FLAGS.submission, task["name"], FLAGS.split, numbers, outputs)
    if all(row["label"] is not None for row in rows):
        hits = [(row["label"] == right) == chosen for row, chosen in zip(rows, best, strict=True)]
        among = [h for h, r in zip(hits, rows, strict=True) if len(run.get(r.get("query"), ())) > 1]
        print(f"accuracy {np.mean(hits):.4f} of {len(hits):,} rows")
        print(f"accuracy {np.mean(among or [0]):.4f} of {len(among):,} that are compared")


run = command_line.Command(main, define_flags, required=_REQUIRED)


if __name__ == "__main__":
    run()
