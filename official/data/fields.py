"""The fields of a batch: a list of field makers, each of which makes some from parsed examples.

A field maker says what it `needs` (features of the examples, or fields that makers before it give)
and what it `gives`, and `make` returns these. A new feature of the data is a maker of its own.
`BatchBuilder` parses the records of a batch, and has the makers make its fields.

Shapes: B examples of a replica's batch, C sequences of an example, N = B * C, T tokens with
padding, S segments, P predictions, U targets with padding, W bytes of a word.
"""

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf
from typing_extensions import override

from official import config as configs
from official import tokenizers
from official.config.distillation import TEACHER_LOGITS
from official.config.parts import CorruptionConfig
from official.config.segments import PART_FIELDS, SENTENCE_FEATURES, SENTENCE_FIELDS
from official.corruption import units
from official.corruption.vocabulary import Vocabulary
from official.data import shared_rows
from official.shards import features, layer_states, parsing
from official.tokenizers import pair_packing, windows, word_characters
from official.utils import seeding

STATIC_MASKS = frozenset({"masked_positions", "masked_ids"})
TAG_FEATURES = ("word_ids", "tag_ids")
NO_TAG = -1
# Features that become other batch fields; all other features are batch fields themselves. The
# features of lexicons list positions, and become a flag for each token if the corruption reads
# them.
LISTS = (
    frozenset(features.LEXICONS)
    | SENTENCE_FEATURES
    | {"token_ids", "segment_lengths", "part_lengths", "sequence_lengths", "target_ids"}
    | {"masked_positions", "masked_ids", "label_flags", "text_hashes"}
    | {"grades", "teacher_scores"}
    | set(TAG_FEATURES)
)

Batch = dict[str, tf.Tensor]


@dataclasses.dataclass
class Examples:
    """The examples of a batch, parsed.

    Attributes:
      parsed: the features of the examples.
      size: B.
      length: T.
      index: the numbers of the examples, int64 [B]; -1 in rows that fill the batch.
      seeds: uint64 [B].
      first: of a stream, whether a row begins, bool [B]; None of other examples.
    """

    parsed: dict[str, Any]
    size: int
    length: int | tf.Tensor
    index: tf.Tensor
    seeds: tf.Tensor
    first: tf.Tensor | None = None

    @functools.cached_property
    def weights(self) -> tf.Tensor:
        """1, and 0 for rows that fill the batch: float32 [B]."""
        return tf.cast(self.index >= 0, tf.float32)

    @functools.cached_property
    def segment_numbers(self) -> tf.Tensor:
        """The number of segments that end before each position: int32 [N, T]."""
        ends = tf.cumsum(self.parsed["segment_lengths"].to_tensor(), axis=1)  # [N, S]
        columns = tf.range(self.length)
        return tf.reduce_sum(tf.cast(columns >= ends[:, :, None], tf.int32), axis=1)


