"""Perplexity, bits per byte and pseudo-perplexity of language models.

The perplexity is exp(mean loss of a token), so it depends on the tokenizer. The bits per byte are
the loss of all tokens in bits, divided by the bytes of their text, and compare models with
different tokenizers. The losses of special tokens count, and they have no bytes; see
`official.tokenizers.Tokenizer.piece_bytes`.

For the pseudo-perplexity of a masked LM (Salazar et al., 2020, section 2), each token of a row is
masked alone and predicted from all others. A row of n tokens takes n passes of the encoder, so this
is for small sets.

Shapes: B rows, T length, C rows with one masked token each.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf

from official import config as configs
from official import tokenizers
from official.data import ShardDataset, each_batch
from official.distribution.numerics import restrict_graph_optimizer
from official.modeling.layers.kernels import cross_entropy, flat_positions
from official.modeling.model import Model
from official.utils import progress
from official.utils.errors import UserError


def byte_metrics(
    model: Model, losses: Mapping[str, tf.Tensor], batch: Mapping[str, tf.Tensor], sizes: np.ndarray
) -> dict[str, tuple[tf.Tensor, tf.Tensor]]:
    """Returns the bits per byte of the language models among the objectives of a model.

    Args:
      model: the model.
      losses: the sums of its losses.
      batch: the prepared batch.
      sizes: the bytes of each vocabulary entry.

    Returns:
      {metric: (bits, bytes)}.
    """
    metrics = {}
    for objective in model.objectives:
        for name, (ids, weights) in objective.text_targets(batch).items():
            if name not in losses:
                continue
            lengths = tf.cast(tf.gather(tf.constant(sizes), ids), losses[name].dtype)
            count = tf.reduce_sum(lengths * tf.cast(weights, losses[name].dtype))
            metrics[f"{name}_bits_per_byte"] = (losses[name] / math.log(2), count)
    return metrics


def perplexities(metrics: Mapping[str, float]) -> dict[str, float]:
    """Returns the perplexity of each loss in `metrics` that has bits per byte."""
    names = (name.removesuffix("_bits_per_byte") for name in metrics if name.endswith("_per_byte"))
    return {f"{name}_perplexity": float(np.exp(metrics[name])) for name in names}


def reading_config(config: configs.ResolvedConfig) -> configs.ResolvedConfig:
    """Returns a config that reads the tokens of a model's shards, with nothing hidden.

    Raises:
      UserError: the model has no masked LM, or its shards have static masks.
    """
    if not config.of_types("masked_lm"):
        types = ", ".join(objective.type for objective in config.objectives) or "none"
        raise UserError(
            f"--pseudo_perplexity: not supported for a model with the objectives {types}, which "
            "has no masked_lm; remove --pseudo_perplexity"
        )
    if config.segments is not None and config.segments.static_masks:
        raise UserError(
            "--pseudo_perplexity: segments.static_masks: true: the shards do not have the tokens "
            "that are masked: make the model's config and shards with static_masks: false"
        )
    return dataclasses.replace(config, corruption=None, objectives=())


def pseudo_perplexity(
    model: Model, source: ShardDataset, batch_size: int, report: progress.Report | None = None
) -> dict[str, float]:
    """Computes the pseudo-perplexity of a masked LM on all rows of a source.

    Args:
      model: has the objective masked_lm.
      source: the rows; see `reading_config`.
      batch_size: B, and C.
      report: is called with lines of progress; None = there are none.

    Returns:
      `masked_lm_pseudo_perplexity`, and `masked_lm_pseudo_bits_per_byte`.

    Raises:
      UserError: the tokenizer has no mask token, or there is no token to predict.
    """
    tokenizer = source.tokenizer
    if tokenizer.mask_id is None:
        raise UserError(f"{source.folder}: --pseudo_perplexity: its tokenizer has no mask token")
    head = model.objective("masked_lm")
    restrict_graph_optimizer()

    @tf.function(autograph=False, reduce_retracing=True)
    def losses(batch, cells):
        """Returns the losses of the tokens at `cells`, rows and columns [C, 2], masked alone."""
        rows, columns = cells[:, 0], cells[:, 1]
        copies = {name: tf.gather(value, rows) for name, value in batch.items()}
        targets = tf.gather_nd(batch["token_ids"], cells)
        own = tf.stack([tf.range(tf.shape(columns)[0]), columns], axis=1)
        hidden = tf.fill(tf.shape(targets), tf.cast(tokenizer.mask_id, targets.dtype))
        copies["token_ids"] = tf.tensor_scatter_nd_update(copies["token_ids"], own, hidden)
        states = flat_positions(head.states(copies, model.encoder), columns[:, None])
        return cross_entropy(head.logits(states, model.encoder), targets)[0]

    total, count, size = 0.0, 0, 0
    done = progress.Progress(source.num_examples, report, "pseudo-perplexity: ", "examples")
    for batch, cells in _cells(source, tokenizer, batch_size):
        for start in range(0, len(cells), batch_size):
            chosen = cells[start : start + batch_size]
            filled = np.resize(chosen, (batch_size, 2))  # repeats the first ones
            total += float(losses(batch, filled).numpy()[: len(chosen)].sum(dtype=np.float64))
        ids = batch["token_ids"].numpy()[tuple(cells.T)]
        count, size = count + len(cells), size + int(tokenizer.piece_bytes[ids].sum())
        done(int((batch["example_weights"].numpy() > 0).sum()))
    if not count:
        raise UserError(f"{source.folder}: --pseudo_perplexity: there are no tokens of text")
    return {
        "masked_lm_pseudo_perplexity": float(np.exp(total / count)),
        "masked_lm_pseudo_bits_per_byte": total / math.log(2) / size if size else 0.0,
    }


def _cells(
    source: ShardDataset, tokenizer: tokenizers.Tokenizer, batch_size: int
) -> Iterator[tuple[dict[str, tf.Tensor], np.ndarray]]:
    """Yields each batch and the rows and columns of its tokens of text, int32 [tokens, 2]."""
    for batch in each_batch(source, batch_size):
        ids, real = batch["token_ids"].numpy(), batch["padding_mask"].numpy()
        real &= batch["example_weights"].numpy()[:, None] > 0
        real &= ~np.isin(ids, tokenizer.special_ids)
        yield dict(batch), np.argwhere(real).astype(np.int32)
