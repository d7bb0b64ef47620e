"""The manifest of a shard folder: what the folder holds, and how it was made.

The settings and the counts of a folder depend on its kind. One of their fields that is None does
not apply to the folder, and is not written.
"""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from official.config import corruption_from_dict
from official.config.parts import CorruptionConfig
from official.config.segments import Segments
from official.shards.features import FEATURES
from official.shards.text_filters import TextFilters
from official.tasks import KINDS as TASK_KINDS
from official.tasks import SPLITS
from official.tasks.task import Description, MixtureDescription, description_from_dict
from official.utils import atomic, checksums, json_files, paths, strict
from official.utils.errors import UserError
from official.utils.strict import omitted, one_of

FILE = "manifest.json"
TOKENIZER_FOLDER = "tokenizer"
FORMAT_VERSION = 1
MAX_TOKENS = 1 << 20  # of a row
KINDS = ("pretraining", "task", "tf_models")
# Features that hold targets.
TARGETS = frozenset(name for kind in TASK_KINDS.values() for name in kind.targets)
# What to do about a file that is missing or has changed.
ADVICE = "copy the folder again, or make the shards again"


@dataclasses.dataclass(frozen=True)
class PretrainingSettings:
    """The settings of pretraining shards.

    Attributes:
      segments: how documents became sequences.
      corruption: the corruption of static masks; None if masks are drawn during training.
      format: 'examples', or 'tf_models' or 'tf_models_v2' for the features of the TF Model Garden's
        loader.
      split_sentences: whether paragraphs were split into sentences.
      lexicons: file names of the lexicons of phrases and entities.
      filters: the filters that the documents have passed; None = there were none.
    """

    segments: Segments | None = omitted()
    corruption: CorruptionConfig | None = None
    format: str = "examples"
    split_sentences: bool = False
    lexicons: tuple[str, ...] = ()
    filters: TextFilters | None = omitted()


@dataclasses.dataclass(frozen=True)
class TaskSettings:
    """The settings of a task's shards.

    Attributes:
      files: the name of the source file of each split.
      max_length: of spans, the length of a window in tokens.
      doc_stride: of spans, tokens from the start of a window to the start of the next one.
      max_query_length: of spans, the largest number of tokens of a question.
      candidates: of a ranking, the SHA-256 of each file of `official.shards.side_texts`, by name.
      negatives: of a ranking, documents that are not relevant for each relevant one in training.
      list_size: of a ranking, documents of a training example that is a list; None = triples.
      list_labels: of such lists, where the grades are from: 'grades' or 'scores'.
      form: of embeddings, how rows became examples; see `official.tasks.embeddings`.
      score_range: of embeddings, the lowest and the highest score of the source files.
    """

    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    max_length: int | None = omitted()
    doc_stride: int | None = omitted()
    max_query_length: int | None = omitted()
    candidates: Mapping[str, str] | None = omitted()
    negatives: int | None = omitted()
    list_size: int | None = omitted()
    list_labels: str | None = omitted()
    form: str | None = omitted()
    score_range: tuple[float, ...] | None = omitted()


@dataclasses.dataclass(frozen=True)
class LexiconTotals:
    """How often the lines of a lexicon match the text.

    Attributes:
      lines: the number of lines.
      never_matched: the number of lines that match nowhere.
      matches: the number of matches of all lines.
    """

    lines: int
    never_matched: int
    matches: int


@dataclasses.dataclass(frozen=True)
class PretrainingTotals:
    """Counts over pretraining shards.

    Attributes:
      documents: documents with at least one example.
      sentences: their sentences.
      tokens: their tokens, without special tokens.
      examples: examples written.
      cut_tokens: tokens that did not fit into an example.
      left_out_tokens: tokens of documents that became no example.
      longest_memory: of a stream, tokens of the longest text before a row.
      short_documents_joined: of a stream, documents that were too short for a row of their own.
      cut_words: of a stream of sentences, words of more bytes than an encoder reads.
      at_blanks: sentences that end at a blank, of text without stops, as Thai is.
      skipped: how much was left out, by reason.
      lexicons: counts of each lexicon, by the feature that it gives.
    """

    documents: int | None = omitted()
    sentences: int | None = omitted()
    tokens: int | None = omitted()
    examples: int | None = omitted()
    cut_tokens: int | None = omitted()
    left_out_tokens: int | None = omitted()
    longest_memory: int | None = omitted()
    short_documents_joined: int | None = omitted()
    cut_words: int | None = omitted()
    at_blanks: int | None = omitted()
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    lexicons: Mapping[str, LexiconTotals] | None = omitted()


