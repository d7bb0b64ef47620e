"""Examples of texts whose vectors are compared (see `builder` and `official.tasks.embeddings`).

Each text of an example is a sequence of its own, [CLS] text [SEP]. All examples of a split have the
same number of texts. The feature `text_hashes` says which texts are the same, so that a batch can
be free of duplicates (`official.data.batch_groups`).

A pair or a triple with the same text twice would teach that a text is like itself, or unlike
itself: it is left out and counted. Pairs with scores are kept.
"""

import collections
import dataclasses
import functools
import itertools
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from official.shards.features import HASH_BITS
from official.tasks import Description, Task, embeddings
from official.tokenizers import Tokenizer, pair_packing
from official.utils import host_seeding
from official.utils.errors import UserError
from official.utils.progress import Progress
from official.utils.text_lines import BadRows
from tfrecords_tools.tasks import builder, labelled_text
from tfrecords_tools.tasks.label_cells import LIST_SEPARATOR
from tfrecords_tools.tasks.splits import Example, Make, SplitCounts, Splits

# Reasons for which rows are always left out and counted.
TWICE = "with the same text twice"
ALONE = "without another text of the label"
NO_NEGATIVE = "without a contradiction of the same text"

_OF_COLUMNS = ("texts", "margins", "scores", "teacher_scores")
# The number of the row, its texts, its score or those of a teacher or None, and its label or None.
Row = tuple[int, list[str], float | tuple[float, ...] | None, int | None]
# A row of the file with its label or score, and its place for messages.
Located = tuple[labelled_text.UsableRow, str]


@dataclasses.dataclass
class Builder(builder.Builder["Row", SplitCounts]):
    """Builds the shards of texts whose vectors are compared."""

    @override
    def prepare(self) -> None:
        """See `builder.Builder`; without labels they are those of the train file."""
        self.check_max_length(1)
        task = self.task
        if (
            task.form == "texts"
            and task.columns.text_pair is None
            and list(self.files) != ["train"]
        ):
            raise UserError(
                "texts alone have nothing to compare: give --train_file alone, or the second text "
                "of each row with --text_pair_column"
            )
        if task.form not in _OF_COLUMNS and not task.labels:
            self.task = labelled_text.with_labels_of_train_file(
                task, self.files, self.format, self.skip_bad_rows, self.report
            )
            embeddings.check_labels(self.task)
        self._texts: dict[str, int] = {}  # of an example, by split

    @override
    def counts(self, split: str) -> SplitCounts:
        counts = super().counts(split)
        counts.bad = BadRows(self.skip_bad_rows, {*counts.bad.known, TWICE, ALONE, NO_NEGATIVE})
        return counts

    @override
    def read(self, split: str, counts: SplitCounts, writer: Splits) -> Iterator["Row"]:
        path = self.files[split]
        located = labelled_text.located(self.task, split, path, self.format, counts.bad)
        progress = Progress(None, self.report, f"{split}: ", "rows")
        seed = self.seed if split == "train" else 0  # Measures do not depend on the seed of a run.
        for number, (row, where) in enumerate(self._formed(located, seed, counts.bad), 1):
            if self._usable(split, row, where, counts.bad):
                yield row
            if number % 1000 == 0:
                progress(1000)

    def _formed(
        self, located: Iterator["Located"], seed: int, bad: BadRows
    ) -> Iterator[tuple["Row", str]]:
        """Yields the rows of the form of the task, with their places."""
        task = self.task
        if task.form in _OF_COLUMNS:
            return _of_columns(located, task, bad)
        if task.form in ("binary", "labels"):
            return _binary(located, task)
        labeled = _labeled(located, bad)
        if task.columns.text_pair is None:
            return _of_one_label(labeled, seed, bad)
        if task.form == "triples":
            return _triples(labeled, task, seed, bad)
        positive = embeddings.positive(task)
        return (
            ((number, texts, None, None), where)
            for number, texts, label, where in labeled
            if label == positive
        )

    def _usable(self, split: str, row: "Row", where: str, bad: BadRows) -> bool:
        """Returns whether a row has as many texts as the first one, all different."""
        _, texts, _, _ = row
        expected = self._texts.setdefault(split, len(texts))
        if len(texts) != expected:
            bad(
                "wrong number of texts",
                f"{where}: {len(texts)} texts where the first row has {expected}: give every row "
                "the same number of negatives",
            )
            return False
        if self.task.form not in embeddings.ALIKE and len(set(texts)) < len(texts):
            bad(TWICE, f"{where}: two texts are the same")
            return False
        return True

    @override
    def examples(self) -> Make["Row", SplitCounts]:
        return functools.partial(_examples, max_length=self.max_length, targets=self._targets)

    @property
    def _targets(self) -> tuple[str, ...]:
        """The features that the vectors of an example are compared with."""
        if self.task.form == "labels":
            return "score", "label"
        if self.task.form == "teacher_scores":
            return ("teacher_scores",)
        return ("score",) if self.task.form in embeddings.SCORED else ()

    @property
    @override
    def features(self) -> tuple[str, ...]:
        names = "token_ids", "segment_lengths", "sequence_lengths", "row", "text_hashes"
        words = pair_packing.word_features(self.tokenizer)
        return (*names, *words, *self._targets)

    @override
    def description(self, counts: Mapping[str, SplitCounts]) -> Description:
        """See `builder.Builder`; the examples of other forms than `labels` have no labels."""
        task = self.task
        if task.form != "labels":
            task = dataclasses.replace(task, labels=(), values=())
        described = task.description()
        return dataclasses.replace(
            described, sequences={split: self._texts[split] for split in counts}
        )

    @override
    def settings(self) -> dict[str, Any]:
        return {"form": self.task.form, "score_range": self.task.score_range}

    @override
    def summary(self, split: str, counts: SplitCounts) -> list[str]:
        texts = self._texts[split]
        return [
            f"{split}: {counts.examples:,} examples of {texts} text{'' if texts == 1 else 's'}",
            f"{counts.tokens:,} tokens",
            f"{counts.truncated:,} cut at {self.max_length} tokens",
            *counts.left_out(),
            *([] if counts.labeled else ["no scores"]),
        ]


