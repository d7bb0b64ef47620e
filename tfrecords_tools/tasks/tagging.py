"""Examples of words and tags: token classification (see `builder`).

Texts are split into words, and tags of words are made of their spans (`as_words`). Each text has
one example for each window of its tokens (`official.tokenizers.windows`). The words are kept
beside the shards (`official.shards.side_texts`).
"""

import bisect
import collections
import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from typing_extensions import override

from official.shards import side_texts
from official.tasks import Task, conllu, tag_files
from official.tasks import tags as tag_rules
from official.tasks.tagged_texts import Record, Span, TaggedWords, TextWithSpans
from official.tokenizers import Tokenizer, pair_packing, text_words, windows
from official.tokenizers.base import characters, chunks
from official.utils import word_rules
from official.utils.batched import batched
from official.utils.errors import UserError
from official.utils.names import nearest
from official.utils.paths import AnyPath
from official.utils.text_lines import BadRows, Unusable
from tfrecords_tools.tasks import builder, splits
from tfrecords_tools.tasks.plans.tagging import NESTED
from tfrecords_tools.tasks.splits import Example, Make, Splits

TEXTS_AT_ONCE = 2048
PLAIN_METRICS = ("accuracy", "macro_f1")  # of tags that mark no entities

# The number of a text, and the text.
Row = tuple[int, side_texts.TaggedText]


@dataclasses.dataclass
class SplitCounts(splits.SplitCounts):
    """The counts of one split; its examples are windows, which are never cut.

    Attributes:
      texts: the number of texts.
      words: the number of words.
      entities: the number of entities of each type.
      without_token: the number of words that have no token.
      labels: the number of words of each tag, where tags mark no entities.
      repaired_tags: the number of tags that were changed to follow their scheme.
      nested_spans: the number of spans left out because of others inside or around them.
      widened_spans: the number of spans that were widened to whole words.
    """

    texts: int = 0
    words: int = 0
    entities: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    labels: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    without_token: int = 0
    repaired_tags: int = 0
    nested_spans: int = 0
    widened_spans: int = 0


