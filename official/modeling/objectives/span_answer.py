"""Question answering: predicts the span of a context that answers a question, or "no answer".

`independent` (Devlin et al., 2019, sections 4.2 and 4.3): an affine map gives each token a score as
the first and another as the last token of the answer. The answer of an unanswerable question is at
[CLS]. The loss is the mean of both cross-entropies. The score of a span is the sum of its two
scores, and the null score is the sum of both scores of [CLS].

`conditional` (XLNet's release, function_builder.get_qa_outputs): the score of the last token
depends on the first one, [h; h(start)] -> linear, tanh, LayerNorm -> linear. A logistic regression
on [sum of p(start) h; h(CLS)] -> linear, tanh -> linear predicts whether the window has no answer.
The loss of the regression, times `answerable_weight`, is added to the mean of the other two losses.
The predictions are the most likely ends of the most likely starts (a beam). The score of a span is
its log probability, and the null score is the logit of the regression.

Shapes: B batch, T length, D width of the states that are read, K spans, S starts of the beam, E
ends of each, A longest answer.
"""

from collections.abc import Sequence
from typing import Any

from keras import ops
from typing_extensions import override

from official.config.heads import SpanAnswerConfig
from official.config.parts import EncoderConfig
from official.modeling.encoders.base import Encoder
from official.modeling.layers.kernels import dropout, take_positions
from official.modeling.layers.linear import Linear
from official.modeling.layers.norm import LayerNorm
from official.modeling.layers.random import Draws
from official.modeling.objectives import base, heads
from official.modeling.types import Batch, Encoded, Tensor
from official.utils import keras_private

NEVER = -1e30


