"""The tasks of GLUE (Wang et al., 2018), in the files as distributed.

The metrics are those of the benchmark. AX, its diagnostic set, is predicted with a model of MNLI.
"""

from collections.abc import Mapping

from official.tasks.task import Columns, Submission, Task


def _glue(
    name: str, columns: Columns, labels: Mapping[str, str], metrics: str, *tests, **other
) -> Task:
    """Returns a task of GLUE.

    Args:
      name: the name of the task.
      columns: the columns of its files.
      labels: the name of each label by its value in the files; empty for a regression.
      metrics: the names of the metrics, separated by blanks.
      *tests: file name and number of rows of the submission for each test split.
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

# QQP's train file has questions with line breaks, which split the row, and empty questions.
TASKS = (
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
)
