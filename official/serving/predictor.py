"""Applies the heads of tasks to texts: the methods of `official.load(DIR)` and their results.

The results are those of the SavedModel (`official.export`), whose signatures are called, and those
of `--mode=predict`.

Shapes: N texts, questions or documents, K choices.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official.modeling.layers import kernels
from official.modeling.objectives.base import Objective
from official.saving.served_model import ServedModel
from official.serving import zero_shot
from official.serving.compute import first_call
from official.serving.compute.precision import Weights
from official.serving.signatures import texts as text_signatures
from official.serving.signatures.inputs import ServingContext, Signature
from official.serving.signatures.table import module_of
from official.tasks import KINDS, no_such_head
from official.tokenizers.base import characters
from official.utils import given_texts
from official.utils.errors import UserError


class Label(NamedTuple):
    """The label of a text.

    Attributes:
      label: the most probable label.
      probabilities: the probability of each label by its name.
    """

    label: str
    probabilities: dict[str, float]


class Labels(NamedTuple):
    """The labels of a text that may have any number of them.

    Attributes:
      labels: those whose probability is at least their threshold, in the order of the model.
      probabilities: the probability of each label by its name.
    """

    labels: tuple[str, ...]
    probabilities: dict[str, float]


class Answer(NamedTuple):
    """The answer to a question.

    Attributes:
      text: `context[start:end]`; empty if there is no answer.
      start: the position of its first character in the context.
      end: the position after its last character.
      score: the score of the best span, even if the answer is empty.
      null_odds: the score of "there is no answer"; None if every question has an answer.
    """

    text: str
    start: int
    end: int
    score: float
    null_odds: float | None


class Choice(NamedTuple):
    """One of several choices.

    Attributes:
      index: the number of the most probable choice, from 0.
      text: the text of this choice.
      probabilities: the probability of each choice, float32 [K].
    """

    index: int  # type: ignore[assignment]  # in place of the method of a tuple
    text: str
    probabilities: np.ndarray


class Entity(NamedTuple):
    """An entity of a text.

    Attributes:
      type: the type that its tags name, such as "PER".
      text: `text[start:end]`, or for a text that is given as words these words joined by blanks.
      start: the position of its first character, or the number of its first word.
      end: the position after its last character, or the number of the word after its last one.
      score: the mean probability of the tags of its words.
    """

    type: str
    text: str
    start: int
    end: int
    score: float


# The objectives that each method applies to.
OBJECTIVES: dict[str, tuple[str, ...]] = {}
for _kind in KINDS.values():
    if _kind.method:
        _others = OBJECTIVES.get(_kind.method, ())
        OBJECTIVES[_kind.method] = tuple(dict.fromkeys((*_others, *_kind.objectives)))
TEXTS, WORDS = "tag", "tag_words"
_PAIR_LOGITS = "pair_logits"  # a signature that no export has
_HAS = 0.5  # the lowest probability of one of several labels that a text has
_NO_ROWS = np.zeros(0, np.float32)
# The most characters of a batch, padded to its longest text, that is computed without groups.
_EAGER_CHARACTERS = 2048


class Predictor:
    """Applies the heads of a model to texts.

    Args:
      source: the model, its tokenizer and its task.
    """

    def __init__(self, source: ServedModel):
        self.config = source.config
        self.tokenizer = source.tokenizer
        self.model = source.model
        self.max_length = source.max_length
        self.task = source.task
        self._source = source
        self._signatures: dict[tuple[str, str, bool | None], Callable] = {}

    def classify(
        self,
        texts: Sequence[str] | Sequence[tuple[str, str]],
        second: Sequence[str] | None = None,
        batch_size: int = 32,
        task: str | None = None,
        *,
        labels: Sequence[str] | None = None,
        hypothesis: str = zero_shot.HYPOTHESIS,
        several: bool = False,
    ) -> list[Label] | list[Labels]:
        """Labels texts with the objective `classification` or `multi_label`.

        With `labels` the model is one of textual entailment, such as one trained on MNLI, and the
        labels are those given: each one becomes a hypothesis, and the text entails it or not. See
        `official.serving.zero_shot`.

        Args:
          texts: any number of texts, or of pairs of texts (tuples or lists), if the model takes
            pairs. Texts longer than `max_length` are cut, or read in the windows of the training.
          second: the second text of each pair, if `texts` are the first ones.
          batch_size: the number of texts in a batch. Texts of similar length share a batch.
          task: the name of the head, for a model of several tasks.
          labels: the names of the classes, for a model of textual entailment.
          hypothesis: what says that a text is of a class, with `{}` in the place of its name.
          several: with `labels`, whether a text may have any number of them; it has those whose
            probability is at least 0.5.

        Returns:
          For each text its `label` (of `multi_label`, and with `several`: its `labels`, any number
          of them) and the `probabilities` of all labels by name.

        Raises:
          UserError: the model has no such objective, no names of labels, or no head of this name;
            a single text is given instead of a list; the lists have different lengths; a value is
            no text; labels are given to a model that has no label of entailment.
        """
        head = self._objective("classify", task)
        if labels is not None:
            if second is not None:
                raise UserError("classify: labels are chosen for single texts: leave out `second`")
            first = given_texts.pairs(texts, None)
            if len(first) == 2:
                raise UserError("classify: labels are chosen for single texts, not for pairs")
            pairs = zero_shot.pairs(first[0], labels, hypothesis)
            return self.entailed(self.entailment(pairs, batch_size, task), labels, several, task)
        if several or hypothesis != zero_shot.HYPOTHESIS:
            raise UserError(
                "classify: hypothesis and several are for labels that you give: add labels=[...]"
            )
        outputs = self._rows(head, given_texts.pairs(texts, second), batch_size)
        names = head.config.labels
        rows = outputs.get("probabilities", _NO_ROWS)
        probabilities = [dict(zip(names, row.tolist(), strict=True)) for row in rows]
        if "has_label" in outputs:
            every = [tuple(itertools.compress(names, has)) for has in outputs["has_label"]]
            return list(map(Labels, every, probabilities))
        chosen = [label.decode() for label in outputs.get("label", ())]
        return list(map(Label, chosen, probabilities))

    def entailment(
        self, pairs: Sequence[tuple[str, str]], batch_size: int = 32, task: str | None = None
    ) -> np.ndarray:
        """Returns the logits of a model of textual entailment, float32 [N, C].

        Args:
          pairs: a text and a hypothesis each, [N]; see `official.serving.zero_shot.pairs`.
          batch_size: the number of pairs in a batch.
          task: as in `classify`.

        Raises:
          UserError: the model has no label of entailment.
        """
        head = self._objective("classify", task)
        self._entailment_labels(head)
        columns = given_texts.pairs(pairs, None)
        return self._rows(head, columns, batch_size, _PAIR_LOGITS).get("logits", _NO_ROWS)

    def entailed(
        self, logits: np.ndarray, labels: Sequence[str], several: bool, task: str | None = None
    ) -> list[Label] | list[Labels]:
        """Chooses the labels of texts by what `entailment` says; see `classify`.

        Args:
          logits: of each text and each label in turn, [N * K, C].
          labels: the names of the K classes.
          several: whether a text may have any number of them.
          task: as in `classify`.
        """
        decide = self._entailment_labels(self._objective("classify", task))
        if not len(logits):
            return []
        found = decide.probabilities(logits.reshape(-1, len(labels), logits.shape[1]), several)
        probabilities = [dict(zip(labels, row.tolist(), strict=True)) for row in found]
        if several:
            chosen = [tuple(itertools.compress(labels, row >= _HAS)) for row in found]
            return list(map(Labels, chosen, probabilities))
        return [Label(labels[i], p) for i, p in zip(found.argmax(1), probabilities, strict=True)]

    def _entailment_labels(self, head: Objective) -> zero_shot.Entailment:
        if head.config.type != "classification":
            raise UserError(f"classify: labels need a classification, not {head.config.type}")
        return zero_shot.Entailment.of(head.config.labels)

    def score(
        self,
        texts: Sequence[str] | Sequence[tuple[str, str]],
        second: Sequence[str] | None = None,
        batch_size: int = 32,
        task: str | None = None,
    ) -> np.ndarray:
        """Scores texts with the objective `regression`; returns float32 [N].

        Arguments and errors are those of `classify`.
        """
        head = self._objective("score", task)
        rows = self._rows(head, given_texts.pairs(texts, second), batch_size)
        return rows.get("score", _NO_ROWS)

    def rank(
        self,
        query: str | Sequence[str],
        documents: Sequence[str],
        batch_size: int = 32,
        raw: bool = False,
    ) -> np.ndarray:
        """Scores documents for a query with the objective `ranking` or `kernel_ranking`.

        Args:
          query: a query for all documents, or one for each document.
          documents: any number of documents. Documents longer than `max_length` are cut.
          batch_size: the number of documents in a batch.
          raw: whether the scores of a model with `output: sigmoid` are those before the sigmoid.
            They tell apart documents whose sigmoid is 1 in float32.

        Returns:
          The scores in the order of the documents, float32 [N]. Higher is better.

        Raises:
          UserError: the model has no such objective; a single document is given instead of a list;
            the lists have different lengths.
        """
        head = self._objective("rank")
        given_texts.check_list(documents, "documents")
        queries = [query] * len(documents) if isinstance(query, str) else query
        query, documents = given_texts.same_length(query=queries, documents=documents)
        pairs = [query, documents]
        (name,) = module_of(head.config.type).DEFAULT
        rows = self._rows(head, pairs, batch_size, name)
        scores = rows.get("scores", _NO_ROWS)
        return rows.get("logits", scores) if raw else scores

    def answer(
        self,
        questions: Sequence[str],
        contexts: str | Sequence[str],
        batch_size: int = 8,
        no_answers: bool | None = None,
    ) -> list[Answer]:
        """Answers questions from their contexts with the objective `span_answer`.

        Args:
          questions: any number of questions.
          contexts: a context for all questions, or one for each question. A context may have any
            length, because it is read in windows.
          batch_size: the number of questions in a batch.
          no_answers: whether a question may have no answer; None = as in training. If the training
            data is unknown, every question has an answer.

        Returns:
          For each question `text`, `start` and `end` in characters of the context, `score`, and
          `null_odds` if questions may have no answer.

        Raises:
          UserError: the model has no such objective; a single question is given instead of a list;
            the lists have different lengths.
        """
        head = self._objective("answer")
        given_texts.check_list(questions, "questions")
        contexts = [contexts] * len(questions) if isinstance(contexts, str) else contexts
        questions, contexts = given_texts.same_length(questions=questions, contexts=contexts)
        alone = _alone(list(zip(questions, contexts, strict=True)), batch_size)
        graph = self._signature(head, "answer", alone, no_answers)
        answers: list[Answer] = []
        for rows in given_texts.slices(len(questions), batch_size):
            outputs = graph(tf.constant(questions[rows]), tf.constant(contexts[rows]))
            values = {name: value.numpy().tolist() for name, value in outputs.items()}
            for i, text in enumerate(values["answer"]):
                odds = values["null_odds"][i] if "null_odds" in values else None
                span = values["start"][i], values["end"][i]
                answers.append(Answer(text.decode(), *span, values["score"][i], odds))
        return answers

    def choose(
        self,
        contexts: Sequence[str],
        questions: Sequence[str],
        choices: Sequence[Sequence[str]],
        batch_size: int = 8,
    ) -> list[Choice]:
        """Chooses one of several choices with the objective `multiple_choice`.

        Args:
          contexts: the text that each question is about.
          questions: any number of questions. A question may be empty.
          choices: the choices of each question, any number of them.
          batch_size: the number of questions in a batch.

        Returns:
          For each question the `index` and the `text` of its most probable choice, and the
          `probabilities` of all choices.

        Raises:
          UserError: the model has no such objective; the lists have different lengths; a question
            has no choices.
        """
        head = self._objective("choose")
        given_texts.check_lengths(contexts=contexts, questions=questions, choices=choices)
        contexts = given_texts.plain(contexts, "contexts")
        questions = given_texts.plain(questions, "questions")
        for number, several in enumerate(choices):
            if isinstance(several, str) or not hasattr(several, "__len__") or not len(several):
                raise UserError(f"choices: row {number} has no list of choices: {several!r}")
        choices = [
            given_texts.plain(several, f"choices: row {number}")
            for number, several in enumerate(choices)
        ]
        given = zip(contexts, questions, choices, strict=True)
        alone = _alone(
            [(c, q, choice) for c, q, several in given for choice in several], batch_size
        )
        graph = self._signature(head, "choose", alone)
        results: dict[int, Choice] = {}
        # The questions of a batch have the same number of choices.
        order = sorted(range(len(choices)), key=lambda row: len(choices[row]))
        for part in given_texts.slices(len(order), batch_size):
            for count in sorted({len(choices[row]) for row in order[part]}):
                rows = [row for row in order[part] if len(choices[row]) == count]
                texts = ([values[row] for row in rows] for values in (contexts, questions, choices))
                outputs = graph(*(tf.constant(values) for values in texts))
                chosen = zip(
                    outputs["index"].numpy(), outputs["probabilities"].numpy(), strict=True
                )
                for row, (index, probabilities) in zip(rows, chosen, strict=True):
                    results[row] = Choice(int(index), choices[row][index], probabilities)
        return [results[row] for row in range(len(choices))]

    def tag(
        self,
        texts: Sequence[str] | Sequence[Sequence[str]],
        batch_size: int = 32,
        task: str | None = None,
    ) -> list[list[Entity]]:
        """Finds entities with the objective `token_classification`.

        Args:
          texts: any number of texts of any length, because they are read in windows. A text is a
            string, which is split into words as the training data were
            (`official.tokenizers.text_words`), or the list of its words.
          batch_size: the number of texts in a batch. Texts of similar length share a batch.
          task: the name of the head, for a model of several tasks.

        Returns:
          For each text its entities: `type`, `text`, `start`, `end` and `score`. Offsets are Python
          indices of a string, `text == texts[i][start:end]`, or numbers of words.

        Raises:
          UserError: the model has no such objective, no names of tags, or no head of this name; a
            single text is given instead of a list; some texts are strings and others lists.
        """
        head = self._objective("tag", task)
        given_texts.check_list(texts, "texts")
        name = signature_of(texts)
        graph = self._signature(head, name, _alone(texts, batch_size))
        results: list[list[Entity]] = [[] for _ in texts]
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        for part in given_texts.slices(len(order), batch_size):
            rows = [texts[row] for row in order[part]]
            found = entities_of(graph, name, rows)
            for row, entities in zip(order[part], found, strict=True):
                results[row] = entities
        return results

    def tasks(self, method: str) -> list[str]:
        """Returns the names of the heads that a method applies to; that of an only head is ""."""
        return [head.task for head in self.config.of_types(*OBJECTIVES[method])]

    def _objective(self, method: str, task: str | None = None) -> Objective:
        """Returns the objective for a method; `task` selects one of several."""
        kinds = [objective.type for objective in self.config.objectives]
        fitting = [
            objective
            for objective, kind in zip(self.model.objectives, kinds, strict=True)
            if kind in OBJECTIVES[method]
        ]
        if not fitting:
            *first, last = OBJECTIVES[method]
            names = f"{', '.join(first)} or {last}" if first else last
            others = [name for name, types in OBJECTIVES.items() if set(types) & set(kinds)]
            raise UserError(
                f"{method}: this model has no objective {names}, only {', '.join(kinds) or 'none'}"
                + (f": call {' or '.join(others)}" if others else "")
            )
        tasks = {objective.config.task: objective for objective in fitting}
        if task is None and len(fitting) == 1:
            return fitting[0]
        if task not in tasks:
            raise no_such_head(task, tasks, "task", f"of this model for {method}")
        return tasks[task]

    def _rows(
        self,
        head: Objective,
        texts: Sequence[Sequence[str]],
        batch_size: int,
        name: str | None = None,
    ) -> dict[str, np.ndarray]:
        """Returns the outputs of a signature for rows of one or two texts; {} without rows.

        Rows are sorted by length first. Without a name it is the signature of texts or of pairs.
        """
        rows = list(zip(*texts, strict=True))
        name = name or ("single", "pair")[len(texts) - 1]
        graph = self._signature(head, name, _alone(rows, batch_size))
        order = np.argsort([sum(map(len, row)) for row in rows], kind="stable")
        batches = []
        for part in given_texts.slices(len(order), batch_size):
            inputs = (tf.constant([values[row] for row in order[part]]) for values in texts)
            batches.append({key: value.numpy() for key, value in graph(*inputs).items()})
        back = np.argsort(order)
        return {
            key: np.concatenate([batch[key] for batch in batches])[back]
            for key in (batches[0] if batches else ())
        }

    def _signature(
        self, head: Objective, name: str, alone: bool, no_answers: bool | None = None
    ) -> Callable[..., dict[str, tf.Tensor]]:
        """Returns what computes a signature of an export of the head.

        Args:
          head: the objective.
          name: the name of the signature.
          alone: whether it computes the only batch of something, of few texts; see `first_call`.
          no_answers: overrides that of the task; None = as there.
        """
        key = head.name, name, no_answers
        if key not in self._signatures:
            self._signatures[key] = self._function(head, name, no_answers)
        return functools.partial(self._signatures[key], alone=alone)

    def _function(
        self, head: Objective, name: str, no_answers: bool | None
    ) -> Callable[..., dict[str, tf.Tensor]]:
        """Makes what `_signature` returns, but for `alone`."""
        source = self._source
        if no_answers is not None:
            source = dataclasses.replace(source, task={**source.task, "no_answers": no_answers})
        weights = Weights([self.model.encoder, head])

        def signature(groups: bool) -> Signature:
            context = ServingContext(**vars(source), weights=weights, head=head, groups=groups)
            if name == _PAIR_LOGITS:
                return text_signatures.pair_logits(context)
            return module_of(head.config.type).signatures(context)[name]

        # Groups are functions of their own, which are traced even where this one is not.
        eager, graph = signature(groups=False).python_function, signature(groups=True)
        function = first_call.Function(eager, graph)

        def computed(*inputs: tf.Tensor, alone: bool) -> dict[str, tf.Tensor]:
            with kernels.using(gradients=False):
                return function(*inputs, alone=alone)

        return computed


def _alone(rows: Sequence[Sequence], batch_size: int) -> bool:
    """Whether rows of texts are the only batch, and so few that they take little memory in one."""
    if len(rows) > batch_size:
        return False
    longest = max((sum(map(len, row)) for row in rows), default=0)
    return len(rows) * longest <= _EAGER_CHARACTERS


def signature_of(texts: Sequence) -> str:
    """Returns the signature for strings, `TEXTS`, or for lists of words, `WORDS`.

    Raises:
      UserError: a text is neither, or some are strings and others are lists.
    """
    found: dict[bool, int] = {}
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            _check_words(number, text)
        found.setdefault(isinstance(text, str), number)
    if len(found) > 1:
        raise UserError(
            f"texts: text {found[True]} is a string and text {found[False]} is a list of words: "
            "give all as strings or all as lists"
        )
    return WORDS if False in found else TEXTS


def _check_words(number: int, text: Sequence[str]) -> None:
    if not isinstance(text, list | tuple):
        raise UserError(f"texts: text {number} is neither a string nor a list of words: {text!r}")
    for word in text:
        if not isinstance(word, str):
            raise UserError(f"texts: text {number} has a word that is not a string: {word!r}")


def entities_of(graph: Callable, name: str, texts: Sequence) -> list[list[Entity]]:
    """Returns the entities of each text.

    Args:
      graph: computes the signature.
      name: `TEXTS` or `WORDS`.
      texts: the texts of a batch, as `name` says.
    """
    if name == TEXTS:
        outputs = graph(characters(texts))
    else:
        words = [word for text in texts for word in text]
        lengths = [len(text) for text in texts]
        outputs = graph(characters(words), tf.constant(lengths, tf.int32))
    values = {key: value.numpy().tolist() for key, value in outputs.items()}
    results = []
    for row, text in enumerate(texts):
        found = []
        for i in range(values["number"][row]):
            start, end = values["starts"][row][i], values["ends"][row][i]
            spelled = text[start:end] if name == TEXTS else " ".join(text[start:end])
            kind, score = values["types"][row][i].decode(), values["scores"][row][i]
            found.append(Entity(kind, spelled, start, end, score))
        results.append(found)
    return results
