"""The table of features, from which examples are written; `parsing` reads them.

An example on disk is a `tf.train.Example` without padding. A new feature is a new row of
`FEATURES`; a manifest names the features that its shards have.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from official.shards import example_bytes
from official.utils.errors import UserError


@dataclasses.dataclass(frozen=True)
class Feature:
    """One row of the table.

    Attributes:
      kind: 'ints' (a list), 'int' or 'float' (one number), 'bytes' (a string), or
        'part' (one number for each part of the example: a list if the manifest names
        `part_lengths`, otherwise one number).
      doc: the meaning of the values.
    """

    kind: str
    doc: str


FEATURES: dict[str, Feature] = {
    "token_ids": Feature("ints", "ids with specials; as the encoder sees them if masks are static"),
    "segment_lengths": Feature("ints", "tokens of each segment with its specials, in order"),
    "sequence_lengths": Feature("ints", "tokens of each sequence, where an example has several"),
    "part_lengths": Feature("ints", "packing: tokens of each example that shares the row"),
    "next_sentence_label": Feature("part", "1 if the second segment is a random one, else 0"),
    "sentence_order_label": Feature("part", "1 if the two segments are swapped, else 0"),
    "masked_positions": Feature("ints", "static masks: positions to predict, as often as drawn"),
    "masked_ids": Feature("ints", "static masks: the original ids at masked_positions"),
    "phrase_inner": Feature("ints", "positions that continue the phrase before them, ascending"),
    "entity_inner": Feature("ints", "positions that continue the entity before them, ascending"),
    "continues": Feature("int", "stream: 1 if the row continues the same row of the batch before"),
    "backward": Feature("int", "stream: 1 if the row is of text reversed"),
    "next_id": Feature("int", "blocks, and streams of text alone: the token that follows the row"),
    "word_lengths": Feature("ints", "whole words: bytes of each, at most 48; 0 = a mark"),
    "word_bytes": Feature("bytes", "whole words: the first bytes of all, one after another"),
    "backward_token_ids": Feature("ints", "sentences: the same, each read from its end"),
    "backward_next_id": Feature("int", "sentences: the token that follows backward_token_ids"),
    "backward_word_lengths": Feature("ints", "sentences: word_lengths of backward_token_ids"),
    "backward_word_bytes": Feature("bytes", "sentences: word_bytes of backward_token_ids"),
    "target_ids": Feature("ints", "text to text: ids of the target, with the one that ends it"),
    "word_ids": Feature("ints", "tagging: number of the word at its first token; -1 elsewhere"),
    "tag_ids": Feature("ints", "tagging: number of its tag in the task's labels; -1 elsewhere"),
    "label": Feature("int", "number of the class in the task's labels"),
    "score": Feature("float", "target of a regression"),
    "answer": Feature("int", "number of the right one among the choices, each a sequence"),
    "row": Feature("int", "number of the example's row in its source file, from 0"),
    "context_start": Feature("int", "window: where the row has the first token of the context"),
    "context_length": Feature("int", "window: how many tokens of the context it has"),
    "window_start": Feature("int", "window: the number of the first of them in the whole context"),
    "own_start": Feature("int", "window: number of the first token that it owns (see windows)"),
    "own_end": Feature("int", "window: number behind the last token that it owns"),
    "answer_start": Feature("int", "window: number of the answer's first token; -1 = not in it"),
    "answer_end": Feature("int", "window: number of the answer's last token; -1 = not in it"),
}

# The option of build_shards that gives the lexicon which a feature comes from.
LEXICONS = {"phrase_inner": "--phrases", "entity_inner": "--entities"}


def serialize(examples: Iterable[Mapping[str, Iterable[int] | int | float | bytes]]) -> list[bytes]:
    """Returns examples as serialized `tf.train.Example`s; the same values give the same bytes.

    It is fastest where neighbouring examples have the same features.

    Raises:
      UserError: an example has a feature that is not in the table.
    """
    serialized: list[bytes] = []
    for names, group in itertools.groupby(examples, key=sorted):
        alike = list(group)
        columns = {name: _column(name, [example[name] for example in alike]) for name in names}
        serialized += example_bytes.serialize(columns)
    return serialized


def _column(
    name: str, values: Sequence[Iterable[int] | int | float | bytes]
) -> example_bytes.Column:
    """Returns the values of a feature in several examples."""
    if name not in FEATURES:
        raise UserError(
            f"{name!r} is no feature of official.shards.features: {', '.join(FEATURES)}"
        )
    kind = FEATURES[name].kind
    if kind == "bytes":
        lists = [np.frombuffer(value, "S1") for value in values]
    else:
        dtype = np.float32 if kind == "float" else np.int64
        lists = [np.atleast_1d(np.asarray(value, dtype)) for value in values]
    return np.concatenate(lists), np.cumsum([0, *map(len, lists)])
