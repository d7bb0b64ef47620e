"""`default` and `tokens`: the vectors of words in context, as ELMo's module of TensorFlow Hub.

  default  text string [B], split into words by the tokenizer
  tokens   tokens string [B, T], words; sequence_len int32 [B], their numbers
  carry    text string [B]; state float32 [B, 2 L, C + P], 0 at first

Outputs, without the marks of the sentence, 0 after the last word of a text:

  word_emb                   the vector of each word before the LSTMs: float32 [B, T, P]
  lstm_outputs1 .. L         the layers, forward and backward state: float32 [B, T, 2 P]
  elmo                       the layer mix of the head, or without a head the mean of word_emb,
                             twice, and the layers: float32 [B, T, 2 P]
  default                    the mean of `elmo` over the words of a text, 0 without words:
                             float32 [B, 2 P]

In the Hub the weights of `elmo` are trained with the user's model, and begin with the mean. Each
text begins with a fresh state. With `carry`, text b goes on from the state of its row: `carry` has
one more output, the `state` for the next call. ELMo's release keeps this state in the graph.

Shapes: B texts, T words of the longest one, P projection, C cells, L layers.
"""

import tensorflow as tf

from official.serving import text_vectors
from official.serving.signatures import inputs
from official.tokenizers.pair_packing import pack_words


def served(parts: inputs.ServingContext) -> bool:
    """Whether a model has these signatures: an ELMo without a head, or with a layer mix."""
    own = parts.config.encoder.type == "bilm"
    return own and (parts.head is None or text_vectors.has_mix(parts.head))


def signatures(parts: inputs.ServingContext) -> dict[str, inputs.Signature]:
    """Returns the signatures by name."""

    def of_words(words: tf.RaggedTensor, state: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        batch = pack_words([words], parts.tokenizer, parts.max_length)
        if state is not None:
            batch["memory"] = state[:, :, None]
        with parts.weights.read():
            encoded = parts.model.encode(batch, output_all=True)
            mixed = text_vectors.mixed(encoded, parts.head)
        states = [tf.cast(layer[:, 1:-1], tf.float32) for layer in encoded["hidden_states"]]
        # The last mark of a shorter text is among the words, and padding follows it.
        real = tf.cast(batch["padding_mask"][:, 2:], tf.float32)[:, :, None]  # [B, T, 1]
        states, mixed = [layer * real for layer in states], mixed[:, 1:-1] * real
        count = tf.maximum(tf.reduce_sum(real, axis=1), 1)
        layers = {f"lstm_outputs{i}": layer for i, layer in enumerate(states[1:], 1)}
        carried = {} if state is None else {"state": encoded["memory"][:, :, 0]}
        return {
            "word_emb": tf.split(states[0], 2, axis=-1)[0],
            **layers,
            "elmo": mixed,
            "default": tf.reduce_sum(mixed, axis=1) / count,
            **carried,
        }

    def of_texts(text):
        return of_words(parts.tokenizer.words(text))

    def of_next_texts(text, state):
        return of_words(parts.tokenizer.words(text), state)

    def of_tokens(tokens, sequence_len):
        return of_words(tf.RaggedTensor.from_tensor(tokens, lengths=sequence_len))

    specs = (
        tf.TensorSpec([None, None], tf.string, "tokens"),
        tf.TensorSpec([None], tf.int32, "sequence_len"),
    )
    count, _, size = parts.config.encoder.memory_shape  # 2 L, C + P
    next_texts = *inputs.texts("text"), tf.TensorSpec([None, count, size], tf.float32, "state")
    return {
        "default": inputs.signature(of_texts, *inputs.texts("text")),
        "tokens": inputs.signature(of_tokens, *specs),
        "carry": inputs.signature(of_next_texts, *next_texts),
    }
