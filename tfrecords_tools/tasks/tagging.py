"""Builds the shard folder of a tagging task (token classification) from files of words and tags.

Texts are split into words (`tagged_words`). Each text becomes one example for each window of its
tokens (`official.tokenizers.word_windows`). The words are kept beside the shards
(`official.shards.side_texts`).

Splits texts into words, and makes tags of words from their spans.
"""

import bisect
import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from absl import flags

from official.shards import manifest, side_texts
from official.shards.manifest import TaskSettings
from official.tasks import SPLITS, Task, nearest, tag_files
from official.tasks import tags as tag_rules
from official.tasks.tag_files import Span, TaggedWords, TextWithSpans
from official.tokenizers import Tokenizer, pair_packing, text_words, word_windows
from official.utils import word_rules
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from official.utils.text_lines import BadRows, Unusable
from tfrecords_tools.tasks import folder as task_folder
from tfrecords_tools.tasks import splits
from tfrecords_tools.tasks.folder import Example
from tfrecords_tools.writing.execution import Execution

TEXTS_AT_ONCE = 2048
PLAIN_METRICS = ("accuracy", "macro_f1")  # of tags that mark no entities


@dataclasses.dataclass
class SplitCounts(task_folder.SplitCounts):
    """The counts of one split; its examples are windows, which are never cut.

    Attributes:
      texts: the number of texts.
      words: the number of words.
      entities: the number of entities of each type.
      without_token: the number of words that the tokenizer makes nothing of.
      labels: the number of words of each tag, where tags mark no entities.
      repaired_tags: the number of tags that were changed to follow their scheme.
      nested_spans: the number of spans left out because of others inside or around them.
    """

    texts: int = 0
    words: int = 0
    entities: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    labels: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    without_token: int = 0
    repaired_tags: int = 0
    nested_spans: int = 0


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
        options.nested_spans,
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
    nested: str = "refuse",
) -> manifest.Manifest:
    """Builds the shard folder of a tagging task and returns its manifest.

    Args:
      task: a task of the kind "tagging". If it has no labels, they are the tags of all files, `O`
        first and the others sorted. `split_words` is the rule for texts; None = the default.
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
      nested: which of nested spans are kept; one of `tagged_words.NESTED`.

    Raises:
      UserError: files, texts or tags cannot be used.
    """
    task = dataclasses.replace(task, split_words=task.split_words or word_rules.DEFAULT)
    task_folder.check_max_length(1, tokenizer, max_length)
    counts: dict[str, SplitCounts] = {}
    read: dict[str, list[tag_files.TaggedWords]] = {}
    for split in (s for s in SPLITS if s in files):
        counts[split] = each = SplitCounts(BadRows(skip_bad_rows))
        labelled = not split.startswith("test")
        columns = task.columns_for(split)
        records = tag_files.read(files[split], columns, format, labelled, each.bad, task.labels)
        split_texts = as_words(records, tokenizer, task.split_words, each.bad, nested, repair_tags)
        read[split] = _alike(split_texts, each)
    tags = {tag for texts in read.values() for text in texts for tag in text.tags or ()}
    # Where some tags mark entities, texts with others are named one by one.
    scheme = tag_rules.scheme(set(filter(tag_rules.marks, tags)) or tags)
    texts = {
        split: _in_scheme(each, scheme, repair_tags, task.labels, counts[split])
        for split, each in read.items()
    }
    for split, each in texts.items():
        if not each:
            raise UserError(f"{files[split]}: no text can be used: {counts[split].bad}")
    task = _with_labels(task, texts)
    if scheme == tag_rules.PLAIN:
        chosen = tuple(name for name in task.metrics if name in PLAIN_METRICS)
        task = dataclasses.replace(task, metrics=chosen or PLAIN_METRICS)
    shards: list[manifest.Shard] = []
    digests: dict[str, str] = {}
    with splits.new_folder(output, tokenizer, execution, seed) as writer:
        make = functools.partial(_examples, task=task, max_length=max_length)
        for split, each in texts.items():
            digests |= side_texts.write_tagged(writer.folder, split, each)
            shards += writer.write(split, enumerate(each), TEXTS_AT_ONCE, make, counts[split])
            report(_summary(split, counts[split]))
        for split in texts:
            if note := _unlearnt(split, texts):
                report(note)
        built = _manifest(task, files, tokenizer, max_length, shards, counts, digests, seed)
        manifest.write(writer.folder, built)
    return built


