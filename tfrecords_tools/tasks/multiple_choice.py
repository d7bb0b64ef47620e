"""Examples of multiple-choice questions: a sequence for each choice (see `builder`).

A sequence is [CLS] context [SEP] question and choice [SEP]. With `choice_first` it is, as in the
release of RoBERTa, [CLS] question and choice [SEP] context [SEP]. Sequences that are too long are
cut at the end of the context. The question and the choice are cut only at `max_choice_length`: a
question that leaves no room for a token of the context cannot be used.

The questions are read from files in the formats of RACE, SWAG, DREAM and JSON Lines:

RACE    a folder with a text file for each article, at any depth (`train/middle/1.txt`), each a JSON
        object: article, questions, options (a list for each question), answers (a letter for each)
        and id. Also JSON Lines with one question on each line: article, question, options, answer
        and, optionally, example_id and question_id.
SWAG    CSV with the columns sent1, sent2, ending0 to ending3 and label (a number from 0).
DREAM   a JSON list of dialogues: [turns, questions, id], each question with question, choice (a
        list) and answer (the text of the right choice).
others  JSON Lines: context, question (optional), choices (a list), answer (a letter, or a number
        from 0) and, optionally, id.
"""

import dataclasses
import functools
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from typing_extensions import override

from official.tasks import LETTERS, Description, Task, annotations, choice_text
from official.tokenizers import Tokenizer, pair_packing
from official.tokenizers.base import strings
from official.utils import input_files, text_lines
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from tfrecords_tools.tasks import builder, tables
from tfrecords_tools.tasks.splits import Example, Make, SplitCounts, Splits

SUFFIXES = (".json", ".jsonl")


