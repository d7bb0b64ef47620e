"""Examples of questions whose answers are spans of a context, as in SQuAD (see `builder`).

Each question becomes one example for each window of its context (`official.tokenizers.windows`).
The questions are kept beside the shards (`official.shards.side_texts`).

The files have the format of SQuAD 1.1 or 2.0, with articles, paragraphs and questions:

  {"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [
      {"id": ..., "question": ..., "answers": [{"text": ..., "answer_start": ...}, ...],
       "is_impossible": false}, ...]}, ...]}, ...]}

`answer_start` counts characters (code points) of the context. An id may be a number. Without
`is_impossible`, a question of version 2.0 is unanswerable if it has no answers, as in SQuAD's
released evaluation. Error messages name the article, the paragraph and the question.
"""

import dataclasses
import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from typing_extensions import override

from official.shards import side_texts
from official.shards.side_texts import Question
from official.tasks import GRAPHEMES, Description, answer_rules
from official.tokenizers import Tokenizer, text_words, windows
from official.utils import input_files
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from official.utils.text_lines import BadRows, Unusable
from tfrecords_tools.tasks import builder, splits
from tfrecords_tools.tasks.plans import span as plan
from tfrecords_tools.tasks.splits import Example, Make, Splits

_MAX_BYTES = 4 << 30  # SQuAD has 42 MB.


class FileQuestion(NamedTuple):
    """A question of a file, or of rows in memory.

    Attributes:
      question: the question, with the texts of its answers.
      starts: the position of each answer in the context; empty = there is no answer.
      location: file, article, paragraph and question, for messages.
    """

    question: Question
    starts: tuple[int, ...]
    location: str


def read(
    path: AnyPath, no_answers: bool = False, answered: bool = True, bad: BadRows | None = None
) -> Iterator[FileQuestion]:
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
    labeled: bool | None = True if answered else None  # None = the first question tells
    for context, raw, location in _questions(path, bad):
        try:
            key = _id(raw, location)
            location = f"{location}, question {key!r}"
            if labeled is None:
                labeled = "answers" in raw
            question = _checked(key, raw, context, labeled, no_answers, location, seen)
        except Unusable as fault:
            bad(*fault.args)
            continue
        yield question
    if not seen and not bad.counts:
        raise UserError(f"{path} has no questions")


def _checked(
    key: str,
    raw: dict,
    context: str,
    labeled: bool,
    no_answers: bool,
    location: str,
    seen: dict[str, str],
) -> FileQuestion:
    """Returns a question; `seen` has the ids of those before, with their locations."""
    if key in seen:
        message = f"{location}: the id is already used in {seen[key]}"
        raise Unusable("duplicate id", message)
    seen[key] = location
    text = _clean(_get(raw, "question", str, location))
    if not context.strip():
        raise Unusable("empty context", f"{location}: the context is empty")
    if not text.strip():
        raise Unusable("empty question", f"{location}: the question is empty")
    if not labeled:
        return FileQuestion(Question(key, text, context, None), (), location)
    texts, starts = _answers(raw, context, no_answers, location)
    return FileQuestion(Question(key, text, context, texts), starts, location)


def _questions(path: AnyPath, bad: BadRows) -> Iterator[tuple[str, dict, str]]:
    """Yields the context, the unchecked question and the location of each question."""
    for context, questions, where in paragraphs(path, bad):
        for k, raw in enumerate(questions, 1):
            yield context, raw, where if _named(raw) else f"{where}, question {k}"


def asked(questions: Sequence[Any], where: str) -> Iterator[tuple[str, str]]:
    """Yields the id and the text of each question of a paragraph, without its answers.

    Raises:
      UserError: a question has none, or of a wrong type; the message begins with `where`.
    """
    for k, raw in enumerate(questions, 1):
        try:
            key = _id(raw, where if _named(raw) else f"{where}, question {k}")
            yield key, _clean(_get(raw, "question", str, f"{where}, question {key!r}"))
        except Unusable as fault:
            raise UserError(fault.args[1]) from None


