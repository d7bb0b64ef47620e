"""Fine-tuning tasks: their files, columns, labels and metrics, in one table.

A named task is one entry of `TASKS`. Anything else is `generic("classification", ...)` or
`generic("regression", ...)`, whose columns, labels and files the user gives, or `ranking()`. A task
of the kind "span" asks questions whose answers are parts of a text; its files have SQuAD's form.
One of the kind "choice" asks which of several choices is the right one; `choice()` is the one of
JSON Lines.
"""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping

from official.errors import UserError

# What a file can be for: beside the usual three, MNLI's texts of genres that training has not seen.
SPLITS = ("train", "validation", "validation_mismatched", "test", "test_mismatched")

# What official.training.task_metrics (ranking_metrics) can compute for each kind of task; the first
# is the default.
METRICS = {
    "classification": ("accuracy", "f1", "matthews_correlation"),
    "regression": ("pearson", "spearman"),
    "ranking": ("ndcg_20", "err_20", "mrr", "map"),
    "span": ("f1", "exact_match", "best_f1", "best_exact_match"),
    "choice": ("accuracy",),
}
# The kinds of which a user can make a task, by naming columns.
GENERIC = ("classification", "regression")
# What choices are called, in this order.
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclasses.dataclass(frozen=True)
class Columns:
    """Where a file keeps what a task needs: names from its header line, or indices from "0".

    Attributes:
      text: the column of the text, or of the first text of a pair.
      text_pair: the column of the second text; None for tasks on single texts.
      label: the column of the label or score; None where the file has none.
      header: whether the first line of the file names the columns.
      title: a column whose text stands before that of `text`, with a blank between them.
    """

    text: str
    text_pair: str | None = None
    label: str | None = None
    header: bool = True
    title: str | None = None


@dataclasses.dataclass(frozen=True)
class Submission:
    """The file in which GLUE takes the predictions of a test split.

    Attributes:
      file: its name.
      rows: how many there are to predict.
    """

    file: str
    rows: int


@dataclasses.dataclass(frozen=True)
class Task:
    """One fine-tuning task.

    Attributes:
      name: what `--task` calls it.
      kind: "classification", "regression", "ranking", "span" or "choice".
      columns: the columns of every split but those in `split_columns`.
      labels: the names of the classes; the index is the id that the model learns. Empty for
        regression and ranking. Of a choice they are letters, one for each choice.
      values: what stands in the files for each of `labels`, where that is something else; a
        file may have the labels' names all the same.
      metrics: what is reported, the deciding one first.
      files: the file of each split.
      split_columns: the columns of splits that are laid out otherwise.
      format_columns: the columns of files in formats (of `tfrecords_tools.tables`) that name them,
        where the files as distributed do not.
      line_break: what stands for a line break in the texts as distributed; it is read as a blank.
      skipped: why rows of the files as distributed are left out and counted, in the words of
        `tfrecords_tools.tables`; not of a test file, each row of which is to be predicted.
      submissions: for GLUE's test splits, what the benchmark takes.
      no_answers: of spans, whether some questions have no answer in their text.
      blank: of a choice, whether a run of underscores in a question is the place of the choice,
        which otherwise stands behind the question.
    """

    name: str
    kind: str
    columns: Columns
    labels: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    split_columns: Mapping[str, Columns] = dataclasses.field(default_factory=dict)
    format_columns: Mapping[str, Columns] = dataclasses.field(default_factory=dict)
    line_break: str = ""
    skipped: tuple[str, ...] = ()
    submissions: Mapping[str, Submission] = dataclasses.field(default_factory=dict)
    no_answers: bool = False
    blank: bool = False

    def __post_init__(self) -> None:
        """Checks what the user of `generic` can get wrong."""
        if self.kind not in METRICS:
            raise UserError(f"a task is {' or '.join(METRICS)}, not {self.kind!r}")
        if self.kind == "regression" and self.labels:
            raise UserError("a regression task has scores and no labels: leave the labels out")
        for label in self.labels:
            if not label.strip() or label != label.strip() or set(label) & set("\t\r\n"):
                raise UserError(
                    f"{label!r} cannot be a label: a label has no tab, line break or outer space "
                    "and is not empty"
                )
            if self.labels.count(label) > 1:
                raise UserError(f"label {label!r} is named twice in {_listed(self.labels)}")
        if len(self.labels) == 1:
            raise UserError(
                f"one label ({self.labels[0]!r}) leaves nothing to tell apart: name two"
            )
        for metric in self.metrics:
            if metric not in METRICS[self.kind]:
                raise UserError(
                    f"{self.kind} has no metric {metric!r}{nearest(metric, METRICS[self.kind])}: "
                    f"its metrics are {_listed(METRICS[self.kind])}"
                )
        named = [c for c in dataclasses.astuple(self.columns)[:3] if c is not None]
        for column in named:
            if named.count(column) > 1:
                raise UserError(
                    f"column {column!r} is given twice: text, second text and label want a "
                    "column each"
                )
        object.__setattr__(self, "values", self.values or self.labels)
        object.__setattr__(self, "metrics", self.metrics or METRICS[self.kind][:1])

    def columns_of(self, split: str, format: str = "tsv") -> Columns:
        """The columns of the file of `split`, which is in the format given."""
        return self.split_columns.get(split, self.format_columns.get(format, self.columns))

    def description(self) -> dict:
        """What a manifest says of the task."""
        return {
            "name": self.name,
            "kind": self.kind,
            "pair": self.columns.text_pair is not None,
            "labels": list(self.labels),
            "values": list(self.values),
            "metrics": list(self.metrics),
            **({"no_answers": self.no_answers} if self.kind == "span" else {}),
            **({"blank": self.blank} if self.kind == "choice" else {}),
            "columns": {
                key: value
                for key, value in dataclasses.asdict(self.columns).items()
                if key != "header" and value is not None
            },
        }


