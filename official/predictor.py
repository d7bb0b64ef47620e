"""What a model with a task's head says of texts, in Python: `official.load(DIR)` answers with this.

The answers are those of the SavedModel (`official.export`) and of `--mode=predict`.

Shapes: N texts, questions or documents, K choices.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from official import config as configs
from official import tokenizers
from official.errors import UserError
from official.model import Model
from official.objectives.base import Objective
from official.sequences import text_mask
from official.serving import answer, choose, doors
from official.serving.precision import Weights
from official.tokenizers.packing import pack

# The objectives of each question that can be asked of a model.
ASKED = {
    "classify": ("classification",),
    "score": ("regression",),
    "rank": ("ranking", "kernel_ranking"),
    "answer": ("span_answer",),
    "choose": ("multiple_choice",),
}


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
      task: what training noted of the task (`official.inference.task`).
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
        self._graphs: dict[Any, Callable] = {}

    def classify(
        self,
        texts: Sequence[str],
        second: Sequence[str] | None = None,
        batch_size: int = 32,
        task: str | None = None,
    ) -> list[Label]:
        """Labels texts, or pairs: see `official.inference.Loaded.classify`."""
        objective = self._objective("classify", task)
        labels = objective.config.labels
        if not labels:
            raise UserError(
                "objectives: the classification has no `labels` in config.yaml: write the names "
                "there, in the order of their numbers"
            )

        def said(batch: dict[str, tf.Tensor]) -> tf.Tensor:
            return tf.nn.softmax(objective.logits(self.model.encode(batch)))

        rows = self._rows(objective, said, _pairs(texts, second), batch_size)
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
        """Scores texts, or pairs: see `official.inference.Loaded.score`."""
        objective = self._objective("score", task)

        def said(batch: dict[str, tf.Tensor]) -> tf.Tensor:
            return objective.scores(self.model.encode(batch))

        return self._rows(objective, said, _pairs(texts, second), batch_size)

    def rank(
        self, query: str | Sequence[str], documents: Sequence[str], batch_size: int = 32
    ) -> np.ndarray:
        """Scores documents: see `official.inference.Loaded.rank`."""
        objective = self._objective("rank")
        special = self.tokenizer.special_ids

        def said(batch: dict[str, tf.Tensor]) -> tf.Tensor:
            text = text_mask(batch["token_ids"], batch["padding_mask"], special)
            ready = objective.prepare({**batch, "text_mask": text})
            return objective.scores(ready, self.model.encode(ready))

        _check_list(documents, "documents")
        queries = [query] * len(documents) if isinstance(query, str) else query
        return self._rows(objective, said, _pairs(queries, documents), batch_size)

    def answer(
        self,
        questions: Sequence[str],
        contexts: str | Sequence[str],
        batch_size: int = 8,
        no_answers: bool | None = None,
    ) -> list[Answer]:
        """Answers questions: see `official.inference.Loaded.answer`."""
        head = self._objective("answer")
        _check_list(questions, "questions")
        contexts = [contexts] * len(questions) if isinstance(contexts, str) else contexts
        questions, contexts = _same(questions=questions, contexts=contexts)
        given = {} if no_answers is None else {"no_answers": no_answers}
        graph = self._graph(
            ("answer", no_answers),
            lambda: answer.signatures(self._parts(head, {**self.task, **given}))["answer"],
        )
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
        """Chooses: see `official.inference.Loaded.choose`."""
        head = self._objective("choose")
        contexts, questions, choices = _same(
            contexts=contexts, questions=questions, choices=choices
        )
        for number, several in enumerate(choices):
            if isinstance(several, str) or not several:
                raise UserError(f"choices: row {number} has no list of choices: {several!r}")
        graph = self._graph(
            "choose", lambda: choose.signatures(self._parts(head, self.task))["choose"]
        )
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
        kinds = [configs.type_of(objective) for objective in self.config.objectives]
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
        self,
        objective: Objective,
        said: Callable[[dict[str, tf.Tensor]], tf.Tensor],
        texts: Sequence[Sequence[str]],
        batch_size: int,
    ) -> np.ndarray:
        """What is said of each row of one or two texts, those of like length together."""
        graph = self._graph((objective.name, len(texts)), lambda: self._packed(said, len(texts)))
        ids = [self.tokenizer.encode(list(values)) for values in texts]
        lengths = sum((np.array([len(row) for row in part], int) for part in ids), start=0)
        order = np.argsort(lengths, kind="stable")
        found = [np.zeros(0, np.float32)]
        for part in _slices(len(order), batch_size):
            some = [[rows[row] for row in order[part]] for rows in ids]
            found.append(graph(*map(_ragged, some)).numpy())
        values = np.concatenate(found[1:]) if found[1:] else found[0]
        return values[np.argsort(order)]

    def _graph(self, key: Any, make: Callable[[], Callable]) -> Callable:
        if key not in self._graphs:
            self._graphs[key] = make()
        return self._graphs[key]

    def _packed(self, said: Callable[[dict[str, tf.Tensor]], tf.Tensor], count: int) -> Callable:
        """The graph from the ids of `count` texts to what is said of them."""

        def outputs(*ids: tf.RaggedTensor) -> tf.Tensor:
            layout = self.config.encoder.layout
            return said(pack(ids, self.tokenizer, self.max_length, layout))

        signature = [tf.RaggedTensorSpec([None, None], tf.int32)] * count
        return tf.function(outputs, input_signature=signature, autograph=False)

    def _parts(self, head: Objective, task: Mapping[str, Any]) -> doors.Parts:
        weights = Weights([self.model.encoder, head])
        parts = self.config, self.tokenizer, self.model, weights, self.max_length
        return doors.Parts(*parts, task, head)


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


def _ragged(rows: Sequence[np.ndarray]) -> tf.RaggedTensor:
    return tf.RaggedTensor.from_row_lengths(
        np.concatenate(rows).astype(np.int32), [len(row) for row in rows]
    )
