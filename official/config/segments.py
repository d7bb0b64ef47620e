"""The section `segments` of a config: how documents become sequences."""

import dataclasses

from official.utils.strict import at_least, fraction, one_of

# The formats of sequences; see `Segments`.
PAIR_FORMATS = ("pairs", "sentence_pairs")
# The formats of rows of plain text, without special tokens.
TEXT_FORMATS = ("joined", "documents")
FORMATS = (
    *PAIR_FORMATS,
    "halves",
    "full_sentences",
    "doc_sentences",
    "blocks",
    *TEXT_FORMATS,
    "stream",
)
SHORT_DOCUMENTS = ("join", "drop")
# {relation of two segments: the feature with the label}; see `official.shards.features`.
RELATIONS = {
    "next_sentence": "next_sentence_label",
    "sentence_order": "sentence_order_label",
    "none": None,
}
# The features of a stream of sentences, and the batch fields that are made of them.
SENTENCE_FEATURES = frozenset(
    {"word_lengths", "word_bytes", "backward_next_id", "backward_word_lengths"}
    | {"backward_word_bytes", "backward_token_ids"}
)
SENTENCE_FIELDS = frozenset(
    {"character_ids", "target_ids", "backward_token_ids", "backward_character_ids"}
    | {"backward_target_ids"}
)
# The batch fields that describe the parts of a row that several sequences share.
PART_FIELDS = frozenset({"part_ids", "positions", "part_starts", "part_weights"})


