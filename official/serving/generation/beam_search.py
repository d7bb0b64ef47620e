"""Beam search: keeps the K most probable beginnings of a text at each step.

The search is one loop of a graph with static shapes, which XLA can compile. The score of a text is
its log-probability, normalized by its length. Two rules are known by name:

| | `t5` | `huggingface` |
|---|---|---|
| score | log P / ((5 + length) / 6) ** penalty | log P / length ** penalty |
| texts that may end in a step | of the 2K best candidates | of the K best candidates |
| `early_stopping` | 'never' | False |

`early_stopping` says when the search of a row ends:

| | |
|---|---|
| True | there are K finished texts |
| False | the best live beam, at its present length, does not beat the worst of K finished texts |
| 'never' | the best live beam does not beat it at the maximum length either |

With a penalty of at most 0, a longer text has no better score, and 'never' is False.

The length counts the end token. `t5` is the rule of the releases of T5 (Raffel et al. 2020, section
3.1.4, with the penalty of Wu et al. 2016, section 7). `huggingface` is the rule of transformers. At
the maximum length, `t5` returns a text without an end token only if
no text has ended, and `huggingface` compares both kinds.

Shapes: B rows, K beams, N maximum number of tokens, V vocabulary.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from official.serving.generation.token_choice import Processors

# Computes log-probabilities float [B * K, V] and the next state from the last tokens int [B * K],
# the number of the step, and the state: nested tensors [B * K, ...].
Step = Callable[[tf.Tensor, tf.Tensor, Any], tuple[tf.Tensor, Any]]


@dataclasses.dataclass(frozen=True)
class Beams:
    """The settings of a beam search.

    Attributes:
      count: K.
      max_length: N.
      start_id: the token before the first one, or one for each row, int32 [B].
      end_id: the last token of a text.
      pad_id: fills the places after the end token.
      penalty: the exponent of the length; 0 = the log-probability itself.
      rule: 't5' or 'huggingface', see the module.
      early_stopping: see the module; None = as the rule has it.
      process: changes the log-probabilities [B * K, V] by the new tokens, see
        `token_choice.Processors`; None = it does not.
    """

    count: int
    max_length: int
    start_id: int | tf.Tensor
    end_id: int
    pad_id: int
    penalty: float | tf.Tensor = 0.6
    rule: str = "t5"
    early_stopping: bool | str | None = None
    process: Processors | None = None

    def normalized(self, scores: tf.Tensor, length: int | tf.Tensor) -> tf.Tensor:
        """Returns the scores of texts of a length from their log-probabilities."""
        length = tf.cast(length, scores.dtype)
        base = (5 + length) / 6 if self.rule == "t5" else length
        return scores / base ** tf.cast(self.penalty, scores.dtype)


class _Loop(NamedTuple):
    """The variables of the loop. The score of an empty place is -inf."""

    i: tf.Tensor
    live: tf.Tensor  # int32 [B, K, N], without an end token
    live_scores: tf.Tensor  # float [B, K], log-probabilities in descending order
    finished: tf.Tensor  # int32 [B, K, N]
    finished_scores: tf.Tensor  # float [B, K], normalized, in descending order
    done: tf.Tensor  # bool [B], whether the search of a row has ended
    tokens: tf.Tensor  # int32 [B * K], the last tokens
    state: Any


def search(step: Step, state: Any, rows: int | tf.Tensor, beams: Beams):
    """Searches for the texts with the best scores.

    Args:
      step: computes the log-probabilities of the next token, see `Step`. Row b * K + k of its
        arguments is beam k of row b.
      state: the first state.
      rows: B, a number or a scalar tensor.
      beams: the settings.

    Returns:
      int32 [B, K, N], best first, and the scores float32 [B, K]. A place without a text has the
      score -inf.
    """
    k, n = beams.count, beams.max_length
    places = tf.fill([rows, k, n], beams.pad_id)
    empty = tf.fill([rows, k], tf.constant(float("-inf")))
    loop = _Loop(
        i=tf.constant(0),
        live=places,
        # All beams are equal at first, so only one of them has a score.
        live_scores=tf.where(tf.range(k) == 0, 0.0, empty),
        finished=places,
        finished_scores=empty,
        done=tf.zeros([rows], tf.bool),
        tokens=tf.repeat(tf.broadcast_to(beams.start_id, [rows]), k),
        state=state,
    )

    def body(loop: _Loop):
        return [_advanced(loop, step, beams)]

    def is_unfinished(loop: _Loop):
        return (loop.i < n) & ~tf.reduce_all(loop.done)

    (loop,) = tf.while_loop(is_unfinished, body, [loop])
    if beams.rule == "huggingface":
        return loop.finished, loop.finished_scores
    ended = tf.reduce_any(_is_score(loop.finished_scores), axis=1, keepdims=True)  # [B, 1]
    live_scores = beams.normalized(loop.live_scores, loop.i)
    return (
        tf.where(ended[:, :, None], loop.finished, loop.live),
        tf.where(ended, loop.finished_scores, live_scores),
    )


def _advanced(loop: _Loop, step: Step, beams: Beams) -> _Loop:
    """Adds a token to each beam."""
    k = beams.count
    log_probs, state = step(loop.tokens, loop.i, loop.state)
    size = log_probs.shape[-1]
    if beams.process is not None:
        written = tf.reshape(loop.live, [-1, beams.max_length])
        log_probs = beams.process(log_probs, written, loop.i)
    log_probs = tf.reshape(tf.cast(log_probs, tf.float32), [-1, k, size])
    totals = tf.reshape(loop.live_scores[:, :, None] + log_probs, [-1, k * size])
    # 2K candidates: at most K of them end, so that K remain live.
    scores, choices = tf.math.top_k(totals, k=2 * k)
    parents, tokens = choices // size, choices % size  # [B, 2K]
    texts = _with_token(tf.gather(loop.live, parents, batch_dims=1), tokens, loop.i)
    length = loop.i + 1
    ends = tokens == beams.end_id
    finishing = ends
    if beams.rule == "huggingface":
        ends = ends | (length == beams.max_length)
        finishing = ends & (tf.range(2 * k) < k)
    finishing = finishing & ~loop.done[:, None]

    live_scores, kept = tf.math.top_k(tf.where(ends, float("-inf"), scores), k=k)
    parents = tf.gather(parents, kept, batch_dims=1)  # [B, K]
    flat = tf.reshape(parents + tf.range(tf.shape(parents)[0])[:, None] * k, [-1])
    new_scores = tf.where(finishing, beams.normalized(scores, length), float("-inf"))
    finished_scores, best = tf.math.top_k(
        tf.concat([loop.finished_scores, new_scores], axis=1), k=k
    )
    finished = tf.gather(tf.concat([loop.finished, texts], axis=1), best, batch_dims=1)
    return _Loop(
        i=length,
        live=tf.gather(texts, kept, batch_dims=1),
        live_scores=live_scores,
        finished=finished,
        finished_scores=finished_scores,
        done=loop.done | _is_done(live_scores, finished_scores, length, beams),
        tokens=tf.reshape(tf.gather(tokens, kept, batch_dims=1), [-1]),
        state=tf.nest.map_structure(lambda x: tf.gather(x, flat), state),
    )


def _is_done(live_scores, finished_scores, length, beams: Beams) -> tf.Tensor:
    """Returns whether the search of a row has ended: bool [B]. See the module."""
    best, worst = live_scores[:, 0], finished_scores[:, -1]
    early = beams.early_stopping
    if early is None:
        early = "never" if beams.rule == "t5" else False
    if early is True:
        return _is_score(worst) | ~_is_score(best)
    if early == "never":
        # Log-probabilities only fall, so the greatest length gives the best score that is possible.
        length = tf.where(tf.convert_to_tensor(beams.penalty) > 0, beams.max_length, length)
    return beams.normalized(best, length) <= worst


def _with_token(texts: tf.Tensor, tokens: tf.Tensor, i: tf.Tensor) -> tf.Tensor:
    """Writes tokens [B, K] to place `i` of texts [B, K, N]."""
    return tf.where(tf.range(texts.shape[-1]) == i, tokens[:, :, None], texts)


def _is_score(scores: tf.Tensor) -> tf.Tensor:
    return scores > float("-inf")
