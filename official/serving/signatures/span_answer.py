"""`answer` and `tokens`: answers to questions from their contexts.

A context of any length is cut into windows as in training, and the best span of all windows is the
answer. Windows are scored in groups (`official.serving.compute.length_groups`), so memory does not
depend on the length of the context. The answer is the same as that of `--mode=predict`.

Shapes: N questions, W windows of all questions, T tokens of the longest window.
"""

from collections.abc import Mapping

import tensorflow as tf

from official.serving.signatures import inputs
from official.tasks import GRAPHEMES
from official.tokenizers import pair_packing, text_words, windows

NO_SPAN = -1e29  # a lower score means that there is no span
_NO_WINDOW = -1e38  # lower than all scores
_OUTPUTS = ("span_scores", "span_starts", "span_ends", "null_scores")

DEFAULT = {"answer": "question and context"}
LONG = "read in windows of"


def signatures(context: inputs.ServingContext) -> dict[str, inputs.Signature]:
    """Returns the signatures of question answering.

    Raises:
      UserError: `max_length` has no room for a question and a token of its context.
    """
    answerer = Answerer(context)

    def answer(question, passage):
        return answerer.answer(*inputs.same_number(question=question, context=passage))

    by_name = {"answer": inputs.signature(answer, *inputs.texts("question", "context"))}
    if context.task_head.config.form == "conditional":
        return by_name

    def score(batch):
        head = context.task_head
        logits = head.boundary_logits(head.states(context.encode(batch)))
        return dict(zip(("start_logits", "end_logits"), logits, strict=True))

    scored = context.scorer(score)

    by_name["tokens"] = inputs.of_ids(context, scored)
    return by_name | inputs.garden_signatures(context, scored)


class Answerer:
    """Answers questions with the objective `span_answer`."""

    def __init__(self, context: inputs.ServingContext):
        """Initializes an answerer; raises as `signatures`."""
        self._head = context.task_head
        self._tokenizer = context.tokenizer
        self._layout = context.config.encoder.layout
        task = context.task
        self._no_answers = bool(task.get("no_answers"))
        self._whole = task.get("span_bounds") == GRAPHEMES
        lengths = task.get("doc_stride", 128), task.get("max_query_length", 64)
        self._sizes = context.max_length, *lengths
        windows.check(context.tokenizer, *self._sizes)

        def score(batch):
            outputs = context.predictions(batch)
            return {
                name: outputs[name][:, 0] if outputs[name].shape.rank == 2 else outputs[name]
                for name in _OUTPUTS
            }

        self._scored = context.scorer(score, windows.POSITIONS)

    def answer(self, question: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
        """Answers questions.

        Args:
          question: UTF-8 strings [N].
          context: the text that each question is about, strings [N].

        Returns:
          `answer` string [N]; `start` and `end` int32 [N], in characters (code points) of the
          context; `score` float32 [N], the score of the span as in `nbest.json`. If questions may
          have no answer, also `null_odds` [N]. If they exceed the threshold, the answer is empty
          and `start` and `end` are 0.
        """
        tokens = self._tokenizer.tokenize_with_offsets(context)
        packed = windows.pack_windows(
            self._tokenizer.tokenize(question), tokens.ids, self._tokenizer, *self._sizes
        )
        scored = self._scored(self._batch(packed))
        score, first, last = _best(scored, packed["row"], tf.size(question))
        answered = score > NO_SPAN
        null = tf.math.segment_min(scored["null_scores"], packed["row"])
        outputs = {"score": score}
        if self._no_answers:
            odds = null
            if self._head.config.form == "independent":
                odds -= tf.where(answered, score, -1e30)
            answered &= odds <= self._head.config.null_threshold
            outputs["null_odds"] = odds
        row_starts = tokens.ids.row_starts()
        starts, ends = tokens.starts, tokens.ends
        if self._whole:
            starts, ends = text_words.whole_graphemes(context, starts, ends)
        start = tf.where(answered, _at(starts.values, row_starts, first), 0)
        end = tf.where(answered, _at(ends.values, row_starts, last), 0)
        text = tf.strings.substr(context, start, end - start, unit="UTF8_CHAR")
        return {"answer": text, "start": start, "end": end, **outputs}

    def _batch(self, packed: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns a batch of windows in the layout of the encoder."""
        lengths = packed["segment_lengths"]
        token_ids = packed["token_ids"].to_tensor(self._tokenizer.pad_id)
        positions = tf.range(tf.shape(token_ids)[1])[None, :]
        mask = positions < tf.reduce_sum(lengths, axis=1, keepdims=True)
        second = (positions >= lengths[:, :1]) & mask
        batch = {
            "token_ids": token_ids,
            "segment_ids": pair_packing.types_of(tf.cast(second, tf.int32), self._tokenizer),
            "padding_mask": mask,
            **{name: packed[name] for name in windows.POSITIONS},
        }
        return {**batch, **windows.arrange_windows(batch, self._tokenizer, self._layout)}


def _best(
    scored: Mapping[str, tf.Tensor], row: tf.Tensor, count: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the best span of each question: its score, first and last token, each [N].

    Args:
      scored: the best span of each window, [W].
      row: the question of each window, [W].
      count: N.
    """
    count = tf.cast(count, tf.int64)
    scores = tf.RaggedTensor.from_value_rowids(
        scored["span_scores"], tf.cast(row, tf.int64), nrows=count, validate=False
    )
    dense = tf.pad(scores.to_tensor(_NO_WINDOW), [[0, 0], [0, 1]], constant_values=_NO_WINDOW)
    window = tf.argmax(dense, axis=1) + scores.row_starts()  # [N]
    return tuple(tf.gather(scored[name], window) for name in _OUTPUTS[:3])


def _at(values: tf.Tensor, starts: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    """Returns the values of tokens given by their numbers in a context.

    If a context has no such token, the value is arbitrary.
    """
    values = tf.concat([values, [0]], 0)
    indices = starts + tf.cast(numbers, starts.dtype)
    return tf.gather(values, tf.clip_by_value(indices, 0, tf.size(values, tf.int64) - 1))