class FieldMaker:
    """Makes some of the fields of a batch."""

    @property
    def needs(self) -> frozenset[str]:
        """The features, and the fields of earlier makers, that it reads."""
        return frozenset()

    @property
    def gives(self) -> frozenset[str]:
        """The fields that it makes."""
        raise NotImplementedError

    def prepare(self, examples: Examples) -> Mapping[str, Any]:
        """Returns features that it replaces, before any field is made."""
        return {}

    def make(self, examples: Examples, batch: Batch) -> Batch:
        """Returns the fields that it gives.

        Args:
          examples: the examples.
          batch: the fields of earlier makers.
        """
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Tokens(FieldMaker):
    """The tokens of the rows, padded, in the layout of the encoder, and the weights of the rows.

    Attributes:
      tokenizer: the tokenizer that the examples were made with.
      layout: the layout of a task's texts; see `official.tokenizers.pair_packing`.
      windows: whether an example is a window of a context. The layout may move the context, so its
        start is made here as well.
      sequences: C, of examples of several sequences (a query with documents, a text with choices);
        None = one. On disk the tokens of an example are one list, with the length of each sequence
        in `sequence_lengths`. In a batch the sequences have an axis of their own.
      apart: whether segment ids tell the texts apart, whatever types the tokenizer gives.
    """

    tokenizer: tokenizers.Tokenizer
    layout: str
    windows: bool = False
    sequences: int | None = None
    apart: bool = False

    @property
    @override
    def needs(self) -> frozenset[str]:
        needed = {"token_ids", "segment_lengths"}
        needed |= set(windows.POSITIONS) if self.windows else set()
        return frozenset(needed | ({"sequence_lengths"} if self.sequences else set()))

    @property
    @override
    def gives(self) -> frozenset[str]:
        names = {"token_ids", "segment_ids", "padding_mask", "example_weights"}
        names |= {"context_start"} if self.windows else set()
        return frozenset(names | ({"text_mask"} if self.sequences else set()))

    def prepare(self, examples: Examples) -> Mapping[str, Any]:
        """Splits examples into rows of one sequence each, all of which have as many segments."""
        if not self.sequences:
            return {}
        parsed = examples.parsed
        tokens = parsed["token_ids"].flat_values
        lengths = parsed["sequence_lengths"].flat_values  # [N]
        count = examples.size * self.sequences
        segments = tf.reshape(parsed["segment_lengths"].flat_values, [count, -1])
        split = {
            "token_ids": tf.RaggedTensor.from_row_lengths(tokens, lengths),
            "segment_lengths": tf.RaggedTensor.from_tensor(segments),
        }
        if "word_lengths" in parsed:
            split["word_lengths"] = split["token_ids"].with_flat_values(
                parsed["word_lengths"].flat_values
            )
        return split

    @override
    def make(self, examples: Examples, batch: Batch) -> Batch:
        made = self._padded(examples, examples.size * (self.sequences or 1))
        if self.sequences:
            special_ids = self.tokenizer.special_ids
            made["text_mask"] = text_mask(made["token_ids"], made["padding_mask"], special_ids)
            made = {
                name: _with_sequences(value, examples.size, self.sequences)
                for name, value in made.items()
            }
        return {**made, "example_weights": examples.weights}

    def _padded(self, examples: Examples, count: int | tf.Tensor) -> Batch:
        """Returns the tokens of `count` rows, [N, T], in the layout; an empty row has one token."""
        parsed = examples.parsed
        lengths = tf.cast(parsed["token_ids"].row_lengths(), tf.int32)  # [N]
        padding_mask = tf.range(examples.length) < tf.maximum(lengths, 1)[:, None]  # [N, T]
        token_ids = parsed["token_ids"].to_tensor(
            self.tokenizer.pad_id, shape=tf.stack([count, examples.length])
        )
        packing: pair_packing.SpecialIds = self.tokenizer
        if self.apart:
            packing = pair_packing.telling_apart(self.tokenizer)
        numbers = tf.where(padding_mask, examples.segment_numbers, 0)
        made = {
            "token_ids": token_ids,
            "segment_ids": pair_packing.types_of(numbers, packing),
            "padding_mask": padding_mask,
        }
        if self.windows:
            whole = {**made, **{name: parsed[name] for name in windows.POSITIONS}}
            return windows.arrange_windows(whole, packing, self.layout)
        return pair_packing.arrange(made, packing, self.layout)


@dataclasses.dataclass(frozen=True)
class WindowTokens(Tokens):
    """The tokens of texts in windows, [B, S, T], of which `windows_mask` [B, S] are real.

    S is the largest number of windows of a text of the batch, or `most` if all batches have one
    shape, as they have without lengths of their own. A window that fills the batch has one token of
    padding, which counts as a real one: a mask of nothing has no softmax.

    Attributes:
      most: the largest number of windows of a text.
    """

    most: int = 1

    @property
    @override
    def needs(self) -> frozenset[str]:
        return super().needs | {"sequence_lengths"}

    @property
    @override
    def gives(self) -> frozenset[str]:
        return super().gives | {"windows_mask"}

    @override
    def prepare(self, examples: Examples) -> Mapping[str, Any]:
        """Splits examples into rows of one window each; a row that fills the batch is empty."""
        parsed = examples.parsed
        windows = parsed["sequence_lengths"]
        fixed = isinstance(examples.length, int)
        lengths = windows.to_tensor(shape=[examples.size, self.most if fixed else None])
        rows = tf.reshape(lengths, [-1])  # [N]
        ids = tf.RaggedTensor.from_row_lengths(parsed["token_ids"].flat_values, rows)
        segments = tf.RaggedTensor.from_tensor(tf.maximum(rows, 1)[:, None])
        return {"token_ids": ids, "segment_lengths": segments, "windows": lengths}

    @override
    def make(self, examples: Examples, batch: Batch) -> Batch:
        windows = examples.parsed["windows"]  # [B, S]
        made = self._padded(examples, tf.size(windows))
        fields = {name: _with_windows(value, windows) for name, value in made.items()}
        return {**fields, "windows_mask": windows > 0, "example_weights": examples.weights}