@dataclasses.dataclass
class Builder(builder.Builder["Row", SplitCounts]):
    """Builds the shards of words and tags.

    If the task has no labels, they are the tags of all files, `O` first and the others sorted. Its
    `split_words` is the rule for texts; None = the default.

    Attributes:
      repair_tags: whether tags that do not follow their scheme are repaired and counted, and spans
        that cut a word are widened.
      nested_spans: which of nested spans are kept; one of `plans.tagging.NESTED`.
      multiword_tokens: of CoNLL-U, how words that stand as one in the text are read; one of
        `conllu.MULTIWORD`.
    """

    repair_tags: bool = False
    nested_spans: str = NESTED[0]
    multiword_tokens: str = conllu.WORDS

    counts_type = SplitCounts
    rows_at_once = TEXTS_AT_ONCE
    noun = "text"

    @override
    def prepare(self) -> None:
        """See `builder.Builder`; the labels need all files, so all are read here."""
        self._rule = self.task.split_words or word_rules.DEFAULT
        self.task = dataclasses.replace(self.task, split_words=self._rule)
        self.check_max_length(1)
        self._counts = {split: super(Builder, self).counts(split) for split in self.splits}
        words = {split: self._words(split) for split in self.splits}
        tags = {tag for texts in words.values() for text in texts for tag in text.tags or ()}
        spelling = tag_rules.spelling(tags | set(self.task.labels))
        if spelling.note:
            self.report(spelling.note)
            words = {split: _spelled(texts, spelling) for split, texts in words.items()}
            tags = set(spelling(tags))
            self.task = dataclasses.replace(self.task, labels=spelling(self.task.labels), values=())
        # Where some tags mark entities, texts with others are named one by one.
        scheme = tag_rules.scheme(set(filter(tag_rules.marks, tags)) or tags)
        self._texts = {
            split: _in_scheme(
                texts, scheme, self.repair_tags, self.task.labels, self._counts[split]
            )
            for split, texts in words.items()
        }
        for split, texts in self._texts.items():
            if not texts:
                raise UserError(self.nothing(split, self._counts[split]))
        self.task = _with_labels(self.task, self._texts)
        if scheme == tag_rules.PLAIN:
            chosen = tuple(name for name in self.task.metrics if name in PLAIN_METRICS)
            self.task = dataclasses.replace(self.task, metrics=chosen or PLAIN_METRICS)

    def _words(self, split: str) -> list[TaggedWords]:
        """Returns the texts of a split as words, with tags in all or in none."""
        counts = self._counts[split]
        return _alike(self.source(split, counts), counts)

    @override
    def parsed(self, split: str, counts: SplitCounts) -> Iterator[TaggedWords]:
        labeled = not split.startswith("test")
        records = tag_files.read(
            self.files[split], self.task.columns_for(split), self.format, labeled, counts.bad,
            self.task.labels, self.multiword_tokens,
        )  # fmt: skip
        return as_words(
            records, self.tokenizer, self._rule, counts.bad, self.nested_spans, self.repair_tags
        )

    @override
    def counts(self, split: str) -> SplitCounts:
        return self._counts[split]

    @override
    def read(self, split: str, counts: SplitCounts, writer: Splits) -> Iterable[Row]:
        return enumerate(self._texts[split])

    @override
    def examples(self) -> Make[Row, SplitCounts]:
        return functools.partial(
            _examples, labels=self.task.labels, rule=self._rule, max_length=self.max_length
        )

    @override
    def write_beside(self, folder: AnyPath, split: str, counts: SplitCounts) -> dict[str, str]:
        return side_texts.write_tagged(folder, split, self._texts[split])

    @override
    def finish(self) -> None:
        for split in self.splits:
            if note := _unknown_to_training(split, self._texts):
                self.report(note)

    @property
    @override
    def features(self) -> tuple[str, ...]:
        words = pair_packing.word_features(self.tokenizer)
        return "token_ids", "segment_lengths", "row", "word_ids", *words, "tag_ids"

    @override
    def totals(self, counts: SplitCounts) -> dict[str, Any]:
        return {
            "texts": counts.texts,
            "words": counts.words,
            "entities": dict(sorted(counts.entities.items())),
            "labels": dict(sorted(counts.labels.items())) or None,
            "without_token": counts.without_token,
            "repaired_tags": counts.repaired_tags,
            "nested_spans": counts.nested_spans or None,
            "widened_spans": counts.widened_spans or None,
        }

    @override
    def summary(self, split: str, counts: SplitCounts) -> list[str]:
        parts = [
            f"{split}: {counts.texts:,} texts in {counts.examples:,} windows",
            f"{counts.words:,} words",
            f"{counts.tokens:,} tokens",
        ]
        if counts.labels:
            shown = ", ".join(f"{tag} {count:,}" for tag, count in sorted(counts.labels.items()))
            parts.append(f"tags {shown}")
        elif counts.labeled:
            entities = sorted(counts.entities.items())
            shown = ", ".join(f"{kind} {count:,}" for kind, count in entities)
            parts.append(f"{counts.entities.total():,} entities" + (f" ({shown})" if shown else ""))
        else:
            parts.append("no tags")
        if counts.without_token:
            parts.append(f"{counts.without_token:,} words without a token")
        if counts.repaired_tags:
            parts.append(f"{counts.repaired_tags:,} tags repaired")
        if counts.nested_spans:
            parts.append(f"{counts.nested_spans:,} nested spans left out")
        if counts.widened_spans:
            share = counts.widened_spans / counts.entities.total()
            told = "" if split == "train" else ", and count as missed in metrics"
            parts.append(
                f"{counts.widened_spans:,} spans ({share:.1%}) widened to whole words{told}"
            )
        return [*parts, *counts.left_out()]


def _alike(texts: Iterable[TaggedWords], counts: SplitCounts) -> list[TaggedWords]:
    """Returns the texts that have tags, or have none, as the first one."""
    result: list[TaggedWords] = []
    for text in texts:
        if result and (text.tags is None) != (result[0].tags is None):
            counts.bad(
                "tagged among untagged",
                f"{text.location}: {'no' if text.tags is None else 'has'} tags, unlike the first "
                "text of the file: give them in all texts or in none",
            )
            continue
        result.append(text)
    counts.labeled = not result or result[0].tags is not None
    return result


def _spelled(texts: Iterable[TaggedWords], spelling: tag_rules.Spelling) -> list[TaggedWords]:
    """Returns the texts with the tags that are read in the place of those of the files."""
    return [
        text if text.tags is None else text._replace(tags=spelling(text.tags)) for text in texts
    ]


