"""The model that signatures of a SavedModel serve, and their inputs.

Inputs are raw texts, token ids, or what the TF Model Garden's NLP exports take:
`official/nlp/serving/serving_modules.py` of the Garden has these signatures for sentence prediction
and question answering:

  serve                input_word_ids, input_mask, input_type_ids int32 [B, T]
  serve_examples       examples string [B]: serialized tf.train.Examples with int64 lists of these
                       names, all of the same length. If there is only input_word_ids, the tokens
                       with the id of padding are padding.
  serve_text_examples  examples string [B]: tf.train.Examples with `text`, and `text_b` for pairs
                       (only sentence prediction; the Garden has a setting for the names)

Their outputs are logits: `outputs` [B, C] (C = 1 for a regression), or `start_logits` and
`end_logits` [B, T].

Shapes: B batch, T tokens of the longest row, C classes.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from official.modeling.objectives.base import Objective
from official.saving.generation_settings import Settings
from official.saving.served_model import ServedModel
from official.serving.compute import length_groups
from official.serving.compute.precision import Weights
from official.serving.generation.mask_filler import MaskFiller
from official.tokenizers import utf8
from official.utils.errors import UserError

Signature: TypeAlias = tf.types.experimental.PolymorphicFunction
# The names of the inputs, as in the TF Model Garden, and those of the fields of a batch.
TOKENS = {
    "input_word_ids": "token_ids",
    "input_mask": "padding_mask",
    "input_type_ids": "segment_ids",
}
_Outputs = dict[str, tf.Tensor]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServingContext(ServedModel):
    """The model that signatures serve.

    Attributes:
      weights: the stored weights of the encoder and the head.
      head: the objective that is served; None = the encoder alone.
      settings: the settings of models that generate text.
      prefix: stands before each text that such a model reads.
      filler: fills masks; None = the model cannot.
      groups: whether the rows of a batch are scored in groups of similar length.
    """

    weights: Weights
    head: Objective | None
    settings: Settings = Settings()
    prefix: str = ""
    filler: MaskFiller | None = None
    groups: bool = True

    @property
    def task_head(self) -> Any:
        """The objective that is served, of the class of its task; `signatures` of tasks read it.

        Raises:
          ValueError: the encoder alone is served.
        """
        if self.head is None:
            raise ValueError("the encoder is served without a head")
        return self.head

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the labels or tags of the head, in the order of their numbers.

        Raises:
          UserError: the config has no names.
        """
        config = self.task_head.config
        if not config.labels:
            raise UserError(
                f"objectives: the {config.type} has no `labels` in config.yaml: write the names "
                "there, in the order of their numbers, and remove its first line, the checksum"
            )
        return config.labels

    def with_prefix(self, text: tf.Tensor) -> tf.Tensor:
        """Returns texts [B] that a model generates from, with the prefix before each."""
        return self.prefix + text if self.prefix else text

    def encode(self, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Runs the encoder with the stored weights, and computes only what the head reads."""
        with self.weights.read():
            if self.head is None:
                return self.model.encode(batch)
            return self.model.encode_as_read(batch, objectives=[self.head])

    def predictions(self, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the predictions of the head."""
        return self.task_head.predictions(batch, self.encode(batch), self.model.encoder)

    def scorer(
        self,
        score: Callable[[length_groups.Tensors], length_groups.Tensors],
        row_fields: tuple[str, ...] = (),
        token_fields: tuple[str, ...] = (),
    ) -> Callable[[length_groups.Tensors], length_groups.Tensors]:
        """Returns a function that scores a batch; see `length_groups.scorer`."""
        if not self.groups:
            return score
        return length_groups.scorer(score, self.config.encoder, row_fields, token_fields)


def signature(function: Callable[..., dict], *inputs: tf.TensorSpec) -> Signature:
    """Makes a signature of a SavedModel. The names of its inputs are those of the specs.

    In all strings, bytes that are not UTF-8 become U+FFFD, as with
    `bytes.decode(errors="replace")`.
    """

    def entered(*given: tf.Tensor) -> dict[str, tf.Tensor]:
        return function(*(utf8.valid(t) if t.dtype == tf.string else t for t in given))

    return tf.function(entered, input_signature=inputs, autograph=False)


def bounded(signatures: Mapping[str, Signature], max_bytes: int) -> dict[str, Signature]:
    """Returns signatures that refuse a string of more bytes, before anything else reads it.

    Args:
      signatures: by name; two names of one signature stay so.
      max_bytes: the largest number of bytes of a text; 0 = any.

    Raises:
      UserError: `max_bytes` is negative.
    """
    if max_bytes < 0:
        raise UserError(f"--max_bytes={max_bytes}: must be at least 0 (0 = texts of any size)")
    made: dict[int, Signature] = {}
    for each in signatures.values():
        if max_bytes and any(spec.dtype == tf.string for spec in each.input_signature):
            made[id(each)] = _bounded(each, max_bytes)
    return {name: made.get(id(each), each) for name, each in signatures.items()}


def _bounded(whole: Signature, max_bytes: int) -> Signature:
    message = (
        f"has more than {max_bytes} bytes: shorten it, or export the model with a larger "
        "--max_bytes"
    )

    def entered(*given: tf.Tensor) -> dict[str, tf.Tensor]:
        checks = [
            tf.debugging.assert_less_equal(
                tf.strings.length(value), max_bytes, f"{name}: {message}"
            )
            for name, value in zip(names, given, strict=True)
            if value.dtype == tf.string
        ]
        with tf.control_dependencies(checks):
            return whole(*map(tf.identity, given))

    names = [spec.name for spec in whole.input_signature]
    return tf.function(entered, input_signature=whole.input_signature, autograph=False)


def records(function: Callable[[tf.Tensor], dict]) -> Signature:
    """Makes a signature that takes serialized `tf.train.Example`s: `examples` string [B]."""
    spec = tf.TensorSpec([None], tf.string, "examples")
    return tf.function(function, input_signature=[spec], autograph=False)


def texts(*names: str) -> list[tf.TensorSpec]:
    """Returns the specs of inputs that are string [B]."""
    return [tf.TensorSpec([None], tf.string, name) for name in names]


def same_number(**given: tf.Tensor) -> list[tf.Tensor]:
    """Returns the inputs after a check that they have the same number of texts."""
    first, *others = given.values()
    message = f"{' and '.join(given)} have different numbers of texts"
    checks = [tf.debugging.assert_equal(tf.size(first), tf.size(o), message) for o in others]
    with tf.control_dependencies(checks):
        return [tf.identity(value) for value in given.values()]


def ids(rank: int = 2) -> list[tf.TensorSpec]:
    """Returns the specs of the inputs of `batch_of_ids`, [B, T] or with more axes."""
    return [tf.TensorSpec([None] * rank, tf.int32, name) for name in TOKENS]


def batch_of_ids(
    context: ServingContext,
    input_word_ids: tf.Tensor,
    input_mask: tf.Tensor,
    input_type_ids: tf.Tensor,
) -> dict[str, tf.Tensor]:
    """Returns a batch of rows whose layout is that of the encoder.

    Args:
      context: the model. Its number of positions is checked.
      input_word_ids: int32 [..., T].
      input_mask: int32 [..., T], 0 for padding.
      input_type_ids: int32 [..., T].
    """
    maximum = context.config.encoder.max_positions
    length = tf.shape(input_word_ids)[-1]
    message = f"this encoder takes at most {maximum} tokens"
    with tf.control_dependencies([tf.debugging.assert_less_equal(length, maximum, message)]):
        fields = tf.identity(input_word_ids), tf.cast(input_mask, tf.bool), input_type_ids
    return dict(zip(TOKENS.values(), fields, strict=True))


def of_ids(
    context: ServingContext, of_batch: Callable[[_Outputs], _Outputs], rank: int = 2
) -> Signature:
    """Makes a signature that takes token ids and calls `of_batch` with the fields of a batch."""
    return signature(lambda *given: of_batch(batch_of_ids(context, *given)), *ids(rank))


def garden_signatures(
    context: ServingContext,
    of_batch: Callable[[_Outputs], _Outputs],
    of_texts: Callable[..., _Outputs] | None = None,
) -> dict[str, Signature]:
    """Returns the signatures of the Garden.

    Args:
      context: the model. Its task says whether texts come in pairs.
      of_batch: computes the outputs of a batch [B, T].
      of_texts: computes the outputs of texts; None = no `serve_text_examples`.
    """
    column = lambda kind, pad: tf.io.FixedLenSequenceFeature(  # noqa: E731
        [], kind, allow_missing=True, default_value=pad
    )
    pads = dict.fromkeys(TOKENS, 0) | {"input_word_ids": context.tokenizer.pad_id}

    def serve_examples(examples):
        parsed = tf.io.parse_example(examples, {n: column(tf.int64, p) for n, p in pads.items()})
        tokens, mask, types = (tf.cast(parsed[name], tf.int32) for name in TOKENS)
        real = tf.cast(tokens != context.tokenizer.pad_id, tf.int32)
        mask = tf.cond(tf.shape(mask)[1] > 0, lambda: mask, lambda: real)
        types = tf.cond(tf.shape(types)[1] > 0, lambda: types, lambda: tf.zeros_like(tokens))
        return of_batch(batch_of_ids(context, tokens, mask, types))

    def serve_text_examples(examples):
        assert of_texts is not None
        names = ("text", "text_b") if context.task.get("pair") else ("text",)
        one = tf.io.FixedLenFeature([], tf.string)
        parsed = tf.io.parse_example(examples, dict.fromkeys(names, one))
        return of_texts(*(utf8.valid(parsed[name]) for name in names))

    by_name = {
        "serve": of_ids(context, of_batch),
        "serve_examples": records(serve_examples),
    }
    if of_texts is not None:
        by_name["serve_text_examples"] = records(serve_text_examples)
    return by_name