@dataclasses.dataclass(frozen=True)
class Numbers(FieldMaker):
    """The features that are fields as they are: labels, scores, lengths, flags of a stream.

    Attributes:
      names: their names.
    """

    names: frozenset[str]

    @property
    @override
    def needs(self) -> frozenset[str]:
        return self.names

    @property
    @override
    def gives(self) -> frozenset[str]:
        return self.names

    @override
    def make(self, examples: Examples, batch: Batch) -> Batch:
        """See `FieldMaker`; the first row of a stream continues none."""
        made = {name: examples.parsed[name] for name in sorted(self.names)}
        if "continues" in made and examples.first is not None:
            goes_on = ~tf.ensure_shape(examples.first, [examples.size])
            made["continues"] *= tf.cast(goes_on, made["continues"].dtype)
        if "backward" in made:
            made["backward"] = made["backward"] > 0
        return made


@dataclasses.dataclass(frozen=True)
class SharedRows(FieldMaker):
    """The fields that keep the sequences of a row, its parts, separate; see `shared_rows`.

    Attributes:
      tokenizer: the tokenizer that the examples were made with.
      parts: the largest number of parts of a row.
    """

    tokenizer: tokenizers.Tokenizer
    parts: int

    @property
    @override
    def needs(self) -> frozenset[str]:
        return frozenset({"part_lengths", "example_weights"})

    @property
    @override
    def gives(self) -> frozenset[str]:
        """See `FieldMaker`; segment ids and labels are made again, for each part."""
        return PART_FIELDS

    @override
    def make(self, examples: Examples, batch: Batch) -> Batch:
        made = shared_rows.fields(
            examples.parsed, examples.segment_numbers, batch["example_weights"], self.parts
        )
        types = pair_packing.types_of(made["segment_ids"], self.tokenizer)
        return {**made, "segment_ids": types}


@dataclasses.dataclass(frozen=True)
class Targets(FieldMaker):
    """The targets of a decoder, int32 and bool [B, U]; padding is 0 and False.

    Attributes:
      length: U.
      known: whether the examples have targets. Batches of a split without targets have only
        padding.
    """

    length: int
    known: bool

    @property
    @override
    def needs(self) -> frozenset[str]:
        return frozenset({"target_ids"}) if self.known else frozenset()

    @property
    @override
    def gives(self) -> frozenset[str]:
        """See `FieldMaker`; empty if there is only padding, which no objective can learn from."""
        return frozenset({"target_ids", "target_mask"}) if self.known else frozenset()

    @override
    def make(self, examples: Examples, batch: Batch) -> Batch:
        shape = [examples.size, self.length]
        if not self.known:
            return {"target_ids": tf.zeros(shape, tf.int32), "target_mask": tf.zeros(shape, bool)}
        targets = examples.parsed["target_ids"]
        lengths = tf.cast(targets.row_lengths(), tf.int32)
        ids = targets.to_tensor(shape=shape)
        return {"target_ids": ids, "target_mask": tf.range(shape[1]) < lengths[:, None]}


@dataclasses.dataclass(frozen=True)
class TextHashes(FieldMaker):
    """A hash of each text of an example; the same text has the same: int32 [B, C].

    Attributes:
      sequences: C.
    """

    sequences: int
    needs = gives = frozenset({"text_hashes"})

    @override
    def make(self, examples: Examples, batch: Batch) -> Batch:
        shape = [examples.size, self.sequences]
        return {"text_hashes": tf.reshape(examples.parsed["text_hashes"].flat_values, shape)}


@dataclasses.dataclass(frozen=True)
class Grades(FieldMaker):
    """The grades of the documents of a list: float32 [B, C], 0 for those that fill the list.

    `documents_mask` is False for the latter: bool [B, C].

    Attributes:
      sequences: C.
    """

    sequences: int
    needs = frozenset({"grades"})
    gives = frozenset({"grades", "documents_mask"})

    @override
    def make(self, examples: Examples, batch: Batch) -> Batch:
        grades = examples.parsed["grades"]
        counts = tf.cast(grades.row_lengths(), tf.int32)
        return {
            "grades": grades.to_tensor(shape=[examples.size, self.sequences]),
            "documents_mask": tf.range(self.sequences) < counts[:, None],
        }


