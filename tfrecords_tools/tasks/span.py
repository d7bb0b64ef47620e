"""Examples of questions and answers, from files in the format of SQuAD (see `builder`).

The answers are spans of the context. Each question becomes one example for each window of its
context (`official.tokenizers.windows`). The questions are kept beside the shards
(`official.shards.side_texts`).
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from official.shards import side_texts
from official.tasks import Description
from official.tokenizers import Tokenizer, windows
from official.utils.paths import AnyPath
from tfrecords_tools.tasks import builder, splits, squad
from tfrecords_tools.tasks.splits import Example, Make, Splits

AskedRow = tuple[int, squad.Asked]  # the number of a question, and the question


@dataclasses.dataclass
class SplitCounts(splits.SplitCounts):
    """The counts of one split; its examples are windows, which are never cut.

    Attributes:
      questions: the number of questions.
      impossible: the number of questions without an answer.
      cut_questions: the number of questions that were cut.
      answered: the number of windows that contain the answer.
      unusable: the rows of the questions that were left out here.
    """

    questions: int = 0
    impossible: int = 0
    cut_questions: int = 0
    answered: int = 0
    unusable: list[int] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Builder(builder.Builder):
    """Builds the shards of questions whose answers are spans of a context.

    Attributes:
      doc_stride: the number of tokens from the start of a window to the start of the next.
      max_query_length: the largest number of tokens of a question; longer questions are cut.
    """

    doc_stride: int = 128
    max_query_length: int = 64

    counts_type = SplitCounts
    rows_at_once = 512
    noun = "question"

    def prepare(self) -> None:
        """See `builder.Builder`."""
        windows.check(self.tokenizer, self.max_length, self.doc_stride, self.max_query_length)
        self._asked: dict[str, list[AskedRow]] = {}

    def read(self, split: str, counts: SplitCounts, writer: Splits) -> list[AskedRow]:
        """See `builder.Builder`."""
        answered = not split.startswith("test")
        asked = squad.read(self.files[split], self.task.no_answers, answered, counts.bad)
        self._asked[split] = list(enumerate(asked))
        return self._asked[split]

    def examples(self) -> Make:
        """See `builder.Builder`."""
        return functools.partial(
            _examples,
            max_length=self.max_length,
            doc_stride=self.doc_stride,
            max_query_length=self.max_query_length,
        )

    def write_beside(self, folder: AnyPath, split: str, counts: SplitCounts) -> dict[str, str]:
        """See `builder.Builder`."""
        unusable = set(counts.unusable)
        rows = self._asked.pop(split)
        usable = {row: item.question for row, item in rows if row not in unusable}
        return side_texts.write_questions(folder, split, usable)

    @property
    def features(self) -> tuple[str, ...]:
        """See `builder.Builder`."""
        positions = (*windows.POSITIONS, "answer_start", "answer_end")
        return "token_ids", "segment_lengths", "row", *positions

    def totals(self, counts: SplitCounts) -> dict[str, Any]:
        """See `builder.Builder`."""
        return {
            "questions": counts.questions,
            "without_answer": counts.impossible,
            "cut_questions": counts.cut_questions,
            "with_answer_in_window": counts.answered,
        }

    def description(self, counts: Mapping[str, SplitCounts]) -> Description:
        """See `builder.Builder`."""
        return dataclasses.replace(
            self.task.description(),
            doc_stride=self.doc_stride,
            max_query_length=self.max_query_length,
        )

    def settings(self) -> dict[str, Any]:
        """See `builder.Builder`."""
        return {
            "max_length": self.max_length,
            "doc_stride": self.doc_stride,
            "max_query_length": self.max_query_length,
        }

    def summary(self, split: str, counts: SplitCounts) -> list[str]:
        """See `builder.Builder`."""
        parts = [
            f"{split}: {counts.questions:,} questions in {counts.examples:,} windows",
            f"{counts.tokens:,} tokens",
        ]
        if counts.labelled:
            parts.append(f"{counts.answered:,} windows with the answer")
        if counts.impossible:
            parts.append(f"{counts.impossible:,} questions without one")
        if counts.cut_questions:
            parts.append(f"{counts.cut_questions:,} questions cut")
        return [*parts, *counts.left_out(), *([] if counts.labelled else ["no answers"])]


@dataclasses.dataclass(frozen=True)
class _Item:
    """A question, its row and tokenized context, and the first and last token of its answer."""

    row: int
    question: side_texts.Question
    context_ids: Any
    answer: tuple[int, int] | None


def _tokenized(
    asked: Sequence[AskedRow], tokenizer: Tokenizer, counts: SplitCounts
) -> Iterator[_Item]:
    """Yields the questions that can be used."""
    contexts = list(dict.fromkeys(item.question.context for _, item in asked))
    tokens = dict(zip(contexts, tokenizer.encode_with_offsets(contexts), strict=True))
    for row, item in asked:
        question = item.question
        ids, starts, ends = tokens[question.context]
        answer = None
        if item.start is not None:
            end = item.start + len(question.answers[0])
            answer = windows.answer_tokens(starts, ends, item.start, end)
            if answer is None:
                counts.bad(
                    "answer without a token",
                    f"{item.location}: the answer {question.answers[0]!r} has no token in this "
                    "vocabulary",
                )
                counts.unusable.append(row)
                continue
        yield _Item(row, question, ids, answer)


def _examples(
    asked: Sequence[AskedRow],
    tokenizer: Tokenizer,
    counts: SplitCounts,
    max_length: int,
    doc_stride: int,
    max_query_length: int,
) -> Iterator[Example]:
    """Yields the windows of some questions and counts them."""
    items = list(_tokenized(asked, tokenizer, counts))
    if not items:
        return
    question_ids = tokenizer.encode([item.question.text for item in items])
    counts.labelled = items[0].question.answers is not None
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
        if counts.labelled:
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
