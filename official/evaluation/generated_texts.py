"""Metrics and files of tasks as text to text: the answers are generated.

A text that is not an answer of the task counts as class -1, or as the number -1 where the answers
are scores (Raffel et al., 2020, section 2.4). BLEU, chrF and ROUGE are those of `text_metrics`.

Shapes: B examples, U tokens of a generated text.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from official import config as configs
from official.data import ShardDataset
from official.evaluation import rows, squad_metrics, text_metrics
from official.shards import side_texts
from official.tasks import text_to_text
from official.tokenizers import Tokenizer
from official.utils import atomic, paths
from official.utils.errors import UserError
from official.utils.paths import AnyPath

_Answers = Sequence[Sequence[str]]
_Value = TypeVar("_Value")


class Scorer:
    """See `official.evaluation.evaluator.Scorer`."""

    outputs = ("generated_ids",)

    def __init__(self, config: configs.ResolvedConfig, source: ShardDataset):
        del config
        self._source = source
        self.task = source.task
        self._form = self.task.answers or ""  # which every task of text to text has
        self.references = side_texts.read_references(source.folder, source.split, source.manifest)
        names = text_to_text.label_names(self._form, self.task.labels)
        # A vocabulary may decode a label to another text, in lower case for example.
        tokenizer = source.tokenizer
        self._labels = [tokenizer.decode(ids) for ids in tokenizer.encode(list(names))]

    def texts(self, outputs: Mapping[str, np.ndarray]) -> list[str]:
        """Returns the text of each row of `generated_ids` [B, U]."""
        return [decoded(ids, self._source.tokenizer) for ids in outputs["generated_ids"]]

    def metrics(self, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Computes the metrics of the task.

        Args:
          outputs: `generated_ids` [B, U], `row` [B], and `example_weights` [B], 0 for filler.

        Raises:
          UserError: the split has no answers.
        """
        real = outputs["example_weights"] > 0
        references = [self.references[row] for row in outputs["row"][real].tolist()]
        answers = [each.answers for each in references if each.answers is not None]
        if len(answers) < len(references):
            raise rows.nothing_to_compare("answers")
        texts = self.texts({"generated_ids": outputs["generated_ids"][real]})
        return _METRICS[self._form](self, texts, answers)

    def classes_or_scores(self, outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns `probabilities` [B, C], 1 for the label, or `score` [B], for a submission.

        A text that is not a label has no 1, and becomes the first label in the file.

        Raises:
          UserError: the answers are neither labels nor scores.
        """
        texts = self.texts(outputs)
        if self._form == "regression":
            return {"score": self._read_numbers(texts)}
        if not self._labels:
            raise UserError(
                f"{self.task.name}: GLUE takes labels and scores, and its answers are texts"
            )
        classes = np.array([text_to_text.read_label(text, self._labels) for text in texts])
        return {"probabilities": (classes[:, None] == np.arange(len(self._labels))).astype(float)}

    def _read_numbers(self, texts: Sequence[str]) -> np.ndarray:
        # Some vocabularies decode "3.8" with blanks round the point.
        return np.array([text_to_text.read_number("".join(text.split())) for text in texts])

    def _classes(self, texts: Sequence[str], answers: _Answers) -> dict[str, float]:
        classes = np.array([text_to_text.read_label(text, self._labels) for text in texts])
        right = np.array([self.task.labels.index(label) for (label,) in answers])
        return rows.compute(self.task.metrics, right, classes, len(self._labels))

    def _numbers(self, texts: Sequence[str], answers: _Answers) -> dict[str, float]:
        numbers = self._read_numbers(texts)
        right = np.array([float(number) for (number,) in answers])
        return rows.compute(self.task.metrics, right, numbers)

    def _spans(self, texts: Sequence[str], answers: _Answers) -> dict[str, float]:
        predicted = ["" if text == text_to_text.NO_ANSWER else text for text in texts]
        no_answers = not all(answers)
        metrics = squad_metrics.evaluate(
            _numbered(predicted), _numbered(answers), no_answers, rule=self.task.answer_rule
        )
        return {name: metrics[name] for name in self.task.metrics} | metrics

    def _generated(self, texts: Sequence[str], answers: _Answers) -> dict[str, float]:
        tokenizer = self._source.tokenizer
        metrics = {}
        for name in self.task.metrics:
            if name == "exact_match":
                # The model can only generate the target as the vocabulary decodes it.
                ids = tokenizer.encode([answer for (answer,) in answers])
                right = [decoded(each, tokenizer) for each in ids]
                metrics[name] = float(np.mean([a == b for a, b in zip(texts, right, strict=True)]))
            else:
                metrics[name] = text_metrics.compute(name, texts, answers, self.task)
        return metrics

    def check_output(self, output: AnyPath) -> None:
        """See `paths.check_suffix`."""
        paths.check_suffix(output, "predictions", rows.SUFFIXES)

    def write(self, outputs: Mapping[str, np.ndarray], output: AnyPath) -> None:
        """Writes a line for each row in the order of the source file.

        It has the number of the row, the id of a question, the text, and the label that the text
        names; null or "" if the text is not a label.
        """
        numbers, outputs = rows.in_order(outputs, self._source)
        lines: list[dict[str, object]] = []
        for row, text in zip(numbers.tolist(), self.texts(outputs), strict=True):
            line: dict[str, object] = {"row": row}
            if self.references[row].id:
                line["id"] = self.references[row].id
            line["text"] = text
            if self._labels:
                label = text_to_text.read_label(text, self._labels)
                line["label"] = None if label == text_to_text.WRONG else self.task.labels[label]
            lines.append(line)
        with atomic.file(output) as stream:
            if output.suffix == ".jsonl":
                stream.writelines(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
                return
            stream.write("\t".join(lines[0]) + "\n")
            for line in lines:
                cells = ("" if value is None else str(value) for value in line.values())
                stream.write("\t".join(" ".join(cell.split()) for cell in cells) + "\n")


_METRICS = {
    "classification": Scorer._classes,
    "choice": Scorer._classes,
    "regression": Scorer._numbers,
    "span": Scorer._spans,
    "generation": Scorer._generated,
}


def _numbered(values: Iterable[_Value]) -> dict[str, _Value]:
    """Returns values by their indices, which serve as the ids of questions."""
    return {str(i): value for i, value in enumerate(values)}


def decoded(ids: np.ndarray, tokenizer: Tokenizer) -> str:
    """Returns the text of the ids [U] before the first one that ends a text.

    Ids beyond the vocabulary, which occur if the token table is larger, become unknown tokens.
    """
    ids = np.asarray(ids)
    end = np.flatnonzero(ids == tokenizer.sep_id)
    ids = ids[: end[0]] if len(end) else ids
    ids = ids[ids != tokenizer.pad_id]
    return tokenizer.decode(np.where(ids < tokenizer.vocab_size, ids, tokenizer.unk_id))
