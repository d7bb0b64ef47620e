"""A fine-tuning task: `Task` defines its files, columns, labels and metrics.

`Description` is what a shard folder and a model folder record of it.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from official.tasks import answer_rules, metric_settings
from official.tasks.kinds import KINDS, METRICS
from official.utils import strict, word_rules
from official.utils.errors import UserError
from official.utils.names import listed, nearest
from official.utils.strict import omitted, one_of

# The splits. The mismatched ones are MNLI's texts of genres that are not in the training file.
SPLITS = ("train", "validation", "validation_mismatched", "test", "test_mismatched")
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # the names of choices, in order
SEPARATOR = "|"  # between the labels of a text that may have several
# The metric of several tasks, which picks the best checkpoint: the mean of the first metric of
# each.
AVERAGE = "average"
GRAPHEMES = "graphemes"  # a value of `Description.span_bounds`


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
      answer_rule: of questions with spans, how answers are compared; None = as SQuAD does. See
        `official.tasks.answer_rules`.
      span_bounds: of spans, where answers begin and end: "graphemes" = never between a letter and
        its vowel sign; None = at token boundaries.
      blank: of a choice, whether a run of underscores in a question is the place of the choice.
      choice_first: of a choice, whether the question and the choice come before the context.
      max_choice_length: of a choice, the largest number of tokens of a question with a choice.
      answers: of text to text, what the targets are: the kind of the task that has this form, or
        `generation`.
      prefix: of text to text, what the inputs begin with.
      fields: of text to text, the name of each text in the inputs.
      punctuation: of questions as text to text, the characters with blanks around them.
      bleu_tokenization: of generated texts, how BLEU splits them into words; None = as T5 does. See
        `official.tasks.metric_settings`, as for the next one.
      rouge_words: of generated texts, what a word of ROUGE is; None = as in T5.
      max_target_length: of text to text, the length of the longest target in tokens, with the one
        that ends it.
      split_words: of tagging, the rule by which texts are split into words; None = that of the
        earliest folders. See `official.utils.word_rules`.
      columns: the column of each text and of the label in the source files.
      doc_stride: of spans, tokens from the start of a window to the start of the next one.
      max_query_length: of spans, the largest number of tokens of a question.
      windows: of texts with labels or a score, the largest number of windows that a text is read
        in; None = a text is cut.
      window_overlap: the number of tokens that two such windows share.
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
    answer_rule: str | None = omitted()
    span_bounds: str | None = omitted()
    blank: bool | None = omitted()
    choice_first: bool | None = omitted()
    max_choice_length: int | None = omitted()
    answers: str | None = omitted()
    prefix: str | None = omitted()
    fields: tuple[str, ...] | None = omitted()
    punctuation: str | None = omitted()
    bleu_tokenization: str | None = omitted()
    rouge_words: str | None = omitted()
    max_target_length: int | None = omitted()
    split_words: str | None = omitted()
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    doc_stride: int | None = omitted()
    max_query_length: int | None = omitted()
    windows: int | None = omitted()
    window_overlap: int | None = omitted()
    unlabelled: tuple[str, ...] = ()
    sequences: Mapping[str, int] | None = omitted()

    def __post_init__(self):
        one_of("kind", self.kind, KINDS)
        if self.split_words is not None:
            one_of("split_words", self.split_words, word_rules.RULES)
        if self.answer_rule is not None:
            one_of("answer_rule", self.answer_rule, answer_rules.RULES)
        if self.span_bounds is not None:
            one_of("span_bounds", self.span_bounds, (GRAPHEMES,))
        if self.bleu_tokenization is not None:
            one_of("bleu_tokenization", self.bleu_tokenization, metric_settings.TOKENIZATIONS)
        if self.rouge_words is not None:
            one_of("rouge_words", self.rouge_words, metric_settings.WORDS_OF_ROUGE)

    @property
    def by_name(self) -> dict[str, "Description"]:
        """Returns the one task under its name."""
        return {self.name: self}


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
    if isinstance(values, Mapping) and "tasks" in values:
        return strict.build(MixtureDescription, values, source, place)
    return strict.build(Description, values, source, place)


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns of a file: names of its header line, or indices from "0".

    Attributes:
      text: the column of the text, or of the first text of a pair.
      text_pair: the column of the second text; None for tasks on single texts.
      label: the column of the label or score; None if the file has none.
      header: whether the first line of the file has the names of the columns.
      title: a column whose text is put before that of `text`, with a blank between them.
    """

    text: str
    text_pair: str | None = None
    label: str | None = None
    header: bool = True
    title: str | None = None


@dataclasses.dataclass(frozen=True)
class Submission:
    """The file with the predictions of a test split, for submission to GLUE.

    Attributes:
      file: the name of the file.
      rows: the number of predictions.
    """

    file: str
    rows: int


