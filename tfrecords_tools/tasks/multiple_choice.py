"""Makes the shard folder of a choice task: a sequence for each choice of each question.

A sequence is [CLS] context [SEP] question and choice [SEP]. What is too long is cut at the end of
the context; the question and the choice are always whole, and a question for which that leaves no
token of the context cannot be used.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from absl import flags

from official.shards import features, manifest
from official.shards.provenance import TaskSettings
from official.tasks import LETTERS, SPLITS, Task, choice_text
from official.tokenizers import Tokenizer, packing
from official.utils import atomic
from official.utils.errors import UserError
from tfrecords_tools.tasks.folder import (
    SplitCounts,
    check_room,
    make_manifest,
    names,
    no_targets,
    several,
    write_shards,
)
from tfrecords_tools.tasks.readers import choice_files, tables

QUESTIONS_AT_ONCE = 1024


def from_flags(
    options: flags.FlagValues,
    task: Task,
    files: Mapping[str, Path],
    tokenizer: Tokenizer,
    max_length: int,
    report: Callable[[str], None],
) -> manifest.Manifest:
    """Builds what the flags of `build_task_shards` say; see `build`."""
    skip = options.skip_bad_rows
    return build(task, files, tokenizer, Path(options.output), max_length, skip, report=report)


def build(
    task: Task,
    files: Mapping[str, Path],
    tokenizer: Tokenizer,
    output: Path,
    max_length: int = 512,
    skip_bad_rows: bool = False,
    examples_per_shard: int = 100_000,
    report: Callable[[str], None] = print,
) -> manifest.Manifest:
    """Writes the shard folder of a choice task.

    Args:
      task: of the kind "choice"; where it has no labels, they are as many letters as the first
        question of the first file has choices.
      files: the file (or RACE's folder) of each split; only those of tests may lack their answers.
      tokenizer: an `official.tokenizers.Tokenizer`.
      output: the folder to make.
      max_length: longest sequence in tokens, special ones counted.
      skip_bad_rows: whether questions that cannot be used are left out and counted.
      examples_per_shard: where a new shard is begun.
      report: takes the summaries.

    Returns:
      The manifest as written.

    Raises:
      UserError: files or questions that cannot be used.
    """
    check_room(2, tokenizer, max_length)
    splits = [split for split in SPLITS if split in files]
    if not task.labels:
        count = choice_files.count_choices(files[splits[0]])
        task = dataclasses.replace(task, labels=tuple(LETTERS[:count]), values=())
    shards: list[manifest.Shard] = []
    tallies: dict[str, SplitCounts] = {}
    with atomic.folder(output) as folder:
        for split in splits:
            targets = no_targets(task.labels)
            tally = SplitCounts(tables.BadRows(skip_bad_rows), targets)
            asked = choice_files.read(task, files[split], split.startswith("test"), tally.bad)
            examples = _examples(asked, task, tokenizer, max_length, tally)
            shards += write_shards(folder, split, examples, examples_per_shard)
            if not tally.examples:
                raise UserError(f"{files[split]}: no question can be used: {tally.bad}")
            tallies[split] = tally
            report(_summary(split, tally, max_length))
        tokenizer.save(folder / manifest.TOKENIZER_FOLDER)
        made = _manifest(task, files, tokenizer, max_length, shards, tallies)
        manifest.write(folder, made)
    return made


def _examples(
    asked: Iterator[choice_files.Question],
    task: Task,
    tokenizer: Tokenizer,
    max_length: int,
    tally: SplitCounts,
) -> Iterator[bytes]:
    """Yields the serialized questions of a file and keeps the tally."""
    specials = packing.num_specials(2, tokenizer)
    while chunk := list(itertools.islice(asked, QUESTIONS_AT_ONCE)):
        texts = [
            choice_text.joined(question.text, choice, task.blank)
            for question in chunk
            for choice in question.choices
        ]
        contexts = list(dict.fromkeys(question.context for question in chunk))
        context_ids = dict(zip(contexts, tokenizer.encode(contexts), strict=True))
        text_ids = iter(tokenizer.encode(texts))
        for question in chunk:
            context = context_ids[question.context]
            both = list(itertools.islice(text_ids, len(question.choices)))
            longest = max(map(len, both))
            if longest > max_length - specials - 1:
                tally.bad(
                    "question too long",
                    f"{question.place}: question and choice have {longest} tokens, which leaves "
                    f"nothing of --max_length={max_length} for the context: make it at least "
                    f"{longest + specials + 1}",
                )
                continue
            packed = [
                packing.pack_arrays([context, ids], tokenizer, max_length, cut="first")
                for ids in both
            ]
            example = several(packed, question.number)
            tally.add(*example["sequence_lengths"])
            tally.truncated += len(context) + longest + specials > max_length
            if question.answer is None:
                tally.labelled = False
            else:
                example["answer"] = question.answer
                tally.targets[task.labels[question.answer]] += 1
            yield features.serialize(example)


def _manifest(
    task: Task,
    files: Mapping[str, Path],
    tokenizer: Tokenizer,
    max_length: int,
    shards: Iterable[manifest.Shard],
    tallies: Mapping[str, SplitCounts],
) -> manifest.Manifest:
    splits = {
        split: tally.totals(answers=dict(tally.targets) if tally.labelled else {})
        for split, tally in tallies.items()
    }
    description = dataclasses.replace(
        task.description(),
        unlabelled=tuple(split for split, tally in tallies.items() if not tally.labelled),
        sequences=dict.fromkeys(tallies, len(task.labels)),
    )
    return make_manifest(
        description,
        ("token_ids", "segment_lengths", "sequence_lengths", "row", "answer"),
        tokenizer,
        max_length,
        shards,
        splits,
        tallies,
        TaskSettings(files=names(files)),
    )


def _summary(split: str, tally: SplitCounts, max_length: int) -> str:
    parts = [
        f"{split}: {tally.examples:,} questions",
        f"{tally.tokens:,} tokens",
        f"{tally.truncated:,} with their context cut, at {max_length} tokens",
    ]
    if tally.bad.counts:
        parts.append(f"left out: {tally.bad}")
    parts.append(tally.shares() if tally.labelled else "no answers")
    return "; ".join(parts)
