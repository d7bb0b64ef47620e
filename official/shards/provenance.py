"""What a manifest records of how its examples were made: the settings and the counts.

A field that is None does not apply to the folder, and is not written.
"""

import dataclasses
from collections.abc import Mapping

from official.config.part import CorruptionConfig
from official.config.segments import Segments
from official.utils.strict import omitted


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
    """

    segments: Segments | None = omitted()
    corruption: CorruptionConfig | None = None
    format: str = "examples"
    split_sentences: bool = False
    lexicons: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class TaskSettings:
    """The settings of a task's shards.

    Attributes:
      files: the name of the source file of each split.
      max_length: of spans, the length of a window in tokens.
      doc_stride: of spans, tokens from the start of a window to the start of the next one.
      max_query_length: of spans, the largest number of tokens of a question.
      candidates: of a ranking, the SHA-256 of each file of `official.shards.candidates`, by name.
      negatives: of a ranking, documents that are not relevant for each relevant one in training.
    """

    files: Mapping[str, str] = dataclasses.field(default_factory=dict)
    max_length: int | None = omitted()
    doc_stride: int | None = omitted()
    max_query_length: int | None = omitted()
    candidates: Mapping[str, str] | None = omitted()
    negatives: int | None = omitted()


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
      labels: examples of each label, of tags words of each; empty for an unlabelled split.
      answers: of a choice, examples of each answer; empty for an unlabelled split.
      questions: of spans, the number of questions.
      without_answer: of spans, questions that have no answer.
      cut_questions: of spans, questions that were cut.
      with_answer_in_window: of spans, windows that contain the answer of their question.
      queries: of a ranking, the number of queries.
      texts: of tagging, the number of texts, each in one or several examples.
      words: of tagging, the number of words.
      entities: of tagging, entities of each type.
      without_token: of tagging, words that the tokenizer makes nothing of.
      repaired_tags: of tagging, tags that were changed to follow their scheme.
      nested_spans: of tagging, spans left out because of others inside or around them.
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
    queries: int | None = omitted()
    texts: int | None = omitted()
    words: int | None = omitted()
    entities: Mapping[str, int] | None = omitted()
    without_token: int | None = omitted()
    repaired_tags: int | None = omitted()
    nested_spans: int | None = omitted()
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
