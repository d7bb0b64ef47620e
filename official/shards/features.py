"""The table of features, from which examples are written; `parsing` reads them.

An example on disk is a `tf.train.Example` without padding. A new feature is a new row of
`FEATURES`; a manifest names the features that its shards have.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from official.shards import example_bytes
from official.utils.errors import UserError

FLOATS = ("float", "floats")  # the kinds of features that are no integers
HASH_BITS = 31  # of `text_hashes`, which are read as int32


@dataclasses.dataclass(frozen=True)
class Feature:
    """One row of the table.

    Attributes:
      kind: 'ints' or 'floats' (a list), 'int' or 'float' (one number), 'bytes' (a string), or
        'part' (one number for each part of the example: a list if the manifest names
        `part_lengths`, otherwise one number).
      doc: the meaning of the values.
      below: exclusive upper bound of the values: a number, or the number of vocabulary entries
        (`ids`), of the task's `labels`, or of the example's `tokens` or `sequences`. None = 2^31.
      low: the smallest allowed value.
      as_many_as: the name of the list that must have the same length.
      sum_of: the name of the list or string whose length must be the sum of this list.
    """

    kind: str
    doc: str
    below: int | str | None = None
    low: int = 0
    as_many_as: str | None = None
    sum_of: str | None = None


FEATURES: dict[str, Feature] = {
    "token_ids": Feature(
        "ints", "ids with specials; as the encoder sees them if masks are static", "ids"
    ),
    "segment_lengths": Feature(
        "ints", "tokens of each segment with its specials, in order", sum_of="token_ids"
    ),
    "sequence_lengths": Feature(
        "ints", "tokens of each sequence, where an example has several", low=1, sum_of="token_ids"
    ),
    "text_hashes": Feature(
        "ints",
        f"embeddings: a hash of each text, of {HASH_BITS} bits; the same text has the same",
        as_many_as="sequence_lengths",
    ),
    "part_lengths": Feature(
        "ints", "packing: tokens of each example that shares the row", low=1, sum_of="token_ids"
    ),
    "next_sentence_label": Feature(
        "part", "1 if the second segment is a random one, else 0", 2, as_many_as="part_lengths"
    ),
    "sentence_order_label": Feature(
        "part", "1 if the two segments are swapped, else 0", 2, as_many_as="part_lengths"
    ),
    "masked_positions": Feature(
        "ints", "static masks: positions to predict, as often as drawn", "tokens"
    ),
    "masked_ids": Feature(
        "ints",
        "static masks: the original ids at masked_positions",
        "ids",
        as_many_as="masked_positions",
    ),
    "phrase_inner": Feature(
        "ints", "positions that continue the phrase before them, ascending", "tokens"
    ),
    "entity_inner": Feature(
        "ints", "positions that continue the entity before them, ascending", "tokens"
    ),
    "continues": Feature(
        "int", "stream: 1 if the row continues the same row of the batch before", 2
    ),
    "backward": Feature("int", "stream: 1 if the row is of text reversed", 2),
    "next_id": Feature(
        "int", "blocks, and streams of text alone: the token that follows the row", "ids"
    ),
    "word_lengths": Feature(
        "ints",
        "whole words: bytes of each, at most 48; 0 = a mark",
        49,
        as_many_as="token_ids",
        sum_of="word_bytes",
    ),
    "word_bytes": Feature("bytes", "whole words: the first bytes of all, one after another"),
    "backward_token_ids": Feature("ints", "sentences: the same, each read from its end", "ids"),
    "backward_next_id": Feature(
        "int", "sentences: the token that follows backward_token_ids", "ids"
    ),
    "backward_word_lengths": Feature(
        "ints",
        "sentences: word_lengths of backward_token_ids",
        49,
        as_many_as="backward_token_ids",
        sum_of="backward_word_bytes",
    ),
    "backward_word_bytes": Feature("bytes", "sentences: word_bytes of backward_token_ids"),
    "target_ids": Feature(
        "ints", "text to text: ids of the target, with the one that ends it", "ids"
    ),
    "word_ids": Feature(
        "ints",
        "tagging: number of the word at its first token; -1 elsewhere",
        low=-1,
        as_many_as="token_ids",
    ),
    "tag_ids": Feature(
        "ints",
        "tagging: number of its tag in the task's labels; -1 elsewhere",
        "labels",
        low=-1,
        as_many_as="token_ids",
    ),
    "label": Feature("int", "number of the class in the task's labels", "labels"),
    "label_flags": Feature(
        "ints", "several labels: 1 for each of the task's labels that the text has, else 0", 2
    ),
    "score": Feature(
        "float", "target of a regression; of a pair of texts, from 0 to 1; of a triple, a margin"
    ),
    "row_weight": Feature("float", "the weight of the example in the loss of its label or score"),
    "grades": Feature(
        "floats",
        "ranking: the grade, or the score of a teacher, of each document of a list, whose other "
        "sequences fill it",
    ),
    "teacher_scores": Feature(
        "floats", "embeddings: the scores of a teacher for the first text and each of the others"
    ),
    "answer": Feature(
        "int", "number of the right one among the choices, each a sequence", "sequences"
    ),
    "row": Feature("int", "number of the example's row in its source file, from 0"),
    "context_start": Feature(
        "int", "window: where the row has the first token of the context", "tokens"
    ),
    "context_length": Feature("int", "window: how many tokens of the context it has"),
    "window_start": Feature("int", "window: the number of the first of them in the whole context"),
    "own_start": Feature(
        "int", "window: number of the first token that belongs to it (see windows)"
    ),
    "own_end": Feature("int", "window: number of the token after the last one that belongs to it"),
    "answer_start": Feature(
        "int", "window: number of the answer's first token; -1 = not in it", low=-1
    ),
    "answer_end": Feature(
        "int", "window: number of the answer's last token; -1 = not in it", low=-1
    ),
}

# The features of --format=tf_models that are padded lists of integers.
TF_MODELS_FEATURES: dict[str, Feature] = {
    "input_ids": Feature("ints", "token_ids", "ids"),
    "input_word_ids": Feature("ints", "token_ids", "ids"),
    "input_mask": Feature("ints", "1 at tokens, 0 at padding", 2),
    "segment_ids": Feature("ints", "1 in the second segment", 2),
    "input_type_ids": Feature("ints", "1 in the second segment", 2),
    "masked_lm_positions": Feature("ints", "masked_positions", "tokens"),
    "masked_lm_ids": Feature("ints", "masked_ids", "ids", as_many_as="masked_lm_positions"),
    "next_sentence_labels": Feature("ints", "next_sentence_label", 2),
}

# The flag of build_shards with the lexicon that each feature comes from.
LEXICONS = {"phrase_inner": "--phrases", "entity_inner": "--entities"}


def serialize(examples: Iterable[Mapping[str, Any]]) -> list[bytes]:
    """Returns examples as serialized `tf.train.Example`s; the same values give the same bytes.

    It is fastest where neighboring examples have the same features.

    Args:
      examples: the value of each feature, as its `kind` in the table says: a sequence of integers
        or floats, an integer, a float or bytes.

    Raises:
      UserError: an example has a feature that is not in the table.
    """
    serialized: list[bytes] = []
    for names, group in itertools.groupby(examples, key=sorted):
        alike = list(group)
        columns = {name: _column(name, [example[name] for example in alike]) for name in names}
        serialized += example_bytes.serialize(columns)
    return serialized


def _column(name: str, values: Sequence[Any]) -> example_bytes.Column:
    """Returns the values of a feature in several examples."""
    if name not in FEATURES:
        raise UserError(
            f"{name!r} is not a feature of official.shards.features: {', '.join(FEATURES)}"
        )
    kind = FEATURES[name].kind
    if kind == "bytes":
        lists = [np.frombuffer(value, "S1") for value in values]
    else:
        dtype = np.float32 if kind in FLOATS else np.int64
        lists = [np.atleast_1d(np.asarray(value, dtype)) for value in values]
    return np.concatenate(lists), np.cumsum([0, *map(len, lists)])
