"""Reads files in the format of SQuAD 1.1 and 2.0: articles, paragraphs and questions.

  {"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [
      {"id": ..., "question": ..., "answers": [{"text": ..., "answer_start": ...}, ...],
       "is_impossible": false}, ...]}, ...]}, ...]}

`answer_start` counts characters (code points) of the context. An id may be a number. Without
`is_impossible`, a question of version 2.0 is unanswerable if it has no answers, as in SQuAD's
released evaluation. Error messages name the article, the paragraph and the question.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from official.shards.side_texts import Question
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from official.utils.text_lines import BadRows, Unusable

_MAX_BYTES = 4 << 30  # SQuAD has 42 MB.


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
      bad: is called with articles, paragraphs and questions that cannot be used: values of a wrong
        type, an empty context or question, an answer that is not at its position, a repeated id.

    Raises:
      UserError: the file is not JSON or not in this format, or `bad` raises it.
    """
    bad = bad or BadRows()
    seen: dict[str, str] = {}
    labelled: bool | None = True if answered else None  # None = the first question tells
    for context, raw, location in _questions(path, bad):
        try:
            key = _id(raw, location)
            location = f"{location}, question {key!r}"
            if labelled is None:
                labelled = "answers" in raw
            asked = _asked(key, raw, context, labelled, no_answers, location, seen)
        except Unusable as fault:
            bad(*fault.args)
            continue
        yield asked
    if not seen and not bad.counts:
        raise UserError(f"{path} holds no question")


def _asked(
    key: str,
    raw: dict,
    context: str,
    labelled: bool,
    no_answers: bool,
    location: str,
    seen: dict[str, str],
) -> Asked:
    """Returns a question; `seen` has the ids of those before, with their locations."""
    if key in seen:
        message = f"{location}: the id stands twice, first in {seen[key]}"
        raise Unusable("duplicate id", message)
    seen[key] = location
    text = _clean(_get(raw, "question", str, location))
    if not context.strip():
        raise Unusable("empty context", f"{location}: the context is empty")
    if not text.strip():
        raise Unusable("empty question", f"{location}: the question is empty")
    if not labelled:
        return Asked(Question(key, text, context, None), None, location)
    texts, start = _answers(raw, context, no_answers, location)
    return Asked(Question(key, text, context, texts), start, location)


def _questions(path: AnyPath, bad: BadRows) -> Iterator[tuple[str, dict, str]]:
    """Yields the context, the unchecked question and the location of each question."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UserError(
                f"{path} has more than {_MAX_BYTES:,} bytes, and is read as a whole: split its "
                "articles among several files"
            )
        document = json.loads(path.read_bytes().removeprefix(b"\xef\xbb\xbf"))
    except FileNotFoundError as error:
        raise UserError(f"there is no file {path}") from error
    except IsADirectoryError as error:
        raise UserError(f"{path} is a folder where a file is wanted") from error
    except UserError:
        raise
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 ({error}): convert the file") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON ({error}): is it one of SQuAD's files?") from error
    try:
        articles = _get(document, "data", list, str(path))
    except Unusable as fault:
        raise UserError(f"{fault.args[1]}; is this one of SQuAD's files?") from None
    for i, article in enumerate(articles, 1):
        location = f"{path}: article {i}"
        if isinstance(article, dict) and isinstance(article.get("title"), str):
            location += f" ({article['title']})"
        try:
            paragraphs = _get(article, "paragraphs", list, location)
        except Unusable as fault:
            bad(*fault.args)
            continue
        for j, paragraph in enumerate(paragraphs, 1):
            where = f"{location}, paragraph {j}"
            try:
                context = _clean(_get(paragraph, "context", str, where))
                questions = _get(paragraph, "qas", list, where)
            except Unusable as fault:
                bad(*fault.args)
                continue
            for k, raw in enumerate(questions, 1):
                yield context, raw, where if _named(raw) else f"{where}, question {k}"


def _named(raw: Any) -> bool:
    """Returns whether a question has an id, which tells where it is."""
    return isinstance(raw, dict) and isinstance(raw.get("id"), str | int)


def _id(raw: Any, location: str) -> str:
    """Returns the id of a question; a number is read as text."""
    if isinstance(raw, dict) and type(raw.get("id")) is int:
        return str(raw["id"])
    return _clean(_get(raw, "id", str, location))


def _answers(
    raw: dict, context: str, no_answers: bool, location: str
) -> tuple[tuple[str, ...], int | None]:
    """Returns the answers and the position of the first one; () and None if there are none."""
    impossible = raw.get("is_impossible")
    if not isinstance(impossible, bool | None):
        raise Unusable(
            "wrong type",
            f"{location}: is_impossible is {impossible!r:.60}, but true or false is wanted",
        )
    if impossible is None:
        impossible = no_answers and raw.get("answers") == []
    if impossible and not no_answers:
        raise Unusable(
            "without an answer",
            f"{location}: has no answer (is_impossible): --task=squad2 has such questions",
        )
    if impossible:
        return (), None
    texts, first = [], None
    for answer in _get(raw, "answers", list, location):
        text = _clean(_get(answer, "text", str, location))
        start = _get(answer, "answer_start", int, location)
        if not text.strip():
            raise Unusable("empty answer", f"{location}: an answer is empty")
        if start < 0 or context[start : start + len(text)] != text:
            there = context.find(text)
            hint = "is nowhere in it" if there < 0 else f"first stands at {there}"
            raise Unusable(
                "answer not in its context",
                f"{location}: the answer {text!r:.80} does not stand in the context at {start} "
                f"(answer_start, in characters), and {hint}",
            )
        texts.append(text)
        first = start if first is None else first
    if not texts:
        hint = "is not said to be impossible" if no_answers else "--task=squad2 has such questions"
        raise Unusable("without an answer", f"{location}: has no answer and {hint}")
    return tuple(texts), first


def _get(holder: Any, key: str, kind: type, location: str) -> Any:
    """Returns a value of an object, after checking its type."""
    names = {list: "a list", str: "a text", int: "a whole number"}
    if not isinstance(holder, dict):
        raise Unusable(
            "not an object",
            f"{location}: {type(holder).__name__} where an object with {key!r} is wanted",
        )
    if key not in holder:
        raise Unusable(
            "missing key",
            f"{location}: no {key!r}: its keys are {', '.join(map(repr, holder)) or 'none'}",
        )
    value = holder[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise Unusable(
            "wrong type", f"{location}: {key!r} is {value!r:.60}, but {names[kind]} is wanted"
        )
    return value


def _clean(text: str) -> str:
    """Replaces halves of surrogate pairs, which JSON can escape; the length does not change."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