@dataclasses.dataclass(frozen=True)
class Segments:
    """How documents become sequences.

    Attributes:
      format: the content of a sequence (RoBERTa, section 4.2). `pairs` = two segments of several
        sentences each (BERT, sections 3.1 and A.1); `sentence_pairs` = two single sentences;
        `halves` = one text, cut into two segments near the middle, or one segment (ELECTRA's
        release); `full_sentences` = as many sentences as fit, with a separator between documents;
        `doc_sentences` = the same within one document; `blocks` = all documents in a row, each
        followed by a separator, cut every `max_length` tokens, with no other special token (GPT-2:
        Radford et al., 2019); `joined` = all documents concatenated without separators and cut into
        rows of plain text (T5: Raffel et al., 2020, section 3.1.4); `documents` = each document cut
        into such rows; `stream` = rows that continue from one batch to the next, for encoders with
        memory (Dai et al., 2019, section 3.2; Yang et al., 2019, section 2.5).
      relation: how the two segments are related. `next_sentence` = the second follows the first, or
        is from another document (BERT); `sentence_order` = it follows, or the two are swapped
        (ALBERT, section 3.1); `none` = it follows. None = `next_sentence` for pairs, `none` for the
        other formats.
      max_length: the largest number of tokens in a sequence, with special tokens. For the formats
        `joined` and `documents`, the length of the encoder's input; the corruption decides how many
        raw tokens give this length.
      short_seq_prob: the share of sequences with a random shorter target length. It has no effect
        on `sentence_pairs`, `blocks` and `stream`.
      single_prob: for `halves`, the share of texts that are one segment whatever their length.
      random_next_prob: the share of pairs whose second segment is from another document, if the
        relation is `next_sentence`.
      random_negatives: if the relation is `sentence_order`: whether a document of one sentence is
        paired with a random sentence and labeled as swapped (ALBERT's release), or left out.
      duplicates: the number of copies of each document on disk, each with other cuts, random
        segments and labels. An epoch reads all copies. 1 = every epoch reads the same sequences,
        with new masks.
      packing: the largest number of short sequences that share a row. Each is a part with separate
        positions, attention, masks and label. 1 = one sequence in each row.
      row_length: the number of tokens of a shared row; None = `max_length`. Longer rows have less
        padding, but their attention costs more.
      static_masks: whether masks are drawn once, when the shards are written, or each time a
        sequence is read.
      rows: for streams, the number of parallel rows that continue, which is the batch size.
      reuse_length: for streams, the number of tokens at the start of a row that the next row
        continues; a row is then [reused text][A][SEP][B][SEP][CLS]. 0 = rows are consecutive plain
        text.
      backward: for streams, whether the second half of the rows reads the text in reverse.
      short_documents: for streams. `join` = a document starts where the previous one ends, after an
        <eod> (a [SEP] if the vocabulary has no <eod>), and the memory continues too; `drop` =
        documents are read separately, and documents shorter than a row are left out.
      sentences: for streams, whether rows are whole words with their characters, with a mark before
        each sentence, together with the same text with each sentence reversed (Peters et al.,
        2018). The tokenizer must read words.
    """

    format: str = "pairs"
    relation: str | None = None
    max_length: int = 128
    short_seq_prob: float = 0.1
    single_prob: float = 0.1
    random_next_prob: float = 0.5
    random_negatives: bool = False
    duplicates: int = 1
    packing: int = 1
    row_length: int | None = None
    static_masks: bool = False
    rows: int = 0
    reuse_length: int = 0
    backward: bool = False
    short_documents: str = "join"
    sentences: bool = False

    def __post_init__(self):
        one_of("format", self.format, FORMATS)
        paired = self.format in PAIR_FORMATS
        if self.relation is None:
            object.__setattr__(self, "relation", "next_sentence" if paired else "none")
        one_of("relation", self.relation, RELATIONS)
        if self.label and not paired and not self.reuse_length:
            has = "two that belong together" if self.format == "halves" else "one"
            raise ValueError(
                f"relation: {self.relation} needs two segments, and the format {self.format} has "
                f"{has}: take none, or the format {' or '.join(PAIR_FORMATS)}, or a stream's "
                "reuse_length"
            )
        one_of("short_documents", self.short_documents, SHORT_DOCUMENTS)
        if self.format == "stream":
            self._check_stream()
        for name in ("rows", "reuse_length", "backward", "short_documents", "sentences"):
            default = type(self).__dataclass_fields__[name].default
            if self.format != "stream" and getattr(self, name) != default:
                raise ValueError(
                    f"{name}: not supported for the format {self.format}, only for stream: remove "
                    "it"
                )
        if self.format != "halves" and self.single_prob != Segments.single_prob:
            raise ValueError(
                f"single_prob: not supported for the format {self.format}, only for halves: "
                "remove it"
            )
        if self.random_negatives and self.relation != "sentence_order":
            raise ValueError(
                f"random_negatives: not supported for relation: {self.relation}, only for "
                "sentence_order: remove it"
            )
        at_least(self, 8, "max_length")
        at_least(self, 1, "duplicates", "packing")
        if self.format in ("blocks", *TEXT_FORMATS) and self.packing > 1:
            raise ValueError(
                f"packing: {self.packing} is not supported for the format {self.format}, whose "
                "rows are full: take 1"
            )
        if self.row_tokens < self.max_length:
            raise ValueError(
                f"row_length: {self.row_length} does not hold a sequence of max_length: "
                f"{self.max_length}: make it that or more"
            )
        if self.row_tokens > self.max_length and self.packing == 1:
            raise ValueError(
                f"row_length: {self.row_length} is not supported without packing: raise packing, "
                "or remove row_length"
            )
        fraction(self, "short_seq_prob", "single_prob", "random_next_prob")

    def _check_stream(self) -> None:
        if self.rows < 1:
            raise ValueError(
                "rows: missing: give the batch size, which the format stream is made for"
            )
        if self.backward and self.rows % 2:
            raise ValueError(
                f"rows: half of {self.rows} rows cannot run backward: take an even number"
            )
        if self.relation not in ("none", "next_sentence"):
            raise ValueError(
                f"relation: {self.relation} is not supported for a stream: take none or "
                "next_sentence"
            )
        at_least(self, 0, "reuse_length")
        limit = self.max_length - 5  # A and B of one token, two [SEP] and [CLS]
        if self.reuse_length > limit:
            raise ValueError(
                f"reuse_length: {self.reuse_length} of {self.max_length} tokens leave no room for "
                f"[A][SEP][B][SEP][CLS]: at most {limit}"
            )
        self._check_sentences()
        for name, only in {"packing": 1, "static_masks": False}.items():
            if getattr(self, name) != only:
                raise ValueError(
                    f"{name}: {getattr(self, name)} is not supported for the format stream, whose "
                    f"rows are full and whose masks are drawn when it is read: take {only}"
                )

    def _check_sentences(self) -> None:
        for name in ("reuse_length", "backward", "short_documents", "relation"):
            default = {"relation": "none"}.get(name, type(self).__dataclass_fields__[name].default)
            if self.sentences and getattr(self, name) != default:
                raise ValueError(
                    f"{name}: {getattr(self, name)} is not supported for rows of sentences, which "
                    "have both directions and no special token but marks: remove it, or sentences"
                )

    @property
    def label(self) -> str | None:
        """The feature with the relation of the two segments; None = the relation is `none`."""
        assert self.relation is not None  # set in __post_init__
        return RELATIONS[self.relation]

    @property
    def row_tokens(self) -> int:
        """T: the number of tokens of a row, including padding."""
        return self.max_length if self.row_length is None else self.row_length

    @property
    def fields(self) -> frozenset[str]:
        """The batch fields of such sequences."""
        fields = self.row_features | {"token_ids", "segment_ids", "padding_mask"}
        if self.label is not None:
            fields |= {self.label}
        if self.packing > 1:
            fields |= PART_FIELDS
        if self.sentences:
            fields = (fields | SENTENCE_FIELDS) - (SENTENCE_FEATURES - SENTENCE_FIELDS)
        return fields

    @property
    def row_features(self) -> frozenset[str]:
        """The features of a row of blocks or of a stream.

        They are also batch fields, except those of sentences; see `fields`.
        """
        if self.format == "blocks":
            return frozenset({"next_id"})
        if self.format != "stream":
            return frozenset()
        more = {"backward"} if self.backward else SENTENCE_FEATURES if self.sentences else set()
        return frozenset({"continues", *more, *(() if self.reuse_length else ("next_id",))})