def generic(
    kind: str,
    text: str,
    text_pair: str | None = None,
    label: str | None = None,
    labels: Iterable[str] = (),
    metrics: Iterable[str] = (),
    header: bool = True,
) -> Task:
    """A task that is not in the table.

    Raises:
      UserError: a label, a metric or a column that cannot be, in the words of `Task`.
    """
    if kind not in GENERIC:
        raise UserError(f"a task is {' or '.join((*GENERIC, 'ranking', 'choice'))}, not {kind!r}")
    default = METRICS["regression"] if kind == "regression" else ()
    return Task(
        name=kind,
        kind=kind,
        columns=Columns(text, text_pair, label, header),
        labels=tuple(labels),
        metrics=tuple(metrics) or default,
    )


def ranking(metrics: Iterable[str] = ()) -> Task:
    """The ranking of documents for queries.

    Raises:
      UserError: a metric that there is none of.
    """
    columns = Columns("query", "document")
    return Task("ranking", "ranking", columns, metrics=tuple(metrics) or METRICS["ranking"])


def choice() -> Task:
    """A choice task that is not in the table, from JSON Lines; its files say how many choices."""
    return Task("choice", "choice", Columns("context", "question", "answer"))


def find(name: str) -> Task:
    """The named task.

    Raises:
      UserError: there is none of that name.
    """
    if name in TASKS:
        return TASKS[name]
    known = (*TASKS, *GENERIC, "ranking", "choice")
    raise UserError(f"there is no task {name!r}{nearest(name, known)}: tasks are {_listed(known)}")


def nearest(name: str, known: Iterable[str]) -> str:
    """Words for a message: the member of `known` most like `name`, or nothing."""
    by_lower = {k.lower(): k for k in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f" (did you mean {by_lower[found[0]]!r}?)" if found else ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(n) for n in names)


