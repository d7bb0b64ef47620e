"""Answers of questions from the spans of windows: their files and metrics.

The best spans of all windows of a question are combined. Each text is kept once, as a slice of the
original context. It ends between a letter and its vowel sign only if the shards have no
`span_bounds`. The null score is the lowest one of all windows, because the answer may be in any of
them. This is the method of the releases of BERT and XLNet, except that all pairs of a start and an
end are considered instead of the pairs of the twenty best of each.

Shapes: B windows, K spans of a window.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from official import config as configs
from official.config.heads import SpanAnswerConfig
from official.data import ShardDataset
from official.evaluation import rows, squad_metrics
from official.shards import side_texts
from official.tasks import GRAPHEMES
from official.tokenizers import text_words
from official.utils import atomic
from official.utils.errors import UserError
from official.utils.paths import AnyPath

FILES = ("predictions.json", "nbest.json", "null_odds.json")


class Span(NamedTuple):
    """An answer: `context[start:end]` and its score."""

    text: str
    start: int
    end: int
    score: float


class Result(NamedTuple):
    """The best spans of a question, the best first, the null score and the null odds."""

    question: side_texts.Question
    spans: list[Span]
    null_score: float
    null_odds: float

    @property
    def best(self) -> str:
        """The text of the best span; empty if the context has no token."""
        return self.spans[0].text if self.spans else ""


def objective_of(config: configs.ResolvedConfig) -> SpanAnswerConfig:
    """Returns the objective `span_answer` of a config.

    Raises:
      UserError: there is none.
    """
    for objective in config.objectives:
        if isinstance(objective, SpanAnswerConfig):
            return objective
    raise UserError(
        "the data is a task of questions and spans, and the model has no objective span_answer: "
        f"its objectives are {', '.join(o.type for o in config.objectives) or 'none'}"
    )


class Scorer:
    """Combines the windows of each question; see `official.evaluation.evaluator.Scorer`."""

    outputs = ("span_scores", "span_starts", "span_ends", "null_scores")

    def __init__(self, config: configs.ResolvedConfig, source: ShardDataset):
        """Reads the questions of the split and computes the offsets of their tokens.

        Args:
          config: a config with the objective `span_answer`.
          source: the examples of the split.

        Raises:
          UserError: the config has another objective, or the folder has no questions.
        """
        self.config = objective_of(config)
        self.no_answers = bool(source.task.no_answers)
        self._rule = source.task.answer_rule
        self.questions = side_texts.read_questions(source.folder, source.split, source.manifest)
        contexts = list(dict.fromkeys(question.context for question in self.questions.values()))
        tokens = source.tokenizer.encode_with_offsets(contexts)
        bounds = [(starts, ends) for _, starts, ends in tokens]
        if source.task.span_bounds == GRAPHEMES:
            bounds = text_words.whole_grapheme_spans(contexts, bounds)
        self._offsets = dict(zip(contexts, bounds, strict=True))

    def results(self, outputs: Mapping[str, np.ndarray]) -> list[Result]:
        """Returns the best spans of each question that has windows, in the order of the questions.

        Args:
          outputs: `row` [B], `span_scores`, `span_starts` and `span_ends` [B, K], `null_scores` [B]
            of `official.modeling.objectives.span_answer`, and `example_weights` [B], 0 for filler.
        """
        windows: dict[int, list[int]] = {}
        for index, (row, weight) in enumerate(
            zip(outputs["row"].tolist(), outputs["example_weights"], strict=True)
        ):
            if weight > 0:
                windows.setdefault(row, []).append(index)
        return [self._result(row, windows[row], outputs) for row in sorted(windows)]

    def _result(self, row: int, windows: list[int], outputs: Mapping[str, np.ndarray]) -> Result:
        question = self.questions[row]
        starts, ends = self._offsets[question.context]
        scores, first, last = (
            outputs[name][windows].ravel() for name in ("span_scores", "span_starts", "span_ends")
        )
        spans: dict[str, Span] = {}
        for i in np.argsort(-scores, kind="stable"):
            if scores[i] < -1e29 or len(spans) == self.config.n_best:
                break
            start, end = int(starts[first[i]]), int(ends[last[i]])
            text = question.context[start:end]
            spans.setdefault(text, Span(text, start, end, float(scores[i])))
        best = list(spans.values())
        null_score = float(outputs["null_scores"][windows].min())
        odds = null_score
        if self.config.form == "independent":
            odds -= best[0].score if best else -1e30
        return Result(question, best, null_score, odds)

    def answer(self, result: Result) -> str:
        """Returns the answer to a question, or an empty text if it has none."""
        none = self.no_answers and result.null_odds > self.config.null_threshold
        return "" if none else result.best

    def metrics(self, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Computes exact match and F1 of the questions; the argument is that of `results`.

        For a task with unanswerable questions, the metrics with the best threshold of the null odds
        are also computed: see `squad_metrics.evaluate`.

        Raises:
          UserError: the split has no answers.
        """
        results = self.results(outputs)
        right = squad_metrics.right_answers(each.question for each in results)
        if right is None:
            raise rows.nothing_to_compare("answers")
        return squad_metrics.evaluate(
            {each.question.id: each.best for each in results},
            right,
            self.no_answers,
            {each.question.id: each.null_odds for each in results} if self.no_answers else None,
            self.config.null_threshold,
            self._rule,
        )

    def check_output(self, output: AnyPath) -> None:
        """Refuses the name of a file, and a folder that exists."""
        if output.suffix in (".tsv", ".jsonl") or output.exists():
            what = "is there already" if output.exists() else "is the name of a file"
            raise UserError(
                f"{output}: {what}: answers are written into a new folder ({', '.join(FILES)}): "
                "name one"
            )

    def write(self, outputs: Mapping[str, np.ndarray], output: AnyPath) -> None:
        """Writes the answers to a new folder.

        `predictions.json` contains the answer to each question by its id ("" = no answer), in the
        format of the released evaluation. `nbest.json` contains the best spans with their
        positions, scores and probabilities. `null_odds.json`, for tasks with unanswerable
        questions, contains the scores of having no answer.

        Raises:
          UserError: the folder exists.
        """
        results = self.results({**outputs, "example_weights": np.ones(len(outputs["row"]))})
        predictions = {each.question.id: self.answer(each) for each in results}
        best = {each.question.id: self._ranked(each) for each in results}
        odds = {each.question.id: each.null_odds for each in results}
        with atomic.folder(output, FILES[0]) as temporary:
            for name, values in zip(FILES, (predictions, best, odds), strict=True):
                if name == "null_odds.json" and not self.no_answers:
                    continue
                with (temporary / name).open("w", encoding="utf-8") as stream:
                    json.dump(values, stream, ensure_ascii=False, indent=1)
                    stream.write("\n")

    def _ranked(self, result: Result) -> list[dict[str, str | int | float]]:
        """Returns the spans of `nbest.json`."""
        spans = list(result.spans)
        if self.no_answers and self.config.form == "independent" or not spans:
            # Having no answer is one of the answers, with its own score.
            spans.append(Span("", 0, 0, result.null_score))
            spans.sort(key=lambda span: -span.score)
        scores = np.array([span.score for span in spans])
        probabilities = np.exp(scores - scores.max())
        probabilities /= probabilities.sum()
        return [
            {**span._asdict(), "probability": float(probability)}
            for span, probability in zip(spans, probabilities, strict=True)
        ]
