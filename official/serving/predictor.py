"""What a model with a task's head says of texts, in Python: `official.load(DIR)` answers with this.

The answers are those of the SavedModel (`official.export`), whose signatures are asked, and of
`--mode=predict`.

Shapes: N texts, questions or documents, K choices.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from official import config as configs
from official import tokenizers
from official.modeling.model import Model
from official.modeling.objectives.base import Objective
from official.serving.precision import Weights
from official.serving.signatures import inputs
from official.serving.signatures.table import module_of
from official.tasks import KINDS
from official.utils.errors import UserError

# The objectives of each question that can be asked of a model.
ASKED = {kind.method: kind.objectives for kind in KINDS.values()}


class Label(NamedTuple):
    """What a text is.

    Attributes:
      label: the likeliest one.
      probabilities: of each label, by its name.
    """

    label: str
    probabilities: dict[str, float]


class Answer(NamedTuple):
    """An answer to a question.

    Attributes:
      text: `context[start:end]`; empty where there is no answer.
      start: its first character in the context.
      end: behind its last one.
      score: of the best span, whether it is given or not.
      null_odds: how much speaks for there being no answer; None where there always is one.
    """

    text: str
    start: int
    end: int
    score: float
    null_odds: float | None


class Choice(NamedTuple):
    """The choice of some.

    Attributes:
      index: the likeliest one, from 0.
      text: of that one.
      probabilities: float32 [K].
    """

    index: int
    text: str
    probabilities: np.ndarray


class Predictor:
    """A model with heads of tasks, and its tokenizer, as functions of texts.

    Args:
      config: of the run that made the model.
      tokenizer: text to ids.
      model: with its weights.
      max_length: the most tokens of a sequence, special ones counted.
      task: what training noted of the task (`official.saving.model_folder.task`).
    """

    def __init__(
        self,
        config: configs.Config,
        tokenizer: tokenizers.Tokenizer,
        model: Model,
        max_length: int,
        task: Mapping[str, Any],
    ):
        self.config = config
        self.tokenizer = tokenizer
        self.model = model
        self.max_length = max_length
        self.task = task
        self._signatures: dict[Any, inputs.Signature] = {}

    def classify(
        self,
        texts: Sequence[str],
        second: Sequence[str] | None = None,
        batch_size: int = 32,
        task: str | None = None,
    ) -> list[Label]:
        """Labels texts, with a model of the objective `classification`.

        Args:
          texts: any number; those longer than `max_length` are cut.
          second: the second text of each pair, where the model is of pairs.
          batch_size: how many are computed at a time; texts of like length go together.
          task: which head, of a model of several tasks.

        Returns:
          For each text its `label` and the `probabilities` of all labels, by name.

        Raises:
          UserError: the model has no such objective, no names of labels, or no head of that name;
            a single text instead of a list, or lists of different lengths.
        """
        head = self._objective("classify", task)
        rows = self._rows(head, "probabilities", _pairs(texts, second), batch_size)
        labels = head.config.labels
        return [
            Label(labels[row.argmax()], dict(zip(labels, row.tolist(), strict=True)))
            for row in np.reshape(rows, (-1, len(labels)))
        ]

    def score(
        self,
        texts: Sequence[str],
        second: Sequence[str] | None = None,
        batch_size: int = 32,
        task: str | None = None,
    ) -> np.ndarray:
        """Scores texts, with a model of the objective `regression`: float32 [number of texts].

        Arguments and errors are those of `classify`.
        """
        head = self._objective("score", task)
        return self._rows(head, "score", _pairs(texts, second), batch_size)

    def rank(
        self, query: str | Sequence[str], documents: Sequence[str], batch_size: int = 32
    ) -> np.ndarray:
        """Scores documents for a query, with a model of `ranking` or `kernel_ranking`.

        Args:
          query: one for all documents, or one for each.
          documents: any number; those longer than `max_length` are cut.
          batch_size: how many are computed at a time.

        Returns:
          float32 [number of documents], in their order; the greater, the better.

        Raises:
          UserError: the model has no such objective; a single document instead of a list, or lists
            of different lengths.
        """
        head = self._objective("rank")
        _check_list(documents, "documents")
        queries = [query] * len(documents) if isinstance(query, str) else query
        return self._rows(head, "scores", _pairs(queries, documents), batch_size)

    def answer(
        self,
        questions: Sequence[str],
        contexts: str | Sequence[str],
        batch_size: int = 8,
        no_answers: bool | None = None,
    ) -> list[Answer]:
        """Answers questions from their contexts, with a model of the objective `span_answer`.

        Args:
          questions: any number.
          contexts: one for all questions, or one for each; of any length, read in windows.
          batch_size: how many questions are computed at a time.
          no_answers: whether a question may have no answer; None = as in training, and where
            nothing is known of that, each has one.

        Returns:
          For each question `text`, `start` and `end` in characters of the context, `score`, and
          `null_odds` where a question may have no answer.

        Raises:
          UserError: the model has no such objective; a single question instead of a list, or lists
            of different lengths.
        """
        head = self._objective("answer")
        _check_list(questions, "questions")
        contexts = [contexts] * len(questions) if isinstance(contexts, str) else contexts
        questions, contexts = _same(questions=questions, contexts=contexts)
        given = {} if no_answers is None else {"no_answers": no_answers}
        graph = self._signature(head, "answer", **given)
        found: list[Answer] = []
        for rows in _slices(len(questions), batch_size):
            outputs = graph(tf.constant(questions[rows]), tf.constant(contexts[rows]))
            values = {name: value.numpy().tolist() for name, value in outputs.items()}
            for i, text in enumerate(values["answer"]):
                odds = values["null_odds"][i] if "null_odds" in values else None
                place = values["start"][i], values["end"][i]
                found.append(Answer(text.decode(), *place, values["score"][i], odds))
        return found

    def choose(
        self,
        contexts: Sequence[str],
        questions: Sequence[str],
        choices: Sequence[Sequence[str]],
        batch_size: int = 8,
    ) -> list[Choice]:
        """Chooses the right one of some choices, with a model of `multiple_choice`.

        Args:
          contexts: of each question the text that it is about.
          questions: any number; may be empty texts.
          choices: of each question its choices, any number of them.
          batch_size: how many questions are computed at a time.

        Returns:
          For each question the `index` and the `text` of its likeliest choice, and the
          `probabilities` of all.

        Raises:
          UserError: the model has no such objective; lists of different lengths, or a question
            without choices.
        """
        head = self._objective("choose")
        contexts, questions, choices = _same(
            contexts=contexts, questions=questions, choices=choices
        )
        for number, several in enumerate(choices):
            if isinstance(several, str) or not several:
                raise UserError(f"choices: row {number} has no list of choices: {several!r}")
        graph = self._signature(head, "choose")
        found: list[Choice | None] = [None] * len(choices)
        # Questions with as many choices go together.
        order = sorted(range(len(choices)), key=lambda row: len(choices[row]))
        for part in _slices(len(order), batch_size):
            for count in sorted({len(choices[row]) for row in order[part]}):
                rows = [row for row in order[part] if len(choices[row]) == count]
                texts = ([values[row] for row in rows] for values in (contexts, questions, choices))
                outputs = graph(*(tf.constant(values) for values in texts))
                chosen = zip(
                    outputs["index"].numpy(), outputs["probabilities"].numpy(), strict=True
                )
                for row, (index, chances) in zip(rows, chosen, strict=True):
                    found[row] = Choice(int(index), choices[row][index], chances)
        return found

    def _objective(self, asked: str, task: str | None = None) -> Objective:
        """The objective that answers what is asked, of several tasks that of the one named."""
        kinds = [objective.type for objective in self.config.objectives]
        fitting = [
            objective
            for objective, kind in zip(self.model.objectives, kinds, strict=True)
            if kind in ASKED[asked]
        ]
        if not fitting:
            names = " or ".join(ASKED[asked])
            others = [name for name, able in ASKED.items() if set(able) & set(kinds)]
            raise UserError(
                f"{asked}: this model has no objective {names}, only {', '.join(kinds) or 'none'}"
                + (f": call {' or '.join(others)}" if others else "")
            )
        tasks = {getattr(objective.config, "task", ""): objective for objective in fitting}
        if task is None and len(fitting) == 1:
            return fitting[0]
        if task not in tasks:
            given = "missing" if task is None else f"{task!r} is not known"
            known = ", ".join(filter(None, tasks)) or "none"
            raise UserError(f"task: {given}: those of {asked} that this model knows are {known}")
        return tasks[task]

    def _rows(
        self, head: Objective, said: str, texts: Sequence[Sequence[str]], batch_size: int
    ) -> np.ndarray:
        """What is said of each row of one or two texts, those of like length together."""
        name = "rank" if said == "scores" else ("single", "pair")[len(texts) - 1]
        graph = self._signature(head, name)
        order = np.argsort([sum(map(len, row)) for row in zip(*texts, strict=True)], kind="stable")
        found = [np.zeros(0, np.float32)]
        for part in _slices(len(order), batch_size):
            some = (tf.constant([values[row] for row in order[part]]) for values in texts)
            found.append(graph(*some)[said].numpy())
        values = np.concatenate(found[1:]) if found[1:] else found[0]
        return values[np.argsort(order)]

    def _signature(self, head: Objective, name: str, **task: Any) -> inputs.Signature:
        """The signature of an export of that head; `task` changes what training noted."""
        key = head.name, name, *task.items()
        if key not in self._signatures:
            weights = Weights([self.model.encoder, head])
            parts = self.config, self.tokenizer, self.model, weights, self.max_length
            made = module_of(head.config.type).signatures
            self._signatures[key] = made(
                inputs.ServingContext(*parts, {**self.task, **task}, head)
            )[name]
        return self._signatures[key]


def _pairs(texts: Sequence[str], second: Sequence[str] | None) -> list[Sequence[str]]:
    if second is None:
        _check_list(texts, "texts")
        return [texts]
    return _same(texts=texts, second=second)


def _same(**given: Sequence) -> list[Sequence]:
    """The lists, which must be as long as one another."""
    for name, values in given.items():
        _check_list(values, name)
    if len({len(values) for values in given.values()}) > 1:
        counts = ", ".join(f"{len(values)} {name}" for name, values in given.items())
        raise UserError(f"as many of each are wanted, and there are {counts}")
    return list(given.values())


def _check_list(values: Sequence, name: str) -> None:
    if isinstance(values, str | bytes):
        raise UserError(f"{name}: give a list, such as [text], not one text")


def _slices(count: int, size: int) -> list[slice]:
    if size < 1:
        raise UserError(f"batch_size: {size} is less than 1")
    return [slice(start, start + size) for start in range(0, count, size)]