@dataclasses.dataclass(frozen=True)
class Task:
    """One fine-tuning task.

    Attributes:
      name: the value of `--task`.
      kind: a key of `official.tasks.kinds.KINDS`.
      columns: the columns of all splits but those in `split_columns`.
      labels: the names of the classes, in the order of their ids; empty for regression and ranking.
        Those of a choice are letters, one for each choice.
      values: the value of each label in the files, if it is not the name; files may have the names
        as well.
      metrics: the metrics that are reported; the first one picks the best checkpoint.
      files: the file of each split.
      other_files: other names that the file of a split may have, such as those of the release.
      split_columns: the columns of splits with other columns.
      format_columns: the columns of files in formats (of `tfrecords_tools.tasks.tables`)
        with column names, if the files as distributed have none.
      line_break: the text that represents a line break in the files as distributed; it is read as
        a blank.
      skipped: the reasons for which rows of the files as distributed are left out and counted, as
        `tfrecords_tools.tasks.tables` names them. All rows of a test file are predicted.
      submissions: the submission file of each test split of GLUE.
      no_answers: of spans, whether some questions have no answer in their text.
      answer_rule: of questions with spans, how answers are compared; a key of
        `official.tasks.answer_rules.RULES`, "" = as SQuAD does.
      blank: of a choice, whether a run of underscores in a question is replaced by the choice,
        which otherwise follows the question.
      split_words: of tagging, the rule by which texts are split into words; one of
        `official.utils.word_rules.RULES`.
      answers: of text to text, what the targets are: the kind of the task that has this form, or
        `generation` (any text).
      prefix: of text to text, what the inputs begin with; see `official.tasks.text_to_text`.
      fields: of text to text, the name of each text in the inputs, in the order of the columns.
      punctuation: of questions as text to text, the characters with blanks around them: a key of
        `official.tasks.text_to_text.PUNCTUATION`.
      bleu_tokenization: of generated texts, one of `metric_settings.TOKENIZATIONS`.
      rouge_words: of generated texts, one of `metric_settings.WORDS_OF_ROUGE`.
      form: of embeddings, how rows become examples; see `official.tasks.embeddings`.
      negative_columns: of embeddings, the columns of texts that do not suit the first one.
      score_range: the lowest and the highest score in the files; None = unknown.
    """

    name: str
    kind: str
    columns: Columns
    labels: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    other_files: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    split_columns: Mapping[str, Columns] = dataclasses.field(default_factory=dict)
    format_columns: Mapping[str, Columns] = dataclasses.field(default_factory=dict)
    line_break: str = ""
    skipped: tuple[str, ...] = ()
    submissions: Mapping[str, Submission] = dataclasses.field(default_factory=dict)
    no_answers: bool = False
    answer_rule: str = ""
    blank: bool = False
    split_words: str | None = None
    answers: str = ""
    prefix: str = ""
    fields: tuple[str, ...] = ()
    punctuation: str = ""
    bleu_tokenization: str = ""
    rouge_words: str = ""
    form: str = ""
    negative_columns: tuple[str, ...] = ()
    score_range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        """Checks the values that a user of `generic` gives."""
        if self.kind not in METRICS:
            raise UserError(f"a task is {' or '.join(METRICS)}, not {self.kind!r}")
        if self.kind == "regression" and self.labels:
            raise UserError("a regression task has scores and no labels: remove the labels")
        for label in self.labels:
            if not label.strip() or label != label.strip() or set(label) & set("\t\r\n"):
                raise UserError(
                    f"{label!r} cannot be a label: a label has no tab, line break or outer space "
                    "and is not empty"
                )
            if self.kind == "multi_label" and SEPARATOR in label:
                raise UserError(f"{label!r} cannot be a label: {SEPARATOR!r} separates labels")
            if self.labels.count(label) > 1:
                raise UserError(f"label {label!r} is named twice in {listed(self.labels)}")
        if len(self.labels) == 1 and self.kind != "multi_label":
            raise UserError(f"one label ({self.labels[0]!r}) is not enough: name at least two")
        for metric in self.metrics:
            if metric not in METRICS[self.kind]:
                raise UserError(
                    f"{self.kind} has no metric {metric!r}{nearest(metric, METRICS[self.kind])}: "
                    f"its metrics are {listed(METRICS[self.kind])}"
                )
        named = [c for c in dataclasses.astuple(self.columns)[:3] if c is not None]
        named += self.negative_columns
        for column in named:
            if named.count(column) > 1:
                raise UserError(
                    f"column {column!r} is given twice: text, second text and label need a "
                    "column each"
                )
        object.__setattr__(self, "values", self.values or self.labels)
        object.__setattr__(self, "metrics", self.metrics or METRICS[self.kind][:1])

    @property
    def has_scores(self) -> bool:
        """Whether the labels of the files are numbers."""
        return self.kind == "regression" or self.form in ("scores", "margins")

    def columns_for(self, split: str, format: str = "tsv") -> Columns:
        """Returns the columns of the file of a split, which has the given format."""
        return self.split_columns.get(split, self.format_columns.get(format, self.columns))

    def description(self) -> Description:
        """Returns what a manifest says of the task."""
        columns = dataclasses.asdict(self.columns)
        return Description(
            name=self.name,
            kind=self.kind,
            pair=self.columns.text_pair is not None,
            labels=self.labels,
            values=self.values,
            metrics=self.metrics,
            no_answers=self.no_answers if self.kind == "span" else None,
            answer_rule=self.answer_rule or None,
            blank=self.blank if self.kind == "choice" else None,
            split_words=self.split_words,
            answers=self.answers or None,
            prefix=self.prefix if self.kind == "text_to_text" else None,
            punctuation=self.punctuation or None,
            bleu_tokenization=self.bleu_tokenization or None,
            rouge_words=self.rouge_words or None,
            fields=self.fields or None,
            columns={
                name: column
                for name, column in columns.items()
                if name != "header" and column is not None
            },
        )


def no_such_head(
    task: str | None,
    names: Iterable[str],
    flag: str = "--task",
    holder: str = "that this model has heads for",
) -> UserError:
    """Returns the error that a model has no head of the task that a user names.

    Args:
      task: the name; None = none is given.
      names: the tasks of the heads; "" = a head without a task.
      flag: the flag or argument with which the user names the task.
      holder: what follows "the tasks" in the message.
    """
    given = "missing" if task is None else f"{task!r} is not known"
    known = ", ".join(filter(None, names)) or "none"
    return UserError(f"{flag}: {given}: the tasks {holder} are {known}")
