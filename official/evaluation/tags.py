"""Metrics and files of tagging tasks.

The windows of each text are joined, and every word gets the tag of the window in which it is read.
A word without a token is `O`. F1, precision and recall are those of whole entities, over all types
(micro), by seqeval (Nakayama, 2018) in its default mode, which is the rule of conlleval. Tags that
mark no entities have an accuracy, and the mean F1 of all tags. A file of predicted tags or
spans is scored beside a file with the right ones.

Shapes: B windows, T tokens.
"""

import functools
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from official import config as configs
from official.config.heads import TokenClassificationConfig
from official.data import ShardDataset
from official.evaluation.rows import nothing_to_compare
from official.shards import side_texts
from official.tasks import conllu, tag_files
from official.tasks import tags as tag_rules
from official.tasks.tagged_texts import Record, TaggedWords
from official.tasks.task import Columns
from official.utils import atomic, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

SUFFIXES = (".conll", ".jsonl")
_SCHEMES = {tag_rules.BIO: "IOB2", tag_rules.BIOES: "IOBES"}  # as seqeval calls them
# The type of an entity, its start, its end, and its text or its words.
SurfaceEntity = tuple[str, int, int, str | tuple[str, ...]]


class Result(NamedTuple):
    """The predictions of a text.

    Attributes:
      text: the words, with the true tags if they are known.
      tags: the tag of each word.
      probabilities: the probability of each tag; 1 for a word without a token.
    """

    text: side_texts.TaggedText
    tags: list[str]
    probabilities: list[float]