def paragraphs(path: AnyPath, bad: BadRows | None = None) -> Iterator[tuple[str, list, str]]:
    """Yields the context, the unchecked questions and the location of each paragraph of a file.

    Args:
      path: the file.
      bad: is called with articles and paragraphs that cannot be used.

    Raises:
      UserError: the file is not JSON or not in this format, or `bad` raises it.
    """
    bad = bad or BadRows()
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UserError(
                f"{path} has more than {_MAX_BYTES:,} bytes, and is read as a whole: split its "
                "articles among several files"
            )
        document = json.loads(input_files.read(path).removeprefix(b"\xef\xbb\xbf"))
    except FileNotFoundError as error:
        raise UserError(f"there is no file {path}") from error
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
            yield context, questions, where


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
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Returns the answers and the position of each; none if there are none."""
    impossible = raw.get("is_impossible")
    if not isinstance(impossible, bool | None):
        raise Unusable(
            "wrong type",
            f"{location}: is_impossible is {impossible!r:.60}, expected true or false",
        )
    if impossible is None:
        impossible = no_answers and raw.get("answers") == []
    if impossible and not no_answers:
        raise Unusable(
            "without an answer",
            f"{location}: has no answer (is_impossible): --task=squad2 has such questions",
        )
    if impossible:
        return (), ()
    texts, starts = [], []
    for answer in _get(raw, "answers", list, location):
        text = _clean(_get(answer, "text", str, location))
        start = _get(answer, "answer_start", int, location)
        if not text.strip():
            raise Unusable("empty answer", f"{location}: an answer is empty")
        if start < 0 or context[start : start + len(text)] != text:
            found = context.find(text)
            hint = "does not occur in it" if found < 0 else f"first occurs at {found}"
            raise Unusable(
                "answer not in its context",
                f"{location}: the answer {text!r:.80} is not in the context at {start} "
                f"(answer_start, in characters), and {hint}",
            )
        texts.append(text)
        starts.append(start)
    if not texts:
        hint = "is not marked as impossible" if no_answers else "--task=squad2 has such questions"
        raise Unusable("without an answer", f"{location}: has no answer and {hint}")
    return tuple(texts), tuple(starts)


def _get(holder: Any, key: str, kind: type, location: str) -> Any:
    """Returns a value of an object, after checking its type."""
    names = {list: "a list", str: "a text", int: "a whole number"}
    if not isinstance(holder, dict):
        raise Unusable(
            "not an object",
            f"{location}: expected an object with {key!r}, got {type(holder).__name__}",
        )
    if key not in holder:
        raise Unusable(
            "missing key",
            f"{location}: no {key!r}: its keys are {', '.join(map(repr, holder)) or 'none'}",
        )
    value = holder[key]
    if not isinstance(value, kind) or isinstance(value, bool):
        raise Unusable(
            "wrong type", f"{location}: {key!r} is {value!r:.60}, expected {names[kind]}"
        )
    return value


def _clean(text: str) -> str:
    """Replaces halves of surrogate pairs, which JSON can escape; the length does not change."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


QuestionRow = tuple[int, FileQuestion]  # the number of a question, and the question


