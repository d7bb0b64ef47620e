"""Flags of rankings."""

from collections.abc import Collection

from absl import flags

from official import tasks
from official.tasks import Task
from official.utils import paths
from official.utils.errors import UserError
from official.utils.flag_table import Flag
from tfrecords_tools.tasks.plans import labelled_text

NEGATIVES = 4  # the triples of each relevant document
LIST_LABELS = ("grades", "scores")
FLAGS = (
    Flag("queries", str, None, "ranking: file with the columns id and text of the queries"),
    Flag("documents", str, None, "ranking: file with the columns id and text of the documents"),
    Flag("qrels", str, None, "ranking: relevance judgments in TREC's format"),
    Flag(
        "negatives",
        int,
        NEGATIVES,
        "ranking: number of triples of each relevant document, or of lists with it",
        least=1,
    ),
    Flag(
        "list_size",
        int,
        None,
        "ranking: learn from lists of up to so many documents with their grades; default: triples",
        least=2,
    ),
    Flag(
        "list_labels",
        str,
        LIST_LABELS[0],
        "ranking: grades of lists: those of --qrels, or the scores of --train_file, as of a "
        "teacher",
        values=LIST_LABELS,
    ),
)


def plan(options: flags.FlagValues, splits: Collection[str]) -> Task:
    """Returns the ranking task of splits that have files.

    Raises:
      UserError: a file is not named, or columns are.
    """
    for name in ("queries", "documents"):
        if not options[name].value:
            raise UserError(f"--task=ranking needs --{name}, the file with their ids and texts")
    for flag in labelled_text.COLUMNS:
        if flag.name not in ("metrics", "header") and options[flag.name].present:
            raise UserError(
                f"--{flag.name} is not for --task=ranking: its files have the columns id and text"
            )
    task = tasks.ranking(options.metrics or ())
    if not splits:
        raise UserError(
            "--task=ranking needs TREC runs with the candidates: --train_file, "
            "--validation_file, --test_file"
        )
    if options.list_labels == "scores":
        if not options.list_size:
            raise UserError("--list_labels=scores needs --list_size: triples have no scores")
    elif "train" in splits and not options.qrels:
        raise UserError("--qrels is missing: training needs to know what is relevant")
    return task


def check_files(options: flags.FlagValues) -> None:
    """Raises UserError if a file of texts or of judgments is missing."""
    for name in ("queries", "documents", "qrels"):
        path = paths.join(options.input, options[name].value or "")
        if not path.exists():
            raise UserError(f"--{name}: there is no file {path}")