@dataclasses.dataclass(frozen=True)
class SplitTotals:
    """Counts over one split of a task.

    Attributes:
      examples: examples written.
      tokens: tokens of all sequences, with special tokens.
      truncated: examples or sequences that were longer than the limit and were cut.
      skipped: how many rows were left out, by reason.
      labels: examples of each label, of tags words of each; empty for an unlabeled split.
      answers: of a choice, examples of each answer; empty for an unlabeled split.
      questions: of spans, the number of questions.
      without_answer: of spans, questions that have no answer.
      cut_questions: of spans, questions that were cut.
      with_answer_in_window: of spans, windows that contain the answer of their question.
      cut_answers: of spans, questions of which no answer is made of whole tokens.
      queries: of a ranking, the number of queries.
      texts: of tagging, the number of texts, each in one or several examples.
      words: of tagging, the number of words.
      entities: of tagging, entities of each type.
      without_token: of tagging, words that have no token.
      repaired_tags: of tagging, tags that were changed to follow their scheme.
      nested_spans: of tagging, spans left out because of others inside or around them.
      widened_spans: of tagging, spans that were widened to whole words.
      left_out: of a ranking, queries that were left out, by reason.
    """

    examples: int
    tokens: int
    truncated: int
    skipped: Mapping[str, int]
    labels: Mapping[str, int] | None = omitted()
    answers: Mapping[str, int] | None = omitted()
    questions: int | None = omitted()
    without_answer: int | None = omitted()
    cut_questions: int | None = omitted()
    with_answer_in_window: int | None = omitted()
    cut_answers: int | None = omitted()
    queries: int | None = omitted()
    texts: int | None = omitted()
    words: int | None = omitted()
    entities: Mapping[str, int] | None = omitted()
    without_token: int | None = omitted()
    repaired_tags: int | None = omitted()
    nested_spans: int | None = omitted()
    widened_spans: int | None = omitted()
    left_out: Mapping[str, int] | None = omitted()


