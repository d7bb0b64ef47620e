"""`tag`, `tag_words` and `tokens`: the entities of texts.

A text of any length is cut into windows, as in training, and every word gets the tag of the window
in which it has the most context. Windows are scored in groups (see
`official.serving.compute.length_groups`).

`tag` takes raw text and splits it into words as the training data were split
(`official.tokenizers.text_words`); offsets are in characters (code points). `tag_words` takes texts
that are split already; offsets are numbers of words. Both return, for E entities of the text with
the most of them, with empty strings and zeros for padding:

| output | shape | content |
|---|---|---|
| number | int32 [N] | the number of entities |
| types | string [N, E] | the type |
| texts | string [N, E] | the text; words are joined by blanks |
| starts, ends | int32 [N, E] | the first character or word, and the one after the last |
| scores | float32 [N, E] | the mean probability of the tags of the words |

Of tags that mark no entities (parts of speech), each word is one, and its type is the tag.

Shapes: N texts, K words of all texts, W windows of all texts, T tokens of the longest window, C
tags; a ragged dimension is written None.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from official.data import fields
from official.serving.compute import length_groups
from official.serving.signatures import inputs
from official.tasks import tags as tag_rules
from official.tokenizers import offsets, pair_packing, text_words, windows
from official.utils import word_rules
from official.utils.errors import UserError

Outputs = dict[str, tf.Tensor]

DEFAULT = {"tag": "a text"}
LONG = "read in windows of"


def signatures(context: inputs.ServingContext) -> dict[str, inputs.Signature]:
    """Returns the signatures of token classification.

    Raises:
      UserError: the tags have no names or are of no scheme, or `max_length` has no room for a
        token.
    """
    tagger = Tagger(context)

    def tag_words(words, lengths):
        total = tf.reduce_sum(lengths)
        message = "lengths: their sum is not the number of words"
        check = tf.debugging.assert_equal(tf.size(words), total, message)
        with tf.control_dependencies([check]):
            words = tf.identity(words)
        lengths = tf.cast(lengths, tf.int64)
        return tagger.tag_words(tf.RaggedTensor.from_row_lengths(words, lengths, validate=False))

    by_name = {
        "tag": inputs.signature(tagger.tag, *inputs.texts("text")),
        "tag_words": inputs.signature(
            tag_words, *inputs.texts("words"), tf.TensorSpec([None], tf.int32, "lengths")
        ),
    }
    if context.tokenizer.reads_words:
        return by_name

    def score(batch):
        return {"logits": context.task_head.logits(context.encode(batch))}

    return by_name | {"tokens": inputs.of_ids(context, context.scorer(score))}


class Tagger:
    """Finds entities with the objective `token_classification`."""

    def __init__(self, context: inputs.ServingContext):
        """Initializes a tagger; raises as `signatures`."""
        head = context.task_head
        self._labels = context.labels
        tag_rules.scheme(self._labels)
        task = context.task.get("tasks", {}).get(head.config.task, context.task)
        self._rule = task.get("split_words") or word_rules.EARLIER
        if self._rule not in tuple(word_rules.RULES):
            rules = ", ".join(word_rules.RULES)
            raise UserError(f"split_words: {self._rule!r} of task.json is not one of {rules}")
        self._tokenizer = context.tokenizer
        self._max_length = context.max_length
        self._layout = context.config.encoder.layout
        if context.max_length < pair_packing.num_specials(1, context.tokenizer) + 1:
            raise UserError(
                f"max_length: {context.max_length} has no room for a token and its special tokens"
            )

        def score(batch):
            outputs = context.predictions(batch)
            return {name: outputs[name] for name in ("tags", "tag_probabilities")}

        self._scored = context.scorer(score, token_fields=("word_ids",))

    def tag(self, text: tf.Tensor) -> Outputs:
        """Finds the entities of texts, string [N]; see the module."""
        words = text_words.split(text, self._rule, self._tokenizer)
        if self._rule == "tokens":
            tokens = windows.encode_running(text, words.ends, self._tokenizer)
        else:
            tokens = windows.encode_words(words.texts, self._tokenizer)
        entities = entities_of(*self._tags(words.texts, tokens), self._labels)
        rows = offsets.rows_of(entities.types)
        begins = tf.cast(tf.gather(words.starts.row_starts(), rows), tf.int32)
        starts = tf.gather(words.starts.values, begins + entities.starts.values)
        ends = tf.gather(words.ends.values, begins + entities.ends.values - 1)
        spelled = tf.strings.substr(tf.gather(text, rows), starts, ends - starts, unit="UTF8_CHAR")
        return _dense(entities, spelled, starts, ends)

    def tag_words(self, words: tf.RaggedTensor) -> Outputs:
        """Finds the entities of texts given as words, string [N, None].

        Returns:
          As described in the module; and `tags` string [K] and `tag_probabilities` float32 [K], the
          tag of each word. A word without a token has `O` and 1.
        """
        tokens = windows.encode_words(words, self._tokenizer)
        tags, probabilities = self._tags(words, tokens)
        entities = entities_of(tags, probabilities, self._labels)
        rows = offsets.rows_of(entities.types)
        begins = tf.cast(tf.gather(words.row_starts(), rows), tf.int32)
        places = tf.ragged.range(begins + entities.starts.values, begins + entities.ends.values)
        spelled = offsets.joined(places.with_values(tf.gather(words.values, places.values)), " ")
        names = tf.constant([*self._labels, tag_rules.OUTSIDE])
        number = tf.where(tags.values < 0, len(self._labels), tags.values)
        return {
            **_dense(entities, spelled, entities.starts.values, entities.ends.values),
            "tags": tf.gather(names, number),
            "tag_probabilities": probabilities.values,
        }

    def _tags(
        self, words: tf.RaggedTensor, tokens: windows.WordTokens
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Returns the number of the tag of each word and its probability, [N, None] each.

        A word without a token has -1 and 1.
        """
        packed = windows.pack_word_windows(tokens, self._tokenizer, self._max_length)
        arranged = pair_packing.arrange(
            {name: packed[name] for name in length_groups.FIELDS}, self._tokenizer, self._layout
        )
        batch = packed | arranged
        batch |= fields.padded_tags(packed, batch["padding_mask"], self._layout)
        scored = self._scored(batch)
        place = tf.where(batch["word_ids"] >= 0)  # [R, 2], the positions that are read
        begins = tf.gather(words.row_starts(), tf.gather(packed["row"], place[:, 0]))
        word = begins + tf.cast(tf.gather_nd(batch["word_ids"], place), tf.int64)

        def of_words(name, default):
            values = tf.fill([tf.size(words.values)], tf.constant(default, scored[name].dtype))
            updates = tf.gather_nd(scored[name], place)
            return words.with_values(tf.tensor_scatter_nd_update(values, word[:, None], updates))

        tags = of_words("tags", windows.NO_WORD)
        return tags, tf.cast(of_words("tag_probabilities", 1), tf.float32)