def _alike(
    texts: Iterable[tag_files.TaggedWords], counts: SplitCounts
) -> list[tag_files.TaggedWords]:
    """Returns the texts that have tags, or have none, as the first one."""
    result: list[tag_files.TaggedWords] = []
    for text in texts:
        if result and (text.tags is None) != (result[0].tags is None):
            counts.bad(
                "tagged among untagged",
                f"{text.location}: {'no' if text.tags is None else 'has'} tags, unlike the first "
                "text of the file: give them in all texts or in none",
            )
            continue
        result.append(text)
    counts.labelled = not result or result[0].tags is not None
    return result


def _in_scheme(
    texts: Iterable[tag_files.TaggedWords],
    scheme: str,
    repair: bool,
    labels: Sequence[str],
    counts: SplitCounts,
) -> list[side_texts.TaggedText]:
    """Returns the texts with tags that follow the scheme and are labels, and counts them."""
    result = []
    for text in texts:
        tags = text.tags
        if tags is not None:
            if scheme != tag_rules.PLAIN and (other := _of_no_scheme(text)):
                counts.bad("not a tag", other)
                continue
            repaired, changed = tag_rules.repair(tags, scheme)
            if changed and not repair:
                counts.bad("tags out of order", _first_fault(text, repaired, scheme))
                continue
            if labels and (unknown := _unknown(text, repaired, labels)):
                counts.bad("tag not in the set", unknown)
                continue
            counts.repaired_tags += changed
            tags = tuple(repaired)
            counts.entities.update(kind for kind, _, _ in tag_rules.entities(tags))
            counts.labels.update(tags if scheme == tag_rules.PLAIN else ())
        counts.texts += 1
        counts.words += len(text.words)
        counts.nested_spans += text.left_out
        result.append(side_texts.TaggedText(text.words, tags, text.text, text.offsets))
    return result


def _of_no_scheme(text: tag_files.TaggedWords) -> str:
    """Returns the message about the first tag that is of no scheme; "" if there is none."""
    for i, tag in enumerate(text.tags):
        try:
            tag_rules.split(tag)
        except UserError as error:
            return f"{_place(text, i)}: {error}"
    return ""


def _first_fault(text: tag_files.TaggedWords, repaired: Sequence[str], scheme: str) -> str:
    """Returns the message about the first tag that does not follow the scheme."""
    pairs = zip(text.tags, repaired, strict=True)
    i = next(i for i, (tag, right) in enumerate(pairs) if tag != right)
    around = " ".join(text.tags[max(0, i - 1) : i + 2])
    name = {tag_rules.BIO: "BIO", tag_rules.BIOES: "BIOES"}[scheme]
    return (
        f"{_place(text, i)}: the tag {text.tags[i]!r} of the word {text.words[i]!r:.60} "
        f"does not follow {name} (tags there: {around}), where it is {repaired[i]!r}: correct the "
        "file, or repair and count such tags with --repair_tags, which reads IOB1 as well"
    )


def _unknown(text: tag_files.TaggedWords, tags: Sequence[str], labels: Sequence[str]) -> str:
    """Returns the message about the first tag that is no label; "" if there is none."""
    for i, tag in enumerate(tags):
        if tag not in labels:
            return (
                f"{_place(text, i)}: tag {tag!r} is none of {', '.join(labels)}"
                f"{nearest(tag, labels)}: name it in --labels"
            )
    return ""


def _place(text: tag_files.TaggedWords, word: int) -> str:
    """Returns the file and the line of a word."""
    return f"{text.location.rsplit(', line ', 1)[0]}, line {text.lines[word]}"


