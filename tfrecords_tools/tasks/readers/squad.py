"""SQuAD's files, versions 1.1 and 2.0, and others of their form: articles, paragraphs, questions.

  {"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [
      {"id": ..., "question": ..., "answers": [{"text": ..., "answer_start": ...}, ...],
       "is_impossible": false}, ...]}, ...]}, ...]}

`answer_start` counts characters (code points) of the context. Whatever is wrong is said with its
article, paragraph and question.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from official.shards.questions import Question
from official.utils.errors import UserError
from tfrecords_tools.tasks.readers.tables import BadRows


class Asked(NamedTuple):
    """A question as it was read.

    Attributes:
      question: with its answers' texts.
      start: where the first answer begins in the context; None = there is no answer.
      place: words for a message: file, article, paragraph, question.
    """

    question: Question
    start: int | None
    place: str


def read(
    path: Path, no_answers: bool = False, answered: bool = True, bad: BadRows | None = None
) -> Iterator[Asked]:
    """Yields the questions of a file, in their order.

    Args:
      path: the file.
      no_answers: whether a question may be one that its context does not answer (version 2.0).
      answered: whether the answers must be there; if not, and the first question has none, those
        of the file are not looked at.
      bad: what to do with questions that cannot be used: an empty context or question, an answer
        that is not where it is said to be, an id that was there before.

    Raises:
      UserError: the file is not JSON or not of this form, or a question that cannot be used.
    """
    bad = bad or BadRows()
    seen: dict[str, str] = {}
    for context, raw, place in _questions(path):
        key = _get(raw, "id", str, place)
        place = f"{place}, question {key!r}"
        text = _clean(_get(raw, "question", str, place))
        if not answered and not seen and "answers" not in raw:
            no_labels = True
        elif not seen:
            no_labels = False
        if key in seen:
            bad("duplicate id", f"{place}: the id stands twice, first in {seen[key]}")
            continue
        seen[key] = place
        if not context.strip():
            bad("empty context", f"{place}: the context is empty")
        elif not text.strip():
            bad("empty question", f"{place}: the question is empty")
        elif no_labels:
            yield Asked(Question(key, text, context, None), None, place)
        else:
            found = _answers(raw, context, no_answers, place, bad)
            if found is not None:
                yield Asked(Question(key, text, context, found[0]), found[1], place)
    if not seen:
        raise UserError(f"{path} holds no question")


def _questions(path: Path) -> Iterator[tuple[str, dict, str]]:
    """Yields contexts, questions as they stand, and where they stand."""
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
        place = f"{path}: article {i}"
        if isinstance(article, dict) and isinstance(article.get("title"), str):
            place += f" ({article['title']})"
        for j, paragraph in enumerate(_get(article, "paragraphs", list, place), 1):
            where = f"{place}, paragraph {j}"
            context = _clean(_get(paragraph, "context", str, where))
            for k, raw in enumerate(_get(paragraph, "qas", list, where), 1):
                yield context, raw, where if isinstance(raw, dict) else f"{where}, question {k}"


def _answers(
    raw: dict, context: str, no_answers: bool, place: str, bad: BadRows
) -> tuple[tuple[str, ...], int | None] | None:
    """The answers of a question and where the first one begins; None if they cannot be used."""
    impossible = raw.get("is_impossible", False)
    if not isinstance(impossible, bool):
        raise UserError(f"{place}: is_impossible is {impossible!r}, but true or false is wanted")
    if impossible and not no_answers:
        bad(
            "without an answer",
            f"{place}: has no answer (is_impossible): --task=squad2 has such questions",
        )
        return None
    if impossible:
        return (), None
    texts, first = [], None
    for answer in _get(raw, "answers", list, place):
        text = _clean(_get(answer, "text", str, place))
        start = _get(answer, "answer_start", int, place)
        if not text.strip():
            bad("empty answer", f"{place}: an answer is empty")
            return None
        if start < 0 or context[start : start + len(text)] != text:
            there = context.find(text)
            hint = "is nowhere in it" if there < 0 else f"first stands at {there}"
            bad(
                "answer not in its context",
                f"{place}: the answer {text!r} does not stand in the context at {start} "
                f"(answer_start, in characters), and {hint}",
            )
            return None
        texts.append(text)
        first = start if first is None else first
    if not texts:
        bad("without an answer", f"{place}: has no answer and is not said to be impossible")
        return None
    return tuple(texts), first


def _get(holder: Any, key: str, kind: type, place: str) -> Any:
    """A value of an object, of the right type."""
    names = {list: "a list", str: "a text", int: "a whole number"}
    if not isinstance(holder, dict):
        raise UserError(f"{place}: {type(holder).__name__} where an object with {key!r} is wanted")
    if key not in holder:
        raise UserError(
            f"{place}: no {key!r}: its keys are {', '.join(map(repr, holder)) or 'none'}; is this "
            "one of SQuAD's files?"
        )
    value = holder[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise UserError(f"{place}: {key!r} is {value!r:.60}, but {names[kind]} is wanted")
    return value


def _clean(text: str) -> str:
    """Half a surrogate pair, which JSON can escape, is not a character; the count stays."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