def _of_columns(
    located: Iterator["Located"], task: Task, bad: BadRows
) -> Iterator[tuple["Row", str]]:
    """Yields the texts of each row, and its score as a part of the range, or its margin."""
    for (number, cells, score, _), where in located:
        texts = [text for cell in cells for text in cell.split(LIST_SEPARATOR)]
        part = score if isinstance(score, float | tuple) else None
        if isinstance(part, tuple):
            if len(part) != len(texts) - 1:
                bad(
                    "wrong number of scores",
                    f"{where}: {len(part)} scores of a teacher for {len(texts) - 1} texts: give "
                    "one for each text but the first",
                )
                continue
        elif part is not None and task.score_range is not None:
            low, high = task.score_range
            part = (part - low) / (high - low)
            if not 0 <= part <= 1:
                bad(
                    "score out of range",
                    f"{where}: score {score:g} is not from {low:g} to {high:g}: give the range of "
                    "the scores with --score_range=LOWEST,HIGHEST",
                )
                continue
        if not all(text.strip() for text in texts) and len(texts) > len(cells):
            bad("empty text", f"{where}: a text of a list is empty")
            continue
        yield (number, texts, part, None), where


def _binary(located: Iterator["Located"], task: Task) -> Iterator[tuple["Row", str]]:
    """Yields each pair with 1 if it has the positive label, else 0, and its label."""
    positive = embeddings.positive(task)
    for (number, texts, label, _), where in located:
        if isinstance(label, int):
            yield (number, texts, float(label == positive), label), where
        else:
            yield (number, texts, None, None), where