@dataclasses.dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
      number: the number of the question in the file, from 0; unusable questions count.
      location: the file and the position in it, for messages.
      context: the text that the question is about.
      text: the question; may be empty.
      choices: the texts of the choices.
      answer: the number of the right choice, or None.
    """

    number: int
    location: str
    context: str
    text: str
    choices: tuple[str, ...]
    answer: int | None


@dataclasses.dataclass(frozen=True)
class RawQuestion:
    """A question as it stands in a file; its values may have any type.

    Attributes:
      number: the number of the question in the file, from 0; unusable questions count.
      location: the file and the position in it, for messages.
      context: the text that the question is about.
      text: the question.
      choices: the choices.
      answer: the answer in the terms of the file; None = there is none.
      identity: the id of the question, or None.
      known: answer → number of the choice; None = the answer is the text of a choice.
    """

    number: int
    location: str
    context: Any
    text: Any
    choices: Any
    answer: Any
    identity: Any
    known: Mapping[Any, int] | None


def with_labels(task: Task, path: AnyPath, skip_bad_rows: bool = False) -> Task:
    """Returns a task with its labels, or letters, as many as the first question has choices.

    Raises:
      UserError: see `count_choices`.
    """
    if task.labels:
        return task
    labels = tuple(LETTERS[: count_choices(path, skip_bad_rows)])
    return dataclasses.replace(task, labels=labels, values=())


def count_choices(path: AnyPath, skip_bad_rows: bool = False) -> int:
    """Returns the number of choices of the first question of a JSON Lines file.

    Raises:
      UserError: the file has no usable question; or there are more choices than letters, and bad
        rows are not left out.
    """
    bad = tables.BadRows(skip_bad_rows)
    for _, line, value in text_lines.objects(path, tables.BadRows(skip=True)):
        choices = value.get("choices")
        if isinstance(choices, list) and len(choices) > 1:
            if len(choices) <= len(LETTERS):
                return len(choices)
            bad(
                "wrong number of choices",
                f"{path}, line {line}: {len(choices)} choices, the maximum is {len(LETTERS)}",
            )
    raise UserError(f"{path}: no line with two or more `choices`")


def read(
    task: Task, path: AnyPath, optional_answers: bool, bad: tables.BadRows
) -> Iterator[Question]:
    """Yields the questions of a file or folder.

    Args:
      task: a task of the kind "choice", with its labels.
      path: the file, or RACE's folder.
      optional_answers: whether all questions may be without answers.
      bad: is called with questions that cannot be used.

    Raises:
      UserError: the file cannot be read, or `bad` raises it.
    """
    seen: dict[Any, str] = {}
    answered: bool | None = None
    for raw in read_unchecked(task, path, optional_answers, bad):
        if problem := _problem(raw, task, seen):
            bad(problem[0], f"{raw.location}: {problem[1]}")
            continue
        given = raw.answer is not None
        if answered is None and optional_answers:
            answered = given
        if not given and not optional_answers:
            bad("no answer", f"{raw.location}: no answer; only a test file may lack answers")
            continue
        if optional_answers and given != answered:
            bad(
                "answered among unanswered",
                f"{raw.location}: {'an' if given else 'no'} answer, unlike the first question: "
                "give it for all or for none",
            )
            continue
        if raw.identity is not None:
            seen[raw.identity] = raw.location
        yield Question(
            raw.number,
            raw.location,
            raw.context,
            raw.text or "",
            tuple(raw.choices),
            _answer(raw) if given else None,
        )


def _answer(raw: RawQuestion) -> int | None:
    """Returns the number of the right choice; None if the answer is not one of the choices."""
    if raw.known is None:
        return raw.choices.index(raw.answer) if raw.choices.count(raw.answer) == 1 else None
    usable = isinstance(raw.answer, str | int) and not isinstance(raw.answer, bool)
    return raw.known.get(raw.answer) if usable else None


def _problem(raw: RawQuestion, task: Task, seen: Mapping[Any, str]) -> tuple[str, str] | None:
    """Returns the reason that a question cannot be used, short and as a sentence, or None."""
    names = task.labels
    if not isinstance(raw.context, str) or not raw.context.strip():
        return "empty context", f"the {task.columns.text} is empty"
    if not isinstance(raw.text, str | None):
        return "not a text", f"the question is a {type(raw.text).__name__}, not a text"
    if not isinstance(raw.choices, list) or not all(isinstance(c, str) for c in raw.choices):
        return "not a text", "the choices are not a list of texts"
    if len(raw.choices) != len(names):
        return (
            "wrong number of choices",
            f"{len(raw.choices)} choices, expected {len(names)}: {', '.join(names)}",
        )
    if empty := [n for n, text in zip(names, raw.choices, strict=True) if not text.strip()]:
        return "empty choice", f"choice {empty[0]} is empty"
    if raw.answer is not None and _answer(raw) is None:
        among = "one of its choices" if raw.known is None else f"one of {_listed(raw.known)}"
        return "answer not in the set", f"answer {raw.answer!r} is not {among}"
    if raw.identity is not None and raw.identity in seen:
        return "duplicate id", f"id {raw.identity!r} is already used, {seen[raw.identity]}"
    return None


def _listed(known: Mapping[Any, int]) -> str:
    return ", ".join(repr(value) for value in known)


def read_unchecked(
    task: Task, path: AnyPath, optional_answers: bool, bad: tables.BadRows
) -> Iterator[RawQuestion]:
    """Yields the questions of a file or folder, unchecked.

    Args:
      task: a task of the kind "choice", with its labels.
      path: the file, or RACE's folder.
      optional_answers: whether all questions may be without answers.
      bad: is called with parts of the file that cannot be read.

    Raises:
      UserError: the file cannot be read, or `bad` raises it.
    """
    letters = {letter: i for i, letter in enumerate(task.labels)}
    if not path.exists():
        raise UserError(f"there is no file {path}")
    count = 0
    if task.name == "race" and path.is_dir():
        source = _articles(path, letters, bad)
    elif path.is_dir():
        raise UserError(f"{path} is a folder, not a file")
    elif task.name == "swag":
        source = _endings(path, task, optional_answers, bad)
    elif task.name == "dream":
        source = _dialogues(path, bad)
    else:
        source = _lines(path, task, letters, bad)
    for raw in source:
        count += 1
        yield raw
    if not count and not bad.counts:
        raise UserError(f"{path} is empty: it has no questions")


def _articles(
    folder: AnyPath, letters: Mapping[str, int], bad: tables.BadRows
) -> Iterator[RawQuestion]:
    """Yields the questions of RACE as distributed; the files are in alphabetical order."""
    files = sorted(path for path in folder.rglob("*.txt"))
    if not files:
        raise UserError(f"{folder} has no articles: neither it nor its subfolders have .txt files")
    number = 0
    identities: dict[Any, AnyPath] = {}
    for path in files:
        try:
            value = _json(path)
        except UserError as error:
            bad("not JSON", str(error))
            continue
        if not isinstance(value, dict):
            bad("not an article", f"{path}: a {type(value).__name__}, not a JSON object")
            continue
        lists: list[Any] = [value.get(name) for name in ("questions", "options", "answers")]
        if not all(isinstance(some, list) for some in lists):
            bad("not an article", f"{path}: questions, options and answers must be lists")
            number += len(lists[0]) if isinstance(lists[0], list) else 0
            continue
        if len({len(some) for some in lists}) > 1:
            counts = [str(len(some)) for some in lists]
            bad(
                "wrong number of answers",
                f"{path}: {counts[0]} questions, {counts[1]} lists of options and {counts[2]} "
                "answers",
            )
            number += len(lists[0])
            continue
        identity = value.get("id")
        if isinstance(identity, str) and identity in identities:
            bad("duplicate id", f"{path}: id {identity!r} is already used, {identities[identity]}")
            number += len(lists[0])
            continue
        if isinstance(identity, str):
            identities[identity] = path
        for i, (text, choices, answer) in enumerate(zip(*lists, strict=True), 1):
            location = f"{path}, question {i}"
            yield RawQuestion(
                number, location, value.get("article"), text, choices, answer, None, letters
            )
            number += 1


def _endings(
    path: AnyPath, task: Task, optional_answers: bool, bad: tables.BadRows
) -> Iterator[RawQuestion]:
    """Yields the questions of SWAG; its rows have no ids."""
    endings = [f"ending{i}" for i in range(len(task.labels))]
    named = (task.columns.text, task.columns.text_pair, *endings)
    columns = [column for column in named if column is not None]
    known = {value: i for i, value in enumerate(task.values)}
    rows = tables.read(path, columns, task.columns.label, optional_answers, format="csv", bad=bad)
    for number, line, (context, text, *choices), answer in rows:
        location = f"{path}, line {line}"
        yield RawQuestion(number, location, context, text, choices, answer, None, known)


def _dialogues(path: AnyPath, bad: tables.BadRows) -> Iterator[RawQuestion]:
    """Yields the questions of DREAM; the turns of a dialogue become lines of the context."""
    value = _json(path)
    if not isinstance(value, list):
        raise UserError(f"{path}: a {type(value).__name__}, not a JSON list of dialogues")
    number = 0
    identities: dict[Any, int] = {}
    for i, dialogue in enumerate(value, 1):
        location = f"{path}, dialogue {i}"
        if not isinstance(dialogue, list) or len(dialogue) != 3:
            bad("not a dialogue", f"{location}: not a list of turns, questions and id")
            continue
        turns, questions, identity = dialogue
        texts = isinstance(turns, list) and all(isinstance(turn, str) for turn in turns)
        if not texts or not isinstance(questions, list):
            bad(
                "not a dialogue", f"{location}: turns must be a list of texts, and questions a list"
            )
            continue
        if isinstance(identity, str) and identity in identities:
            bad(
                "duplicate id",
                f"{location}: id {identity!r} is already used, dialogue {identities[identity]}",
            )
            number += len(questions)
            continue
        if isinstance(identity, str):
            identities[identity] = i
        for j, raw in enumerate(questions, 1):
            raw = raw if isinstance(raw, dict) else {}
            yield RawQuestion(
                number,
                f"{location}, question {j}",
                "\n".join(turns),
                raw.get("question"),
                raw.get("choice"),
                raw.get("answer"),
                None,
                None,
            )
            number += 1


def _lines(
    path: AnyPath, task: Task, letters: Mapping[str, int], bad: tables.BadRows
) -> Iterator[RawQuestion]:
    """Yields the questions of JSON Lines, with the keys of RACE or those of the task `choice`."""
    race = task.name == "race"
    if path.with_suffix("" if path.suffix == ".gz" else path.suffix).suffix not in SUFFIXES:
        folder = "a folder of articles or " if race else ""
        raise UserError(f"{path}: expected {folder}a file of JSON Lines (.jsonl)")
    for number, line, value in annotations.objects(path, bad, labeled=False, read=("answer",)):
        keys = ("example_id", "question_id") if race else ("id",)
        parts = [value.get(key) for key in keys]
        identity = None if None in parts else " ".join(map(str, parts))
        numbers = {} if race else {i: i for i in letters.values()}
        yield RawQuestion(
            number,
            f"{path}, line {line}",
            value.get(task.columns.text),
            value.get("question"),
            value.get("options" if race else "choices"),
            value.get("answer"),
            identity,
            {**letters, **numbers},
        )


def _json(path: AnyPath) -> Any:
    content = input_files.read(path).removeprefix(b"\xef\xbb\xbf")
    try:
        return json.loads(content.decode("utf-8"))
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8: convert the file") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON ({error})") from None


@dataclasses.dataclass
class Builder(builder.Builder[Question, SplitCounts]):
    """Builds the shards of questions with several choices.

    Attributes:
      choice_first: whether the question and the choice come before the context.
      max_choice_length: the largest number of tokens of a question with a choice; longer ones are
        cut at the end. None = they are not cut.
    """

    choice_first: bool = False
    max_choice_length: int | None = None

    rows_at_once = 1024
    noun = "question"

    @override
    def prepare(self) -> None:
        """See `builder.Builder`; without labels they are letters, as many as there are choices."""
        self.check_max_length(2)
        self.task = with_labels(self.task, self.files[self.splits[0]], self.skip_bad_rows)

    @override
    def read(self, split: str, counts: SplitCounts, writer: Splits) -> Iterator[Question]:
        return read(self.task, self.files[split], split.startswith("test"), counts.bad)

    @override
    def examples(self) -> Make[Question, SplitCounts]:
        return functools.partial(
            _examples,
            task=self.task,
            max_length=self.max_length,
            choice_first=self.choice_first,
            max_choice_length=self.max_choice_length,
        )

    @property
    @override
    def features(self) -> tuple[str, ...]:
        return "token_ids", "segment_lengths", "sequence_lengths", "row", "answer"

    @override
    def totals(self, counts: SplitCounts) -> dict[str, Any]:
        return {"answers": dict(counts.targets) if counts.labeled else {}}

    @override
    def description(self, counts: Mapping[str, SplitCounts]) -> Description:
        sequences = dict.fromkeys(counts, len(self.task.labels))
        return dataclasses.replace(
            self.task.description(),
            sequences=sequences,
            choice_first=self.choice_first or None,
            max_choice_length=self.max_choice_length,
        )

    @override
    def summary(self, split: str, counts: SplitCounts) -> list[str]:
        return [
            f"{split}: {counts.examples:,} questions",
            f"{counts.tokens:,} tokens",
            f"{counts.truncated:,} with their context cut, at {self.max_length} tokens",
            *counts.left_out(),
            counts.shares() if counts.labeled else "no answers",
        ]


def _examples(
    questions: Sequence[Question],
    tokenizer: Tokenizer,
    counts: SplitCounts,
    task: Task,
    max_length: int,
    choice_first: bool = False,
    max_choice_length: int | None = None,
) -> Iterator[Example]:
    """Yields the examples of some questions and counts them."""
    specials = pair_packing.num_specials(2, tokenizer)
    question_texts = [question.text for question in questions for _ in question.choices]
    choices = [choice for question in questions for choice in question.choices]
    with tf.device("/CPU:0"):
        joined = choice_text.joined(strings(question_texts), strings(choices), task.blank)
    texts = [text.decode("utf-8", "surrogatepass") for text in joined.numpy()]
    contexts = list(dict.fromkeys(question.context for question in questions))
    context_ids = dict(zip(contexts, tokenizer.encode(contexts), strict=True))
    text_ids = (ids[:max_choice_length] for ids in tokenizer.encode(texts))
    for question in questions:
        context = context_ids[question.context]
        choice_ids = list(itertools.islice(text_ids, len(question.choices)))
        longest = max(map(len, choice_ids))
        if longest > max_length - specials - 1:
            counts.bad(
                "question too long",
                f"{question.location}: question and choice have {longest} tokens, which leaves "
                f"nothing of --max_length={max_length} for the context: make it at least "
                f"{longest + specials + 1}, or cut them with --max_choice_length",
            )
            continue
        packed = [
            pair_packing.pack_arrays([ids, context], tokenizer, max_length, cut="second")
            if choice_first
            else pair_packing.pack_arrays([context, ids], tokenizer, max_length, cut="first")
            for ids in choice_ids
        ]
        example = builder.example_of_sequences(packed, question.number)
        counts.count(*example["sequence_lengths"])
        counts.truncated += len(context) + longest + specials > max_length
        if question.answer is None:
            counts.labeled = False
        else:
            example["answer"] = question.answer
            counts.targets[task.labels[question.answer]] += 1
        yield example
