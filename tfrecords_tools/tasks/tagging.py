"""Builds the shard folder of a tagging task (token classification) from files of words and tags.

Each text becomes one example for each window of its tokens (`official.tokenizers.word_windows`).
The words are kept beside the shards (`official.shards.tagged_texts`).
"""

import collections
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from absl import flags

from official.shards import manifest, tagged_texts
from official.shards.provenance import TaskSettings
from official.tasks import SPLITS, Task, nearest
from official.tasks import tags as tag_rules
from official.tokenizers import Tokenizer, packed_words, word_windows
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from tfrecords_tools.tasks import folder as task_folder
from tfrecords_tools.tasks import splits
from tfrecords_tools.tasks.folder import Example
from tfrecords_tools.tasks.readers import tables, tagged_files
from tfrecords_tools.writing.execution import Execution

TEXTS_AT_ONCE = 2048


@dataclasses.dataclass
class SplitCounts(task_folder.SplitCounts):
    """The counts of one split; its examples are windows, which are never cut.

    Attributes:
      texts: the number of texts.
      words: the number of words.
      entities: the number of entities of each type.
      without_token: the number of words that the tokenizer makes nothing of.
      repaired_tags: the number of tags that were changed to follow their scheme.
    """

    texts: int = 0
    words: int = 0
    entities: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    without_token: int = 0
    repaired_tags: int = 0


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
    return build(
        task,
        files,
        tokenizer,
        options.output,
        max_length,
        options.format,
        options.repair_tags,
        options.skip_bad_rows,
        options.seed,
        execution,
        report,
    )


def build(
    task: Task,
    files: Mapping[str, AnyPath],
    tokenizer: Tokenizer,
    output: AnyPath,
    max_length: int = 128,
    format: str | None = None,
    repair_tags: bool = False,
    skip_bad_rows: bool = False,
    seed: int = 0,
    execution: Execution = Execution(),  # noqa: B008
    report: Callable[[str], None] = print,
) -> manifest.Manifest:
    """Builds the shard folder of a tagging task and returns its manifest.

    Args:
      task: a task of the kind "tagging". If it has no labels, they are the tags of all files, `O`
        first and the others sorted.
      files: the file of each split; only test files may have no tags.
      tokenizer: an `official.tokenizers.Tokenizer`.
      output: the folder to create.
      max_length: the length of the longest window in tokens, special tokens counted.
      format: "conll" or "jsonl"; None = by the file names.
      repair_tags: whether tags that do not follow their scheme are repaired and counted, and spans
        that cut a word are widened.
      skip_bad_rows: whether texts that cannot be used are left out and counted.
      seed: the seed of the order of training examples.
      execution: where the work is done; this does not change the shards.
      report: is called with lines of progress and the summary.

    Raises:
      UserError: files, texts or tags cannot be used.
    """
    task_folder.check_max_length(1, tokenizer, max_length)
    counts: dict[str, SplitCounts] = {}
    read: dict[str, list[tagged_files.Text]] = {}
    for split in (s for s in SPLITS if s in files):
        counts[split] = SplitCounts(tables.BadRows(skip_bad_rows))
        read[split] = _texts(task, files[split], split, format, repair_tags, counts[split])
    scheme = tag_rules.scheme(
        tag for texts in read.values() for text in texts for tag in text.tags or ()
    )
    texts = {
        split: _in_scheme(each, scheme, repair_tags, counts[split]) for split, each in read.items()
    }
    task = _with_labels(task, read, texts)
    shards: list[manifest.Shard] = []
    digests: dict[str, str] = {}
    with splits.new_folder(output, tokenizer, execution, seed) as writer:
        make = functools.partial(_examples, task=task, max_length=max_length)
        for split, each in texts.items():
            digests |= tagged_texts.write(writer.folder, split, each)
            shards += writer.write(split, enumerate(each), TEXTS_AT_ONCE, make, counts[split])
            report(_summary(split, counts[split]))
        built = _manifest(task, files, tokenizer, max_length, shards, counts, digests, seed)
        manifest.write(writer.folder, built)
    return built


def _texts(
    task: Task,
    path: AnyPath,
    split: str,
    format: str | None,
    widen: bool,
    counts: SplitCounts,
) -> list[tagged_files.Text]:
    labelled = not split.startswith("test")
    columns = task.columns_for(split)
    texts = list(tagged_files.read(path, columns, format, labelled, counts.bad, widen))
    if not texts:
        raise UserError(f"{path}: no text can be used: {counts.bad}")
    counts.labelled = texts[0].tags is not None
    for text in texts:
        if (text.tags is not None) != counts.labelled:
            raise UserError(
                f"{text.location}: {'has' if text.tags else 'no'} tags, unlike the first text of "
                "the file: give them in all texts or in none"
            )
    return texts


def _in_scheme(
    texts: Sequence[tagged_files.Text], scheme: str, repair: bool, counts: SplitCounts
) -> list[tagged_texts.TaggedText]:
    """Checks or repairs the tags of texts, and counts words and entities."""
    result = []
    for text in texts:
        counts.texts += 1
        counts.words += len(text.words)
        tags = text.tags
        if tags is not None:
            repaired, changed = tag_rules.repair(tags, scheme)
            if changed and not repair:
                _refuse(text, repaired, scheme)
            counts.repaired_tags += changed
            tags = tuple(repaired)
            counts.entities.update(kind for kind, _, _ in tag_rules.entities(tags))
        result.append(tagged_texts.TaggedText(text.words, tags))
    return result


