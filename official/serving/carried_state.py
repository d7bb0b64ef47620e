"""Vectors of words of texts that are read one after another with one state, as ELMo's release does.

A bidirectional language model begins each text with a fresh state. The release keeps the state of
both directions from one batch to the next, so that its vectors depend on what was read before
(bilm-tf, `bilm/model.py`).

Shapes: T words of a text with both marks, D hidden, L layers, C cells, P projection.
"""

import numpy as np
import tensorflow as tf

from official.serving import text_vectors
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


class Reader:
    """Reads texts one after another, each from the state that the one before it left.

    Args:
      source: a model with an encoder of the type `bilm`. A text longer than its `max_length` is
        cut.
    """

    def __init__(self, source: TextModel):
        encoder, head = source.config.encoder, text_vectors.head_of(source.model)
        count, _, size = encoder.memory_shape  # 2 L, C + P
        self._state = tf.zeros((1, count, 1, size))

        @tf.function(
            input_signature=[tf.TensorSpec([None], tf.string), tf.TensorSpec(self._state.shape)],
            autograph=False,
        )
        def read(words, state):
            words = tf.RaggedTensor.from_row_lengths(words, [tf.size(words)])
            batch = pack_words([words], source.tokenizer, source.max_length, encoder.layout)
            encoded = source.model.encode({**batch, "memory": state}, output_all=True)
            states = tf.stack([x[0] for x in encoded["hidden_states"]], axis=1)
            mixed = text_vectors.mixed(encoded, head)[0]
            return tf.cast(states, tf.float32), mixed, encoded["memory"]

        self._read = read

    def __call__(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Reads a text.

        Args:
          words: its words in UTF-8.

        Returns:
          All layers, float32 [T, L + 1, D], and the vectors of `word_vectors.mixed`, float32
          [T, D]; the marks are included.
        """
        states, mixed, self._state = self._read(tf.constant(words.tolist(), tf.string), self._state)
        return states.numpy(), mixed.numpy()
