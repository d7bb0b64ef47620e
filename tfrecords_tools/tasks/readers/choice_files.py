"""Questions with several choices, from the files of RACE, SWAG, DREAM and from JSON Lines.

RACE    a folder with a text file for each article, at any depth (`train/middle/1.txt`), each a JSON
        object: article, questions, options (a list for each question), answers (a letter for each)
        and id. Also JSON Lines with a question on each: article, question, options, answer and,
        if there, example_id and question_id.
SWAG    CSV with the columns sent1, sent2, ending0 to ending3 and label (a number from 0).
DREAM   a JSON list of dialogues: [turns, questions, id], each question with question, choice (a
        list) and answer (the text of the right choice).
others  JSON Lines: context, question (which may be missing), choices (a list), answer (a letter, or
        a number from 0) and, if there, id.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from official.tasks import LETTERS, Task
from official.utils.errors import UserError
from tfrecords_tools.tasks.readers import tables

SUFFIXES = (".json", ".jsonl")


@dataclasses.dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
      number: its place in the file, from 0; those that cannot be used are counted.
      place: the file and where it stands there, for messages.
      context: the text that it is about.
      text: what is asked; may be empty.
      choices: the texts to choose from.
      answer: the number of the right one, or None.
    """

    number: int
    place: str
    context: str
    text: str
    choices: tuple[str, ...]
    answer: int | None


@dataclasses.dataclass(frozen=True)
class _Raw:
    """A question as it stands in a file: nothing is known of the types of its values.

    Attributes:
      number: as of `Question`.
      place: the same.
      context: and the next two may be anything.
      text: what is asked.
      choices: what there is to choose from.
      answer: in the file's own terms; None = there is none.
      identity: of the question, or None.
      known: answer → number; None = the answer is the text of a choice.
    """

    number: int
    place: str
    context: Any
    text: Any
    choices: Any
    answer: Any
    identity: Any
    known: Mapping[Any, int] | None


def count_choices(path: Path) -> int:
    """How many choices the first question of a JSON Lines file has.

    Raises:
      UserError: none that can be used, or more than there are letters.
    """
    for _, line, found in tables.objects(path, tables.BadRows(skip=True)):
        choices = found.get("choices")
        if isinstance(choices, list) and len(choices) > 1:
            if len(choices) > len(LETTERS):
                raise UserError(
                    f"{path}, line {line}: {len(choices)} choices, and {len(LETTERS)} are the most"
                )
            return len(choices)
    raise UserError(f"{path}: no line with two or more `choices`")


def read(task: Task, path: Path, optional_answers: bool, bad: tables.BadRows) -> Iterator[Question]:
    """Yields the questions of a file or folder.

    Args:
      task: of the kind "choice", with its labels.
      path: the file; RACE's folder.
      optional_answers: whether all of them may lack their answers.
      bad: is told of what cannot be used.

    Raises:
      UserError: a file that cannot be read, or what `bad` raises.
    """
    seen: dict[Any, str] = {}
    answered: bool | None = None
    for raw in _raw(task, path, optional_answers, bad):
        if problem := _problem(raw, task, seen):
            bad(problem[0], f"{raw.place}: {problem[1]}")
            continue
        given = raw.answer is not None
        if answered is None and optional_answers:
            answered = given
        if not given and not optional_answers:
            bad("no answer", f"{raw.place}: no answer; only a test file can go without")
            continue
        if optional_answers and given != answered:
            bad(
                "answered among unanswered",
                f"{raw.place}: {'an' if given else 'no'} answer, unlike the first question: give "
                "it for all or for none",
            )
            continue
        if raw.identity is not None:
            seen[raw.identity] = raw.place
        yield Question(
            raw.number,
            raw.place,
            raw.context,
            raw.text or "",
            tuple(raw.choices),
            _answer(raw) if given else None,
        )


def _answer(raw: _Raw) -> int | None:
    """The number of the right choice; None where the answer is none."""
    if raw.known is None:
        return raw.choices.index(raw.answer) if raw.choices.count(raw.answer) == 1 else None
    usable = isinstance(raw.answer, str | int) and not isinstance(raw.answer, bool)
    return raw.known.get(raw.answer) if usable else None


def _problem(raw: _Raw, task: Task, seen: Mapping[Any, str]) -> tuple[str, str] | None:
    """What is wrong with a question, as a reason to count and in words; None if nothing is."""
    names = task.labels
    if not isinstance(raw.context, str) or not raw.context.strip():
        return "empty context", f"nothing in its {task.columns.text}"
    if not isinstance(raw.text, str | None):
        return "not a text", f"the question is a {type(raw.text).__name__}, not a text"
    if not isinstance(raw.choices, list) or not all(isinstance(c, str) for c in raw.choices):
        return "not a text", "the choices are no list of texts"
    if len(raw.choices) != len(names):
        return (
            "wrong number of choices",
            f"{len(raw.choices)} choices where {len(names)} are wanted, {', '.join(names)}",
        )
    if empty := [n for n, text in zip(names, raw.choices, strict=True) if not text.strip()]:
        return "empty choice", f"nothing in choice {empty[0]}"
    if raw.answer is not None and _answer(raw) is None:
        among = "one of its choices" if raw.known is None else f"one of {_listed(raw.known)}"
        return "answer not in the set", f"answer {raw.answer!r} is not {among}"
    if raw.identity is not None and raw.identity in seen:
        return "duplicate id", f"id {raw.identity!r} is there already, {seen[raw.identity]}"
    return None


