"""The tasks with names: their files as distributed, their labels and their metrics.

`GLUE` has the benchmark's tasks (Wang et al., 2018) with its metrics; AX, its diagnostic set, is
predicted with a model of MNLI. `TEXTS` are classifications of single texts: reviews, news,
encyclopedia articles, questions. `READING` is reading comprehension, where the answer is a span of
a text, or one of several choices. `TAGGING` is named entities in CoNLL files.
"""

from collections.abc import Mapping

from official.tasks.kinds import METRICS
from official.tasks.task import Columns, Submission, Task

CONLL_COLUMNS = Columns("0", None, "-1", header=False)  # the word, and the tag


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
GLUE = (
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
        score_range=(0.0, 5.0),
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


def _texts(
    name: str,
    columns: Columns,
    labels: Mapping[str, str],
    files: tuple[str, str],
    line_break: str = "",
) -> Task:
    """Returns a classification task of single texts; TSV and JSON Lines files name their columns.

    Args:
      name: the name of the task.
      columns: the columns of the files as distributed.
      labels: the name of each label by its value in the files; empty = taken from the train file.
      files: the files of the train and the test split; these data sets have no others.
      line_break: see `Task`.
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

TEXTS = (
    # Maas et al., 2011: a folder of texts for each label.
    _texts(
        "imdb",
        Columns("text", None, "label"),
        {"0": "neg", "1": "pos"},
        ("train", "test"),
        "<br />",
    ),
    # Zhang et al., 2015: CSV without a header. A line break is a backslash and n, in AG News a
    # backslash alone.
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
)


READING = (
    # Questions, and the spans that answer them (Rajpurkar et al., 2016; 2018).
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


TAGGING = (
    # Tjong Kim Sang and De Meulder, 2003: word, part of speech, chunk, entity; IOB1.
    Task(
        name="conll2003",
        kind="tagging",
        columns=CONLL_COLUMNS,
        files={"train": "eng.train", "validation": "eng.testa", "test": "eng.testb"},
    ),
    # Derczynski et al., 2017: word, entity; BIO.
    Task(
        name="wnut17",
        kind="tagging",
        columns=CONLL_COLUMNS,
        files={"train": "train.conll", "validation": "dev.conll", "test": "test.conll"},
        other_files={
            "train": ("wnut17train.conll",),
            "validation": ("emerging.dev.conll",),
            "test": ("emerging.test.annotated",),
        },
    ),
)