class Objective(heads.Reader):
    """Scores the starts and ends of answers, and unanswerable questions."""

    config: SpanAnswerConfig

    link = "softmax"

    def __init__(self, config: SpanAnswerConfig, encoder_config: EncoderConfig, **options: Any):
        super().__init__(config, encoder_config, **options)
        size = self.width
        self._cls_last = encoder_config.layout == "cls_last"

        def linear(inputs, outputs, name, use_bias=True, initializer=self.initializer):
            return Linear(
                inputs,
                outputs,
                initializer=initializer,
                name=name,
                use_bias=use_bias,
                dtype=self.dtype_policy,
            )

        if config.form == "independent":
            self.output_projection = linear(size, 2, "output", initializer=self.output_initializer)
            return
        self.start_projection = linear(size, 1, "start")
        self.end_hidden = linear(2 * size, size, "end_hidden")
        self.end_norm = LayerNorm(
            size, epsilon=encoder_config.norm_epsilon, name="end_norm", dtype=self.dtype_policy
        )
        self.end_projection = linear(size, 1, "end")
        self.answerable_hidden = linear(2 * size, size, "answerable_hidden")
        self.answerable_projection = linear(size, 1, "answerable", use_bias=False)

    @override
    def build(self, input_shape=None):
        for layer in keras_private.sublayers(self, include_self=False, recursive=False):
            layer.build()

    def start_logits(self, states: Tensor) -> Tensor:
        """Returns the scores of starts for `conditional`: [B, T]."""
        return self.as_loss(self.start_projection(states))[:, :, 0]

    def end_logits(self, states: Tensor, starts: Tensor):
        """Returns the scores of ends for `conditional` [B, S, T], given starts int [B, S]."""
        begin = take_positions(states, starts)[:, :, None, :]  # [B, S, 1, D]
        end = states[:, None, :, :]  # [B, 1, T, D]
        shape = ops.shape(ops.add(begin, end))
        both = ops.concatenate(
            [ops.broadcast_to(end, shape), ops.broadcast_to(begin, shape)], axis=-1
        )
        hidden = self.end_norm(ops.tanh(self.end_hidden(both)))
        return self.as_loss(self.end_projection(hidden))[..., 0]

    def null_logits(
        self, states: Tensor, start_logits: Tensor, allowed: Tensor, rng: Draws | None = None
    ) -> Tensor:
        """Returns the logits of having no answer for `conditional`: [B].

        Args:
            states: [B, T, D].
            start_logits: [B, T].
            allowed: bool [B, T], the possible starts.
            rng: `Draws` for dropout, or None.
        """
        probabilities = ops.softmax(ops.where(allowed, start_logits, NEVER))
        start = ops.einsum("btd,bt->bd", states, ops.cast(probabilities, states.dtype))
        pooled = ops.concatenate([start, states[:, -1 if self._cls_last else 0]], axis=-1)
        hidden = dropout(ops.tanh(self.answerable_hidden(pooled)), self.config.dropout, rng)
        return self.as_loss(self.answerable_projection(hidden))[:, 0]

    @override
    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        return self.with_penalty_weight({self.name: ops.sum(self.example_weights(batch))})

    @override
    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        del encoder
        states = self.states(encoded, rng)
        weights = self.example_weights(batch)
        allowed, cls = self.allowed(batch), self._cls(batch)
        shift = batch["context_start"] - batch["window_start"]
        answerable = batch["answer_start"] >= 0  # [B]
        start = ops.where(answerable, batch["answer_start"] + shift, cls)
        end = ops.where(answerable, batch["answer_end"] + shift, cls)
        if self.config.form == "independent":
            start_logits, end_logits = self.boundary_logits(states)
        else:
            start_logits = self.start_logits(states)
            end_logits = self.end_logits(states, start[:, None])[:, 0]
        start_logits = ops.where(allowed, start_logits, NEVER)
        end_logits = ops.where(allowed, end_logits, NEVER)
        losses = 0.5 * (
            ops.sparse_categorical_crossentropy(start, start_logits, from_logits=True)
            + ops.sparse_categorical_crossentropy(end, end_logits, from_logits=True)
        )
        hits = ops.equal(ops.argmax(start_logits, axis=-1), start)
        hits = hits & ops.equal(ops.argmax(end_logits, axis=-1), end)
        metrics = {f"{self.name}_accuracy": (_total(hits, weights), ops.sum(weights))}
        if self.config.form == "conditional":
            logits = self.null_logits(states, start_logits, allowed, rng)
            missing = ops.cast(ops.logical_not(answerable), logits.dtype)
            against = ops.softplus(logits) - missing * logits  # the loss of a logistic regression
            losses = losses + self.config.answerable_weight * against
            right = ops.equal(logits > 0, ops.logical_not(answerable))
            metrics[f"{self.name}_answerable_accuracy"] = (_total(right, weights), ops.sum(weights))
        terms = base.Terms(losses={self.name: ops.sum(losses * weights)}, metrics=metrics)
        return self.with_penalty(terms, batch)

    @override
    def matched_outputs(
        self,
        batch: Batch,
        encoded: Encoded,
        encoder: Encoder,
        positions: str = "real",
        rng: Draws | None = None,
    ) -> Tensor:
        """See `base.Objective`: the scores of starts, then of ends, [2 B, T]."""
        del encoder, positions
        boundaries = ops.concatenate(self.boundary_logits(self.states(encoded, rng)), axis=0)
        allowed = self.allowed(batch)
        return ops.where(ops.concatenate([allowed, allowed], axis=0), boundaries, NEVER)

    @override
    def matched_weights(self, batch: Batch, positions: str = "real") -> Tensor:
        """See `base.Objective`: half of the example's weight for starts and ends each, [2 B]."""
        examples = super().matched_weights(batch, positions)
        return ops.concatenate([examples, examples], axis=0) / 2

    def predictions(self, batch: Batch, encoded: Encoded, encoder: Encoder) -> dict[str, Tensor]:
        """Returns the best spans of each window that begin with a token that the window owns.

        Returns:
            `span_scores` [B, K], in descending order, `NEVER` or less if there are fewer spans;
            `span_starts` and `span_ends` int [B, K], the indices of the first and last token in the
            whole context; and `null_scores` [B].
        """
        states = self.states(encoded)
        if self.config.form == "independent":
            return self._best_pairs(self.boundary_logits(states), batch)
        allowed, start_logits = self.allowed(batch), self.start_logits(states)
        null = self.null_logits(states, start_logits, allowed)
        spans = self._beam(states, start_logits, allowed, *self._boundaries(batch))
        return self._spans(spans, null, batch)

    def predictions_of(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        """See `predictions`; for `independent`.

        Args:
            outputs: the scores of starts, then of ends, [2 B, T].
            batch: the batch of windows.
        """
        return self._best_pairs(ops.split(outputs, 2, axis=0), batch)

    def _best_pairs(self, boundaries: Sequence[Tensor], batch: Batch) -> dict[str, Tensor]:
        """Returns the predictions for scores of starts and of ends, [B, T] each."""
        start_logits, end_logits = boundaries
        spans = self._pairs(start_logits, end_logits, *self._boundaries(batch))
        cls = self._cls(batch)[:, None]
        null = ops.take_along_axis(start_logits, cls, 1) + ops.take_along_axis(end_logits, cls, 1)
        return self._spans(spans, null[:, 0], batch)

    def _boundaries(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Returns the positions where a predicted span may start and may end: bool [B, T] each."""
        position, begin = self._positions(batch), batch["context_start"][:, None]
        # [B, T], indices in the whole context
        number = position - begin + batch["window_start"][:, None]
        inside = (position >= begin) & (position < begin + batch["context_length"][:, None])
        own = (number >= batch["own_start"][:, None]) & (number < batch["own_end"][:, None])
        return inside & own, inside

    def _spans(self, spans: Sequence[Tensor], null: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Returns the predictions, with indices of tokens in the whole context.

        Args:
            spans: scores, starts and ends, [B, K] each.
            null: the null scores, [B].
            batch: the batch of windows.
        """
        scores, starts, ends = spans
        shift = (batch["window_start"] - batch["context_start"])[:, None]
        return {
            "span_scores": scores,
            "span_starts": starts + shift,
            "span_ends": ends + shift,
            "null_scores": null,
        }

    def boundary_logits(self, states: Tensor):
        """Returns the scores of starts and of ends for `independent`: [B, T] each."""
        logits = self.as_loss(self.output_projection(states))  # [B, T, 2]
        return logits[:, :, 0], logits[:, :, 1]

    def _pairs(self, start_logits: Tensor, end_logits: Tensor, starts: Tensor, ends: Tensor):
        """Returns the scores, starts and ends of the best pairs: [B, K] each."""
        longest, count = self.config.max_answer_length, self.config.n_best
        length = ops.shape(start_logits)[1]
        start_logits = ops.where(starts, start_logits, NEVER)
        end_logits = ops.where(ends, end_logits, NEVER)
        end_logits = ops.pad(end_logits, [[0, 0], [0, longest - 1]], constant_values=NEVER)
        later = [end_logits[:, i : i + length] for i in range(longest)]
        scores = start_logits[:, :, None] + ops.stack(later, axis=-1)  # [B, T, A]
        scores = ops.reshape(scores, (ops.shape(scores)[0], length * longest))
        scores = ops.pad(scores, [[0, 0], [0, count]], constant_values=2 * NEVER)
        best, pairs = ops.top_k(scores, count)
        first = pairs // longest
        return best, first, first + pairs % longest

    def _beam(
        self, states: Tensor, start_logits: Tensor, allowed: Tensor, starts: Tensor, ends: Tensor
    ):
        """Returns log probabilities, starts and ends of the beam: [B, S * E] each."""
        config = self.config
        batch, length = ops.shape(start_logits)
        chances = ops.log_softmax(ops.where(allowed, start_logits, NEVER))
        chances = ops.pad(
            ops.where(starts, chances, NEVER),
            [[0, 0], [0, config.start_beam]],
            constant_values=2 * NEVER,
        )
        best, first = ops.top_k(chances, config.start_beam)  # [B, S]
        first = ops.minimum(first, length - 1)
        logits = self.end_logits(states, first)  # [B, S, T]
        chances = ops.log_softmax(ops.where(allowed[:, None], logits, NEVER))
        far = ops.arange(length, dtype="int32")[None, None, :] - first[:, :, None]  # [B, S, T]
        fits = ends[:, None] & (far >= 0) & (far < config.max_answer_length)
        chances = ops.pad(
            ops.where(fits, chances, NEVER),
            [[0, 0], [0, 0], [0, config.end_beam]],
            constant_values=2 * NEVER,
        )
        more, last = ops.top_k(chances, config.end_beam)  # [B, S, E]
        last = ops.minimum(last, length - 1)
        scores = best[:, :, None] + more
        first = ops.broadcast_to(first[:, :, None], ops.shape(scores))
        size = config.start_beam * config.end_beam
        scores, first, last = (ops.reshape(x, (batch, size)) for x in (scores, first, last))
        scores, order = ops.top_k(scores, size)
        return scores, ops.take_along_axis(first, order, 1), ops.take_along_axis(last, order, 1)

    def _positions(self, batch: Batch) -> Tensor:
        """Returns the positions of a row: int [1, T]."""
        length = ops.shape(batch["token_ids"])[1]
        return ops.arange(length, dtype=batch["context_start"].dtype)[None]

    def _cls(self, batch: Batch) -> Tensor:
        """Returns the position of [CLS]: int [B]."""
        starts = batch["context_start"]
        last = ops.shape(batch["token_ids"])[1] - 1 if self._cls_last else 0
        return ops.zeros_like(starts) + last

    def allowed(self, batch: Batch) -> Tensor:
        """Returns the positions that an answer may have, including [CLS]: bool [B, T]."""
        if self.config.candidates == "row":
            return batch["padding_mask"]
        position, begin = self._positions(batch), batch["context_start"][:, None]
        inside = (position >= begin) & (position < begin + batch["context_length"][:, None])
        return inside | ops.equal(position, self._cls(batch)[:, None])


def _total(flags: Tensor, weights: Tensor) -> Tensor:
    return ops.sum(ops.cast(flags, weights.dtype) * weights)
