"""Makes the shard folder of a task of questions and spans from files of SQuAD's form.

Each question becomes as many examples as its context has windows (`official.tokenizers.windows`),
and the questions themselves are kept beside the shards (`official.shards.questions`).
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from absl import flags

from official.shards import features, manifest, questions
from official.shards.provenance import TaskSettings
from official.tasks import SPLITS, Task
from official.tokenizers import Tokenizer, windows
from official.utils import atomic
from official.utils.errors import UserError
from tfrecords_tools.tasks.folder import SplitCounts, make_manifest, names, write_shards
from tfrecords_tools.tasks.readers import squad, tables

QUESTIONS_AT_ONCE = 512


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How contexts are cut.

    Attributes:
      max_length: longest window in tokens, the question and special ones counted.
      doc_stride: tokens from the start of a window to that of the next.
      max_query_length: the most tokens of a question; longer ones are cut.
    """

    max_length: int = 384
    doc_stride: int = 128
    max_query_length: int = 64


@dataclasses.dataclass
class SplitCounts(SplitCounts):
    """What one split holds; its examples are windows, which are never cut.

    Attributes:
      questions: those asked.
      impossible: questions without an answer.
      cut_questions: questions longer than their limit.
      answered: windows that hold their question's answer.
    """

    questions: int = 0
    impossible: int = 0
    cut_questions: int = 0
    answered: int = 0


def from_flags(
    options: flags.FlagValues,
    task: Task,
    files: Mapping[str, Path],
    tokenizer: Tokenizer,
    max_length: int,
    report: Callable[[str], None],
) -> manifest.Manifest:
    """Builds what the flags of `build_task_shards` say; see `build`."""
    sizes = Sizes(max_length, options.doc_stride, options.max_query_length)
    skip = options.skip_bad_rows
    return build(task, files, tokenizer, Path(options.output), sizes, skip, report=report)


def build(
    task: Task,
    files: Mapping[str, Path],
    tokenizer: Tokenizer,
    output: Path,
    sizes: Sizes = Sizes(),
    skip_bad_rows: bool = False,
    examples_per_shard: int = 100_000,
    report: Callable[[str], None] = print,
) -> manifest.Manifest:
    """Writes the shard folder of a span task.

    Args:
      task: of the kind "span".
      files: the file of each split; only "test" may lack its answers.
      tokenizer: an `official.tokenizers.Tokenizer`.
      output: the folder to make.
      sizes: how contexts are cut.
      skip_bad_rows: whether questions that cannot be used are left out and counted.
      examples_per_shard: where a new shard is begun.
      report: takes lines of progress and the summary.

    Returns:
      The manifest as written.

    Raises:
      UserError: files or questions that cannot be used, or sizes without room for them.
    """
    windows.check(tokenizer, sizes.max_length, sizes.doc_stride, sizes.max_query_length)
    shards: list[manifest.Shard] = []
    tallies: dict[str, SplitCounts] = {}
    kept: dict[str, str] = {}
    with atomic.folder(output) as folder:
        for split in (s for s in SPLITS if s in files):
            tally = SplitCounts(tables.BadRows(skip_bad_rows))
            found = squad.read(
                files[split], task.no_answers, not split.startswith("test"), tally.bad
            )
            usable = list(_tokenized(found, tokenizer, tally.bad))
            if not usable:
                raise UserError(f"{files[split]}: no question can be used: {tally.bad}")
            tally.labelled = usable[0].asked.question.answers is not None
            kept |= questions.write(folder, split, (item.asked.question for item in usable))
            examples = _examples(usable, tokenizer, sizes, tally)
            shards += write_shards(folder, split, examples, examples_per_shard)
            tallies[split] = tally
            report(_summary(split, tally))
        tokenizer.save(folder / manifest.TOKENIZER_FOLDER)
        made = _manifest(task, files, tokenizer, sizes, shards, tallies, kept)
        manifest.write(folder, made)
    return made


@dataclasses.dataclass(frozen=True)
class _Item:
    """A question whose context is tokenized, and the tokens of its answer."""

    asked: squad.Asked
    context_ids: Any
    answer: tuple[int, int] | None