class Entities(NamedTuple):
    """The entities of texts.

    Attributes:
      types: string [N, None].
      starts: int32 [N, None], the number of the first word.
      ends: int32 [N, None], the number of the word after the last one.
      scores: float32 [N, None], the mean probability of the tags of the words.
    """

    types: tf.RaggedTensor
    starts: tf.RaggedTensor
    ends: tf.RaggedTensor
    scores: tf.RaggedTensor


def entities_of(
    tags: tf.RaggedTensor, probabilities: tf.RaggedTensor, labels: Sequence[str]
) -> Entities:
    """Returns the entities of the tags of texts, by the rule of `official.tasks.tags.entities`.

    Args:
      tags: the number of the tag of each word, int32 [N, None]; -1 is `O`.
      probabilities: the probability of each tag, float32 [N, None].
      labels: the C tags, in the order of their numbers.

    Raises:
      UserError: some labels are tags of BIO or BIOES, and others are not.
    """
    if tag_rules.scheme(labels) == tag_rules.PLAIN:
        parts = [("S", label) for label in (*labels, tag_rules.OUTSIDE)]
    else:
        parts = [tag_rules.split(label) for label in (*labels, tag_rules.OUTSIDE)]
    kinds = [*dict.fromkeys(kind for _, kind in parts)]
    number = tf.where(tags.values < 0, len(labels), tags.values)
    opens, continuing, inside = (
        tf.gather(tf.constant([prefix in prefixes for prefix, _ in parts]), number)
        for prefixes in (tag_rules.OPEN, tag_rules.CONTINUING, "BIES")
    )
    kind = tf.gather(tf.constant([kinds.index(kind) for _, kind in parts], tf.int32), number)
    rows = tags.value_rowids()
    continues = (
        continuing[1:] & opens[:-1] & tf.equal(kind[1:], kind[:-1]) & tf.equal(rows[1:], rows[:-1])
    )
    continues = tf.concat([[False], continues], 0)[: tf.size(number)]
    begins = inside & ~continues
    entity = tf.boolean_mask(tf.cumsum(tf.cast(begins, tf.int32)) - 1, inside)
    total = tf.reduce_sum(tf.cast(begins, tf.int32))
    sizes = tf.math.bincount(entity, minlength=total, maxlength=total)
    scores = tf.math.unsorted_segment_mean(
        tf.boolean_mask(probabilities.values, inside), entity, total
    )
    columns = tf.ragged.range(tf.cast(tags.row_lengths(), tf.int32)).values
    starts = tf.boolean_mask(columns, begins)
    types = tf.gather(tf.constant(kinds), tf.boolean_mask(kind, begins))
    ragged = tf.RaggedTensor.from_value_rowids(
        types, tf.boolean_mask(rows, begins), tags.nrows(), validate=False
    )
    return Entities(ragged, *(ragged.with_values(x) for x in (starts, starts + sizes, scores)))


def _dense(found: Entities, texts: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> Outputs:
    """Returns padded outputs from the values of all entities."""
    ragged = found.types
    columns = {
        "types": ragged,
        "texts": ragged.with_values(texts),
        "starts": ragged.with_values(starts),
        "ends": ragged.with_values(ends),
        "scores": found.scores,
    }
    number = tf.cast(ragged.row_lengths(), tf.int32)
    return {"number": number, **{name: value.to_tensor() for name, value in columns.items()}}
