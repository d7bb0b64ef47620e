"""Examples of candidates for a pronoun, from sentences and their clauses (see `builder`).

Each row is a sentence, a clause of it with a candidate in the place of a pronoun, and whether the
candidate is right (WNLI). `pronouns_in_clauses` finds the pronoun and the candidate. The candidates
for a pronoun are those of all rows of the same sentence.

A sequence is [CLS] sentence [SEP] with the candidate in place of the pronoun, each token of which
is a mask. The feature `candidate_ids` has the tokens that the masks hide (Kocijan et al., 2019).

A training example has two sequences, with the right candidate and with another one that a row of
the train file says is wrong. Pronouns without the one or the other are left out and counted. The
other splits have an example for each candidate: those of their own rows, and beside these the
candidates that the rows of other files name for the same pronoun, of which only the text is read.
Rows in which no pronoun is found have no example, and are not the best ones of any group.
"""

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from official.shards import side_texts
from official.shards.features import NO_CANDIDATE
from official.tasks import Description, trec
from official.tokenizers import Tokenizer, pair_packing
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from official.utils.text_lines import BadRows
from tfrecords_tools.tasks import builder, labelled_text, pronouns_in_clauses, ranking
from tfrecords_tools.tasks.plans.ranking import NEGATIVES
from tfrecords_tools.tasks.splits import Example, Make, Splits


class Group(NamedTuple):
    """A pronoun, whose candidates are compared.

    Attributes:
      sentence: the sentence.
      start: the first character of the pronoun.
      end: the character after its last one.
    """

    sentence: str
    start: int
    end: int

    def filled(self, candidate: str) -> str:
        """Returns the sentence with a candidate."""
        return self.sentence[: self.start] + candidate + self.sentence[self.end :]


class Compared(NamedTuple):
    """An example: its number, the pronoun, and its candidates, the right one first."""

    number: int
    group: Group
    candidates: tuple[str, ...]


class NamedCandidate(NamedTuple):
    """What a row says: its number, its pronoun, the candidate, and whether it is the right one."""

    row: int
    group: Group | None
    candidate: str
    right: bool | None


@dataclasses.dataclass
class SplitCounts(ranking.SplitCounts):
    """The counts of one split; a query is a pronoun.

    Attributes:
      unresolved: the number of rows in which no pronoun is found.
      named_elsewhere: the number of candidates that only rows of other files name.
      candidate_lengths: the number of sequences by the tokens of their candidate.
    """

    unresolved: int = 0
    named_elsewhere: int = 0
    candidate_lengths: collections.Counter[int] = dataclasses.field(
        default_factory=collections.Counter
    )


