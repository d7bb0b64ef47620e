"""Metrics and files of tagging tasks.

The windows of each text are joined, and every word gets the tag of the window in which it is read.
A word without a token is `O`. F1, precision and recall are those of whole entities, over all types
(micro), by seqeval (Nakayama, 2018) in its default mode, which is the rule of conlleval.

Shapes: B windows, T tokens.
"""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from seqeval import scheme as seqeval_schemes
from seqeval.metrics import sequence_labeling

from official import config as configs
from official.data import ShardDataset
from official.shards import tagged_texts
from official.tasks import tags as tag_rules
from official.utils import atomic
from official.utils.errors import UserError
from official.utils.paths import AnyPath

SUFFIXES = (".conll", ".jsonl")
_SCHEMES = {tag_rules.BIO: seqeval_schemes.IOB2, tag_rules.BIOES: seqeval_schemes.IOBES}


def compute(true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Computes the metrics of tags.

    Args:
      true: the tags of each text.
      predicted: as many tags for each text.

    Returns:
      `f1`, `precision` and `recall` of entities; `strict_f1`, where an entity counts only if its
      tags follow the scheme of `true`; `accuracy` of words; and `f1_TYPE` of each type.
    """
    true, predicted = [list(row) for row in true], [list(row) for row in predicted]
    scheme = tag_rules.scheme(tag for row in true for tag in row)
    how = {"average": "micro", "zero_division": 0}
    strict = {"mode": "strict", "scheme": _SCHEMES[scheme]}
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
    }
    kinds = sorted({kind for row in true for kind, _, _ in tag_rules.entities(row)})
    if kinds:
        report = sequence_labeling.classification_report(
            true, predicted, output_dict=True, zero_division=0
        )
        metrics |= {f"f1_{kind}": report[kind]["f1-score"] for kind in kinds}
    return {name: float(value) for name, value in metrics.items()}


class Result(NamedTuple):
    """The predictions of a text.

    Attributes:
      text: the words, with the true tags if they are known.
      tags: the tag of each word.
      probabilities: the probability of each tag; 1 for a word without a token.
    """

    text: tagged_texts.TaggedText
    tags: list[str]
    probabilities: list[float]


class Scorer:
    """Joins the windows of each text; see `official.evaluation.evaluator.Scorer`."""

    outputs = ("tags", "tag_probabilities", "word_ids")

    def __init__(self, config: configs.Config, source: ShardDataset):
        """Reads the words of the split.

        Raises:
          UserError: the folder has no words.
        """
        self.texts = tagged_texts.read(source.folder, source.split, source.manifest)
        self._labels = source.manifest.task.labels
        for objective in config.objectives:
            if objective.type == "token_classification" and objective.labels:
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
        """Computes the metrics of `compute`; the argument is that of `results`.

        Raises:
          UserError: the split has no tags.
        """
        results = self.results(outputs)
        if any(each.text.tags is None for each in results):
            raise UserError(
                "the split has no tags to compare with: evaluate on a labelled one, or use "
                "--mode=predict"
            )
        return compute([each.text.tags for each in results], [each.tags for each in results])

    def check_output(self, output: AnyPath, top: int) -> None:
        """Refuses a file with another suffix than `SUFFIXES`."""
        if top:
            raise UserError(f"--top_k={top}: is of rankings, and this is no ranking: leave it out")
        if output.suffix not in SUFFIXES:
            raise UserError(f"{output}: tags are written as {' or '.join(SUFFIXES)}: name one")

    def write(self, outputs: Mapping[str, np.ndarray], output: AnyPath, top: int) -> None:
        """Writes the words and tags of each text.

        `.conll` has a word, a blank and its tag on each line, and a blank line after each text.
        `.jsonl` has an object for each text: `row`, `words`, `tags` and `entities`, each with its
        type, its text, the numbers of its first word and of the word after its last one, and the
        mean probability of its tags.
        """
        del top
        results = self.results({**outputs, "example_weights": np.ones(len(outputs["row"]))})
        with atomic.file(output) as stream:
            for row, each in enumerate(results):
                words = each.text.words
                if output.suffix == ".conll":
                    pairs = zip(words, each.tags, strict=True)
                    stream.writelines(f"{word} {tag}\n" for word, tag in pairs)
                    stream.write("\n")
                    continue
                record = {"row": row, "words": words, "tags": each.tags, "entities": _found(each)}
                stream.write(json.dumps(record, ensure_ascii=False) + "\n")


def _found(result: Result) -> list[dict[str, str | int | float]]:
    """Returns the entities of a text."""
    return [
        {
            "type": kind,
            "text": " ".join(result.text.words[start:end]),
            "start": start,
            "end": end,
            "score": float(np.mean(result.probabilities[start:end])),
        }
        for kind, start, end in tag_rules.entities(result.tags)
    ]
