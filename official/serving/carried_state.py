"""Vectors of words of texts that are read one after another with one state, as ELMo's release does.

A bidirectional language model begins each text with a fresh state. The release keeps the state of
both directions from one batch to the next, so that its vectors depend on what was read before
(bilm-tf, `bilm/model.py`).

Shapes: T words of a text with both marks, D hidden, L layers, C cells, P projection.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import tensorflow as tf

from official.serving.text_model import TextModel
from official.tokenizers.packed_words import pack_words
from official.utils.errors import UserError

STATES = ("fresh", "carry")


def check(state: str, source: TextModel) -> None:
    """Refuses a state that is not one of `STATES`, and an encoder without one.

    Raises:
      UserError: see above.
    """
    if state not in STATES:
        raise UserError(f"state: {state!r} is not one of {', '.join(STATES)}")
    encoder = source.config.encoder
    if state == "carry" and encoder.type != "bilm":
        raise UserError(f"state: carry is for ELMo (bilm), not for {encoder.type}: leave it out")


def layers(source: TextModel, texts: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Yields all layers of texts, which are read in this order, each from the state of the last.

    Args:
      source: a model with an encoder of the type `bilm`. A text longer than its `max_length` is
        cut.
      texts: the words of each text in UTF-8.

    Yields:
      float32 [T, L + 1, D], the marks included.
    """
    encoder = source.config.encoder
    count, _, size = encoder.memory_shape  # 2 L, C + P
    state = tf.zeros((1, count, 1, size))

    @tf.function(
        input_signature=[tf.TensorSpec([None], tf.string), tf.TensorSpec(state.shape)],
        autograph=False,
    )
    def read(words, state):
        words = tf.RaggedTensor.from_row_lengths(words, [tf.size(words)])
        batch = pack_words([words], source.tokenizer, source.max_length, encoder.layout)
        encoded = source.model.encode({**batch, "memory": state}, output_all=True)
        states = tf.stack([x[0] for x in encoded["hidden_states"]], axis=1)
        return tf.cast(states, tf.float32), encoded["memory"]

    for words in texts:
        states, state = read(tf.constant(words.tolist(), tf.string), state)
        yield states.numpy()
