"""Reads files of words and tags: CoNLL, CoNLL-U, and JSON of words or of texts with spans.

`conll`, `conllu` and `tagged_objects` describe their formats.
"""

from collections.abc import Iterator, Sequence

from official.tasks import conll, conllu, tagged_objects
from official.tasks.tagged_texts import Record
from official.tasks.task import Columns
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from official.utils.text_lines import BadRows

FORMATS = {".jsonl": "jsonl", ".json": "jsonl", ".conllu": "conllu"}


def file_format(path: AnyPath, given: str | None = None) -> str:
    """Returns "conll", "conllu" or "jsonl": the given format, or that of the name and content.

    Raises:
      UserError: another format is given.
    """
    suffix = (path.with_suffix("") if path.suffix == ".gz" else path).suffix
    format = given or FORMATS.get(suffix, "")
    if not format:
        return "conllu" if conllu.is_conllu(path) else "conll"
    if format not in ("conll", "conllu", "jsonl"):
        raise UserError(
            f"--format={format}: files of tags are conll, conllu or jsonl: give one of these"
        )
    return format


def read(
    path: AnyPath,
    columns: Columns,
    format: str | None = None,
    labeled: bool = True,
    bad: BadRows | None = None,
    labels: Sequence[str] = (),
    multiword: str = conllu.WORDS,
) -> Iterator[Record]:
    """Yields the texts of a file, in order.

    Args:
      path: the file.
      columns: of CoNLL, the indices of the columns of the word and of the tag; "-1" is the last.
        Of CoNLL-U, indices or names; see `conllu.read`. Of JSON, the key of the text or the words,
        and that of the spans or the tags, in the place of the known ones.
      format: "conll", "conllu" or "jsonl"; None = by the name and content of the file.
      labeled: whether the file must have tags.
      bad: is called with texts that cannot be used.
      labels: the names of the tags that are numbers.
      multiword: of CoNLL-U, how several words that stand as one in the text are read; one of
        `conllu.MULTIWORD`.

    Raises:
      UserError: the file is missing, has no text, or `bad` raises it.
    """
    bad = bad or BadRows()
    format = file_format(path, format)
    rows: Iterator[Record]
    if format == "jsonl":
        rows = tagged_objects.read(path, columns, labeled, bad, labels)
    elif format == "conllu":
        rows = conllu.read(path, columns, labeled, bad, multiword)
    else:
        rows = conll.read(path, columns, labeled, bad)
    number = 0
    for number, record in enumerate(rows, 1):  # noqa: B007
        yield record
    if not number and not bad.counts:
        raise UserError(f"{path} is empty: it has no words")