@dataclasses.dataclass
class Builder(builder.Builder[Compared, SplitCounts]):
    """Builds the shards of candidates for pronouns.

    Attributes:
      negatives: the number of examples of each right candidate, each with another wrong one.
    """

    negatives: int = NEGATIVES

    counts_type = SplitCounts

    def prepare(self) -> None:
        """See `builder.Builder`; without labels they are those of the train file."""
        self.check_max_length(1)
        if self.tokenizer.mask_id is None:
            raise UserError(
                "--fill_pronouns: the vocabulary of this tokenizer has no mask token, which stands "
                "for the tokens of a candidate: take the tokenizer of a masked LM"
            )
        if not self.task.labels:
            self.task = labelled_text.with_labels_of_train_file(
                self.task, self.files, self.format, self.skip_bad_rows, self.report
            )
        self._compared: dict[str, list[side_texts.ComparedRow]] = {}
        # The candidates of each pronoun in all files, by their text in lower case. Bad rows are
        # reported when their split is read.
        self._named: dict[Group, dict[str, str]] = {}
        for split in self.splits:
            for _, group, candidate, _ in self._rows(split, BadRows(skip=True)):
                if group is not None:
                    self._named.setdefault(group, {}).setdefault(candidate.lower(), candidate)

    def read(self, split: str, counts: SplitCounts, writer: Splits) -> Iterator[Compared]:
        """See `builder.Builder`."""
        rows = list(self._rows(split, counts.bad))
        counts.unresolved = sum(row.group is None for row in rows)
        if split == "train":
            return self._triples(rows, counts)
        counts.labelled = all(row.right is not None for row in rows)
        return self._candidates(split, rows, counts)

    def examples(self) -> Make[Compared, SplitCounts]:
        """See `builder.Builder`."""
        return _examples

    def write_beside(self, folder: AnyPath, split: str, counts: SplitCounts) -> dict[str, str]:
        """See `builder.Builder`."""
        if split == "train":
            return {}
        return side_texts.write_compared(folder, split, self._compared.pop(split))

    @property
    def features(self) -> tuple[str, ...]:
        """See `builder.Builder`."""
        return "token_ids", "segment_lengths", "sequence_lengths", "candidate_ids", "row"

    def totals(self, counts: SplitCounts) -> dict[str, Any]:
        """See `builder.Builder`."""
        return {"queries": counts.queries, "left_out": dict(counts.queries_left_out)}

    def description(self, counts: Mapping[str, SplitCounts]) -> Description:
        """See `builder.Builder`."""
        return dataclasses.replace(
            self.task.description(),
            sequences={split: 2 if split == "train" else 1 for split in counts},
            max_candidate_length=max(max(each.candidate_lengths) for each in counts.values()),
        )

    def settings(self) -> dict[str, Any]:
        """See `builder.Builder`."""
        return {"negatives": self.negatives}

    def nothing(self, split: str, counts: SplitCounts) -> str:
        """See `builder.Builder`."""
        reasons = {**counts.bad.counts, **counts.queries_left_out}
        reasons["rows without a pronoun that is found"] = counts.unresolved
        return f"{self.files[split]}: no pronoun with candidates: " + ", ".join(
            f"{number:,} {reason}" for reason, number in sorted(reasons.items())
        )

    def summary(self, split: str, counts: SplitCounts) -> list[str]:
        """See `builder.Builder`."""
        examples = "pairs of candidates" if split == "train" else "candidates"
        return [
            f"{split}: {counts.queries:,} pronouns, {counts.examples:,} {examples}",
            f"{counts.tokens:,} tokens",
            f"{counts.unresolved:,} rows without a pronoun that is found",
            *(f"{count:,} {reason}" for reason, count in sorted(counts.queries_left_out.items())),
            *([f"{n:,} candidates of other files"] if (n := counts.named_elsewhere) else []),
            *counts.left_out(),
            *([] if counts.labelled else ["no labels"]),
        ]

    def _rows(self, split: str, bad: BadRows) -> Iterator[NamedCandidate]:
        """Yields what the rows of a split say."""
        best = self.task.labels.index(self.task.best)
        path = self.files[split]
        rows = list(labelled_text.usable(self.task, split, path, self.format, bad))
        named = []
        for number, (sentence, clause), label in rows:
            right = None if label is None else label == best
            if (found := pronouns_in_clauses.find(sentence, clause)) is None:
                named.append(NamedCandidate(number, None, "", right))
            else:
                group = Group(sentence, found.start, found.end)
                named.append(NamedCandidate(number, group, found.candidate, right))
        filled = [each.group.filled(each.candidate) for each in named if each.group is not None]
        lengths = map(len, self.tokenizer.encode(filled))
        for each in named:
            length = 0 if each.group is None else next(lengths)
            if length > self._room:
                bad(
                    "sentence too long",
                    f"{path}, row {each.row} (from 0): the sentence has {length} tokens with its "
                    f"candidate, and {self._room} fit into --max_length={self.max_length} with the "
                    f"special tokens: make it at least {length + self.max_length - self._room}",
                )
            else:
                yield each

    @property
    def _room(self) -> int:
        return self.max_length - pair_packing.num_specials(1, self.tokenizer)

    def _triples(self, rows: Sequence[NamedCandidate], counts: SplitCounts) -> Iterator[Compared]:
        """Yields the examples to learn from."""
        groups: dict[str, Group] = {}
        run: trec.Run = {}
        qrels: trec.Qrels = {}
        for row, group, candidate, right in rows:
            if group is not None:
                name = f"{group.start} {group.sentence}"
                groups[name] = group
                run.setdefault(name, {})[candidate] = -row
                qrels.setdefault(name, {}).setdefault(candidate, int(bool(right)))
        triples = ranking.triples(run, qrels, self.negatives, self.seed, counts)
        for number, (name, candidates) in enumerate(triples):
            yield Compared(number, groups[name], candidates)

    def _candidates(
        self, split: str, rows: Sequence[NamedCandidate], counts: SplitCounts
    ) -> Iterator[Compared]:
        """Yields an example for each candidate, and notes the groups for `write_beside`."""
        own: dict[Group, list[str]] = {}
        chosen: list[tuple[Group, str]] = []
        compared = []
        numbers: dict[Group, int] = {}
        for row, group, candidate, right in rows:
            if group is None:
                compared.append(side_texts.ComparedRow(row, None, right))
                continue
            number = numbers.setdefault(group, len(numbers))
            own.setdefault(group, []).append(candidate.lower())
            compared.append(side_texts.ComparedRow(row, number, right))
            chosen.append((group, candidate))
        for group, known in own.items():
            for lower, candidate in self._named[group].items():
                if lower not in known:
                    compared.append(side_texts.ComparedRow(None, numbers[group], None))
                    chosen.append((group, candidate))
                    counts.named_elsewhere += 1
        counts.queries = len(own)
        self._compared[split] = compared
        for number, (group, candidate) in enumerate(chosen):
            yield Compared(number, group, (candidate,))


def _examples(
    rows: Sequence[Compared], tokenizer: Tokenizer, counts: SplitCounts
) -> Iterator[Example]:
    """Yields the example of each row and counts it."""
    texts = [group.filled(each) for _, group, candidates in rows for each in candidates]
    encoded = iter(tokenizer.encode_with_offsets(texts))
    specials, mask_id = pair_packing.num_specials(1, tokenizer), tokenizer.mask_id
    assert mask_id is not None, "checked before the rows are read"
    for number, group, candidates in rows:
        packed, hidden = [], []
        for candidate in candidates:
            ids, starts, ends = next(encoded)
            inside = (ends > group.start) & (starts < group.start + len(candidate))
            masked = ids.copy()
            masked[inside] = mask_id
            packed.append(pair_packing.pack_arrays([masked], tokenizer, len(ids) + specials))
            hidden.append(np.full(len(ids) + specials, NO_CANDIDATE))
            hidden[-1][1 : 1 + len(ids)] = np.where(inside, ids, NO_CANDIDATE)
        example = builder.example_of_sequences(packed, number)
        example["candidate_ids"] = np.concatenate(hidden)
        counts.count(*example["sequence_lengths"])
        counts.candidate_lengths.update(int(np.sum(ids >= 0)) for ids in hidden)
        yield example