@dataclasses.dataclass(frozen=True)
class TeacherScores(FieldMaker):
    """The scores of a teacher for the first text and each of the others: float32 [B, C - 1].

    Attributes:
      sequences: C.
    """

    sequences: int
    needs = gives = frozenset({"teacher_scores"})

    @override
    def make(self, examples: Examples, batch: Batch) -> Batch:
        shape = [examples.size, self.sequences - 1]
        scores = examples.parsed["teacher_scores"].flat_values
        return {"teacher_scores": tf.reshape(scores, shape)}


@dataclasses.dataclass(frozen=True)
class LabelFlags(FieldMaker):
    """A flag for each label of a task, of which a text may have several: int32 [B, labels].

    Attributes:
      labels: the number of labels; 0 = unknown.
    """

    labels: int
    needs = gives = frozenset({"label_flags"})

    @override
    def make(self, examples: Examples, batch: Batch) -> Batch:
        shape = [examples.size, self.labels or None]
        return {"label_flags": examples.parsed["label_flags"].to_tensor(shape=shape)}


@dataclasses.dataclass(frozen=True)
class Tags(FieldMaker):
    """The words and tags of the positions of a tagging task; see `padded_tags`.

    Attributes:
      names: those of `TAG_FEATURES` that the examples have.
      layout: as in `Tokens`.
    """

    names: frozenset[str]
    layout: str

    @property
    @override
    def needs(self) -> frozenset[str]:
        return self.names | {"padding_mask"}

    @property
    @override
    def gives(self) -> frozenset[str]:
        return self.names

    @override
    def make(self, examples: Examples, batch: Batch) -> Batch:
        return padded_tags(examples.parsed, batch["padding_mask"], self.layout)


@dataclasses.dataclass(frozen=True)
class WordCharacters(FieldMaker):
    """The characters of the words of a task: int32 [B, T, W], or [B, C, T, W]; 0 in padding.

    The shards of a task have one or two texts with a mark at each end.

    Attributes:
      tokenizer: the tokenizer of the words.
      sequences: C, of examples of several sequences; None = one.
    """

    tokenizer: tokenizers.Tokenizer
    sequences: int | None = None
    needs = frozenset({"token_ids", "word_lengths", "word_bytes"})
    gives = frozenset({"character_ids"})

    @override
    def make(self, examples: Examples, batch: Batch) -> Batch:
        parsed = examples.parsed
        lengths = parsed["word_lengths"]
        words = word_characters.of_bytes(parsed["word_bytes"], lengths)
        begins = parsed["token_ids"].flat_values == self.tokenizer.cls_id
        marks = tf.where(
            begins[:, None],
            word_characters.mark(word_characters.SENTENCE_BEGIN),
            word_characters.mark(word_characters.SENTENCE_END),
        )
        words = tf.where(lengths.flat_values[:, None] > 0, words, marks)
        count = examples.size * (self.sequences or 1)
        shape = tf.stack([count, examples.length, word_characters.WIDTH])
        made = lengths.with_flat_values(words).to_tensor(shape=shape)
        if self.sequences:
            width = [examples.length, word_characters.WIDTH]
            made = tf.reshape(made, tf.stack([examples.size, self.sequences, *width]))
        return {"character_ids": made}


@dataclasses.dataclass(frozen=True)
class Sentences(FieldMaker):
    """The characters of words and the word after each, of rows of sentences in both directions.

    `tfrecords_tools` makes such rows of a stream (`segments.sentences`).

    Attributes:
      tokenizer: the tokenizer of the words.
    """

    tokenizer: tokenizers.Tokenizer
    needs = SENTENCE_FEATURES | {"token_ids", "next_id"}
    gives = SENTENCE_FIELDS

    def make(self, examples: Examples, batch: Batch) -> Batch:
        """Returns the fields.

        Returns:
          `character_ids` [B, T, W]; `target_ids` [B, T], the next word, or the mark that ends a
          sentence; `backward_token_ids` [B, T], and `backward_character_ids` and
          `backward_target_ids` for it. All are int32.
        """
        parsed, shape = examples.parsed, [examples.size, examples.length]
        # For each direction, the marks that its sentences begin with and that end them, as
        # characters and as targets.
        first, last = self.tokenizer.cls_id, self.tokenizer.sep_id
        marks = {
            "": (word_characters.SENTENCE_BEGIN, first, last),
            "backward_": (word_characters.SENTENCE_END, last, first),
        }
        made: Batch = {}
        for prefix, (mark, begins, ends) in marks.items():
            tokens = parsed[f"{prefix}token_ids"].to_tensor(shape=shape)
            lengths = parsed[f"{prefix}word_lengths"]
            words = word_characters.of_bytes(parsed[f"{prefix}word_bytes"], lengths)
            words = tf.where(lengths.flat_values[:, None] > 0, words, word_characters.mark(mark))
            following = tf.concat([tokens[:, 1:], parsed[f"{prefix}next_id"][:, None]], axis=1)
            made |= {
                f"{prefix}character_ids": tf.reshape(words, [*shape, word_characters.WIDTH]),
                f"{prefix}target_ids": tf.where(following == begins, ends, following),
            }
        return {**made, "backward_token_ids": tokens}