class Scorer:
    """Joins the windows of each text; see `official.evaluation.evaluator.Scorer`."""

    outputs = ("tags", "tag_probabilities", "word_ids")

    def __init__(self, config: configs.ResolvedConfig, source: ShardDataset):
        """Reads the words of the split.

        Raises:
          UserError: the folder has no words.
        """
        self.texts = side_texts.read_tagged(source.folder, source.split, source.manifest)
        self._labels = source.task.labels
        for objective in config.objectives:
            if isinstance(objective, TokenClassificationConfig) and objective.labels:
                self._labels = objective.labels

    def results(self, outputs: Mapping[str, np.ndarray]) -> list[Result]:
        """Returns the tags of the texts that have windows, in the order of the texts.

        Args:
          outputs: `row` [B], `tags`, `tag_probabilities` and `word_ids` [B, T] of
            `official.modeling.objectives.token_classification`, and `example_weights` [B], 0 for
            filler.
        """
        rows: dict[int, tuple[list[str], list[float]]] = {}
        for i in np.flatnonzero(outputs["example_weights"] > 0):
            row = int(outputs["row"][i])
            size = len(self.texts[row].words)
            tags, probabilities = rows.setdefault(row, ([tag_rules.OUTSIDE] * size, [1.0] * size))
            for t in np.flatnonzero(outputs["word_ids"][i] >= 0):
                word = outputs["word_ids"][i][t]
                tags[word] = self._labels[outputs["tags"][i][t]]
                probabilities[word] = float(outputs["tag_probabilities"][i][t])
        return [Result(self.texts[row], *rows[row]) for row in sorted(rows)]

    def metrics(self, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Computes the metrics of `compute` and, of entities, `surface_metrics`.

        Args:
          outputs: as for `results`.

        Raises:
          UserError: the split has no tags.
        """
        results = self.results(outputs)
        true = [each.text.tags for each in results if each.text.tags is not None]
        if len(true) < len(results):
            raise nothing_to_compare("tags")
        predicted = [each.tags for each in results]
        metrics = compute(true, predicted)
        if marks_no_entities(true):
            return metrics
        if any(each.text.spans is not None for each in results):
            return metrics | _of_spans(results)
        words = [each.text.words for each in results]
        true_entities = [surface_entities(*pair) for pair in zip(words, true, strict=True)]
        predicted_entities = [
            surface_entities(*pair) for pair in zip(words, predicted, strict=True)
        ]
        return metrics | surface_metrics(true_entities, predicted_entities)

    def check_output(self, output: AnyPath) -> None:
        """See `paths.check_suffix`."""
        paths.check_suffix(output, "tags", SUFFIXES)

    def write(self, outputs: Mapping[str, np.ndarray], output: AnyPath) -> None:
        """Writes the words and tags of each text.

        `.conll` has a word, a blank and its tag on each line, and a blank line after each text.
        If a word or a tag contains a blank, tabs separate the columns. `.jsonl` has an object for
        each text: `row`, `words`, `tags` and `entities`, each with its type, its text, its start,
        its end and the mean probability of its tags. If the words were given, these are the words
        joined by blanks, and the numbers of the first word and of the word after the last one. If a
        text was split into words, the object has its `text`, an entity is a part of it, and
        positions count characters.
        """
        results = self.results({**outputs, "example_weights": np.ones(len(outputs["row"]))})
        blanks = any(" " in cell for each in results for cell in (*each.text.words, *each.tags))
        separator = "\t" if blanks else " "
        with atomic.file(output) as stream:
            for row, each in enumerate(results):
                words = each.text.words
                if output.suffix == ".conll":
                    pairs = zip(words, each.tags, strict=True)
                    stream.writelines(f"{word}{separator}{tag}\n" for word, tag in pairs)
                    stream.write("\n")
                    continue
                record: dict[str, object] = {"row": row}
                if each.text.text is not None:
                    record["text"] = each.text.text
                record |= {"words": words, "tags": each.tags, "entities": _entity_records(each)}
                stream.write(json.dumps(record, ensure_ascii=False) + "\n")


def _entity_records(result: Result) -> list[dict[str, str | int | float]]:
    """Returns the entities of a text."""
    records: list[dict[str, str | int | float]] = []
    for kind, start, end in tag_rules.entities(result.tags):
        score = float(np.mean(result.probabilities[start:end]))
        if result.text.text is None:
            spelled = " ".join(result.text.words[start:end])
        else:
            start, end = result.text.offsets[start][0], result.text.offsets[end - 1][1]
            spelled = result.text.text[start:end]
        records.append({"type": kind, "text": spelled, "start": start, "end": end, "score": score})
    return records


def compute(true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Computes the metrics of tags.

    Args:
      true: the tags of each text.
      predicted: the predicted tags of each text, one for each true tag.

    Returns:
      `f1`, `precision` and `recall` of entities; `strict_f1`, where an entity counts only if its
      tags follow the scheme of `true`; `accuracy` of words; `f1_TYPE` of each type, and their mean
      `macro_f1`. Of tags that mark no entities: `accuracy`, `f1_TAG` of each tag, and `macro_f1`.
    """
    if marks_no_entities(true):
        return _of_labels(true, predicted)
    scheme = tag_rules.scheme(tag for row in true for tag in row)
    # Of the extra `eval`.
    from seqeval import scheme as seqeval_schemes
    from seqeval.metrics import sequence_labeling

    true, predicted = [list(row) for row in true], [list(row) for row in predicted]
    how = {"average": "micro", "zero_division": 0}
    strict = {"mode": "strict", "scheme": getattr(seqeval_schemes, _SCHEMES[scheme])}
    pairs = [pair for rows in zip(true, predicted, strict=True) for pair in zip(*rows, strict=True)]
    any_entity = any(tag_rules.entities(row) for row in (*true, *predicted))
    metrics = {
        "f1": sequence_labeling.f1_score(true, predicted, **how),
        "precision": sequence_labeling.precision_score(true, predicted, **how),
        "recall": sequence_labeling.recall_score(true, predicted, **how),
        "strict_f1": (
            sequence_labeling.f1_score(true, predicted, **how, **strict) if any_entity else 0.0
        ),
        "accuracy": sum(a == b for a, b in pairs) / max(1, len(pairs)),
        # Without any entity, seqeval returns 0 for `micro` and NaN for `macro`.
        "macro_f1": (
            sequence_labeling.f1_score(true, predicted, average="macro", zero_division=0)
            if any_entity
            else 0.0
        ),
    }
    kinds = sorted({kind for row in true for kind, _, _ in tag_rules.entities(row)})
    if kinds:
        report = sequence_labeling.classification_report(
            true, predicted, output_dict=True, zero_division=0
        )
        metrics |= {f"f1_{kind}": report[kind]["f1-score"] for kind in kinds}
    return {name: float(value) for name, value in metrics.items()}


def score_files(
    gold: AnyPath,
    predicted: AnyPath,
    gold_columns: Columns,
    predicted_columns: Columns,
    labels: Sequence[str] = (),
    multiword: str = conllu.WORDS,
) -> tuple[dict[str, float], int]:
    """Scores a file.

    Args:
      gold: the file with the right tags or spans.
      predicted: a file with the same texts in the same order.
      gold_columns: of CoNLL, the columns of `gold`.
      predicted_columns: of CoNLL, the columns of `predicted`.
      labels: the names of tags that are numbers.
      multiword: of CoNLL-U, one of `conllu.MULTIWORD`.

    Returns:
      The metrics, and the number of texts: of words those of `tags.compute`, of texts with spans
      those of `tags.entity_metrics`; and, of entities, those of `tags.surface_metrics`.

    Raises:
      UserError: a file cannot be read, or the texts of the files differ.
    """
    read = functools.partial(tag_files.read, labels=labels, multiword=multiword)
    right = _spelled(read(gold, gold_columns))
    guessed = list(read(predicted, predicted_columns))
    if not marks_no_entities([_tags(record) for record in right]):
        guessed = _spelled(guessed)
    if len(right) != len(guessed):
        raise UserError(
            f"{gold} has {len(right):,} texts and {predicted} {len(guessed):,}: give the "
            "predictions of all texts, in their order"
        )
    for one, other in zip(right, guessed, strict=True):
        _check_same(one, other)
    entities = [[_entities(record) for record in records] for records in (right, guessed)]
    true, predicted_tags = ([_tags(record) for record in each] for each in (right, guessed))
    if all(isinstance(record, TaggedWords) for record in right):
        metrics = compute(true, predicted_tags)
        if marks_no_entities(true):
            return metrics, len(right)
    else:
        metrics = entity_metrics(*entities)
    return metrics | surface_metrics(*entities), len(right)


def _of_spans(results: Sequence[Result]) -> dict[str, float]:
    """Returns the metrics of entities by characters, if entities were widened to whole words.

    A gold entity that ends inside a word cannot be predicted by tags and counts as missed.
    """
    scheme = tag_rules.scheme(tag for each in results for tag in each.text.tags or ())
    true = [_characters(each.text, each.text.tags or ()) for each in results]
    predicted = [_characters(each.text._replace(spans=None), each.tags) for each in results]
    strict = [
        _characters(each.text._replace(spans=None), _in_order(each.tags, scheme))
        for each in results
    ]
    metrics = entity_metrics(true, predicted)
    kinds = [value for name, value in metrics.items() if name.startswith("f1_")]
    metrics["macro_f1"] = float(np.mean(kinds)) if kinds else 0.0
    metrics["strict_f1"] = entity_metrics(true, strict)["f1"]
    return metrics | surface_metrics(true, predicted)


def _characters(text: side_texts.TaggedText, tags: Sequence[str]) -> list[SurfaceEntity]:
    """Returns the entities of a text by their characters: its spans, or those of tags."""
    whole = text.text or ""
    spans = text.spans
    if spans is None:
        found = tag_rules.entities(tags)
        spans = tuple((text.offsets[a][0], text.offsets[b - 1][1], kind) for kind, a, b in found)
    return [(kind, start, end, whole[start:end]) for start, end, kind in spans]


def _in_order(tags: Sequence[str], scheme: str) -> list[str]:
    """Returns tags without the entities whose tags do not follow the scheme."""
    kept = []
    for entity in tag_rules.entities(tags):
        _, start, end = entity
        if tag_rules.write([entity], len(tags), scheme)[start:end] == list(tags[start:end]):
            kept.append(entity)
    return tag_rules.write(kept, len(tags), scheme)


def _spelled(records: Iterable[Record]) -> list[Record]:
    """Returns the records of a file with their tags as BIO or BIOES."""
    records = list(records)
    spelling = tag_rules.spelling(tag for record in records for tag in _tags(record))
    return [
        record._replace(tags=spelling(record.tags))
        if isinstance(record, TaggedWords) and record.tags is not None
        else record
        for record in records
    ]


def marks_no_entities(true: Sequence[Sequence[str]]) -> bool:
    """Returns whether the tags of texts are labels of words, such as parts of speech.

    Raises:
      UserError: some mark entities, and others are of no scheme.
    """
    return tag_rules.scheme(tag for row in true for tag in row) == tag_rules.PLAIN


def _of_labels(
    true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Returns the metrics of tags that mark no entities, over all words."""
    right, guessed = (np.array(list(itertools.chain(*rows))) for rows in (true, predicted))
    metrics = {"accuracy": float(np.mean(right == guessed))}
    # A word without a token is O, which need not be one of the tags.
    names = sorted(set(right.tolist()) | set(guessed.tolist()) - {tag_rules.OUTSIDE})
    for name in names:
        hits = np.sum((right == name) & (guessed == name))
        metrics[f"f1_{name}"] = float(2 * hits / (np.sum(right == name) + np.sum(guessed == name)))
    return {"macro_f1": float(np.mean([metrics[f"f1_{name}"] for name in names])), **metrics}


def surface_entities(words: Sequence[str], tags: Sequence[str]) -> list[SurfaceEntity]:
    """Returns the entities of a text with their words."""
    return [
        (kind, start, end, tuple(words[start:end])) for kind, start, end in tag_rules.entities(tags)
    ]


def entity_metrics(
    true: Sequence[Sequence[SurfaceEntity]], predicted: Sequence[Sequence[SurfaceEntity]]
) -> dict[str, float]:
    """Computes `f1`, `precision` and `recall` of entities, and `f1_TYPE` of each type.

    Args:
      true: the entities of each text.
      predicted: the predicted entities. An entity is right if its type and its position are.
    """
    right, guessed = _placed(true), _placed(predicted)
    metrics = dict(
        zip(("f1", "precision", "recall"), _scores(right, guessed, right & guessed), strict=True)
    )
    for kind in sorted({entity[1] for entity in right}):
        mine, theirs = (
            {entity for entity in each if entity[1] == kind} for each in (right, guessed)
        )
        metrics[f"f1_{kind}"] = _scores(mine, theirs, mine & theirs)[0]
    return metrics


def surface_metrics(
    true: Sequence[Sequence[SurfaceEntity]], predicted: Sequence[Sequence[SurfaceEntity]]
) -> dict[str, float]:
    """Computes `surface_f1`, `surface_precision` and `surface_recall`, as WNUT 2017 does.

    They count the distinct pairs of a type and a surface form. A pair is right if it is predicted
    at one of its positions (Derczynski et al., 2017).
    """
    right, guessed = _placed(true), _placed(predicted)
    forms = [{(kind, form) for _, kind, _, _, form in e} for e in (right, guessed, right & guessed)]
    names = ("surface_f1", "surface_precision", "surface_recall")
    return dict(zip(names, _scores(*forms), strict=True))


def _placed(entities: Sequence[Sequence[SurfaceEntity]]) -> set[tuple]:
    """Returns entities with the index of their text."""
    return {(i, *entity) for i, text in enumerate(entities) for entity in text}


def _scores(true: set, predicted: set, right: set) -> tuple[float, float, float]:
    """Returns F1, precision and recall; 0 where nothing is counted."""
    precision = len(right) / len(predicted) if predicted else 0.0
    recall = len(right) / len(true) if true else 0.0
    total = precision + recall
    return 2 * precision * recall / total if total else 0.0, precision, recall


def _check_same(gold: Record, predicted: Record) -> None:
    where = f"{gold.location} and {predicted.location}"
    if isinstance(gold, TaggedWords) != isinstance(predicted, TaggedWords):
        kinds = ["words" if isinstance(x, TaggedWords) else "a text" for x in (gold, predicted)]
        raise UserError(
            f"{where}: {' beside '.join(kinds)}: give both files as words with tags, or both as "
            "texts with spans"
        )
    texts: list[Sequence[str]] = [
        record.words if isinstance(record, TaggedWords) else record.text
        for record in (gold, predicted)
    ]
    if texts[0] == texts[1]:
        return
    pairs = enumerate(zip(*texts, strict=False))
    place = next((i for i, (a, b) in pairs if a != b), min(map(len, texts)))
    parts = (text[place : place + 20] for text in texts)
    shown = " beside ".join(repr(" ".join(p) if isinstance(p, tuple) else p) for p in parts)
    raise UserError(f"{where}: the texts differ: {shown:.120}")


def _tags(record: Record) -> Sequence[str]:
    """Returns the tags of a record; empty for a text with spans."""
    return (record.tags or ()) if isinstance(record, TaggedWords) else ()


def _entities(record: Record) -> list[SurfaceEntity]:
    if isinstance(record, TaggedWords):
        return surface_entities(record.words, _tags(record))
    spans = record.spans or ()
    return [(kind, a, b, record.text[a:b]) for a, b, kind in spans]