def _tokenized(
    found: Iterator[squad.Asked], tokenizer: Any, bad: tables.BadRows
) -> Iterator[_Item]:
    while chunk := list(itertools.islice(found, QUESTIONS_AT_ONCE)):
        contexts = list(dict.fromkeys(asked.question.context for asked in chunk))
        tokens = dict(zip(contexts, tokenizer.encode_with_offsets(contexts), strict=True))
        for asked in chunk:
            question = asked.question
            ids, starts, ends = tokens[question.context]
            answer = None
            if asked.start is not None:
                end = asked.start + len(question.answers[0])
                answer = windows.answer_tokens(starts, ends, asked.start, end)
                if answer is None:
                    bad(
                        "answer without a token",
                        f"{asked.place}: the tokenizer makes nothing of the answer "
                        f"{question.answers[0]!r}",
                    )
                    continue
            yield _Item(asked, ids, answer)


def _examples(
    items: list[_Item], tokenizer: Any, sizes: Sizes, tally: SplitCounts
) -> Iterator[bytes]:
    """Yields the serialized windows of all questions and keeps the tally."""
    for first in range(0, len(items), QUESTIONS_AT_ONCE):
        chunk = items[first : first + QUESTIONS_AT_ONCE]
        asked = tokenizer.encode([item.asked.question.text for item in chunk])
        tally.questions += len(chunk)
        tally.cut_questions += sum(len(ids) > sizes.max_query_length for ids in asked)
        tally.impossible += sum(item.asked.question.answers == () for item in chunk)
        packed = windows.pack_windows(
            _ragged(asked),
            _ragged([item.context_ids for item in chunk]),
            tokenizer,
            sizes.max_length,
            sizes.doc_stride,
            sizes.max_query_length,
        )
        token_ids = packed.pop("token_ids")
        splits, values = token_ids.row_splits.numpy(), token_ids.values.numpy()
        packed = {name: value.numpy() for name, value in packed.items()}
        for i, row in enumerate(packed["row"].tolist()):
            ids = values[splits[i] : splits[i + 1]]
            example = {name: int(packed[name][i]) for name in windows.POSITIONS}
            example |= {
                "token_ids": ids,
                "segment_lengths": packed["segment_lengths"][i],
                "row": first + row,
            }
            if tally.labelled:
                example |= _target(chunk[row].answer, example)
                tally.answered += example["answer_start"] >= 0
            tally.add(len(ids))
            yield features.serialize(example)


def _target(answer: tuple[int, int] | None, window: Mapping[str, Any]) -> dict[str, int]:
    """The answer, where a window holds all of it."""
    begin = window["window_start"]
    if answer and begin <= answer[0] and answer[1] < begin + window["context_length"]:
        return {"answer_start": answer[0], "answer_end": answer[1]}
    return {"answer_start": -1, "answer_end": -1}


def _ragged(rows: list) -> tf.RaggedTensor:
    lengths = [len(row) for row in rows]
    values = tf.concat([tf.constant(row, tf.int32) for row in rows], 0)
    return tf.RaggedTensor.from_row_lengths(values, lengths)


def _manifest(
    task: Task,
    files: Mapping[str, Path],
    tokenizer: Tokenizer,
    sizes: Sizes,
    shards: list[manifest.Shard],
    tallies: Mapping[str, SplitCounts],
    kept: Mapping[str, str],
) -> manifest.Manifest:
    splits = {
        split: tally.totals(
            questions=tally.questions,
            without_answer=tally.impossible,
            cut_questions=tally.cut_questions,
            with_answer_in_window=tally.answered,
        )
        for split, tally in tallies.items()
    }
    description = dataclasses.replace(
        task.description(),
        doc_stride=sizes.doc_stride,
        max_query_length=sizes.max_query_length,
        unlabelled=tuple(split for split, tally in tallies.items() if not tally.labelled),
    )
    places = (*windows.POSITIONS, "answer_start", "answer_end")
    return make_manifest(
        description,
        ("token_ids", "segment_lengths", "row", *places),
        tokenizer,
        sizes.max_length,
        shards,
        splits,
        tallies,
        TaskSettings(files=names(files), **dataclasses.asdict(sizes)),
        files=kept,
    )


def _summary(split: str, tally: SplitCounts) -> str:
    parts = [
        f"{split}: {tally.questions:,} questions in {tally.examples:,} windows",
        f"{tally.tokens:,} tokens",
    ]
    if tally.labelled:
        parts.append(f"{tally.answered:,} windows with the answer")
    if tally.impossible:
        parts.append(f"{tally.impossible:,} questions without one")
    if tally.cut_questions:
        parts.append(f"{tally.cut_questions:,} questions cut")
    if tally.bad.counts:
        parts.append(f"left out: {tally.bad}")
    if not tally.labelled:
        parts.append("no answers")
    return "; ".join(parts)
