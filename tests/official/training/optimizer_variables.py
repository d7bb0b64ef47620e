"""Variables for tests of optimizers, and the matrices of the releases that layers join."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import keras
import numpy as np
import tensorflow as tf

from official import config as configs
from official.modeling.encoders import encoder_decoder, transformer

# The matrices that the releases have apart, by the names of our layers. They are written out here,
# and not read from what the layers declare.
JOINED = {"query_key_value": ("query", "key", "value"), "key_value": ("key", "value")}


class Listed(keras.optimizers.schedules.LearningRateSchedule):
    """The learning rates of a list."""

    def __init__(self, rates):
        self.rates = rates

    def __call__(self, step):
        return tf.gather(tf.constant(self.rates), tf.cast(step, tf.int32))


def named(path: str, value: np.ndarray, dtype: str) -> keras.Variable:
    """A variable whose path is `path`."""
    *scopes, name = path.split("/")
    with contextlib.ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(keras.name_scope(scope))
        variable = keras.Variable(value, name=name, dtype=dtype)
    assert variable.path == path
    return variable


def t5_blocks(head_size: int) -> encoder_decoder.Encoder:
    """A T5 with one block in each stack, of the smallest hidden size with factored moments."""
    sizes = {"hidden_size": 128, "num_heads": 2, "head_size": head_size, "intermediate_size": 160}
    layers = {"num_layers": 1, "decoder_layers": 1}
    encoder = encoder_decoder.Encoder(
        _encoder_config(type="encoder_decoder", vocab_size=40, **sizes, **layers)
    )
    encoder.build()
    return encoder


def bert_block(**changes) -> transformer.Encoder:
    """A BERT with one block, or with changes an ALBERT."""
    sizes = {"hidden_size": 8, "num_heads": 2, "intermediate_size": 16}
    rows = {"vocab_size": 20, "max_positions": 6, "num_layers": 1}
    encoder = transformer.Encoder(_encoder_config(type="transformer", **sizes, **rows, **changes))
    encoder.build()
    return encoder


def _encoder_config(**fields):
    return configs.from_dict({"name": "blocks", "encoder": fields}).encoder


def pieces(path: str, array: np.ndarray) -> dict[str, np.ndarray]:
    """The variables of the release that one of ours holds."""
    *scopes, layer, name = path.split("/")
    parts = JOINED.get(layer, (layer,))
    arrays = np.split(array, len(parts), axis=-1)
    return {"/".join([*scopes, p, name]): a for p, a in zip(parts, arrays, strict=True)}


def joined(path: str, piece: Callable[[str], np.ndarray]) -> np.ndarray:
    """What one of our variables holds, of the variables of the release."""
    *scopes, layer, name = path.split("/")
    names = ["/".join([*scopes, part, name]) for part in JOINED.get(layer, (layer,))]
    return np.concatenate([piece(name) for name in names], axis=-1)


def train(
    optimizer: keras.optimizers.Optimizer,
    variables: Sequence[keras.Variable],
    start: dict[str, np.ndarray],
    gradient: Callable[[str, int], np.ndarray],
    steps: int,
) -> Iterator[dict[str, np.ndarray]]:
    """Yields the variables of the release after each update, by name."""
    for variable in variables:
        variable.assign(joined(variable.path, start.__getitem__))
    optimizer.build(variables)
    update = tf.function(lambda grads: optimizer.apply(grads, variables))
    for step in range(steps):
        of = lambda name: gradient(name, step)  # noqa: B023, E731
        update([tf.constant(joined(variable.path, of)) for variable in variables])
        after = {}
        for variable in variables:
            after |= pieces(variable.path, variable.numpy())
        yield after