@dataclasses.dataclass(frozen=True)
class Heads(FieldMaker):
    """The fields that the heads of a model of several tasks read: zeros for other tasks.

    Attributes:
      heads: the batch fields that each task's head reads, with the task's name in front.
      task: the task of the examples.
      known: the fields of earlier makers.
    """

    heads: Mapping[str, Collection[str]]
    task: str | None
    known: frozenset[str]
    needs = frozenset({"example_weights"})

    @property
    @override
    def gives(self) -> frozenset[str]:
        return frozenset(
            name
            for task, names in self.heads.items()
            for name in names
            if task != self.task or name.removeprefix(f"{task}/") in self.known
        )

    @override
    def make(self, examples: Examples, batch: Batch) -> Batch:
        made = {}
        for task, names in self.heads.items():
            for name in sorted(self.gives.intersection(names)):
                field = name.removeprefix(f"{task}/")
                if task == self.task:
                    made[name] = batch[field]
                else:
                    kind = tf.int32 if field == "label" else tf.float32
                    made[name] = tf.zeros_like(batch["example_weights"], kind)
        return made


@dataclasses.dataclass(frozen=True)
class RowSeeds(FieldMaker):
    """Seeds for an objective that draws at random."""

    gives = frozenset({"row_seeds"})

    @override
    def make(self, examples: Examples, batch: Batch) -> Batch:
        return {"row_seeds": seeding.network_seeds(examples.seeds)}


@dataclasses.dataclass(frozen=True, eq=False)
class TeacherLogits(FieldMaker):
    """The outputs of teachers that were computed before.

    Attributes:
      outputs: those of all examples, float32 [examples, teachers, outputs].
    """

    outputs: tf.Tensor
    gives = frozenset({TEACHER_LOGITS})

    @override
    def make(self, examples: Examples, batch: Batch) -> Batch:
        return {TEACHER_LOGITS: tf.gather(self.outputs, tf.maximum(examples.index, 0))}


@dataclasses.dataclass(frozen=True)
class ExampleNumbers(FieldMaker):
    """The number of each example, for tools; an objective does not read it."""

    gives = frozenset()

    @override
    def make(self, examples: Examples, batch: Batch) -> Batch:
        return {"example_number": examples.index}


@dataclasses.dataclass(frozen=True)
class LayerStates(FieldMaker):
    """The states of all layers of an encoder, read from files; 0 for padding: float32 [B, T, K, D].

    Attributes:
      states: the files.
    """

    states: layer_states.States
    needs = frozenset({"padding_mask"})
    gives = frozenset({layer_states.FIELD})

    @override
    def make(self, examples: Examples, batch: Batch) -> Batch:
        index, padding_mask, shape = examples.index, batch["padding_mask"], self.states.shape
        rows = tf.numpy_function(self.states.rows, [tf.boolean_mask(index, index >= 0)], tf.float32)
        cells = tf.where(padding_mask & (index >= 0)[:, None])
        dense = tf.concat([tf.shape(padding_mask, tf.int64), shape], axis=0)
        states = tf.scatter_nd(cells, tf.ensure_shape(rows, [None, *shape]), dense)
        return {layer_states.FIELD: tf.ensure_shape(states, [*padding_mask.shape, *shape])}


