"""Examples of multiple-choice questions: a sequence for each choice (see `builder`).

A sequence is [CLS] context [SEP] question and choice [SEP]. Sequences that are too long are cut at
the end of the context. The question and the choice are never cut: a question that leaves no room
for a token of the context cannot be used.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from official.tasks import Description, Task, choice_text
from official.tokenizers import Tokenizer, pair_packing
from official.tokenizers.base import strings
from tfrecords_tools.tasks import builder, choice_files
from tfrecords_tools.tasks.splits import Example, Make, SplitCounts, Splits


class Builder(builder.Builder):
    """Builds the shards of questions with several choices."""

    rows_at_once = 1024
    noun = "question"

    def prepare(self) -> None:
        """See `builder.Builder`; without labels they are letters, as many as there are choices."""
        self.check_max_length(2)
        self.task = choice_files.with_labels(
            self.task, self.files[self.splits[0]], self.skip_bad_rows
        )

    def read(
        self, split: str, counts: SplitCounts, writer: Splits
    ) -> Iterator[choice_files.Question]:
        """See `builder.Builder`."""
        return choice_files.read(self.task, self.files[split], split.startswith("test"), counts.bad)

    def examples(self) -> Make:
        """See `builder.Builder`."""
        return functools.partial(_examples, task=self.task, max_length=self.max_length)

    @property
    def features(self) -> tuple[str, ...]:
        """See `builder.Builder`."""
        return "token_ids", "segment_lengths", "sequence_lengths", "row", "answer"

    def totals(self, counts: SplitCounts) -> dict[str, Any]:
        """See `builder.Builder`."""
        return {"answers": dict(counts.targets) if counts.labelled else {}}

    def description(self, counts: Mapping[str, SplitCounts]) -> Description:
        """See `builder.Builder`."""
        sequences = dict.fromkeys(counts, len(self.task.labels))
        return dataclasses.replace(self.task.description(), sequences=sequences)

    def summary(self, split: str, counts: SplitCounts) -> list[str]:
        """See `builder.Builder`."""
        return [
            f"{split}: {counts.examples:,} questions",
            f"{counts.tokens:,} tokens",
            f"{counts.truncated:,} with their context cut, at {self.max_length} tokens",
            *counts.left_out(),
            counts.shares() if counts.labelled else "no answers",
        ]


def _examples(
    asked: Sequence[choice_files.Question],
    tokenizer: Tokenizer,
    counts: SplitCounts,
    task: Task,
    max_length: int,
) -> Iterator[Example]:
    """Yields the examples of some questions and counts them."""
    specials = pair_packing.num_specials(2, tokenizer)
    pairs = [(question.text, choice) for question in asked for choice in question.choices]
    with tf.device("/CPU:0"):
        joined = choice_text.joined(*map(strings, zip(*pairs, strict=True)), task.blank)
    texts = [text.decode("utf-8", "surrogatepass") for text in joined.numpy()]
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
        example = builder.example_of_sequences(packed, question.number)
        counts.count(*example["sequence_lengths"])
        counts.truncated += len(context) + longest + specials > max_length
        if question.answer is None:
            counts.labelled = False
        else:
            example["answer"] = question.answer
            counts.targets[task.labels[question.answer]] += 1
        yield example
