"""Reads files in the format of SQuAD 1.1 and 2.0: articles, paragraphs and questions.

  {"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [
      {"id": ..., "question": ..., "answers": [{"text": ..., "answer_start": ...}, ...],
       "is_impossible": false}, ...]}, ...]}, ...]}

`answer_start` counts characters (code points) of the context. Error messages name the article, the
paragraph and the question.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from official.shards.questions import Question
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from tfrecords_tools.tasks.readers.tables import BadRows


class Asked(NamedTuple):
    """A question of a file.

    Attributes:
      question: the question, with the texts of its answers.
      start: the position of the first answer in the context; None = there is no answer.
      location: file, article, paragraph and question, for messages.
    """

    question: Question
    start: int | None
    location: str


def read(
    path: AnyPath, no_answers: bool = False, answered: bool = True, bad: BadRows | None = None
) -> Iterator[Asked]:
    """Yields the questions of a file, in order.

    Args:
      path: the file.
      no_answers: whether a question may have no answer in its context (version 2.0).
      answered: whether the answers are required. If they are not, and the first question has none,
        all answers of the file are ignored.
      bad: is called with questions that cannot be used: an empty context or question, an answer
        that is not at its position, a repeated id.

    Raises:
      UserError: the file is not JSON or not in this format, or a question cannot be used.
    """
    bad = bad or BadRows()
    seen: dict[str, str] = {}
    for context, raw, location in _questions(path):
        key = _get(raw, "id", str, location)
        location = f"{location}, question {key!r}"
        text = _clean(_get(raw, "question", str, location))
        if not answered and not seen and "answers" not in raw:
            no_labels = True
        elif not seen:
            no_labels = False
        if key in seen:
            bad("duplicate id", f"{location}: the id stands twice, first in {seen[key]}")
            continue
        seen[key] = location
        if not context.strip():
            bad("empty context", f"{location}: the context is empty")
        elif not text.strip():
            bad("empty question", f"{location}: the question is empty")
        elif no_labels:
            yield Asked(Question(key, text, context, None), None, location)
        else:
            answers = _answers(raw, context, no_answers, location, bad)
            if answers is not None:
                texts, start = answers
                yield Asked(Question(key, text, context, texts), start, location)
    if not seen:
        raise UserError(f"{path} holds no question")


def _questions(path: AnyPath) -> Iterator[tuple[str, dict, str]]:
    """Yields the context, the unchecked question and the location of each question."""
    try:
        document = json.loads(path.read_bytes().removeprefix(b"\xef\xbb\xbf"))
    except FileNotFoundError as error:
        raise UserError(f"there is no file {path}") from error
    except IsADirectoryError as error:
        raise UserError(f"{path} is a folder where a file is wanted") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 ({error}): convert the file") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON ({error}): is it one of SQuAD's files?") from error
    for i, article in enumerate(_get(document, "data", list, str(path)), 1):
        location = f"{path}: article {i}"
        if isinstance(article, dict) and isinstance(article.get("title"), str):
            location += f" ({article['title']})"
        for j, paragraph in enumerate(_get(article, "paragraphs", list, location), 1):
            where = f"{location}, paragraph {j}"
            context = _clean(_get(paragraph, "context", str, where))
            for k, raw in enumerate(_get(paragraph, "qas", list, where), 1):
                yield context, raw, where if isinstance(raw, dict) else f"{where}, question {k}"


def _answers(
    raw: dict, context: str, no_answers: bool, location: str, bad: BadRows
) -> tuple[tuple[str, ...], int | None] | None:
    """Returns the answers and the position of the first one; None if they cannot be used."""
    impossible = raw.get("is_impossible", False)
    if not isinstance(impossible, bool):
        raise UserError(f"{location}: is_impossible is {impossible!r}, but true or false is wanted")
    if impossible and not no_answers:
        bad(
            "without an answer",
            f"{location}: has no answer (is_impossible): --task=squad2 has such questions",
        )
        return None
    if impossible:
        return (), None
    texts, first = [], None
    for answer in _get(raw, "answers", list, location):
        text = _clean(_get(answer, "text", str, location))
        start = _get(answer, "answer_start", int, location)
        if not text.strip():
            bad("empty answer", f"{location}: an answer is empty")
            return None
        if start < 0 or context[start : start + len(text)] != text:
            there = context.find(text)
            hint = "is nowhere in it" if there < 0 else f"first stands at {there}"
            bad(
                "answer not in its context",
                f"{location}: the answer {text!r} does not stand in the context at {start} "
                f"(answer_start, in characters), and {hint}",
            )
            return None
        texts.append(text)
        first = start if first is None else first
    if not texts:
        bad("without an answer", f"{location}: has no answer and is not said to be impossible")
        return None
    return tuple(texts), first


def _get(holder: Any, key: str, kind: type, location: str) -> Any:
    """Returns a value of an object, after checking its type."""
    names = {list: "a list", str: "a text", int: "a whole number"}
    if not isinstance(holder, dict):
        raise UserError(
            f"{location}: {type(holder).__name__} where an object with {key!r} is wanted"
        )
    if key not in holder:
        raise UserError(
            f"{location}: no {key!r}: its keys are {', '.join(map(repr, holder)) or 'none'}; is "
            "this one of SQuAD's files?"
        )
    value = holder[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UserError(f"{location}: {key!r} is {value!r:.60}, but {names[kind]} is wanted")
    return value


def _clean(text: str) -> str:
    """Replaces halves of surrogate pairs, which JSON can escape; the length does not change."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