def _in_scheme(
    texts: Iterable[TaggedWords],
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
            if scheme != tag_rules.PLAIN and (other := _of_no_scheme(text, tags)):
                counts.bad("not a tag", other)
                continue
            repaired, changed = tag_rules.repair(tags, scheme)
            if changed and not repair:
                counts.bad("tags out of order", _first_fault(text, tags, repaired, scheme))
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
        counts.widened_spans += text.widened
        result.append(side_texts.TaggedText(text.words, tags, text.text, text.offsets, text.spans))
    return result


def _of_no_scheme(text: TaggedWords, tags: Sequence[str]) -> str:
    """Returns the message about the first tag that is of no scheme; "" if there is none."""
    for i, tag in enumerate(tags):
        try:
            tag_rules.split(tag)
        except UserError as error:
            return f"{_place(text, i)}: {error}"
    return ""


def _first_fault(
    text: TaggedWords, tags: Sequence[str], repaired: Sequence[str], scheme: str
) -> str:
    """Returns the message about the first tag that does not follow the scheme."""
    pairs = zip(tags, repaired, strict=True)
    i = next(i for i, (tag, right) in enumerate(pairs) if tag != right)
    around = " ".join(tags[max(0, i - 1) : i + 2])
    name = {tag_rules.BIO: "BIO", tag_rules.BIOES: "BIOES"}[scheme]
    return (
        f"{_place(text, i)}: the tag {tags[i]!r} of the word {text.words[i]!r:.60} "
        f"does not follow {name} (tags there: {around}), which expects {repaired[i]!r}: correct "
        "the file, or repair and count such tags with --repair_tags, which reads IOB1 as well"
    )


def _unknown(text: TaggedWords, tags: Sequence[str], labels: Sequence[str]) -> str:
    """Returns the message about the first tag that is no label; "" if there is none."""
    for i, tag in enumerate(tags):
        if tag not in labels:
            return (
                f"{_place(text, i)}: tag {tag!r} is not one of {', '.join(labels)}"
                f"{nearest(tag, labels)}: name it in --labels"
            )
    return ""


def _place(text: TaggedWords, word: int) -> str:
    """Returns the file and the line of a word, or the text in memory."""
    if not text.lines:
        return text.location
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


def _unknown_to_training(split: str, texts: Mapping[str, Sequence[side_texts.TaggedText]]) -> str:
    """Returns a line about the tags of a split that the train file lacks; "" if there are none."""
    if split == "train" or "train" not in texts:
        return ""
    learned = {tag for text in texts["train"] for tag in text.tags or ()}
    counted = collections.Counter(
        tag for text in texts[split] for tag in text.tags or () if tag not in learned
    )
    if not counted:
        return ""
    shown = ", ".join(f"{tag} {count:,}" for tag, count in sorted(counted.items()))
    return (
        f"{split}: {counted.total():,} words have tags that the train file lacks ({shown}): a "
        "model has no example to learn them from, and metrics count these entities as missed"
    )


def _examples(
    rows: Sequence[Row],
    tokenizer: Tokenizer,
    counts: SplitCounts,
    labels: Sequence[str],
    rule: str,
    max_length: int,
) -> Iterator[Example]:
    """Yields the windows of some texts, each with its number, and counts them."""
    running, ends = _running([text for _, text in rows], rule)
    start = 0
    for chunk in chunks(running):
        end = start + len(chunk)
        yield from _windows(
            rows[start:end], chunk, ends[start:end], tokenizer, counts, labels, max_length
        )
        start = end


def _windows(
    rows: Sequence[Row],
    running: Sequence[str],
    ends: Sequence[Sequence[int]],
    tokenizer: Tokenizer,
    counts: SplitCounts,
    labels: Sequence[str],
    max_length: int,
) -> Iterator[Example]:
    """Yields the windows of texts that are given as running texts and the ends of their words."""
    with tf.device("/CPU:0"):
        flat = np.array([end for each in ends for end in each], np.int64)
        ragged = tf.RaggedTensor.from_row_lengths(flat, [len(each) for each in ends])
        tokens = windows.encode_running(characters(running), ragged, tokenizer)
        made = windows.cut_words(tokens, tokenizer, max_length)
    counts.without_token += len(flat) - int((tokens.word_ids.values.numpy() >= 0).sum())
    numbers = {tag: i for i, tag in enumerate(labels)}
    tags = [
        None
        if text.tags is None
        else np.array([*(numbers[tag] for tag in text.tags), -1], np.int32)
        for _, text in rows
    ]
    spelled = None if tokens.words is None else tokens.words.numpy()
    ids, word_ids = made.token_ids.values.numpy(), made.word_ids.values.numpy()
    splits, text_begins = made.token_ids.row_splits.numpy(), tokens.ids.row_starts().numpy()
    of_window = [part.numpy() for part in made.windows[:3]]
    for i, (number, start, length) in enumerate(zip(*of_window, strict=True)):
        inside = slice(splits[i], splits[i + 1])
        example = {
            "token_ids": ids[inside],
            "segment_lengths": [len(ids[inside])],
            "row": rows[number][0],
            "word_ids": word_ids[inside],
        }
        if tags[number] is not None:
            example["tag_ids"] = tags[number][word_ids[inside]]
        if spelled is not None:
            begin = text_begins[number] + start
            window_words = spelled[begin : begin + length].tolist()
            example |= pair_packing.pack_word_arrays([window_words], max_length)
        counts.count(len(ids[inside]))
        yield example


def _running(
    texts: Sequence[side_texts.TaggedText], rule: str
) -> tuple[list[str], list[list[int]]]:
    """Returns what is tokenized of each text, and the ends of its words in characters."""
    running, ends = [], []
    for text in texts:
        if rule == "tokens" and text.text is not None:
            running.append(text.text)
            ends.append([end for _, end in text.offsets])
        else:
            running.append(" ".join(text.words))
            lengths = (len(word) + 1 for word in text.words)
            ends.append([end - 1 for end in itertools.accumulate(lengths)])
    return running, ends


def as_words(
    records: Iterable[Record],
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
    for chunk in batched(records, TEXTS_AT_ONCE):
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
    tags, left_out, spans, widened = None, 0, None, 0
    if record.spans is not None:
        kept = _chosen(record.spans, nested, where)
        left_out = len(record.spans) - len(kept)
        found, widened = _entities(kept, offsets, record, widen)
        tags = tuple(tag_rules.write(found, len(words), tag_rules.BIO))
        spans = tuple(kept) if widened else None
    lines = (record.line,) * len(words)
    return TaggedWords(words, tags, where, lines, text, tuple(offsets), left_out, spans, widened)


def _chosen(spans: Sequence[Span], nested: str, where: str) -> list[Span]:
    """Returns the spans that are kept, by their positions."""
    ordered = sorted(spans, key=lambda span: (span.start, -span.end))
    for one, other in _sharing(ordered):
        if (one.start, one.end) == (other.start, other.end):
            message = f"{where}: the spans {one} and {other} have the same position: remove one"
            raise Unusable("doubled spans", message)
        if not _contains(one, other):
            message = f"{where}: the spans {one} and {other} overlap: remove one"
            raise Unusable("overlapping spans", message)
        if nested == "refuse":
            raise Unusable(
                "nested spans",
                f"{where}: the span {other} is inside {one}: remove one, or keep one of each "
                "such pair with --nested_spans=innermost or outermost",
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
) -> tuple[list[tag_rules.Entity], int]:
    """Returns the words of each span, and the number of spans that are widened to them."""
    where, text = record.location, record.text
    found: list[tag_rules.Entity] = []
    widened = 0
    taken: dict[int, Span] = {}  # word → its span
    starts, ends = zip(*offsets, strict=True)
    for span in spans:
        inside = range(bisect.bisect_right(ends, span.start), bisect.bisect_left(starts, span.end))
        if not inside:
            raise Unusable(
                "span without a word",
                f"{where}: span {span} covers no word: correct its positions",
            )
        cut = [i for i in (inside[0], inside[-1]) if _cuts(span, offsets[i])]
        widened += bool(cut)
        for i in cut:
            a, b = offsets[i]
            if not widen:
                raise Unusable(
                    "span that cuts a word",
                    f"{where}: span {span} ({text[span.start : span.end]!r:.60}) cuts the word "
                    f"{text[a:b]!r:.60}: correct its positions, split texts otherwise with "
                    "--split_words (basic, tokens or characters), or widen it to whole words with "
                    "--repair_tags",
                )
        if clash := next((taken[i] for i in inside if i in taken), None):
            message = f"{where}: the spans {clash} and {span} share a word: remove one"
            raise Unusable("spans that share a word", message)
        taken |= dict.fromkeys(inside, span)
        found.append((span.type, inside.start, inside.stop))
    return found, widened


def _cuts(span: Span, word: tuple[int, int]) -> bool:
    """Returns whether a span begins or ends inside of a word that it shares characters with."""
    return word[0] < span.start or word[1] > span.end
