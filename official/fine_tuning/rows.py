"""The data of `finetune` and its twins: what they may be, and the rows of shards they become.

Examples have columns, which are the arguments of a call or the columns of its table. The subclasses
of `Examples` differ in the last one: classes, lists of labels, scores, tags, or answers.
"""

import collections
import contextlib
import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from typing_extensions import override

from official import tasks
from official.shards.side_texts import Question
from official.tasks import Task, conll, named_tasks, tagged_objects
from official.tasks.tagged_texts import TaggedWords
from official.utils import given_texts
from official.utils.errors import UserError
from official.utils.text_lines import Unusable
from tfrecords_tools.tasks import labelled_text, span

_TEXTS = ("text", "text_b", "question", "context")  # the columns with a text in each row
_LISTS = (list, tuple, set, frozenset)


@dataclasses.dataclass(frozen=True)
class Examples:
    """Examples of one split or of several.

    Attributes:
      columns: the values by the name of their column; all have the same length.
      by_family: whether the family of the model has settings of its own for them.
    """

    columns: Mapping[str, list]

    by_family: ClassVar[bool] = False

    @classmethod
    def of(cls, columns: Mapping[str, list]) -> Self:
        """Returns examples of values that are checked; of two that mean the same, one stays.

        Raises:
          UserError: a value cannot be used.
        """
        return cls(columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __iter__(self) -> Iterator[tuple]:
        return zip(*self.columns.values(), strict=True)

    def take(self, numbers: Sequence[int]) -> Self:
        """Returns some of the examples."""
        taken = {name: [values[i] for i in numbers] for name, values in self.columns.items()}
        return dataclasses.replace(self, columns=taken)

    def counts(self, *others: Self) -> dict[str, int]:
        """Returns how many of these examples and others have each label, in the order of labels."""
        return {}

    def check_held_out(self, other: Self) -> None:
        """Raises UserError if those of `validation` have a label that these do not teach."""
        known = self.counts()
        for label in other.counts():
            if label not in known:
                raise UserError(f"validation: the label {label!r} does not occur in training")

    def task(self, *others: Self) -> Task:
        """Returns the task of these examples and others, whose name is that of a config.

        Raises:
          UserError: there is nothing to learn.
        """
        raise NotImplementedError

    def rows(self, task: Task, split: str) -> list:
        """Returns the rows that the builder of the kind of task takes."""
        raise NotImplementedError

    def sizes(self, max_length: int) -> dict[str, int]:
        """Returns the sizes of the builder that depend on the length of its examples."""
        return {}


class Labeled(Examples):
    """Texts or pairs of texts with labels or scores."""

    by_family = True
    kind: ClassVar[str]  # that of the task

    @override
    def task(self, *others: Self) -> Task:
        labels = [label.strip() for label in self.counts(*others)]
        pair = "text_b" if "text_b" in self.columns else None
        return tasks.generic(self.kind, "text", pair, "label", labels)

    @override
    def rows(self, task: Task, split: str) -> list[labelled_text.UsableRow]:
        targets = self._targets({label: i for i, label in enumerate(task.labels)})
        pairs = zip(self, targets, strict=True)
        return [
            labelled_text.UsableRow(number, list(texts), target)
            for number, ((*texts, _), target) in enumerate(pairs)
        ]

    @override
    def counts(self, *others: Self) -> dict[str, int]:
        labels = [label for each in (self, *others) for label in each._labels()]
        if len(set(map(type, labels))) > 1:
            labels = list(map(str, labels))
        counted = collections.Counter(labels)
        return {str(label): counted[label] for label in sorted(counted)}

    def _labels(self) -> Iterable[Any]:
        return ()

    def _targets(self, ids: Mapping[str, int]) -> Iterable[int | float | list[int]]:
        """Returns what is learned of each example; `ids` are the numbers of the labels."""
        raise NotImplementedError


class Classes(Labeled):
    """Texts with a label each: a text, a whole number or a boolean."""

    kind = "classification"

    @classmethod
    @override
    def of(cls, columns: Mapping[str, list]) -> Self:
        _check_present(columns["label"])
        labels = [
            int(label) if isinstance(label, float) and label.is_integer() else label
            for label in columns["label"]
        ]
        for number, label in enumerate(labels):
            if not _is_name(label, bool | int | str):
                raise UserError(f"label {number}: {label!r} is neither a text nor a whole number")
        _check_minus_one(labels)
        return cls({**columns, "label": labels})

    @override
    def task(self, *others: Self) -> Task:
        if len(self.counts(*others)) < 2:
            label = self.columns["label"][0]
            raise UserError(f"label: all are {label!r}: expected at least two classes")
        return super().task(*others)

    def _labels(self) -> Iterable[Any]:
        return self.columns["label"]

    def _targets(self, ids: Mapping[str, int]) -> Iterator[int]:
        return (ids[str(label).strip()] for label in self.columns["label"])


class LabelLists(Labeled):
    """Texts with any number of labels each."""

    kind = "multi_label"

    @classmethod
    @override
    def of(cls, columns: Mapping[str, list]) -> Self:
        labels = columns["label"]
        _check_present(labels)
        for number, names in enumerate(labels):
            if not isinstance(names, _LISTS):
                raise UserError(
                    f"label {number}: {names!r} is not a list of labels: a text without any has []"
                )
            for name in names:
                if not _is_name(name, int | str) or isinstance(name, bool):
                    raise UserError(
                        f"label {number}: {name!r} in {names!r} is neither a text nor a whole "
                        "number"
                    )
        distinct = {name for names in labels for name in names}
        if distinct <= {0, 1} and {len(names) for names in labels} not in ({0}, {1}, {0, 1}):
            raise UserError(
                f"label: these are zeros and ones, such as {list(labels[0])!r}: give the names of "
                "the labels of each text"
            )
        for number, names in enumerate(labels):
            if len(set(map(str, names))) < len(names):
                raise UserError(f"label {number}: {list(names)!r} contains a label twice")
        return cls(columns)

    @override
    def task(self, *others: Self) -> Task:
        if not self.counts(*others):
            raise UserError("label: no text has a label")
        return super().task(*others)

    def _labels(self) -> Iterable[Any]:
        return (name for names in self.columns["label"] for name in names)

    def _targets(self, ids: Mapping[str, int]) -> Iterator[list[int]]:
        for names in self.columns["label"]:
            own = {str(name).strip() for name in names}
            yield [int(label in own) for label in ids]


class Scores(Labeled):
    """Texts with a number each."""

    kind = "regression"

    @classmethod
    @override
    def of(cls, columns: Mapping[str, list]) -> Self:
        scores = columns["label"]
        _check_present(scores)
        for number, score in enumerate(scores):
            if isinstance(score, bool) or not isinstance(score, int | float):
                raise UserError(f"label {number}: {score!r} is not a number")
            if not math.isfinite(_float32(score)):
                raise UserError(f"label {number}: {score!r} is too large for a score")
        if {score for score in scores if score < 0} == {-1}:
            raise UserError(
                f"label {scores.index(-1)}: -1, and no other score is below 0: `datasets` writes "
                "it for a text without a score: leave these texts out, or, if it is a score, add 1 "
                "to all of them"
            )
        return cls(columns)

    def _targets(self, ids: Mapping[str, int]) -> Iterator[float]:
        return map(_float32, self.columns["label"])


class Tags(Examples):
    """Sentences as words, with a tag for each."""

    @classmethod
    @override
    def of(cls, columns: Mapping[str, list]) -> Self:
        cleaned: dict[str, list] = {name: [] for name in columns}
        for number, row in enumerate(cls(columns)):
            for name, values in zip(columns, row, strict=True):
                if isinstance(values, str) or not all(isinstance(v, str) for v in values):
                    raise UserError(f"{name} {number}: {values!r} is not a list of texts")
                cleaned[name].append(tuple(given_texts.plain(values, name)))
            words, tags = (cleaned[name][-1] for name in columns)
            if len(words) != len(tags) or not len(words):
                raise UserError(f"tags {number}: {len(tags)} tags for {len(words)} words")
            try:
                tagged_objects.check_words(words, f"words {number}")
                for tag in tags:
                    conll.checked_tag(tag, f"tags {number}")
            except Unusable as fault:
                raise UserError(fault.args[1]) from None
        return cls(cleaned)

    @override
    def task(self, *others: Self) -> Task:
        columns = named_tasks.CONLL_COLUMNS
        return tasks.generic("tagging", columns.text, label=columns.label)

    @override
    def rows(self, task: Task, split: str) -> list[TaggedWords]:
        return [
            TaggedWords(words, tags, f"{split} {number}", ())
            for number, (words, tags) in enumerate(self)
        ]


@dataclasses.dataclass(frozen=True)
class Questions(Examples):
    """Questions about contexts, with answers (text, start), or None where there is none.

    Attributes:
      answer_rule: how answers are compared; see `official.tasks.answer_rules`.
    """

    answer_rule: str = ""

    @classmethod
    @override
    def of(cls, columns: Mapping[str, list]) -> Self:
        answers = [_with_start(n, *row) for n, (_, *row) in enumerate(cls(columns))]
        return cls({**columns, "answer": answers})

    @override
    def check_held_out(self, other: Self) -> None:
        answers = other.columns["answer"]
        if None in answers and None not in self.columns["answer"]:
            raise UserError(
                f"validation: answer {answers.index(None)}: there is none, and every question of "
                "training has one"
            )

    @override
    def task(self, *others: Self) -> Task:
        missing = any(None in each.columns["answer"] for each in (self, *others))
        task = tasks.find("squad2" if missing else "squad1")
        return dataclasses.replace(task, answer_rule=self.answer_rule)

    @override
    def rows(self, task: Task, split: str) -> list[span.FileQuestion]:
        result = []
        for number, (question, context, answer) in enumerate(self):
            texts, starts = ((), ()) if answer is None else ((answer[0],), (answer[1],))
            row = Question(f"{split}-{number}", question, context, texts)
            result.append(span.FileQuestion(row, starts, f"{split} {number}"))
        return result

    @override
    def sizes(self, max_length: int) -> dict[str, int]:
        third = max_length // 3
        return {
            "doc_stride": max(min(span.Builder.doc_stride, third), 1),
            "max_query_length": min(span.Builder.max_query_length, third),
        }


_LABELED = {form.kind: form for form in (Classes, LabelLists, Scores)}


def read(names: Sequence[str], values: Sequence[Any], columns: Sequence[str]) -> dict[str, list]:
    """Returns the columns of arguments, the first of which may be a table that has them.

    Args:
      names: the names of the arguments.
      values: the arguments.
      columns: the names that they have in a table.

    Raises:
      UserError: a column is missing, the lengths differ, or a text is missing, empty or none.
    """
    table, *others = values
    if hasattr(table, "columns"):
        if any(value is not None for value in others):
            raise UserError("give a table alone, with `columns`, or lists")
        if len(columns) != len(names):
            raise UserError(f"columns: expected {len(names)} names: those of {', '.join(names)}")
        known = list(table.columns)
        for column in columns:
            if column not in known:
                raise UserError(
                    f"columns: the table has no column {column!r}: its columns are "
                    f"{', '.join(map(str, known))}"
                )
        values = [table[column] for column in columns]
    lists = {}
    for name, given in zip(names, values, strict=True):
        if given is None:
            raise UserError(f"{name}: missing")
        given_texts.check_list(given, name)
        given = given.tolist() if hasattr(given, "tolist") else list(given)
        lists[name] = [value.tolist() if hasattr(value, "tolist") else value for value in given]
    given_texts.check_lengths(**lists)
    if not lists[names[0]]:
        raise UserError(f"{names[0]}: the list is empty: give at least two examples")
    for name in filter(_TEXTS.__contains__, names):
        for number, text in enumerate(lists[name]):
            if not isinstance(text, str) or not text.strip():
                raise UserError(f"{name} {number}: {text!r} is not a text")
        lists[name] = given_texts.plain(lists[name], name)
    return lists


def labeled(columns: Mapping[str, list], task: str | None) -> Labeled:
    """Returns texts or pairs with labels of the kind that a user names, or that the labels show.

    Raises:
      UserError: there is no such kind, the labels may be of two, or they cannot be used.
    """
    if task not in (None, *_LABELED):
        raise UserError(f"task: {task!r} is none of {', '.join(map(repr, _LABELED))}")
    labels = columns["label"]
    _check_present(labels)
    if task is not None:
        return _LABELED[task].of(columns)
    if isinstance(labels[0], _LISTS):
        return LabelLists.of(columns)
    numbers = [label for label in labels if isinstance(label, float)]
    if numbers and all(label.is_integer() for label in numbers):
        raise UserError(
            f"label: {numbers[0]!r} may be a class or a score: give task='classification' or "
            "task='regression'"
        )
    return (Scores if numbers else Classes).of(columns)


def _check_present(labels: Iterable[Any]) -> None:
    for number, label in enumerate(labels):
        if label is None or (isinstance(label, float) and not math.isfinite(label)):
            raise UserError(f"label {number}: {label!r}: every text needs a label")


def _is_name(label: Any, types: Any) -> bool:
    return isinstance(label, types) and bool(str(label).strip())


def _check_minus_one(labels: Sequence[Any]) -> None:
    """Raises UserError for -1 in the place of a label; classes have names or other numbers."""
    if any(type(label) is int and label == -1 for label in labels):
        others = {label for label in labels if label != -1}
        numbers = {label for label in others if type(label) is int}
        if len(others) > 1 and (not numbers or numbers == set(range(len(others)))):
            raise UserError(
                f"label {labels.index(-1)}: -1 beside {', '.join(sorted(map(str, others))[:3])} is "
                "what `datasets` writes for a text without a label: leave these texts out, or, if "
                "it is a class, give the labels as texts"
            )


def _float32(score: float) -> float:
    with np.errstate(over="ignore"), contextlib.suppress(OverflowError):  # of float(10**400)
        return float(np.float32(float(score)))
    return math.inf


def _with_start(number: int, context: str, answer: Any) -> tuple[str, int] | None:
    """Returns an answer with the position of its first character; None = there is none.

    Raises:
      UserError: the answer is not in its context.
    """
    if answer is None or answer == "" or (isinstance(answer, float) and answer != answer):
        return None
    text, start = answer if isinstance(answer, tuple | list) else (answer, None)
    text = given_texts.plain([text], "answer")[0] if isinstance(text, str) else text
    if not isinstance(text, str) or text not in context:
        raise UserError(f"answer {number}: {text!r} is not in its context")
    if not text.strip():
        raise UserError(f"answer {number}: {text!r} is empty: give None if there is no answer")
    start = context.index(text) if start is None else start
    if start < 0 or context[start : start + len(text)] != text:
        raise UserError(f"answer {number}: {text!r} is not at {start} of its context")
    return text, start
