"""Questions and contexts in, answers out, all of it in a graph: what a SavedModel of spans holds.

A context of any length is cut into windows as for training, each is read, and the best span of all
of them is the answer; windows are read `WINDOWS_AT_ONCE` at a time, so that a book takes no more
room than that. The answer is that of `--mode=predict`.

Shapes: N questions, W windows of all of them, T tokens of the longest one.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from official import config as configs
from official import tokenizers
from official.model import Model
from official.tokenizers import windows

WINDOWS_AT_ONCE = 16
NO_SPAN = -1e29  # scores below are of no span
_FOUND = ("span_scores", "span_starts", "span_ends", "null_scores")


class Answerer:
    """A model with the objective `span_answer`, and how its texts become windows.

    Attributes:
      objective: that of the model.
    """

    def __init__(
        self,
        config: configs.Config,
        tokenizer: tokenizers.Tokenizer,
        model: Model,
        max_length: int,
        task: Mapping[str, Any],
    ):
        """Keeps what a graph needs.

        Args:
          config: of the model.
          tokenizer: of the model.
          model: has the objective `span_answer`.
          max_length: the most tokens of a window.
          task: what training noted of the task (`official.inference.task`).

        Raises:
          UserError: `max_length` has no room for a question and a token of its context.
        """
        kinds = [configs.type_of(objective) for objective in config.objectives]
        self.objective = model.objectives[kinds.index("span_answer")]
        self._model = model
        self._tokenizer = tokenizer
        self._layout = config.encoder.layout
        self._no_answers = bool(task.get("no_answers"))
        self._sizes = max_length, task.get("doc_stride", 128), task.get("max_query_length", 64)
        windows.check(tokenizer, *self._sizes)

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
        # Bytes that are not UTF-8 become U+FFFD, as `bytes.decode(errors="replace")` has it.
        question, context = (
            tf.strings.unicode_transcode(text, "UTF-8", "UTF-8") for text in (question, context)
        )
        tokens = self._tokenizer.tokenize_with_offsets(context)
        packed = windows.pack_windows(
            self._tokenizer.tokenize(question), tokens.ids, self._tokenizer, *self._sizes
        )
        found = self._read(self._batch(packed))
        score, first, last = _best(found, packed["row"], tf.size(question))
        some = score > NO_SPAN
        null = tf.math.segment_min(found["null_scores"], packed["row"])
        outputs = {"score": score}
        if self._no_answers:
            odds = null
            if self.objective.config.form == "independent":
                odds -= tf.where(some, score, -1e30)
            some &= odds <= self.objective.config.null_threshold
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
        # Where there is no question at all, rows still have one position.
        none = tf.cast(tf.equal(tf.size(packed["row"]), 0), tf.int32)
        token_ids = tf.pad(token_ids, [[0, 0], [0, none]], constant_values=self._tokenizer.pad_id)
        place = tf.range(tf.shape(token_ids)[1])[None, :]
        mask = place < tf.reduce_sum(lengths, axis=1, keepdims=True)
        batch = {
            "token_ids": token_ids,
            "segment_ids": tf.cast((place >= lengths[:, :1]) & mask, tf.int32),
            "padding_mask": mask,
            **{name: packed[name] for name in windows.PLACES},
        }
        return {**batch, **windows.arrange_windows(batch, self._tokenizer, self._layout)}

    def _read(self, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """The best span and the null score of each window: [W] each."""
        count = tf.shape(batch["token_ids"])[0]
        rounds = tf.maximum(1, (count + WINDOWS_AT_ONCE - 1) // WINDOWS_AT_ONCE)
        kinds = (tf.float32, tf.int32, tf.int32, tf.float32)

        def read(i, *arrays):
            mine = slice(i * WINDOWS_AT_ONCE, (i + 1) * WINDOWS_AT_ONCE)
            part = {name: value[mine] for name, value in batch.items()}
            outputs = self._model.predictions(part)
            values = [outputs[name] for name in _FOUND]
            values = [value[:, 0] if value.shape.rank == 2 else value for value in values]
            return i + 1, *(
                array.write(i, tf.cast(value, kind))
                for array, value, kind in zip(arrays, values, kinds, strict=True)
            )

        arrays = [
            tf.TensorArray(kind, rounds, infer_shape=False, element_shape=[None]) for kind in kinds
        ]
        _, *arrays = tf.while_loop(
            lambda i, *_: i < rounds, read, (0, *arrays), parallel_iterations=1
        )
        return {name: array.concat() for name, array in zip(_FOUND, arrays, strict=True)}


def _best(
    found: Mapping[str, tf.Tensor], row: tf.Tensor, count: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """The best of the windows' spans for each question: score, first and last token [N]."""
    count = tf.cast(count, tf.int64)
    scores = tf.RaggedTensor.from_value_rowids(
        found["span_scores"], tf.cast(row, tf.int64), nrows=count, validate=False
    )
    dense = tf.pad(scores.to_tensor(2 * NO_SPAN), [[0, 0], [0, 1]], constant_values=4 * NO_SPAN)
    window = tf.argmax(dense, axis=1) + scores.row_starts()  # [N]
    return tuple(tf.gather(found[name], window) for name in _FOUND[:3])


def _at(values: tf.Tensor, starts: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    """Values of the tokens with these numbers in their context; anything where there is none."""
    values = tf.concat([values, [0]], 0)
    places = starts + tf.cast(numbers, starts.dtype)
    return tf.gather(values, tf.clip_by_value(places, 0, tf.size(values, tf.int64) - 1))
