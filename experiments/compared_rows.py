r"""Makes a ranking of a classification of pairs whose rows are compared, not judged one by one.

  python -m experiments.compared_rows --task=qnli --best=entailment --input=QNLI \
      --output=run/qnli
  python -m experiments.compared_rows --task=wnli --best=entailment --pronouns \
      --input=WNLI --output=run/wnli

The rows of QNLI with the same question are compared: the question is a query, and the sentences are
its documents. With --pronouns a query is a sentence of WNLI with a blank in the place of a pronoun,
and the documents are the candidates for it that the clauses of the rows have (see
`experiments.pronouns_in_clauses`). To the candidates of each split but train those are added that
the rows of other files name for the same pronoun; of these only the texts are read.

The output has the files of a ranking, as those of `tfrecords_tools.build_ranking_data`, and
`rows-SPLIT.jsonl` with the query and the document of each row. `experiments.compared_labels` makes
labels of a run that a model has scored. --task=classification takes other files, whose columns
--columns names.
"""

import dataclasses
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from absl import flags

from official import tasks
from official.tasks import Task
from official.utils import atomic, command_line, errors, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from official.utils.text_lines import BadRows

FLAGS = flags.FLAGS
BLANK = "_"
TASK = "task.json"
_REQUIRED = ("best", "output")
_SPLITS = ("train", "validation", "test")
_ALL = 1 << 30  # more candidates than a query has


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of a file.

    Attributes:
      number: its number in the file.
      query: the text that rows which are compared share; None = the row is compared with none.
      document: the text that a model compares with those of the other rows.
      label: the label; None = unknown.
    """

    number: int
    query: str | None
    document: str
    label: str | None


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_string("task", "classification", "A task of official.tasks, or classification.")
    flags.DEFINE_list("columns", None, "Of a classification: both texts and the label.")
    flags.DEFINE_string("best", None, "The label that the best of the rows has.")
    flags.DEFINE_bool("pronouns", False, "Compare the candidates for a pronoun, as in WNLI.")
    flags.DEFINE_string("input", "", "Folder of the files.")
    for split in _SPLITS:
        flags.DEFINE_string(f"{split}_file", None, f"The {split} file; None = that of the task.")
    flags.DEFINE_string("output", None, "The folder to write.")
    flags.DEFINE_bool("skip_bad_rows", False, "Leave out rows that cannot be used, and count them.")


def compared(task: Task, best: str) -> tuple[str, str]:
    """Returns the label of the best row and that of the others.

    Raises:
      UserError: the task is no classification of pairs with these two labels.
    """
    if task.kind != "classification" or task.columns.text_pair is None:
        raise UserError(f"--task={task.name}: rows of two texts and a label are compared")
    if best not in task.labels or len(task.labels) != 2:
        raise UserError(
            f"--best={best}: rows that are compared have two labels, of which this is one; those "
            f"of {task.name} are {', '.join(task.labels)}"
        )
    return best, next(label for label in task.labels if label != best)


def read(task: Task, split: str, path: AnyPath, pronouns: bool, bad: BadRows) -> Iterator[Row]:
    """Yields the rows of a file.

    Args:
      task: the task, with its labels.
      split: the split of the file.
      path: the file.
      pronouns: whether to find the pronoun that the second text has a candidate for.
      bad: is called with rows that cannot be used.
    """
    from experiments import pronouns_in_clauses
    from tfrecords_tools.tasks import labelled_text

    for number, (first, second), label, _ in labelled_text.usable(task, split, path, None, bad):
        assert label is None or isinstance(label, int)
        name = None if label is None else task.labels[label]
        if not pronouns:
            yield Row(number, first, second, name)
        elif (found := pronouns_in_clauses.find(first, second)) is None:
            yield Row(number, None, second, name)
        else:
            sentence = first.replace(BLANK, " ")  # of the same length, with one blank alone
            query = f"{sentence[: found.start]}{BLANK}{sentence[found.end :]}"
            yield Row(number, query, found.candidate, name)


def write(
    rows: Mapping[str, Sequence[Row]],
    labels: tuple[str, str],
    name: str,
    folder: AnyPath,
    shared: bool = False,
) -> dict[str, int]:
    """Writes the files of the module.

    Args:
      rows: the rows of each split.
      labels: the label of the best row and that of the others.
      name: the name of the task.
      folder: the folder to write.
      shared: whether a query has the documents of the rows of all splits, except in training.

    Returns:
      The number of queries of each split.
    """
    from tfrecords_tools import build_ranking_data

    collection = build_ranking_data.Collection({}, {}, {})
    documents: dict[str, str] = {}
    for each in rows.values():
        for text in (row.document for row in each if row.query is not None):
            documents.setdefault(text, f"d{len(documents) + 1}")
    collection.documents = {identity: text for text, identity in documents.items()}
    records: dict[str, list[dict[str, Any]]] = {}
    for split, of_split in rows.items():
        queries: dict[str, str] = {}  # Other splits have others: theirs have other judgments.
        found: dict[str, list[str]] = {}
        records[split] = []
        for row in of_split:
            record: dict[str, Any] = {"row": row.number, "label": row.label}
            if row.query is not None:
                query = queries.setdefault(row.query, f"{split}-{len(queries) + 1}")
                document = documents[row.document]
                record |= {"query": query, "document": document}
                known = found.setdefault(query, [])
                if document not in known:
                    known.append(document)
                if row.label is not None:
                    grades = collection.qrels.setdefault(query, {})
                    grades[document] = max(grades.get(document, 0), int(row.label == labels[0]))
            records[split].append(record)
        if shared and split != "train":
            _add_others(queries, found, documents, itertools.chain(*rows.values()))
        collection.queries |= {identity: text for text, identity in queries.items()}
        collection.splits[split] = dict(found)
    sizes = build_ranking_data.write(collection, folder, _ALL)
    for split, lines in records.items():
        with atomic.file(folder / f"rows-{split}.jsonl") as stream:
            stream.writelines(f"{json.dumps(line)}\n" for line in lines)
    with atomic.file(folder / TASK) as stream:
        json.dump({"name": name, "labels": labels}, stream)
    return sizes


def _add_others(
    queries: Mapping[str, str],
    found: Mapping[str, list[str]],
    documents: Mapping[str, str],
    rows: Iterable[Row],
) -> None:
    """Adds the documents of other rows to those of each query, but for another case.

    Args:
      queries: text → id.
      found: query → its documents.
      documents: text → id.
      rows: the rows of all splits.
    """
    texts = {identity: text.lower() for text, identity in documents.items()}
    for row in rows:
        if row.query is not None and row.query in queries:
            known = found[queries[row.query]]
            if row.document.lower() not in {texts[identity] for identity in known}:
                known.append(documents[row.document])


def main(argv: list[str]) -> None:
    """Writes the files."""
    del argv
    errors.require(FLAGS, *_REQUIRED)
    from tfrecords_tools.tasks import labelled_text

    if FLAGS.task == "classification":
        if FLAGS.columns is None or len(FLAGS.columns) != 3:
            raise UserError("--columns: name both texts and the label, separated by commas")
        task = tasks.generic("classification", *FLAGS.columns)
    else:
        task = tasks.find(FLAGS.task)
    names = {split: getattr(FLAGS, f"{split}_file") for split in _SPLITS}
    files = {}
    for split, name in names.items():
        if name := (task.files.get(split) if name is None else name):
            files[split] = paths.join(FLAGS.input, name)
    for split, path in files.items():
        if not path.exists():
            raise UserError(f"there is no file {path}: name another one with --{split}_file")
    if not files:
        raise UserError("--train_file, --validation_file or --test_file is missing")
    if not task.labels:
        task = labelled_text.with_labels_of_train_file(task, files, None, FLAGS.skip_bad_rows)
    labels = compared(task, FLAGS.best)
    rows = {}
    for split, path in files.items():
        bad = BadRows(FLAGS.skip_bad_rows)
        rows[split] = list(read(task, split, path, FLAGS.pronouns, bad))
        without = sum(row.query is None for row in rows[split])
        print(
            f"{split}: {len(rows[split]):,} rows"
            + (f", {without:,} without a pronoun that is found" if FLAGS.pronouns else "")
            + (f"; left out: {bad}" if bad.counts else "")
        )
    sizes = write(rows, labels, task.name, paths.path(FLAGS.output), FLAGS.pronouns)
    print(
        f"{FLAGS.output}: " + ", ".join(f"{n:,} queries of {split}" for split, n in sizes.items())
    )


run = command_line.Command(main, define_flags, required=_REQUIRED)


if __name__ == "__main__":
    run()