@dataclasses.dataclass
class SplitCounts(splits.SplitCounts):
    """The counts of one split; its examples are windows, which are never cut.

    Attributes:
      questions: the number of questions.
      impossible: the number of questions without an answer.
      cut_questions: the number of questions that were cut.
      answered: the number of windows that contain the answer.
      cut_answers: the number of questions of which no answer is made of whole tokens.
      unusable: the rows of the questions that were left out here.
    """

    questions: int = 0
    impossible: int = 0
    cut_questions: int = 0
    answered: int = 0
    cut_answers: int = 0
    unusable: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Builder(builder.Builder[QuestionRow, SplitCounts]):
    """Builds the shards of questions whose answers are spans of a context.

    Attributes:
      doc_stride: the number of tokens from the start of a window to the start of the next.
      max_query_length: the largest number of tokens of a question; longer questions are cut.
    """

    doc_stride: int = plan.DOC_STRIDE
    max_query_length: int = plan.MAX_QUERY_LENGTH

    counts_type = SplitCounts
    rows_at_once = 512
    noun = "question"

    @override
    def prepare(self) -> None:
        windows.check(self.tokenizer, self.max_length, self.doc_stride, self.max_query_length)
        self._rows: dict[str, list[QuestionRow]] = {}
        self._first_answers: list[str] = []

    @override
    def parsed(self, split: str, counts: SplitCounts) -> Iterator[FileQuestion]:
        answered = not split.startswith("test")
        return read(self.files[split], self.task.no_answers, answered, counts.bad)

    @override
    def read(self, split: str, counts: SplitCounts, writer: Splits) -> list[QuestionRow]:
        self._rows[split] = list(enumerate(self.source(split, counts)))
        self._first_answers += [
            item.question.answers[0] for _, item in self._rows[split] if item.question.answers
        ]
        return self._rows[split]

    @override
    def examples(self) -> Make[QuestionRow, SplitCounts]:
        return functools.partial(
            _examples,
            max_length=self.max_length,
            doc_stride=self.doc_stride,
            max_query_length=self.max_query_length,
            rule=self.task.answer_rule,
        )

    @override
    def finish(self) -> None:
        if note := rule_note(self.task.answer_rule, self._first_answers):
            self.report(note)

    @override
    def write_beside(self, folder: AnyPath, split: str, counts: SplitCounts) -> dict[str, str]:
        unusable = set(counts.unusable)
        rows = self._rows.pop(split)
        usable = {row: item.question for row, item in rows if row not in unusable}
        return side_texts.write_questions(folder, split, usable)

    @property
    @override
    def features(self) -> tuple[str, ...]:
        positions = (*windows.POSITIONS, "answer_start", "answer_end")
        return "token_ids", "segment_lengths", "row", *positions

    @override
    def totals(self, counts: SplitCounts) -> dict[str, Any]:
        return {
            "questions": counts.questions,
            "without_answer": counts.impossible,
            "cut_questions": counts.cut_questions,
            "with_answer_in_window": counts.answered,
            "cut_answers": counts.cut_answers or None,
        }

    @override
    def description(self, counts: Mapping[str, SplitCounts]) -> Description:
        return dataclasses.replace(
            self.task.description(),
            doc_stride=self.doc_stride,
            max_query_length=self.max_query_length,
            span_bounds=GRAPHEMES,
        )

    @override
    def settings(self) -> dict[str, Any]:
        return {
            "max_length": self.max_length,
            "doc_stride": self.doc_stride,
            "max_query_length": self.max_query_length,
        }

    @override
    def summary(self, split: str, counts: SplitCounts) -> list[str]:
        parts = [
            f"{split}: {counts.questions:,} questions in {counts.examples:,} windows",
            f"{counts.tokens:,} tokens",
        ]
        if counts.labeled:
            parts.append(f"{counts.answered:,} windows with the answer")
        if counts.impossible:
            parts.append(f"{counts.impossible:,} questions without one")
        if counts.cut_questions:
            parts.append(f"{counts.cut_questions:,} questions cut")
        if counts.cut_answers:
            share = counts.cut_answers / counts.questions
            parts.append(
                f"answers that begin or end inside a token: {counts.cut_answers:,} ({share:.1%}), "
                f"so exact match cannot exceed {1 - share:.1%}"
            )
        return [*parts, *counts.left_out(), *([] if counts.labeled else ["no answers"])]


@dataclasses.dataclass(frozen=True)
class _Item:
    """A question, its row and tokenized context, and the first and last token of its answer."""

    row: int
    question: side_texts.Question
    context_ids: Any
    answer: tuple[int, int] | None


def rule_note(rule: str, answers: Sequence[str]) -> str:
    """Returns a line about answers to which SQuAD's rule does not suit; "" if there is none."""
    count = sum(map(_has_other_letters, answers))
    if (rule or answer_rules.DEFAULT) != answer_rules.DEFAULT or count <= len(answers) / 2:
        return ""
    return (
        f"{count:,} of {len(answers):,} answers have letters that are not Latin, and SQuAD's exact "
        "match and F1 are of English: --answers (of finetune_questions: answer_rule) names a rule "
        "for other languages ("
        f"{', '.join(name for name in answer_rules.RULES if name != answer_rules.DEFAULT)})"
    )


def _has_other_letters(text: str) -> bool:
    latin = lambda c: c < "\u0250" or "\u1e00" <= c <= "\u1eff"  # noqa: E731
    return any(c.isalpha() and not latin(c) for c in text)


