"""Builds the shard folder of a multiple-choice task: a sequence for each choice of each question.

A sequence is [CLS] context [SEP] question and choice [SEP]. Sequences that are too long are cut at
the end of the context. The question and the choice are never cut: a question that leaves no room
for a token of the context cannot be used.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from absl import flags

from official.shards import manifest
from official.shards.manifest import TaskSettings
from official.tasks import LETTERS, SPLITS, Task, choice_text
from official.tokenizers import Tokenizer, pair_packing
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from tfrecords_tools.tasks import choice_files, splits, tables
from tfrecords_tools.tasks import folder as task_folder
from tfrecords_tools.tasks.folder import Example, SplitCounts
from tfrecords_tools.writing.execution import Execution

QUESTIONS_AT_ONCE = 1024


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
    how = max_length, options.skip_bad_rows, options.seed, execution, report
    return build(task, files, tokenizer, options.output, *how)


def build(
    task: Task,
    files: Mapping[str, AnyPath],
    tokenizer: Tokenizer,
    output: AnyPath,
    max_length: int = 512,
    skip_bad_rows: bool = False,
    seed: int = 0,
    execution: Execution = Execution(),  # noqa: B008
    report: Callable[[str], None] = print,
) -> manifest.Manifest:
    """Builds the shard folder of a multiple-choice task and returns its manifest.

    Args:
      task: a task of the kind "choice". If it has no labels, they are letters, as many as the first
        question of the first file has choices.
      files: the file (or RACE's folder) of each split; only test files may have no answers.
      tokenizer: an `official.tokenizers.Tokenizer`.
      output: the folder to create.
      max_length: the length of the longest sequence in tokens, special tokens counted.
      skip_bad_rows: whether questions that cannot be used are left out and counted.
      seed: the seed of the order of training examples.
      execution: where the work is done; this does not change the shards.
      report: is called with the summaries.

    Raises:
      UserError: files or questions cannot be used.
    """
    task_folder.check_max_length(2, tokenizer, max_length)
    names = [split for split in SPLITS if split in files]
    if not task.labels:
        count = choice_files.count_choices(files[names[0]], skip_bad_rows)
        task = dataclasses.replace(task, labels=tuple(LETTERS[:count]), values=())
    shards: list[manifest.Shard] = []
    counts: dict[str, SplitCounts] = {}
    with splits.new_folder(output, tokenizer, execution, seed) as writer:
        for split in names:
            targets = task_folder.no_targets(task.labels)
            each = SplitCounts(tables.BadRows(skip_bad_rows), targets)
            asked = choice_files.read(task, files[split], split.startswith("test"), each.bad)
            make = functools.partial(_examples, task=task, max_length=max_length)
            shards += writer.write(split, asked, QUESTIONS_AT_ONCE, make, each)
            if not each.examples:
                raise UserError(f"{files[split]}: no question can be used: {each.bad}")
            counts[split] = each
            report(_summary(split, each, max_length))
        built = _manifest(task, files, tokenizer, max_length, shards, counts, seed)
        manifest.write(writer.folder, built)
    return built


def _examples(
    asked: Sequence[choice_files.Question],
    tokenizer: Tokenizer,
    counts: SplitCounts,
    task: Task,
    max_length: int,
) -> Iterator[Example]:
    """Yields the examples of some questions and counts them."""
    specials = pair_packing.num_specials(2, tokenizer)
    texts = [
        choice_text.joined(question.text, choice, task.blank)
        for question in asked
        for choice in question.choices
    ]
    contexts = list(dict.fromkeys(question.context for question in asked))
    context_ids = dict(zip(contexts, tokenizer.encode(contexts), strict=True))
    text_ids = iter(tokenizer.encode(texts))
    for question in asked:
        context = context_ids[question.context]
        choice_ids = list(itertools.islice(text_ids, len(question.choices)))
        longest = max(map(len, choice_ids))
        if longest > max_length - specials - 1:
            counts.bad(
                "question too long",
                f"{question.location}: question and choice have {longest} tokens, which leaves "
                f"nothing of --max_length={max_length} for the context: make it at least "
                f"{longest + specials + 1}",
            )
            continue
        packed = [
            pair_packing.pack_arrays([context, ids], tokenizer, max_length, cut="first")
            for ids in choice_ids
        ]
        example = task_folder.example_of_sequences(packed, question.number)
        counts.count(*example["sequence_lengths"])
        counts.truncated += len(context) + longest + specials > max_length
        if question.answer is None:
            counts.labelled = False
        else:
            example["answer"] = question.answer
            counts.targets[task.labels[question.answer]] += 1
        yield example


def _manifest(
    task: Task,
    files: Mapping[str, AnyPath],
    tokenizer: Tokenizer,
    max_length: int,
    shards: Iterable[manifest.Shard],
    counts: Mapping[str, SplitCounts],
    seed: int,
) -> manifest.Manifest:
    totals = {
        split: each.totals(answers=dict(each.targets) if each.labelled else {})
        for split, each in counts.items()
    }
    description = dataclasses.replace(
        task.description(),
        sequences=dict.fromkeys(counts, len(task.labels)),
    )
    return task_folder.make_manifest(
        description,
        ("token_ids", "segment_lengths", "sequence_lengths", "row", "answer"),
        tokenizer,
        max_length,
        shards,
        totals,
        counts,
        TaskSettings(files=task_folder.file_names(files)),
        seed,
    )


def _summary(split: str, counts: SplitCounts, max_length: int) -> str:
    parts = [
        f"{split}: {counts.examples:,} questions",
        f"{counts.tokens:,} tokens",
        f"{counts.truncated:,} with their context cut, at {max_length} tokens",
    ]
    if counts.bad.counts:
        parts.append(f"left out: {counts.bad}")
    parts.append(counts.shares() if counts.labelled else "no answers")
    return "; ".join(parts)
