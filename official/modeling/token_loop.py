"""The loop that generates one token at a time, and greedy decoding with an encoder-decoder.

Shapes: B batch, T tokens of the input, N maximum number of new tokens, V vocabulary.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from keras import ops

from official.modeling import masks
from official.modeling.types import Batch, Encoded, Tensor


@dataclasses.dataclass(frozen=True)
class TokenLoop:
    """Generates tokens until all rows have ended.

    Attributes:
      count: N.
      end_id: the token that ends a text.
      pad_id: the token after the end token.
      process: a function (logits [B, V], new tokens so far [B, N], i) that returns new logits of
        token i; None = logits are not changed.
    """

    count: int
    end_id: int
    pad_id: int
    process: Callable | None = None

    def run(
        self,
        choose,
        read,
        cache: Any,
        *,
        tokens: Tensor | None = None,
        logits: Tensor | None = None,
    ) -> Tensor:
        """Generates tokens.

        Args:
          choose: chooses new token i from its logits: (logits [B, V], i) -> int32 [B].
          read: reads the tokens before new token i: (tokens [B], i, cache) -> logits, cache.
          cache: nested tensors of static shapes.
          tokens: the last tokens before the new ones, int32 [B], which the loop reads first; or
          logits: the logits of the first new token, [B, V], if all tokens before it are already
            read.

        Returns:
          int32 [B, N].
        """
        columns = ops.arange(self.count, dtype="int32")

        def add(i, logits, ended, written):
            if self.process is not None:
                logits = self.process(logits, written, i)
            new = ops.where(ended, self.pad_id, choose(logits, i))
            written = ops.where(ops.equal(columns, i), new[:, None], written)
            return new, ops.logical_or(ended, ops.equal(new, self.end_id)), written

        def step(i, tokens, ended, written, cache):
            logits, cache = read(tokens, i, cache)
            return i + 1, *add(i, logits, ended, written), cache

        def is_unfinished(i, tokens, ended, written, cache):
            del tokens, written, cache
            return ops.logical_and(i < self.count, ops.logical_not(ops.all(ended)))

        rows = ops.shape(logits if tokens is None else tokens)[0]
        first, ended = 0, ops.zeros((rows,), "bool")
        written = ops.full((rows, self.count), self.pad_id, "int32")
        if logits is not None:
            first, (tokens, ended, written) = 1, add(0, logits, ended, written)
        state = ops.convert_to_tensor(first, "int32"), tokens, ended, written, cache
        return ops.while_loop(is_unfinished, step, state)[3]


def likeliest(logits: Tensor, i=None) -> Tensor:
    """Returns the most probable token of each row [B, V]: int32 [B]. Ties go to the first."""
    del i
    return ops.cast(ops.argmax(logits, axis=-1), "int32")


def greedy(model, batch: Batch, encoded: Encoded, length: int, end_id, pad_id=0) -> Tensor:
    """Generates the most probable next token of an encoder-decoder until every row has ended.

    Args:
      model: a model with the objective `seq2seq_lm`.
      batch: its `padding_mask` [B, T] hides the padding of the inputs.
      encoded: the result of `model.encode` for the batch.
      length: N.
      end_id: the token that ends an output.
      pad_id: the token after the end token.

    Returns:
      The tokens, including the end token, int32 [B, N].
    """
    head = model.objective("seq2seq_lm")
    states, padding = encoded["sequence_output"], batch.get("padding_mask")
    cross_mask = None if padding is None else masks.padding(padding)

    def read(tokens, i, cache):
        hidden, cache = model.encoder.decode(tokens[:, None], cache, i, cross_mask)
        return head.logits(hidden[:, 0], model.encoder), cache

    start = ops.full((ops.shape(states)[0],), head.config.start_id, "int32")
    cache = model.encoder.empty_cache(states, length)
    return TokenLoop(length, end_id, pad_id).run(likeliest, read, cache, tokens=start)