def _is_cut(
    item: FileQuestion,
    rule: str,
    tokens: tuple[np.ndarray, np.ndarray],
    shown: tuple[np.ndarray, np.ndarray],
) -> bool:
    """Returns whether no answer, wherever its text occurs in the context, is of whole tokens.

    Args:
      item: a question with answers.
      rule: how answers are compared; see `official.tasks.answer_rules`.
      tokens: first character of each token of the context, and the one after its last one.
      shown: the same for the text of an answer, which has whole graphemes.
    """
    starts, ends = shown
    normalize, question = answer_rules.rule_of(rule).normalize, item.question
    right = {normalize(answer) for answer in question.answers or ()}

    def fits(answer: str, start: int) -> bool:
        found = windows.answer_tokens(*tokens, start, start + len(answer))
        if found is None:
            return False
        first, last = found
        return normalize(question.context[starts[first] : ends[last]]) in right

    pairs = zip(question.answers or (), item.starts, strict=True)
    if any(fits(answer, start) for answer, start in pairs):
        return False
    return not any(
        fits(answer, found.start())
        for answer in dict.fromkeys(question.answers or ())
        for found in re.finditer(f"(?i:(?={re.escape(answer)}))", question.context)
    )


def _tokenized(
    rows: Sequence[QuestionRow], tokenizer: Tokenizer, counts: SplitCounts, rule: str
) -> Iterator[_Item]:
    """Yields the questions that can be used."""
    contexts = list(dict.fromkeys(item.question.context for _, item in rows))
    encoded = tokenizer.encode_with_offsets(contexts)
    bounds = [(starts, ends) for _, starts, ends in encoded]
    whole = text_words.whole_grapheme_spans(contexts, bounds)
    tokens = dict(zip(contexts, zip(encoded, whole, strict=True), strict=True))
    for row, item in rows:
        question = item.question
        (ids, starts, ends), shown = tokens[question.context]
        answer = None
        if question.answers:
            end = item.starts[0] + len(question.answers[0])
            answer = windows.answer_tokens(starts, ends, item.starts[0], end)
            if answer is None:
                counts.bad(
                    "answer without a token",
                    f"{item.location}: the answer {question.answers[0]!r} has no token in this "
                    "vocabulary",
                )
                counts.unusable.append(row)
                continue
            counts.cut_answers += _is_cut(item, rule, (starts, ends), shown)
        yield _Item(row, question, ids, answer)


def _examples(
    rows: Sequence[QuestionRow],
    tokenizer: Tokenizer,
    counts: SplitCounts,
    max_length: int,
    doc_stride: int,
    max_query_length: int,
    rule: str,
) -> Iterator[Example]:
    """Yields the windows of some questions and counts them."""
    items = list(_tokenized(rows, tokenizer, counts, rule))
    if not items:
        return
    question_ids = tokenizer.encode([item.question.text for item in items])
    counts.labeled = items[0].question.answers is not None
    counts.questions += len(items)
    counts.cut_questions += sum(len(ids) > max_query_length for ids in question_ids)
    counts.impossible += sum(item.question.answers == () for item in items)
    packed = windows.pack_windows(
        _ragged(question_ids),
        _ragged([item.context_ids for item in items]),
        tokenizer,
        max_length,
        doc_stride,
        max_query_length,
    )
    token_ids = packed.pop("token_ids")
    row_splits, values = token_ids.row_splits.numpy(), token_ids.values.numpy()
    packed = {name: value.numpy() for name, value in packed.items()}
    for i, number in enumerate(packed["row"].tolist()):
        ids = values[row_splits[i] : row_splits[i + 1]]
        example = {name: int(packed[name][i]) for name in windows.POSITIONS}
        example |= {
            "token_ids": ids,
            "segment_lengths": packed["segment_lengths"][i],
            "row": items[number].row,
        }
        if counts.labeled:
            example |= _target(items[number].answer, example)
            counts.answered += example["answer_start"] >= 0
        counts.count(len(ids))
        yield example


def _target(answer: tuple[int, int] | None, window: Mapping[str, Any]) -> dict[str, int]:
    """Returns the tokens of the answer, or -1 where the window does not contain all of it."""
    start = window["window_start"]
    if answer and start <= answer[0] and answer[1] < start + window["context_length"]:
        return {"answer_start": answer[0], "answer_end": answer[1]}
    return {"answer_start": -1, "answer_end": -1}


def _ragged(rows: list) -> tf.RaggedTensor:
    lengths = [len(row) for row in rows]
    values = tf.concat([tf.constant(row, tf.int32) for row in rows], 0)
    return tf.RaggedTensor.from_row_lengths(values, lengths)
