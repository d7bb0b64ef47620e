"""From the spans of windows to the answers of questions: files of predictions, and their metrics.

The windows of a question are put together: the best spans of all of them, each text once, as slices
of the context as the user wrote it; the null score is the lowest of any window, for the answer may
stand in any. (As BERT's and XLNet's releases do it, save that the best spans are looked for among
all pairs of a start and an end, not among those of the twenty best of each.)

Shapes: B windows, K spans of a window.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from official import config as configs
from official.config.heads import SpanAnswerConfig
from official.data import ShardDataset
from official.evaluation import squad_metrics
from official.shards import questions
from official.utils import atomic
from official.utils.errors import UserError

FILES = ("predictions.json", "nbest.json", "null_odds.json")


class Span(NamedTuple):
    """An answer: `context[start:end]` and its score."""

    text: str
    start: int
    end: int
    score: float


class Found(NamedTuple):
    """What was found for a question: its best spans, best first, the null score and null odds."""

    question: questions.Question
    spans: list[Span]
    null_score: float
    null_odds: float

    @property
    def best(self) -> str:
        """The text of the best span; empty where the context has no token."""
        return self.spans[0].text if self.spans else ""


def objective_of(config: configs.Config) -> SpanAnswerConfig:
    """The part of a config that asks for spans.

    Raises:
      UserError: there is none.
    """
    for objective in config.objectives:
        if objective.type == "span_answer":
            return objective
    raise UserError(
        "the data is a task of questions and spans, and the model has no objective span_answer: "
        f"its objectives are {', '.join(o.type for o in config.objectives) or 'none'}"
    )


class Scorer:
    """Puts the windows of a split together; see `official.evaluation.evaluator.Scorer`."""

    outputs = ("span_scores", "span_starts", "span_ends", "null_scores")

    def __init__(self, config: configs.Config, source: ShardDataset):
        """Reads the split's questions and finds the places of their tokens.

        Args:
          config: has an objective `span_answer`.
          source: an `official.data.ShardDataset` of the split.

        Raises:
          UserError: another objective, or a folder without its questions.
        """
        self.config = objective_of(config)
        self.no_answers = bool(source.manifest.task.no_answers)
        self.questions = questions.read(source.folder, source.split, source.manifest)
        contexts = list(dict.fromkeys(question.context for question in self.questions))
        tokens = source.tokenizer.encode_with_offsets(contexts)
        self._places = {
            context: (starts, ends)
            for context, (_, starts, ends) in zip(contexts, tokens, strict=True)
        }

    def find(self, outputs: Mapping[str, np.ndarray]) -> list[Found]:
        """The best spans of the questions that there are windows of, in the questions' order.

        Args:
          outputs: `row` [B], `span_scores`, `span_starts` and `span_ends` [B, K], `null_scores` [B]
            of `official.modeling.objectives.span_answer`, and `example_weights` [B], 0 for filler.
        """
        windows: dict[int, list[int]] = {}
        for place, (row, weight) in enumerate(
            zip(outputs["row"].tolist(), outputs["example_weights"], strict=True)
        ):
            if weight > 0:
                windows.setdefault(row, []).append(place)
        return [self._question(row, windows[row], outputs) for row in sorted(windows)]

    def _question(self, row: int, places: list[int], outputs: Mapping[str, np.ndarray]) -> Found:
        question = self.questions[row]
        starts, ends = self._places[question.context]
        scores, first, last = (
            outputs[name][places].ravel() for name in ("span_scores", "span_starts", "span_ends")
        )
        spans: dict[str, Span] = {}
        for i in np.argsort(-scores, kind="stable"):
            if scores[i] < -1e29 or len(spans) == self.config.n_best:
                break
            start, end = int(starts[first[i]]), int(ends[last[i]])
            text = question.context[start:end]
            spans.setdefault(text, Span(text, start, end, float(scores[i])))
        best = list(spans.values())
        null_score = float(outputs["null_scores"][places].min())
        odds = null_score
        if self.config.form == "independent":
            odds -= best[0].score if best else -1e30
        return Found(question, best, null_score, odds)

    def answer(self, found: Found) -> str:
        """The answer that is given, empty where there is none."""
        none = self.no_answers and found.null_odds > self.config.null_threshold
        return "" if none else found.best

    def metrics(self, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Computes exact match and F1 of the questions; arguments of `find`.

        Of a task with unanswerable questions the best threshold of the null odds is found, and the
        metrics that it gives: see `squad_metrics.evaluate`.

        Raises:
          UserError: the split has no answers.
        """
        found = self.find(outputs)
        if any(each.question.answers is None for each in found):
            raise UserError(
                "the split has no answers to compare with: evaluate on a labelled one, or use "
                "--mode=predict"
            )
        return squad_metrics.evaluate(
            {each.question.id: each.best for each in found},
            {each.question.id: each.question.answers for each in found},
            self.no_answers,
            {each.question.id: each.null_odds for each in found} if self.no_answers else None,
            self.config.null_threshold,
        )

    def check_output(self, output: Path, top: int) -> None:
        """Refuses a name that looks like that of a file, and a folder that exists."""
        if top:
            raise UserError(f"--top_k={top}: is of rankings, and this is no ranking: leave it out")
        if output.suffix in (".tsv", ".jsonl") or output.exists():
            what = "is there already" if output.exists() else "is the name of a file"
            raise UserError(
                f"{output}: {what}: answers are written into a new folder ({', '.join(FILES)}): "
                "name one"
            )

    def write(self, outputs: Mapping[str, np.ndarray], output: Path, top: int) -> None:
        """Writes the answers into a new folder.

        `predictions.json` has the answer to each question by its id, "" for none, as the released
        evaluation reads it; `nbest.json` the best spans with their characters, scores and
        probabilities among these; `null_odds.json`, of tasks with unanswerable questions, how much
        speaks against there being an answer.

        Raises:
          UserError: the folder is there already.
        """
        del top
        found = self.find({**outputs, "example_weights": np.ones(len(outputs["row"]))})
        predictions = {each.question.id: self.answer(each) for each in found}
        best = {each.question.id: self._ranked(each) for each in found}
        odds = {each.question.id: each.null_odds for each in found}
        with atomic.folder(output) as temporary:
            for name, values in zip(FILES, (predictions, best, odds), strict=True):
                if name == "null_odds.json" and not self.no_answers:
                    continue
                with open(Path(temporary) / name, "w", encoding="utf-8") as stream:
                    json.dump(values, stream, ensure_ascii=False, indent=1)
                    stream.write("\n")

    def _ranked(self, found: Found) -> list[dict[str, Any]]:
        spans = list(found.spans)
        if self.no_answers and self.config.form == "independent" or not spans:
            # No answer is one of the answers, with its own score.
            spans.append(Span("", 0, 0, found.null_score))
            spans.sort(key=lambda span: -span.score)
        scores = np.array([span.score for span in spans])
        chances = np.exp(scores - scores.max())
        chances /= chances.sum()
        return [
            {**span._asdict(), "probability": float(chance)}
            for span, chance in zip(spans, chances, strict=True)
        ]
