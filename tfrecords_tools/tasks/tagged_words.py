"""Splits texts into words, and makes tags of words from their spans."""

import bisect
import itertools
from collections.abc import Iterable, Iterator, Sequence

from official.tasks import tag_files
from official.tasks import tags as tag_rules
from official.tasks.tag_files import Span, TaggedWords, TextWithSpans
from official.tokenizers import Tokenizer, text_words
from official.utils.text_lines import BadRows, Unusable

NESTED = ("refuse", "innermost", "outermost")
TEXTS_AT_ONCE = 2048


def texts(
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
    while chunk := list(itertools.islice(records, TEXTS_AT_ONCE)):
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
