"""Scores a file of predicted tags or spans beside a file with the right ones."""

from collections.abc import Sequence

from official.evaluation import tags
from official.tasks import tag_files
from official.tasks.tag_files import Record, TaggedWords
from official.tasks.task import Columns
from official.utils.errors import UserError
from official.utils.paths import AnyPath


def score(
    gold: AnyPath,
    predicted: AnyPath,
    gold_columns: Columns,
    predicted_columns: Columns,
    labels: Sequence[str] = (),
) -> tuple[dict[str, float], int]:
    """Scores a file.

    Args:
      gold: the file with the right tags or spans.
      predicted: a file with the same texts in the same order.
      gold_columns: of CoNLL, the columns of `gold`.
      predicted_columns: of CoNLL, the columns of `predicted`.
      labels: the names of tags that are numbers.

    Returns:
      The metrics, and the number of texts: of words those of `tags.compute`, of texts with spans
      those of `tags.entity_metrics`; and, of entities, those of `tags.surface_metrics`.

    Raises:
      UserError: a file cannot be read, or the texts of the files differ.
    """
    right = list(tag_files.read(gold, gold_columns, labels=labels))
    guessed = list(tag_files.read(predicted, predicted_columns, labels=labels))
    if len(right) != len(guessed):
        raise UserError(
            f"{gold} has {len(right):,} texts and {predicted} {len(guessed):,}: give the "
            "predictions of all texts, in their order"
        )
    for one, other in zip(right, guessed, strict=True):
        _check_same(one, other)
    found = [[_entities(record) for record in records] for records in (right, guessed)]
    if all(isinstance(record, TaggedWords) for record in right):
        rows = [[record.tags for record in each] for each in (right, guessed)]
        metrics = tags.compute(*rows)
        if tags.marks_no_entities(rows[0]):
            return metrics, len(right)
    else:
        metrics = tags.entity_metrics(*found)
    return metrics | tags.surface_metrics(*found), len(right)


def _check_same(gold: Record, predicted: Record) -> None:
    where = f"{gold.location} and {predicted.location}"
    if isinstance(gold, TaggedWords) != isinstance(predicted, TaggedWords):
        kinds = ["words" if isinstance(x, TaggedWords) else "a text" for x in (gold, predicted)]
        raise UserError(
            f"{where}: {' beside '.join(kinds)}: give both files as words with tags, or both as "
            "texts with spans"
        )
    if isinstance(gold, TaggedWords):
        texts = gold.words, predicted.words
    else:
        texts = gold.text, predicted.text
    if texts[0] == texts[1]:
        return
    pairs = enumerate(zip(*texts, strict=False))
    place = next((i for i, (a, b) in pairs if a != b), min(map(len, texts)))
    parts = (text[place : place + 20] for text in texts)
    shown = " beside ".join(repr(" ".join(p) if isinstance(p, tuple) else p) for p in parts)
    raise UserError(f"{where}: the texts differ: {shown:.120}")


def _entities(record: Record) -> list[tags.SurfaceEntity]:
    if isinstance(record, TaggedWords):
        return tags.surface_entities(record.words, record.tags)
    spans = record.spans or ()
    return [(kind, a, b, record.text[a:b]) for a, b, kind in spans]
