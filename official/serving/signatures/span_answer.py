"""`answer` and `tokens`: questions and contexts in, answers out.

A context of any length is cut into windows as for training, each is read, and the best span of all
of them is the answer; windows are read a few at a time (see `official.serving.length_groups`), so
that a book takes no more room than that. The answer is that of `--mode=predict`.

Shapes: N questions, W windows of all of them, T tokens of the longest one.
"""

from collections.abc import Mapping

import tensorflow as tf

from official.serving import length_groups
from official.serving.signatures import inputs, model_garden
from official.tokenizers import windows

NO_SPAN = -1e29  # scores below are of no span,
_NO_WINDOW = -1e38  # and this is below all of them
_FOUND = ("span_scores", "span_starts", "span_ends", "null_scores")

DEFAULT = {"answer": "question and context"}
LONG = "read in windows of"


def signatures(parts: inputs.ServingContext) -> dict[str, inputs.Signature]:
    """The signatures of a model that answers questions.

    Raises:
      UserError: `max_length` has no room for a question and a token of its context.
    """
    answerer = Answerer(parts)

    def answer(question, context):
        return answerer.answer(*inputs.same_number(question=question, context=context))

    made = {"answer": inputs.signature(answer, *inputs.texts("question", "context"))}
    if parts.head.config.form == "conditional":
        return made

    def score(batch):
        states = parts.encode(batch)["sequence_output"]
        logits = parts.head.boundary_logits(states)
        return dict(zip(("start_logits", "end_logits"), logits, strict=True))

    scored = length_groups.scorer(score, parts.config.encoder)

    def tokens(*ids):
        return scored(inputs.batch_of_ids(parts, *ids))

    made["tokens"] = inputs.signature(tokens, *inputs.ids())
    return made | model_garden.signatures(parts, scored)


class Answerer:
    """A model with the objective `span_answer`, and how its texts become windows."""

    def __init__(self, parts: inputs.ServingContext):
        """Keeps what a graph needs; raises as `signatures`."""
        self._head = parts.head
        self._tokenizer = parts.tokenizer
        self._layout = parts.config.encoder.layout
        task = parts.task
        self._no_answers = bool(task.get("no_answers"))
        lengths = task.get("doc_stride", 128), task.get("max_query_length", 64)
        self._sizes = parts.max_length, *lengths
        windows.check(parts.tokenizer, *self._sizes)

        def score(batch):
            encoded = parts.encode(batch)
            outputs = parts.head.predictions(batch, encoded, parts.model.encoder)
            return {
                name: outputs[name][:, 0] if outputs[name].shape.rank == 2 else outputs[name]
                for name in _FOUND
            }

        self._scored = length_groups.scorer(score, parts.config.encoder, windows.POSITIONS)

    def answer(self, question: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
        """Answers questions.

        Args:
          question: UTF-8 strings [N].
          context: the text that each is asked of, strings [N].

        Returns:
          `answer` string [N], `start` and `end` int32 [N], in characters (code points) of the
          context, and `score` float32 [N], that of the span in `nbest.json`; `null_odds` [N] where
          questions may have no answer: then the answer is empty, and start and end are 0, where
          they exceed the threshold.
        """
        tokens = self._tokenizer.tokenize_with_offsets(context)
        packed = windows.pack_windows(
            self._tokenizer.tokenize(question), tokens.ids, self._tokenizer, *self._sizes
        )
        found = self._scored(self._batch(packed))
        score, first, last = _best(found, packed["row"], tf.size(question))
        some = score > NO_SPAN
        null = tf.math.segment_min(found["null_scores"], packed["row"])
        outputs = {"score": score}
        if self._no_answers:
            odds = null
            if self._head.config.form == "independent":
                odds -= tf.where(some, score, -1e30)
            some &= odds <= self._head.config.null_threshold
            outputs["null_odds"] = odds
        places = tokens.ids.row_starts()
        start = tf.where(some, _at(tokens.starts.values, places, first), 0)
        end = tf.where(some, _at(tokens.ends.values, places, last), 0)
        text = tf.strings.substr(context, start, end - start, unit="UTF8_CHAR")
        return {"answer": text, "start": start, "end": end, **outputs}

    def _batch(self, packed: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Windows as the encoder reads them."""
        lengths = packed["segment_lengths"]
        token_ids = packed["token_ids"].to_tensor(self._tokenizer.pad_id)
        place = tf.range(tf.shape(token_ids)[1])[None, :]
        mask = place < tf.reduce_sum(lengths, axis=1, keepdims=True)
        batch = {
            "token_ids": token_ids,
            "segment_ids": tf.cast((place >= lengths[:, :1]) & mask, tf.int32),
            "padding_mask": mask,
            **{name: packed[name] for name in windows.POSITIONS},
        }
        return {**batch, **windows.arrange_windows(batch, self._tokenizer, self._layout)}


def _best(
    found: Mapping[str, tf.Tensor], row: tf.Tensor, count: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The best of the windows' spans for each question: score, first and last token [N]."""
    count = tf.cast(count, tf.int64)
    scores = tf.RaggedTensor.from_value_rowids(
        found["span_scores"], tf.cast(row, tf.int64), nrows=count, validate=False
    )
    dense = tf.pad(scores.to_tensor(_NO_WINDOW), [[0, 0], [0, 1]], constant_values=_NO_WINDOW)
    window = tf.argmax(dense, axis=1) + scores.row_starts()  # [N]
    return tuple(tf.gather(found[name], window) for name in _FOUND[:3])


def _at(values: tf.Tensor, starts: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    """Values of the tokens with these numbers in their context; anything where there is none."""
    values = tf.concat([values, [0]], 0)
    places = starts + tf.cast(numbers, starts.dtype)
    return tf.gather(values, tf.clip_by_value(places, 0, tf.size(values, tf.int64) - 1))