def _listed(known: Mapping[Any, int]) -> str:
    return ", ".join(repr(value) for value in known)


def _raw(task: Task, path: Path, optional_answers: bool, bad: tables.BadRows) -> Iterator[_Raw]:
    letters = {letter: i for i, letter in enumerate(task.labels)}
    if not path.exists():
        raise UserError(f"there is no file {path}")
    found = 0
    if task.name == "race" and path.is_dir():
        source = _articles(path, letters, bad)
    elif path.is_dir():
        raise UserError(f"{path} is a folder where a file is wanted")
    elif task.name == "swag":
        source = _endings(path, task, optional_answers, bad)
    elif task.name == "dream":
        source = _dialogues(path, bad)
    else:
        source = _lines(path, task, letters, bad)
    for raw in source:
        found += 1
        yield raw
    if not found and not bad.counts:
        raise UserError(f"{path} is empty: it has no questions")


def _articles(folder: Path, letters: Mapping[str, int], bad: tables.BadRows) -> Iterator[_Raw]:
    """RACE as distributed; questions are numbered through the files in the order of their names."""
    files = sorted(folder.rglob("*.txt"))
    if not files:
        raise UserError(f"{folder} has no article: no file .txt, in it or in its folders")
    number = 0
    identities: dict[Any, Path] = {}
    for path in files:
        found = _json(path)
        if not isinstance(found, dict):
            bad("not an article", f"{path}: a {type(found).__name__}, not a JSON object")
            continue
        lists = [found.get(name) for name in ("questions", "options", "answers")]
        if not all(isinstance(some, list) for some in lists):
            bad("not an article", f"{path}: questions, options and answers are to be lists")
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
        identity = found.get("id")
        if isinstance(identity, str) and identity in identities:
            bad("duplicate id", f"{path}: id {identity!r} is there already, {identities[identity]}")
            number += len(lists[0])
            continue
        if isinstance(identity, str):
            identities[identity] = path
        for i, (text, choices, answer) in enumerate(zip(*lists, strict=True), 1):
            place = f"{path}, question {i}"
            yield _Raw(number, place, found.get("article"), text, choices, answer, None, letters)
            number += 1


def _endings(path: Path, task: Task, optional_answers: bool, bad: tables.BadRows) -> Iterator[_Raw]:
    """SWAG; its rows have no id of their own."""
    endings = [f"ending{i}" for i in range(len(task.labels))]
    columns = [task.columns.text, task.columns.text_pair, *endings, task.columns.label]
    known = {value: i for i, value in enumerate(task.values)}
    optional = columns[-1:] if optional_answers else []
    rows = tables.read(path, columns, optional, format="csv", bad=bad)
    for number, line, (context, text, *choices, answer) in rows:
        place = f"{path}, line {line}"
        yield _Raw(number, place, context, text, choices, answer, None, known)


def _dialogues(path: Path, bad: tables.BadRows) -> Iterator[_Raw]:
    """DREAM; the turns of a dialogue are its lines."""
    found = _json(path)
    if not isinstance(found, list):
        raise UserError(f"{path}: a {type(found).__name__}, not a JSON list of dialogues")
    number = 0
    identities: dict[Any, int] = {}
    for i, dialogue in enumerate(found, 1):
        place = f"{path}, dialogue {i}"
        if not isinstance(dialogue, list) or len(dialogue) != 3:
            bad("not a dialogue", f"{place}: not a list of turns, questions and id")
            continue
        turns, questions, identity = dialogue
        texts = isinstance(turns, list) and all(isinstance(turn, str) for turn in turns)
        if not texts or not isinstance(questions, list):
            bad("not a dialogue", f"{place}: turns are to be texts, and questions a list")
            continue
        if isinstance(identity, str) and identity in identities:
            bad(
                "duplicate id",
                f"{place}: id {identity!r} is there already, dialogue {identities[identity]}",
            )
            number += len(questions)
            continue
        if isinstance(identity, str):
            identities[identity] = i
        for j, asked in enumerate(questions, 1):
            asked = asked if isinstance(asked, dict) else {}
            parts = (asked.get(name) for name in ("question", "choice", "answer"))
            yield _Raw(number, f"{place}, question {j}", "\n".join(turns), *parts, None, None)
            number += 1


def _lines(
    path: Path, task: Task, letters: Mapping[str, int], bad: tables.BadRows
) -> Iterator[_Raw]:
    """JSON Lines, with the keys of RACE or those of a task of one's own."""
    race = task.name == "race"
    if path.with_suffix("" if path.suffix == ".gz" else path.suffix).suffix not in SUFFIXES:
        folder = "a folder of articles, or " if race else ""
        raise UserError(f"{path}: wanted is {folder}JSON Lines, a file .jsonl")
    for number, line, found in tables.objects(path, bad):
        keys = ("example_id", "question_id") if race else ("id",)
        parts = [found.get(key) for key in keys]
        identity = None if None in parts else " ".join(map(str, parts))
        numbers = {} if race else {i: i for i in letters.values()}
        yield _Raw(
            number,
            f"{path}, line {line}",
            found.get(task.columns.text),
            found.get("question"),
            found.get("options" if race else "choices"),
            found.get("answer"),
            identity,
            {**letters, **numbers},
        )


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes().removeprefix(b"\xef\xbb\xbf").decode("utf-8"))
    except UnicodeDecodeError:
        raise UserError(f"{path}: not UTF-8: convert the file") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON ({error})") from None
