"""Builds the shard folder of a question-answering task from files in the format of SQuAD.

The answers are spans of the context. Each question becomes one example for each window of its
context (`official.tokenizers.windows`). The questions are kept beside the shards
(`official.shards.side_texts`).
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import flags

from official.shards import manifest, side_texts
from official.shards.manifest import TaskSettings
from official.tasks import SPLITS, Task
from official.tokenizers import Tokenizer, windows
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from tfrecords_tools.tasks import folder as task_folder
from tfrecords_tools.tasks import splits, squad, tables
from tfrecords_tools.tasks.folder import Example
from tfrecords_tools.writing.execution import Execution

QUESTIONS_AT_ONCE = 512

AskedRow = tuple[int, squad.Asked]  # the number of a question, and the question


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of windows.

    Attributes:
      max_length: the length of the longest window in tokens, with the question and special tokens.
      doc_stride: the number of tokens from the start of a window to the start of the next.
      max_query_length: the largest number of tokens of a question; longer questions are cut.
    """

    max_length: int = 384
    doc_stride: int = 128
    max_query_length: int = 64


@dataclasses.dataclass
class SplitCounts(task_folder.SplitCounts):
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


def from_flags(
    options: flags.FlagValues,
    task: Task,
    files: Mapping[str, AnyPath],
    tokenizer: Tokenizer,
    max_length: int,
    execution: Execution,
    report: Callable[[str], None],
) -> manifest.Manifest:
    """Builds the folder that the flags of `build_task_shards` describe; see `build`."""
    sizes = Sizes(max_length, options.doc_stride, options.max_query_length)
    how = options.skip_bad_rows, options.seed, execution, report
    return build(task, files, tokenizer, options.output, sizes, *how)


def build(
    task: Task,
    files: Mapping[str, AnyPath],
    tokenizer: Tokenizer,
    output: AnyPath,
    sizes: Sizes = Sizes(),
    skip_bad_rows: bool = False,
    seed: int = 0,
    execution: Execution = Execution(),  # noqa: B008
    report: Callable[[str], None] = print,
) -> manifest.Manifest:
    """Builds the shard folder of a question-answering task and returns its manifest.

    Args:
      task: a task of the kind "span".
      files: the file of each split; only "test" may have no answers.
      tokenizer: an `official.tokenizers.Tokenizer`.
      output: the folder to create.
      sizes: the sizes of windows.
      skip_bad_rows: whether questions that cannot be used are left out and counted.
      seed: the seed of the order of training examples.
      execution: where the work is done; this does not change the shards.
      report: is called with lines of progress and the summary.

    Raises:
      UserError: files or questions cannot be used, or the sizes leave no room for them.
    """
    windows.check(tokenizer, sizes.max_length, sizes.doc_stride, sizes.max_query_length)
    shards: list[manifest.Shard] = []
    counts: dict[str, SplitCounts] = {}
    digests: dict[str, str] = {}
    with splits.new_folder(output, tokenizer, execution, seed) as writer:
        for split in (s for s in SPLITS if s in files):
            each = SplitCounts(tables.BadRows(skip_bad_rows))
            answered = not split.startswith("test")
            asked = list(enumerate(squad.read(files[split], task.no_answers, answered, each.bad)))
            make = functools.partial(_examples, sizes=sizes)
            shards += writer.write(split, asked, QUESTIONS_AT_ONCE, make, each)
            if not each.examples:
                raise UserError(f"{files[split]}: no question can be used: {each.bad}")
            unusable = set(each.unusable)
            usable = {row: item.question for row, item in asked if row not in unusable}
            digests |= side_texts.write_questions(writer.folder, split, usable)
            counts[split] = each
            report(_summary(split, each))
        built = _manifest(task, files, tokenizer, sizes, shards, counts, digests, seed)
        manifest.write(writer.folder, built)
    return built


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
                    f"{item.location}: the tokenizer makes nothing of the answer "
                    f"{question.answers[0]!r}",
                )
                counts.unusable.append(row)
                continue
        yield _Item(row, question, ids, answer)


def _examples(
    asked: Sequence[AskedRow], tokenizer: Tokenizer, counts: SplitCounts, sizes: Sizes
) -> Iterator[Example]:
    """Yields the windows of some questions and counts them."""
    items = list(_tokenized(asked, tokenizer, counts))
    if not items:
        return
    question_ids = tokenizer.encode([item.question.text for item in items])
    counts.labelled = items[0].question.answers is not None
    counts.questions += len(items)
    counts.cut_questions += sum(len(ids) > sizes.max_query_length for ids in question_ids)
    counts.impossible += sum(item.question.answers == () for item in items)
    packed = windows.pack_windows(
        _ragged(question_ids),
        _ragged([item.context_ids for item in items]),
        tokenizer,
        sizes.max_length,
        sizes.doc_stride,
        sizes.max_query_length,
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


def _manifest(
    task: Task,
    files: Mapping[str, AnyPath],
    tokenizer: Tokenizer,
    sizes: Sizes,
    shards: list[manifest.Shard],
    counts: Mapping[str, SplitCounts],
    digests: Mapping[str, str],
    seed: int,
) -> manifest.Manifest:
    totals = {
        split: each.totals(
            questions=each.questions,
            without_answer=each.impossible,
            cut_questions=each.cut_questions,
            with_answer_in_window=each.answered,
        )
        for split, each in counts.items()
    }
    description = dataclasses.replace(
        task.description(),
        doc_stride=sizes.doc_stride,
        max_query_length=sizes.max_query_length,
    )
    positions = (*windows.POSITIONS, "answer_start", "answer_end")
    return task_folder.make_manifest(
        description,
        ("token_ids", "segment_lengths", "row", *positions),
        tokenizer,
        sizes.max_length,
        shards,
        totals,
        counts,
        TaskSettings(files=task_folder.file_names(files), **dataclasses.asdict(sizes)),
        seed,
        files=digests,
    )


def _summary(split: str, counts: SplitCounts) -> str:
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
    if counts.bad.counts:
        parts.append(f"left out: {counts.bad}")
    if not counts.labelled:
        parts.append("no answers")
    return "; ".join(parts)
