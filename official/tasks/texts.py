"""Classification tasks of single texts: reviews, news, encyclopedia articles, questions."""

from collections.abc import Mapping

from official.tasks.task import Columns, Task


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

TASKS = (
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