@dataclasses.dataclass(frozen=True)
class DrawnMasks(FieldMaker):
    """Masks that the corruption draws when a row is read.

    Attributes:
      corruption: the corruption of the config.
      vocabulary: the tokens that it draws from.
    """

    corruption: CorruptionConfig
    vocabulary: Vocabulary

    @property
    @override
    def needs(self) -> frozenset[str]:
        return self.corruption.needs() | {"token_ids", "padding_mask", "example_weights"}

    @property
    @override
    def gives(self) -> frozenset[str]:
        return self.corruption.gives()

    @override
    def make(self, examples: Examples, batch: Batch) -> Batch:
        """See `FieldMaker`; the corruption changes the tokens."""
        parsed, shape = examples.parsed, batch["token_ids"].shape
        shape = shape if shape.is_fully_defined() else tf.shape(batch["token_ids"])
        flags = {
            name: _flags(parsed[name], parsed["token_ids"]).to_tensor(shape=shape)
            for name in self.corruption.needs()
        }
        corrupt = configs.module_of(self.corruption).corrupt
        made = corrupt(self.corruption, self.vocabulary, {**batch, **flags}, examples.seeds)
        made = {name: value for name, value in made.items() if name not in flags}
        return _weighted(made, batch["example_weights"])


@dataclasses.dataclass(frozen=True)
class ListedMasks(FieldMaker):
    """Masks that are listed: static ones of the shards, or those of the sequences of a shared row.

    Attributes:
      predictions: P.
      corruption: the corruption of the config, whose other fields follow from the masks; None =
        none.
      vocabulary: the tokens that it draws from.
      parts: the largest number of parts of a row, if the masks of each are drawn when the row is
        read; 0 = the masks are static.
    """

    predictions: int
    corruption: CorruptionConfig | None
    vocabulary: Vocabulary
    parts: int = 0

    @property
    @override
    def needs(self) -> frozenset[str]:
        read = STATIC_MASKS
        if self.corruption is not None and self.parts:
            read = self.corruption.needs() | {"part_lengths"}
        return read | {"token_ids", "example_weights"}

    @property
    @override
    def gives(self) -> frozenset[str]:
        others = frozenset() if self.corruption is None else self.corruption.gives()
        return STATIC_MASKS | {"masked_weights"} | others

    def prepare(self, examples: Examples) -> Mapping[str, Any]:
        """Hides tokens of each part of a shared row."""
        if self.corruption is None or not self.parts:
            return {}
        parsed = examples.parsed
        flags = {
            name: _flags(parsed[name], parsed["token_ids"]) for name in self.corruption.needs()
        }
        return shared_rows.corrupted(
            self.corruption, self.vocabulary, parsed, flags, examples.seeds, self.parts
        )

    @override
    def make(self, examples: Examples, batch: Batch) -> Batch:
        """See `FieldMaker`; a position may be listed several times."""
        positions, token_ids = examples.parsed["masked_positions"], batch["token_ids"]
        rows = tf.cast(positions.value_rowids(), tf.int32)
        cells = tf.stack([rows, positions.flat_values], axis=1)
        times = tf.scatter_nd(cells, tf.ones_like(rows), tf.shape(token_ids))
        times = tf.ensure_shape(times, token_ids.shape)
        masked_ids = examples.parsed["masked_ids"].flat_values
        originals = tf.tensor_scatter_nd_update(token_ids, cells, masked_ids)
        made = units.list_targets(times, originals, self.predictions)
        if (corruption := self.corruption) is not None:
            follows = configs.module_of(corruption).follows
            made |= follows(corruption, self.vocabulary, {**batch, **made})
        return _weighted(made, batch["example_weights"])


def text_mask(
    token_ids: tf.Tensor, padding_mask: tf.Tensor, special_ids: tuple[int, ...]
) -> tf.Tensor:
    """Returns bool of the shape of `token_ids`, False at special tokens and padding."""
    special = tf.reduce_any(
        tf.expand_dims(token_ids, -1) == tf.constant(special_ids, tf.int32), axis=-1
    )
    return tf.cast(padding_mask, tf.bool) & ~special