def _with_labels(task: Task, texts: Mapping[str, Sequence[side_texts.TaggedText]]) -> Task:
    """Returns the task with its labels: its own, or the tags of all files."""
    if task.labels:
        return task
    labels = tag_rules.names(
        tag for each in texts.values() for text in each for tag in text.tags or ()
    )
    if len(labels) < 2:
        raise UserError(
            "the files have no tag but 'O', which leaves nothing to learn: is --label_column "
            "the column of the tags?"
        )
    return dataclasses.replace(task, labels=labels, values=())


def _unlearnt(split: str, texts: Mapping[str, Sequence[side_texts.TaggedText]]) -> str:
    """Returns a line about the tags of a split that the train file lacks; "" if there are none."""
    if split == "train" or "train" not in texts:
        return ""
    learnt = {tag for text in texts["train"] for tag in text.tags or ()}
    counted = collections.Counter(
        tag for text in texts[split] for tag in text.tags or () if tag not in learnt
    )
    if not counted:
        return ""
    shown = ", ".join(f"{tag} {count:,}" for tag, count in sorted(counted.items()))
    return (
        f"{split}: {counted.total():,} words have tags that the train file lacks ({shown}): a "
        "model has no example to learn them from, and metrics count these entities as missed"
    )


def _examples(
    rows: Sequence[tuple[int, side_texts.TaggedText]],
    tokenizer: Tokenizer,
    counts: SplitCounts,
    task: Task,
    max_length: int,
) -> Iterator[Example]:
    """Yields the windows of some texts, each with its number, and counts them."""
    numbers = {tag: i for i, tag in enumerate(task.labels)}
    running, ends = _running([text for _, text in rows], task.split_words)
    tokens = word_windows.encode_running(running, ends, tokenizer)
    spelled = pair_packing.split_words(running, tokenizer)
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
                example |= pair_packing.pack_word_arrays(mine, max_length)
            counts.count(len(ids))
            yield example


def _running(
    texts: Sequence[side_texts.TaggedText], rule: str
) -> tuple[list[str], list[np.ndarray]]:
    """Returns what is tokenized of each text, and the ends of its words in characters."""
    running, ends = word_windows.joined([text.words for text in texts])
    if rule == "tokens":
        for i, text in enumerate(texts):
            if text.text is not None:
                running[i] = text.text
                ends[i] = np.array([end for _, end in text.offsets], np.int64)
    return running, ends


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
            labels=dict(sorted(each.labels.items())) or None,
            without_token=each.without_token,
            repaired_tags=each.repaired_tags,
            nested_spans=each.nested_spans or None,
        )
        for split, each in counts.items()
    }
    features = ("word_ids", *pair_packing.word_features(tokenizer), "tag_ids")
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
    if counts.labels:
        shown = ", ".join(f"{tag} {count:,}" for tag, count in sorted(counts.labels.items()))
        parts.append(f"tags {shown}")
    elif counts.labelled:
        shown = ", ".join(f"{kind} {count:,}" for kind, count in sorted(counts.entities.items()))
        parts.append(f"{counts.entities.total():,} entities" + (f" ({shown})" if shown else ""))
    else:
        parts.append("no tags")
    if counts.without_token:
        parts.append(f"{counts.without_token:,} words without a token")
    if counts.repaired_tags:
        parts.append(f"{counts.repaired_tags:,} tags repaired")
    if counts.nested_spans:
        parts.append(f"{counts.nested_spans:,} nested spans left out")
    if counts.bad.counts:
        parts.append(f"left out: {counts.bad}")
    return "; ".join(parts)


NESTED = ("refuse", "innermost", "outermost")
_SPLIT_AT_ONCE = 2048


def as_words(
    records: Iterable[tag_files.Record],
    tokenizer: Tokenizer,
    rule: str,
    bad: BadRows,
    nested: str = "refuse",
    widen: bool = False,
) -> Iterator[TaggedWords]:
    """Yields texts as words with tags, in order.

    Args:
      records: the texts of a file.
      tokenizer: the tokenizer, for the rule "tokens".
      rule: how texts are split; one of `official.utils.word_rules.RULES`.
      bad: is called with texts that cannot be used: without words, or with spans that cut a word,
        share a word, or are nested.
      nested: which of nested spans are kept; "refuse" = the text cannot be used.
      widen: whether a span that cuts a word is widened to the whole word.

    Raises:
      UserError: `bad` raises it.
    """
    records = iter(records)
    while chunk := list(itertools.islice(records, _SPLIT_AT_ONCE)):
        raw = [record.text for record in chunk if isinstance(record, TextWithSpans)]
        offsets = iter(text_words.spans(raw, rule, tokenizer))
        for record in chunk:
            if not isinstance(record, TextWithSpans):
                yield record
                continue
            try:
                text = _split(record, next(offsets), nested, widen)
            except Unusable as fault:
                bad(*fault.args)
                continue
            yield text


