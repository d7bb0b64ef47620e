"""What a shard folder and a model folder record of a task."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from official.tasks.kinds import KINDS
from official.utils import strict, word_rules
from official.utils.strict import omitted, one_of


@dataclasses.dataclass(frozen=True)
class Description:
    """A task, and the splits of its shard folder.

    Attributes:
      name: the value of `--task`.
      kind: a key of `official.tasks.kinds.KINDS`.
      pair: whether an example has two texts.
      labels: the names of the classes, in the order of their ids.
      values: the value of each label in the source files.
      metrics: the metrics that are reported; the first one picks the best checkpoint.
      no_answers: of spans, whether some questions have no answer.
      blank: of a choice, whether a run of underscores in a question is the place of the choice.
      answers: of text to text, what the targets are: the kind of the task that has this form, or
        `generation`.
      prefix: of text to text, what the inputs begin with.
      fields: of text to text, the name of each text in the inputs.
      punctuation: of questions as text to text, the characters with blanks around them.
      max_target_length: of text to text, the length of the longest target in tokens, with the one
        that ends it.
      split_words: of tagging, the rule by which texts are split into words; None = that of the
        earliest folders. See `official.utils.word_rules`.
      columns: the column of each text and of the label in the source files.
      doc_stride: of spans, tokens from the start of a window to the start of the next one.
      max_query_length: of spans, the largest number of tokens of a question.
      unlabelled: the splits without labels, scores or answers.
      sequences: the number of sequences in an example of each split; None if it is one.
    """

    name: str
    kind: str
    pair: bool = False
    labels: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    no_answers: bool | None = omitted()
    blank: bool | None = omitted()
    answers: str | None = omitted()
    prefix: str | None = omitted()
    fields: tuple[str, ...] | None = omitted()
    punctuation: str | None = omitted()
    max_target_length: int | None = omitted()
    split_words: str | None = omitted()
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    doc_stride: int | None = omitted()
    max_query_length: int | None = omitted()
    unlabelled: tuple[str, ...] = ()
    sequences: Mapping[str, int] | None = omitted()

    def __post_init__(self):
        one_of("kind", self.kind, KINDS)
        if self.split_words is not None:
            one_of("split_words", self.split_words, word_rules.RULES)

    @property
    def by_name(self) -> dict[str, "Description"]:
        """Returns the one task under its name."""
        return {self.name: self}


AVERAGE = "average"  # of the first metric of each task; it picks the best checkpoint


@dataclasses.dataclass(frozen=True)
class MixtureDescription:
    """Several tasks that one model learns.

    Attributes:
      metrics: the metrics over all tasks.
      tasks: the tasks by name.
    """

    metrics: tuple[str, ...]
    tasks: Mapping[str, Description]

    @property
    def by_name(self) -> Mapping[str, Description]:
        """Returns the tasks by name."""
        return self.tasks


def description_from_dict(
    values: Any, source: str, place: str = ""
) -> Description | MixtureDescription:
    """Builds a description from plain values.

    Args:
      values: the result of `official.utils.strict.to_dict`.
      source: the file, for messages.
      place: the dotted key of the values within the file.

    Raises:
      UserError: an entry is unknown, missing or of the wrong type.
    """
    mixture = isinstance(values, Mapping) and "tasks" in values
    return strict.build(MixtureDescription if mixture else Description, values, source, place)