def padded_tags(
    parsed: Mapping[str, tf.RaggedTensor], padding_mask: tf.Tensor, layout: str
) -> dict[str, tf.Tensor]:
    """Pads `word_ids` and `tag_ids` with -1, and moves them as `pair_packing.arrange` moves tokens.

    Args:
      parsed: one or both of them, int32 [B, None].
      padding_mask: bool [B, T], of the rows after they are arranged.
      layout: one of `pair_packing.LAYOUTS`.

    Returns:
      int32 [B, T] each.
    """
    shape = padding_mask.shape
    if not shape.is_fully_defined():
        shape = tf.shape(padding_mask)
    rows = {
        name: parsed[name].to_tensor(NO_TAG, shape=shape) for name in TAG_FEATURES if name in parsed
    }
    if layout == pair_packing.LAYOUTS[0]:
        return rows
    width = tf.shape(padding_mask)[1]
    lengths = tf.reduce_sum(tf.cast(padding_mask, tf.int32), axis=1, keepdims=True)  # [B, 1]
    # [CLS] has no word, so the texts move without it; the last position takes its -1.
    origin = tf.range(width)[None, :] - (width - lengths) + 1
    inside = (origin >= 1) & (origin < lengths)
    origin = tf.clip_by_value(origin, 0, width - 1)
    return {
        name: tf.where(inside, tf.gather(values, origin, batch_dims=1), NO_TAG)
        for name, values in rows.items()
    }


def _with_sequences(value: tf.Tensor, size: int, count: int) -> tf.Tensor:
    """Returns a field [N, T] as [B, C, T], where B is `size` and C is `count`."""
    shape = tf.stack([size, count, tf.shape(value)[1]])
    return tf.ensure_shape(tf.reshape(value, shape), [size, count, value.shape[1]])


def _with_windows(value: tf.Tensor, windows: tf.Tensor) -> tf.Tensor:
    """Returns a field [N, T] as [B, S, T], for `windows` [B, S]."""
    made = tf.reshape(value, tf.concat([tf.shape(windows), tf.shape(value)[1:]], 0))
    return tf.ensure_shape(made, [*windows.shape, value.shape[1]])


def _flags(positions: tf.RaggedTensor, token_ids: tf.RaggedTensor) -> tf.RaggedTensor:
    """Returns a flag for each token, bool [B, None]: True at the positions of its row."""
    starts = tf.gather(token_ids.row_starts(), positions.value_rowids())
    indices = tf.cast(starts, tf.int32) + positions.flat_values
    flags = tf.scatter_nd(indices[:, None], tf.ones_like(indices), tf.shape(token_ids.flat_values))
    return token_ids.with_flat_values(flags > 0)


def _weighted(made: Batch, weights: tf.Tensor) -> Batch:
    """Returns fields with the weights of predictions multiplied by those of their rows [B]."""
    if "masked_weights" not in made:
        return made
    return {**made, "masked_weights": made["masked_weights"] * weights[:, None]}


@dataclasses.dataclass(frozen=True)
class BatchBuilder:
    """Makes the tensors of a batch from its records.

    Attributes:
      features: the features of an example.
      limits: what the numbers of examples are limited to.
      seed: the seed of the run.
      length: T, unless the records have a length of their own.
      makers: what makes the fields, in this order. A maker may change fields of those before it.
    """

    features: frozenset[str]
    limits: parsing.Limits
    seed: int
    length: int
    makers: Sequence[FieldMaker]

    def __post_init__(self):
        known = self.features
        for maker in self.makers:
            if missing := maker.needs - known:
                name = type(maker).__name__
                raise ValueError(f"{name} needs {', '.join(sorted(missing))}, which nothing gives")
            known |= maker.gives

    @property
    def fields(self) -> frozenset[str]:
        """The names of the fields of a batch."""
        return frozenset().union(*(maker.gives for maker in self.makers))

    def __call__(self, rows: Mapping[str, tf.Tensor], size: int) -> Batch:
        """Builds the batch of one replica.

        Args:
          rows: `record`, `index` and `epoch` [B], `length` if rows have a length of their own, and
            `first` of a stream; see `official.data.order` and `official.data.row_groups`.
          size: B.
        """
        records = tf.ensure_shape(rows["record"], [size])
        examples = Examples(
            parsed=parsing.parse(records, self.features, self.limits),
            size=size,
            # A bound counts all windows of a text, each of which has at most `self.length` tokens.
            length=tf.minimum(rows["length"][0], self.length) if "length" in rows else self.length,
            index=tf.ensure_shape(rows["index"], [size]),
            seeds=seeding.row_seeds(self.seed, rows["epoch"], rows["index"]),
            first=rows.get("first"),
        )
        for maker in self.makers:
            examples.parsed.update(maker.prepare(examples))
        batch: Batch = {}
        for maker in self.makers:
            batch |= maker.make(examples, batch)
        return batch