def _glue(
    name: str, columns: Columns, labels: Mapping[str, str], metrics: str, *tests, **other
) -> Task:
    """A task of GLUE.

    Args:
      name: of the task.
      columns: of its files.
      labels: the values in the files and the names they get here; none for a regression.
      metrics: with blanks between them.
      *tests: file name and rows of what is submitted for each of the test splits.
      **other: attributes of `Task`.
    """
    files = {"train": "train.tsv", "validation": "dev.tsv", "test": "test.tsv"}
    return Task(
        name=name,
        kind="classification" if labels else "regression",
        columns=columns,
        labels=tuple(labels.values()),
        values=tuple(labels),
        metrics=tuple(metrics.split()),
        submissions={
            split: Submission(*test)
            for split, test in zip(("test", "test_mismatched"), tests, strict=False)
        },
        **{"files": files, **other},
    )


_DUPLICATES = {"0": "not_duplicate", "1": "duplicate"}
_TWO_WAYS = {label: label for label in ("entailment", "not_entailment")}
_THREE_WAYS = {label: label for label in ("entailment", "neutral", "contradiction")}


def _texts(
    name: str,
    columns: Columns,
    labels: Mapping[str, str],
    files: tuple[str, str],
    line_break: str = "",
) -> Task:
    """A classification of single texts, whose files in TSV or JSON Lines name their columns.

    Args:
      name: of the task.
      columns: of the files as distributed.
      labels: the values in the files and the names they get here; none: found in the train file.
      files: those of the train and the test split; none of these data sets has a third.
      line_break: as in `Task`.
    """
    named = Columns("text", None, "label")
    return Task(
        name=name,
        kind="classification",
        columns=columns,
        labels=tuple(labels.values()),
        values=tuple(labels),
        files=dict(zip(("train", "test"), files, strict=True)),
        format_columns={"tsv": named, "jsonl": named},
        line_break=line_break,
    )


_CSV = ("train.csv", "test.csv")
_TREC = ("train_5500.label", "TREC_10.label")
_TEXT = Columns("1", None, "0", header=False)  # class, text
_TITLE_TEXT = Columns("2", None, "0", header=False, title="1")  # class, title, text
_POLARITY = {"1": "negative", "2": "positive"}
_STARS = {str(n): f"{n} star{'' if n == 1 else 's'}" for n in range(1, 6)}
_DBPEDIA = (
    "Company EducationalInstitution Artist Athlete OfficeHolder MeanOfTransportation Building "
    "NaturalPlace Village Animal Plant Album Film WrittenWork"
)

