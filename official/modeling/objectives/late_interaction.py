"""Late interaction: vectors of tokens, and the scores of queries and documents that they have.

An encoder has a prefix and an expansion of `official.config.late_interaction` in its rows, which
are made here from rows of texts alone. Positions that expand a query have a vector, although no
token may attend to them; padding and skipped tokens have a vector of zeros.

Losses that compare a row with all rows of a batch use the rows of all replicas; see
`official.modeling.objectives.sentence_embedding`.

Shapes: B examples, C texts of an example, M = B * C, N examples of all replicas, T length of rows
without and U with prefix and expansion, P tokens of a prefix, D hidden, V size of a vector.
"""

from typing import Any

import numpy as np
from keras import ops
from typing_extensions import override

from official.config.late_interaction import LOSSES, LateInteractionConfig, TokenIds
from official.config.parts import EncoderConfig
from official.modeling.encoders.base import Encoder
from official.modeling.layers import pooling
from official.modeling.layers.linear import Linear
from official.modeling.layers.max_sim import max_sim, max_sim_pairs
from official.modeling.layers.random import Draws
from official.modeling.objectives import base
from official.modeling.objectives.distillation import divergence, squared_error
from official.modeling.types import Batch, Encoded, Tensor
from official.utils.errors import UserError


class Objective(base.Objective):
    """Makes the vectors of tokens, and computes the loss of each example from those of all.

    A batch has fields [B, C, T], or already [M, U] with `example_rows` [B, C] and `scored` [M, U].
    The first text of an example is the query.
    """

    config: LateInteractionConfig

    def __init__(
        self, config: LateInteractionConfig, encoder_config: EncoderConfig, **options: Any
    ):
        super().__init__(config, encoder_config, **options)
        self.projection = None
        if config.size is not None:
            self.projection = Linear(
                encoder_config.hidden_size,
                config.size,
                initializer=self.initializer,
                use_bias=False,
                name="projection",
                dtype=self.dtype_policy,
            )

    @override
    def build(self, input_shape=None):
        if self.projection is not None:
            self.projection.build()

    @property
    @override
    def compares_rows(self) -> bool:
        return self.config.compares_rows

    @property
    def ids(self) -> TokenIds:
        """The ids of the tokens that the config names.

        Raises:
            UserError: they are not known.
        """
        if self.config.ids is None:
            raise UserError(f"{self.name}.ids: unknown: they are filled in from the tokenizer")
        return self.config.ids

    def prepare(self, batch: Batch, rng: Draws | None = None) -> Batch:
        """Gives every text its own row, with the prefix and the expansion of its kind."""
        del rng
        if "scored" in batch:
            return batch
        batch = base.sequences_apart(batch)
        count, texts = ops.shape(batch["example_rows"])
        is_query = ops.tile(ops.arange(texts) == 0, (count,))  # [M]
        return {**batch, **self.rows(batch, is_query, prefixed=True)}

    def rows(self, batch: Batch, is_query: Tensor, prefixed: bool = False) -> Batch:
        """Makes the rows of queries and documents from the rows of their texts.

        Args:
            batch: `token_ids` and `padding_mask` [M, T] of rows whose padding is on the right.
            is_query: bool [M], False for documents.
            prefixed: whether prefixes are put before the texts, which do not have them.

        Returns:
            `token_ids`, `segment_ids`, `padding_mask` and `scored` [M, U]. The last says which
            positions have a vector.
        """
        config, ids = self.config, self.ids
        tokens, real = batch["token_ids"], ops.cast(batch["padding_mask"], "int32")
        prefixes = (ids.document_prefix, ids.query_prefix) if prefixed else ((), ())
        longest = max(map(len, prefixes))
        kind = ops.cast(is_query, "int32")[:, None]  # [M, 1]
        most = self.encoder_config.max_positions
        limits = [min(config.lengths[name] or most, most) for name in ("document", "query")]
        length = config.expansion.length if config.expansion else 0
        before = ops.shape(tokens)[1]
        width = before + longest
        if isinstance(width, int):
            width = min(max(width, length), most)
        else:
            width = ops.minimum(ops.maximum(width, length), most)

        def of_kind(document, query):  # [M, 1]
            return ops.cast(ops.where(kind == 1, query, document), "int32")

        count = ops.sum(real, axis=1, keepdims=True)  # [M, 1]
        added = of_kind(len(prefixes[0]), len(prefixes[1]))
        kept = ops.minimum(count + added, of_kind(*limits))
        first = 0 if self.encoder_config.text_layout == "no_cls" else 1
        columns = ops.arange(width, dtype="int32")[None]  # [1, U]
        # A row that is cut keeps its last token, which ends the text.
        origin = ops.where(columns < first, columns, columns - added)
        origin = ops.where(columns == kept - 1, count - 1, origin)
        origin = ops.clip(origin, 0, before - 1)  # [M, U]
        made = ops.take_along_axis(tokens, origin, axis=1)
        if longest:
            table = np.zeros((2, longest), np.int32)
            for row, prefix in zip(table, prefixes, strict=True):
                row[: len(prefix)] = prefix
            place = columns - first
            inside = ops.logical_and(place >= 0, place < added)
            chosen = ops.take(ops.convert_to_tensor(table), kind[:, 0], axis=0)  # [M, P]
            place = ops.broadcast_to(ops.clip(place, 0, longest - 1), ops.shape(made))
            made = ops.where(inside, ops.take_along_axis(chosen, place, axis=1), made)
        there = columns < kept
        made = ops.where(there, made, 0)
        scored, attended = there, there
        if ids.skipped:
            skipped = ops.any(made[..., None] == np.array(ids.skipped, np.int32), axis=-1)
            scored = ops.logical_and(there, ops.logical_not(ops.logical_and(kind == 0, skipped)))
        if config.expansion is not None:
            expanded = ops.logical_and(ops.logical_not(there), columns < of_kind(0, length))
            made = ops.where(expanded, ids.expansion, made)
            scored = ops.logical_or(scored, expanded)
            if config.expansion.attend:
                attended = ops.logical_or(there, expanded)
        return {
            "token_ids": made,
            "segment_ids": ops.zeros_like(made),
            "padding_mask": attended,
            "scored": scored,
        }

    def unit_vectors(self, states: Tensor) -> Tensor:
        """Returns the vectors of the outputs of the encoder [M, U, D], of length 1: [M, U, V]."""
        x = states if self.projection is None else self.projection(states)
        return pooling.normalized(self.as_loss(x))

    @override
    def vectors(self, batch: Batch, encoded: Encoded, rng: Draws | None = None) -> Tensor:
        """See `base.Objective`: [B, C, U, V]."""
        del rng
        x = self.unit_vectors(encoded["sequence_output"])
        x = x * self.as_loss(batch["scored"])[..., None]  # [M, U, V]
        return ops.reshape(x, (*ops.shape(batch["example_rows"]), *ops.shape(x)[1:]))

    @override
    def weight_sums(self, batch: Batch) -> dict[str, Tensor]:
        return {self.name: ops.sum(self.example_weights(batch))}

    @override
    def terms(
        self, batch: Batch, encoded: Encoded, encoder: Encoder, rng: Draws | None = None
    ) -> base.Terms:
        vectors = self.vectors(batch, encoded, rng)
        return self.terms_of_vectors(vectors, batch, training=rng is not None)

    @override
    def terms_of_vectors(self, vectors: Tensor, batch: Batch, training: bool = True) -> base.Terms:
        """See `base.Objective`.

        There is no term if the weight is 0, or in an evaluation of examples without what the loss
        needs.

        Raises:
            UserError: in training, examples do not have what the loss needs.
        """
        config, weights = self.config, self.example_weights(batch)
        if not config.weight:
            return base.Terms(losses={}, metrics={})
        if wrong := self._wrong(vectors.shape[1], batch):
            if training:
                raise UserError(f"{self.name}: loss: {config.loss}: {wrong}")
            return base.Terms(losses={}, metrics={})
        metrics = {}
        if config.loss == "multiple_negatives":
            losses, hits = self._ranked(vectors, weights)
            hits = ops.sum(ops.cast(hits, weights.dtype) * weights)
            metrics[f"{self.name}_accuracy"] = hits, ops.sum(weights)
        else:
            losses = self._taught(vectors, self.as_loss(batch["teacher_scores"]))
        return base.Terms(losses={self.name: ops.sum(losses * weights)}, metrics=metrics)

    def _wrong(self, texts: int, batch: Batch) -> str:
        """Returns why the loss cannot use examples of so many texts; "" = it can."""
        target = LOSSES[self.config.loss]
        least = 2 if target is None else 3
        if texts < least:
            return f"takes at least {least} texts, but an example has {texts}"
        lacks = target is not None and target not in batch
        return f"needs {target}, but the examples have none" if lacks else ""

    def _ranked(self, x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """Returns what `base.rank_losses` does for vectors [B, C, U, V]."""
        every, _ = self.all_rows(x[:, 1:])  # [N, C - 1, U, V]
        columns = [
            self.config.scale * max_sim(x[:, 0], every[:, column], self.config.mean)
            for column in range(x.shape[1] - 1)
        ]
        return base.rank_losses(self, columns, weights)

    def _taught(self, x: Tensor, teacher: Tensor) -> Tensor:
        """Returns the losses of vectors [B, C, U, V] and scores of a teacher [B, C - 1]: [B]."""
        scores = max_sim_pairs(x[:, 0], x[:, 1:], self.config.mean)  # [B, C - 1]
        if self.config.loss == "margin_mse":
            ours, theirs = (each[:, :1] - each[:, 1:] for each in (scores, teacher))
            return squared_error(ours, theirs)
        temperature = self.config.temperature
        return divergence(scores, [teacher], temperature) * temperature**2

    def predictions(self, batch: Batch, encoded: Encoded, encoder: Encoder) -> dict[str, Tensor]:
        """Returns `token_vectors` [B, C, U, V]."""
        del encoder
        return {"token_vectors": self.vectors(batch, encoded)}