def _refuse(text: tagged_files.Text, repaired: Sequence[str], scheme: str) -> None:
    """Raises UserError for the first tag that does not follow the scheme."""
    pairs = zip(text.tags, repaired, strict=True)
    i = next(i for i, (tag, right) in enumerate(pairs) if tag != right)
    path = text.location.rsplit(", line ", 1)[0]
    around = " ".join(text.tags[max(0, i - 1) : i + 2])
    name = {tag_rules.BIO: "BIO", tag_rules.BIOES: "BIOES"}[scheme]
    raise UserError(
        f"{path}, line {text.lines[i]}: the tag {text.tags[i]!r} of the word {text.words[i]!r:.60} "
        f"does not follow {name} (tags there: {around}), where it is {repaired[i]!r}: correct the "
        "file, or repair and count such tags with --repair_tags, which reads IOB1 as well"
    )


def _with_labels(
    task: Task,
    read: Mapping[str, Sequence[tagged_files.Text]],
    texts: Mapping[str, Sequence[tagged_texts.TaggedText]],
) -> Task:
    """Returns the task with the tags of all files, or checks that its own are all of them."""
    if not task.labels:
        found = {tag for each in texts.values() for text in each for tag in text.tags or ()}
        labels = tag_rules.names(found)
        if len(labels) < 2:
            raise UserError(
                "the files have no tag but 'O', which leaves nothing to learn: is --label_column "
                "the column of the tags?"
            )
        return dataclasses.replace(task, labels=labels, values=())
    known = set(task.labels)
    for split, each in texts.items():
        for source, text in zip(read[split], each, strict=True):
            for line, tag in zip(source.lines, text.tags or (), strict=False):
                if tag not in known:
                    path = source.location.rsplit(", line ", 1)[0]
                    raise UserError(
                        f"{path}, line {line}: tag {tag!r} is none of {', '.join(task.labels)}"
                        f"{nearest(tag, task.labels)}: name it in --labels"
                    )
    return task


def _examples(
    rows: Sequence[tuple[int, tagged_texts.TaggedText]],
    tokenizer: Tokenizer,
    counts: SplitCounts,
    task: Task,
    max_length: int,
) -> Iterator[Example]:
    """Yields the windows of some texts, each with its number, and counts them."""
    numbers = {tag: i for i, tag in enumerate(task.labels)}
    texts = [text.words for _, text in rows]
    tokens = word_windows.encode(texts, tokenizer)
    spelled = packed_words.split_words([" ".join(words) for words in texts], tokenizer)
    for i, ((row, text), each) in enumerate(zip(rows, tokens, strict=True)):
        counts.without_token += len(text.words) - int((each.word_ids >= 0).sum())
        tags = None
        if text.tags is not None:
            tags = np.array([*(numbers[tag] for tag in text.tags), -1], np.int32)
        for window in word_windows.windows(len(each.ids), tokenizer, max_length):
            ids, word_ids = word_windows.pack(each, window, tokenizer)
            example = {
                "token_ids": ids,
                "segment_lengths": [len(ids)],
                "row": row,
                "word_ids": word_ids,
            }
            if tags is not None:
                example["tag_ids"] = tags[word_ids]
            if spelled is not None:
                mine = [spelled[i][window.start : window.end]]
                example |= packed_words.pack_arrays(mine, max_length)
            counts.count(len(ids))
            yield example


def _manifest(
    task: Task,
    files: Mapping[str, AnyPath],
    tokenizer: Tokenizer,
    max_length: int,
    shards: list[manifest.Shard],
    counts: Mapping[str, SplitCounts],
    digests: Mapping[str, str],
    seed: int,
) -> manifest.Manifest:
    totals = {
        split: each.totals(
            texts=each.texts,
            words=each.words,
            entities=dict(sorted(each.entities.items())),
            without_token=each.without_token,
            repaired_tags=each.repaired_tags,
        )
        for split, each in counts.items()
    }
    features = ("word_ids", *packed_words.features(tokenizer), "tag_ids")
    return task_folder.make_manifest(
        task.description(),
        ("token_ids", "segment_lengths", "row", *features),
        tokenizer,
        max_length,
        shards,
        totals,
        counts,
        TaskSettings(files=task_folder.file_names(files)),
        seed,
        files=digests,
    )


def _summary(split: str, counts: SplitCounts) -> str:
    parts = [
        f"{split}: {counts.texts:,} texts in {counts.examples:,} windows",
        f"{counts.words:,} words",
        f"{counts.tokens:,} tokens",
    ]
    if counts.labelled:
        shown = ", ".join(f"{kind} {count:,}" for kind, count in sorted(counts.entities.items()))
        parts.append(f"{counts.entities.total():,} entities" + (f" ({shown})" if shown else ""))
    else:
        parts.append("no tags")
    if counts.without_token:
        parts.append(f"{counts.without_token:,} words without a token")
    if counts.repaired_tags:
        parts.append(f"{counts.repaired_tags:,} tags repaired")
    if counts.bad.counts:
        parts.append(f"left out: {counts.bad}")
    return "; ".join(parts)