def _labeled(
    located: Iterator["Located"], bad: BadRows
) -> Iterator[tuple[int, list[str], int, str]]:
    """Yields the rows that have a label."""
    for (number, texts, label, _), where in located:
        if isinstance(label, int):
            yield number, texts, label, where
        else:
            bad("no label", f"{where}: pairs and triples are made by labels, and there is none")


def _of_one_label(
    labeled: Iterator[tuple[int, list[str], int, str]], seed: int, bad: BadRows
) -> Iterator[tuple["Row", str]]:
    """Yields each text with the next one of its label, in an order that is drawn.

    The last one is followed by the first one, so every text is twice in the pairs.
    """
    rows = list(labeled)
    of_labels = collections.defaultdict[int, list[int]](list)
    for place, (_, _, label, _) in enumerate(rows):
        of_labels[label].append(place)
    following: dict[int, int] = {}
    for places in of_labels.values():
        keys = host_seeding.sort_keys(seed, np.array([rows[place][0] for place in places]))
        order = [places[i] for i in np.argsort(keys, kind="stable")]
        following |= zip(order, [*order[1:], order[0]], strict=True)
    for place, (number, texts, _, where) in enumerate(rows):
        if following[place] == place:
            bad(ALONE, f"{where}: no other text has its label")
        else:
            yield (number, [*texts, *rows[following[place]][1]], None, None), where


def _triples(
    labeled: Iterator[tuple[int, list[str], int, str]], task: Task, seed: int, bad: BadRows
) -> Iterator[tuple["Row", str]]:
    """Yields each entailed pair with a contradiction of its first text.

    The contradictions of a text are taken in turn, from one on that is drawn.
    """
    positive, negative = embeddings.positive(task), embeddings.negative(task)
    rows = []
    negatives = collections.defaultdict[str, list[str]](list)
    for number, (first, second), label, where in labeled:
        if label == positive:
            rows.append((number, first, second, where))
        elif label == negative:
            negatives[first].append(second)
    seen = collections.Counter[str]()
    for number, first, second, where in rows:
        if not (others := negatives.get(first)):
            bad(NO_NEGATIVE, f"{where}: no row contradicts its first text")
            continue
        start = int(host_seeding.sort_keys(seed, zlib.crc32(first.encode())) % len(others))
        other = others[(start + seen[first]) % len(others)]
        seen[first] += 1
        yield (number, [first, second, other], None, None), where


def _examples(
    rows: Sequence["Row"],
    tokenizer: Tokenizer,
    counts: SplitCounts,
    max_length: int,
    targets: tuple[str, ...],
) -> Iterator[Example]:
    """Yields the examples of some rows and counts them."""
    specials = pair_packing.num_specials(1, tokenizer)
    every = [text for _, texts, _, _ in rows for text in texts]
    ids, words = iter(tokenizer.encode(every)), pair_packing.split_words(every, tokenizer)
    rest = iter(words or ())
    for number, texts, *found in rows:
        encoded = list(itertools.islice(ids, len(texts)))
        packed = [pair_packing.pack_arrays([each], tokenizer, max_length) for each in encoded]
        example = builder.example_of_sequences(packed, number)
        if words is not None:
            example |= _words(itertools.islice(rest, len(texts)), max_length)
        example["text_hashes"] = [zlib.crc32(text.encode()) % 2**HASH_BITS for text in texts]
        counts.count(*example["sequence_lengths"])
        counts.truncated += any(len(each) + specials > max_length for each in encoded)
        known = dict(zip(("score", "label"), found, strict=True))
        known["teacher_scores"] = known["score"]
        if targets and known["score"] is None:
            counts.labeled = False
        elif targets:
            example |= {name: known[name] for name in targets}
        yield example


def _words(texts: Iterable[list[bytes]], max_length: int) -> Example:
    """Returns the features of the words of texts, each of which is a sequence of its own."""
    packed = [pair_packing.pack_word_arrays([words], max_length) for words in texts]
    lengths, spelled = zip(*(each.values() for each in packed), strict=True)
    return {"word_lengths": np.concatenate(lengths), "word_bytes": b"".join(spelled)}