# GLUE (Wang et al., 2018), from the files as distributed; metrics as the benchmark reports them.
# AX, its diagnostic set, is predicted with a model of MNLI. QQP's train file has questions with
# line breaks in them, which part the row, and empty ones.
TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _glue(
            "cola",
            Columns("3", None, "1", header=False),
            {"0": "unacceptable", "1": "acceptable"},
            "matthews_correlation accuracy",
            ("CoLA.tsv", 1063),
            split_columns={"test": Columns("sentence")},
        ),
        _glue(
            "sst2",
            Columns("sentence", None, "label"),
            {"0": "negative", "1": "positive"},
            "accuracy",
            ("SST-2.tsv", 1821),
        ),
        _glue(
            "mrpc",
            Columns("#1 String", "#2 String", "Quality"),
            {"0": "not_equivalent", "1": "equivalent"},
            "accuracy f1",
            ("MRPC.tsv", 1725),
        ),
        _glue(
            "stsb",
            Columns("sentence1", "sentence2", "score"),
            {},
            "pearson spearman",
            ("STS-B.tsv", 1379),
        ),
        _glue(
            "qqp",
            Columns("question1", "question2", "is_duplicate"),
            _DUPLICATES,
            "accuracy f1",
            ("QQP.tsv", 390_965),
            skipped=("wrong number of columns", "empty text"),
        ),
        _glue(
            "mnli",
            Columns("sentence1", "sentence2", "gold_label"),
            _THREE_WAYS,
            "accuracy",
            ("MNLI-m.tsv", 9796),
            ("MNLI-mm.tsv", 9847),
            files={
                "train": "train.tsv",
                "validation": "dev_matched.tsv",
                "validation_mismatched": "dev_mismatched.tsv",
                "test": "test_matched.tsv",
                "test_mismatched": "test_mismatched.tsv",
            },
        ),
        _glue(
            "qnli",
            Columns("question", "sentence", "label"),
            _TWO_WAYS,
            "accuracy",
            ("QNLI.tsv", 5463),
        ),
        _glue(
            "rte",
            Columns("sentence1", "sentence2", "label"),
            _TWO_WAYS,
            "accuracy",
            ("RTE.tsv", 3000),
        ),
        _glue(
            "wnli",
            Columns("sentence1", "sentence2", "label"),
            {"0": "not_entailment", "1": "entailment"},
            "accuracy",
            ("WNLI.tsv", 146),
        ),
        _glue(
            "ax",
            Columns("sentence1", "sentence2"),
            _THREE_WAYS,
            "matthews_correlation",
            ("AX.tsv", 1104),
            files={"test": "diagnostic.tsv"},
        ),
        # Maas et al., 2011: a folder of texts for each label.
        _texts(
            "imdb",
            Columns("text", None, "label"),
            {"0": "neg", "1": "pos"},
            ("train", "test"),
            "<br />",
        ),
        # Zhang et al., 2015: CSV without a header, line breaks written as backslash and n; in AG
        # News they are a backslash alone.
        _texts(
            "ag_news",
            _TITLE_TEXT,
            {"1": "World", "2": "Sports", "3": "Business", "4": "Sci/Tech"},
            _CSV,
            "\\",
        ),
        _texts(
            "dbpedia",
            _TITLE_TEXT,
            {str(i): name for i, name in enumerate(_DBPEDIA.split(), 1)},
            _CSV,
            r"\n",
        ),
        _texts("yelp_polarity", _TEXT, _POLARITY, _CSV, r"\n"),
        _texts("yelp_full", _TEXT, _STARS, _CSV, r"\n"),
        _texts("amazon_polarity", _TITLE_TEXT, _POLARITY, _CSV, r"\n"),
        _texts("amazon_full", _TITLE_TEXT, _STARS, _CSV, r"\n"),
        # Li and Roth, 2002: six kinds of questions, and fifty.
        _texts(
            "trec",
            Columns("text", None, "label"),
            {
                "ABBR": "abbreviation",
                "DESC": "description",
                "ENTY": "entity",
                "HUM": "human",
                "LOC": "location",
                "NUM": "numeric",
            },
            _TREC,
        ),
        _texts("trec_fine", Columns("text", None, "fine_label"), {}, _TREC),
        # Questions and the spans that answer them (Rajpurkar et al., 2016; 2018).
        Task(
            name="squad1",
            kind="span",
            columns=Columns("question", "context", "answers"),
            metrics=("f1", "exact_match"),
            files={"train": "train-v1.1.json", "validation": "dev-v1.1.json"},
        ),
        Task(
            name="squad2",
            kind="span",
            columns=Columns("question", "context", "answers"),
            metrics=METRICS["span"][2:] + METRICS["span"][:2],
            files={"train": "train-v2.0.json", "validation": "dev-v2.0.json"},
            no_answers=True,
        ),
        # Examinations with an article and four choices (Lai et al., 2017): a folder of articles.
        Task(
            name="race",
            kind="choice",
            columns=Columns("article", "question", "answer"),
            labels=tuple("ABCD"),
            files={"train": "train", "validation": "dev", "test": "test"},
            blank=True,
        ),
        # What happens next, four endings (Zellers et al., 2018); the test file has no answers.
        Task(
            name="swag",
            kind="choice",
            columns=Columns("sent1", "sent2", "label"),
            labels=tuple("ABCD"),
            values=tuple("0123"),
            files={"train": "train.csv", "validation": "val.csv", "test": "test.csv"},
        ),
        # Examinations with a dialogue and three choices (Sun et al., 2019).
        Task(
            name="dream",
            kind="choice",
            columns=Columns("dialogue", "question", "answer"),
            labels=tuple("ABC"),
            files={"train": "train.json", "validation": "dev.json", "test": "test.json"},
            blank=True,
        ),
    )
}