def _split(
    record: TextWithSpans, offsets: Sequence[tuple[int, int]], nested: str, widen: bool
) -> TaggedWords:
    where, text = record.location, record.text
    if not offsets:
        raise Unusable("no words", f"{where}: the text has no words")
    words = tuple(text[start:end] for start, end in offsets)
    tags, left_out = None, 0
    if record.spans is not None:
        kept = _chosen(record.spans, nested, where)
        left_out = len(record.spans) - len(kept)
        found = _entities(kept, offsets, record, widen)
        tags = tuple(tag_rules.write(found, len(words), tag_rules.BIO))
    lines = (record.line,) * len(words)
    return TaggedWords(words, tags, where, lines, text, tuple(offsets), left_out)


def _chosen(spans: Sequence[Span], nested: str, where: str) -> list[Span]:
    """Returns the spans that are kept, by their positions."""
    ordered = sorted(spans, key=lambda span: (span.start, -span.end))
    for one, other in _sharing(ordered):
        if (one.start, one.end) == (other.start, other.end):
            message = f"{where}: the spans {one} and {other} have the same place: leave one out"
            raise Unusable("doubled spans", message)
        if not _contains(one, other):
            message = f"{where}: the spans {one} and {other} overlap: leave one out"
            raise Unusable("overlapping spans", message)
        if nested == "refuse":
            raise Unusable(
                "nested spans",
                f"{where}: the span {other} is inside {one}: leave one out, or keep one of each "
                "such two with --nested_spans=innermost or outermost",
            )
    if nested == "innermost":
        return [
            one for one in ordered if not any(_contains(one, x) for x in ordered if x is not one)
        ]
    return [one for one in ordered if not any(_contains(x, one) for x in ordered if x is not one)]


def _sharing(ordered: Sequence[Span]) -> Iterator[tuple[Span, Span]]:
    """Yields the pairs of spans that share a character."""
    for i, one in enumerate(ordered):
        yield from (
            (one, other)
            for other in itertools.takewhile(lambda x: x.start < one.end, ordered[i + 1 :])  # noqa: B023
        )


def _contains(outer: Span, inner: Span) -> bool:
    return outer.start <= inner.start and inner.end <= outer.end


def _entities(
    spans: Sequence[Span], offsets: Sequence[tuple[int, int]], record: TextWithSpans, widen: bool
) -> list[tag_rules.Entity]:
    """Returns the words of each span."""
    where, text = record.location, record.text
    found: list[tag_rules.Entity] = []
    taken: dict[int, Span] = {}  # word → its span
    starts, ends = zip(*offsets, strict=True)
    for span in spans:
        inside = range(bisect.bisect_right(ends, span.start), bisect.bisect_left(starts, span.end))
        if not inside:
            raise Unusable(
                "span without a word", f"{where}: span {span} has no word: correct its positions"
            )
        for i in (inside[0], inside[-1]):
            a, b = offsets[i]
            if (a < span.start or b > span.end) and not widen:
                raise Unusable(
                    "span that cuts a word",
                    f"{where}: span {span} ({text[span.start : span.end]!r:.60}) cuts the word "
                    f"{text[a:b]!r:.60}: correct its positions, split texts otherwise with "
                    "--split_words (basic, tokens or characters), or widen it to whole words with "
                    "--repair_tags",
                )
        if clash := next((taken[i] for i in inside if i in taken), None):
            message = f"{where}: the spans {clash} and {span} share a word: leave one out"
            raise Unusable("spans that share a word", message)
        taken |= dict.fromkeys(inside, span)
        found.append((span.type, inside.start, inside.stop))
    return found