@dataclasses.dataclass(frozen=True)
class TaskTotals:
    """Counts over a task's shards.

    Attributes:
      examples: examples written.
      tokens: tokens of all sequences, with special tokens.
      truncated: examples or sequences that were longer than the limit and were cut.
      skipped: how many rows were left out, by reason.
      splits: the counts of each split.
    """

    examples: int | None = omitted()
    tokens: int | None = omitted()
    truncated: int | None = omitted()
    skipped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    splits: Mapping[str, SplitTotals] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Shard:
    """One file of records.

    Attributes:
      name: file name within the folder.
      records: the number of examples.
      bytes: the size of the file.
      sha256: the checksum of the file, in hexadecimal.
      split: one of `official.tasks.SPLITS`.
    """

    name: str
    records: int
    bytes: int
    sha256: str
    split: str = "train"

    def __post_init__(self):
        _check_file_name("name", self.name)
        one_of("split", self.split, SPLITS)


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The content of `manifest.json`.

    Attributes:
      kind: 'pretraining', 'task', or 'tf_models' (features of the TF Model Garden's loader).
      features: names of the features that every example has.
      tokenizer: SHA-256 of each tokenizer file, by name.
      tokenizer_fingerprint: SHA-256 over the files that decide ids.
      max_length: the largest number of tokens of an example, or of a row that several share.
      seed: the seed that the examples were made with.
      shards: the files, in the order that numbers their examples.
      config: the settings that the examples were made with; without them, the defaults of the
        kind.
      task: the task; None for pretraining.
      totals: counts over the folder; without them, the kind's counts of nothing.
      length_histogram: element n is the number of examples with n tokens.
      token_counts: SHA-256 of the file with the count of each vocabulary entry in the corpus;
        "" = there is none.
      files: SHA-256 of other files that belong to the examples, by name.
      row_groups: of a stream, the number of groups of rows that have shards of their own; 1 = a
        shard has steps of all rows. See `official.data.row_groups`.
      format_version: the version of this file's format.
    """

    kind: str
    features: tuple[str, ...]
    tokenizer: Mapping[str, str]
    tokenizer_fingerprint: str
    max_length: int
    seed: int
    shards: tuple[Shard, ...]
    config: PretrainingSettings | TaskSettings = omitted()
    task: Description | MixtureDescription | None = None
    totals: PretrainingTotals | TaskTotals = omitted()
    length_histogram: tuple[int, ...] = ()
    token_counts: str = ""
    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    row_groups: int = 1
    format_version: int = FORMAT_VERSION

    def task_of(self, folder: str | os.PathLike) -> Description:
        """Returns the task of the shards in `folder`.

        Raises:
          UserError: they are for pretraining.
        """
        if not isinstance(self.task, Description):
            raise UserError(f"{folder}: not the shards of a task; build_task_shards makes them")
        return self.task

    def __post_init__(self):
        one_of("kind", self.kind, KINDS)
        if self.config is None:
            settings = TaskSettings if self.kind == "task" else PretrainingSettings
            object.__setattr__(self, "config", settings())
        if self.totals is None:
            totals = TaskTotals if self.kind == "task" else PretrainingTotals
            object.__setattr__(self, "totals", totals())
        if self.kind != "tf_models":
            for name in self.features:
                one_of("features", name, FEATURES)
        if not 1 <= self.max_length <= MAX_TOKENS:
            raise ValueError(f"max_length: {self.max_length} is not from 1 to {MAX_TOKENS}")
        for name in self.files:
            _check_file_name("files", name)
        rows = self.segments.rows if self.segments else 0
        if self.row_groups != 1 and (self.row_groups < 1 or not rows or rows % self.row_groups):
            raise ValueError(f"row_groups: {self.row_groups} does not divide {rows} rows")

    def split(self, name: str) -> tuple[Shard, ...]:
        """Returns the shards of a split, in order."""
        return tuple(shard for shard in self.shards if shard.split == name)

    def features_of(self, split: str) -> frozenset[str]:
        """Returns the features of a split's examples; an unlabeled split lacks the targets."""
        unlabelled = isinstance(self.task, Description) and split in self.task.unlabelled
        return frozenset(self.features) - (TARGETS if unlabelled else frozenset())

    @property
    def segments(self) -> Segments | None:
        """Returns how documents became sequences; None for tasks."""
        return self.config.segments if isinstance(self.config, PretrainingSettings) else None

    @property
    def corruption(self) -> CorruptionConfig | None:
        """Returns the corruption of static masks; None if the examples have no masks."""
        return self.config.corruption if isinstance(self.config, PretrainingSettings) else None

    @property
    def candidates(self) -> Mapping[str, str]:
        """Returns the SHA-256 of each file of a ranking's candidates, by name."""
        found = self.config.candidates if isinstance(self.config, TaskSettings) else None
        return found or {}


def write(folder: str | os.PathLike, manifest: Manifest) -> None:
    """Writes `manifest.json` into a shard folder.

    Raises:
      UserError: the shards lack examples that were made, or the disk is full.
    """
    _check_totals(manifest, str(folder))
    with atomic.file(paths.path(folder) / FILE) as stream:
        json_files.dump(strict.to_dict(manifest), stream)


def read(folder: str | os.PathLike) -> Manifest:
    """Reads the manifest of a shard folder.

    Raises:
      UserError: there is no such folder or file, the file is not JSON, it has changed since it was
        written, it has another version, an entry is missing, unknown or of the wrong type, or the
        shards have other numbers of examples than were made.
    """
    path = paths.path(folder) / FILE
    if not path.exists() and not path.parent.is_dir():
        raise UserError(
            f"{folder}: no such folder; name a folder that build_shards or build_task_shards has "
            "made"
        )
    values = json_files.read(
        path,
        f"{folder} is not a complete shard folder; make it with tfrecords_tools.build_shards "
        "or build_task_shards",
    )
    version = values.get("format_version")
    if version != FORMAT_VERSION:
        raise UserError(
            f"{path} has format_version {version!r}, this program reads {FORMAT_VERSION}: "
            "make the shards again, or read them with the version that made them"
        )
    values = json_files.checked(values, path)
    try:
        manifest = _from_dict(values, str(path))
        _check_totals(manifest, str(path))
        return manifest
    except UserError as error:
        raise UserError(f"{error}: make the shards again") from None


def fingerprint(manifests: Sequence[Manifest], split: str, shares: Sequence[float] = ()) -> str:
    """Returns the SHA-256 of all that decides the batches of a split, beside the run's config.

    It covers the examples, their order and the layout of rows, and not the paths of the folders.

    Args:
      manifests: the manifests of the folders that are read together, in their order.
      split: the split that is read.
      shares: the share that each folder has of the batches; empty = none are given.
    """
    parts = [
        {
            "shards": [(shard.records, shard.sha256) for shard in manifest.split(split)],
            "features": sorted(manifest.features),
            "tokenizer": manifest.tokenizer_fingerprint,
            "token_counts": manifest.token_counts,
            "max_length": manifest.max_length,
            "rows": manifest.segments.rows if manifest.segments else None,
            "packing": manifest.segments.packing if manifest.segments else 1,
            **({"row_groups": manifest.row_groups} if manifest.row_groups > 1 else {}),
        }
        for manifest in manifests
    ]
    given = [list(map(float, shares))] if shares else []
    return checksums.hash_bytes(json.dumps([split, parts, *given], sort_keys=True).encode())


def _check_totals(manifest: Manifest, source: str) -> None:
    """Compares the records of the shards with the counts of the examples that were made.

    Raises:
      UserError: they differ.
    """
    made: dict[str, int | None] = {"": manifest.totals.examples}
    if isinstance(manifest.totals, TaskTotals):
        made |= {split: counts.examples for split, counts in manifest.totals.splits.items()}
    for split, examples in made.items():
        shards = manifest.split(split) if split else manifest.shards
        stored = sum(shard.records for shard in shards)
        if examples not in (None, stored):
            of_split = f" of the {split} split" if split else ""
            raise UserError(
                f"{source}: {examples:,} examples{of_split} were made, and the shards have "
                f"{stored:,}"
            )


def _from_dict(values: Mapping[str, Any], source: str) -> Manifest:
    """Builds a manifest; the kind decides the types of its settings and totals."""
    pretraining = values.get("kind") != "task"
    ready: dict[str, Any] = {}
    if "config" in values:
        ready["config"] = _settings(values["config"], pretraining, source)
    if "totals" in values:
        totals = PretrainingTotals if pretraining else TaskTotals
        ready["totals"] = strict.build(totals, values["totals"], source, "totals")
    if values.get("task") is not None:
        ready["task"] = description_from_dict(values["task"], source, "task")
    return strict.build(Manifest, values, source, ready=ready)


def _settings(values: Any, pretraining: bool, source: str) -> PretrainingSettings | TaskSettings:
    if not pretraining:
        return strict.build(TaskSettings, values, source, "config")
    ready = {}
    if isinstance(values, Mapping) and (corruption := values.get("corruption")) is not None:
        ready["corruption"] = corruption_from_dict(corruption, source, "config.corruption")
    return strict.build(PretrainingSettings, values, source, "config", ready)


def _check_file_name(field: str, name: str) -> None:
    """Refuses a name that leads out of the folder."""
    if PurePosixPath(name).name != name:
        raise ValueError(f"{field}: {name!r} is not a plain file name")
