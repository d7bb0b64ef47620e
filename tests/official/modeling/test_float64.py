"""After a run in float64, Keras' whole numbers are int64 by default: models compute as before."""

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from official import config as configs
from official.distribution import numerics
from official.modeling import masks, token_loop
from official.modeling.model import Model
from official.modeling.objectives import base

SIZES = {"vocab_size": 13, "hidden_size": 8, "num_layers": 1, "num_heads": 2}
SIZES |= {"intermediate_size": 12, "initializer_range": 0.5}
ENCODERS = {
    "transformer": {"type": "transformer", "max_positions": 8, "causal": True, **SIZES},
    "transformer_xl": {"type": "transformer_xl", "attention": "uni", "query_stream": False,
                       "segment_types": 0, "memory_length": 4, **SIZES},
}  # fmt: skip


def model(encoder, objective):
    raw = {"name": "m", "encoder": encoder, "objectives": [objective], "recipe": {"steps": 1}}
    return Model(configs.from_dict(raw), dtype="float64")


def masked():
    first = tf.constant(2)  # the slot of a cache
    order = tf.constant(np.tril(np.ones((2, 3, 3), bool)))
    choices = {"token_ids": tf.ones((2, 3, 4), tf.int32)}
    return {
        "causal": masks.causal(3, 5, first, attention_window=2),
        "permutation": masks.permutation(order),
        "choices": ops.cast(base.sequences_apart(choices)["example_rows"], "int32"),
    }


def generated():
    writer = model({"type": "encoder_decoder", **SIZES}, {"type": "seq2seq_lm", "start_id": 2})
    batch = {"token_ids": np.array([[5, 6, 7], [8, 9, 0]]), "padding_mask": np.tri(3)[[2, 1]] > 0}
    return {"ids": token_loop.greedy(writer, batch, writer.encode(batch), 3, end_id=3)}


def answered():
    reader = model(ENCODERS["transformer"], {"type": "span_answer", "form": "conditional"})
    ids = tf.constant([[1, 5, 6, 7, 8, 2, 0, 0], [1, 9, 10, 11, 12, 5, 6, 2]])
    batch = {
        "token_ids": ids,
        "segment_ids": tf.zeros_like(ids),
        "padding_mask": ids > 0,
        "context_start": tf.constant([2, 3]),
        "context_length": tf.constant([3, 4]),
        **{"window_start": tf.constant([0, 2]), "own_start": tf.constant([0, 2])},
        "own_end": tf.constant([3, 6]),
        "example_weights": tf.ones(2),
    }
    return reader.predictions(batch)


def continued(name):
    """The second token with the cache of the first one."""
    encoder = model(ENCODERS[name], {"type": "causal_lm"}).encoder
    ids = tf.constant([[3, 5], [4, 6]])
    cache = encoder.empty_cache(2, 4)
    states = []
    for slot in range(2):
        out = encoder(
            ids[:, slot : slot + 1],
            attention_mask=tf.ones((2, 1, 1, 4), tf.bool),
            cache=cache,
            slot=tf.constant(slot),
        )
        cache = out["cache"]
        states.append(out["sequence_output"])
    return dict(enumerate(states))


PARTS = {
    "masks": masked,
    "greedy": generated,
    "answers": answered,
    "transformer": lambda: continued("transformer"),
    "transformer_xl": lambda: continued("transformer_xl"),
}


@pytest.mark.parametrize(
    "part", [pytest.param(n, marks=[pytest.mark.slow] * (n == "greedy")) for n in PARTS]
)
def test_whole_numbers_of_64_bits_change_nothing(part):
    wanted = PARTS[part]()
    numerics.set_precision("float64")
    try:
        found = PARTS[part]()
    finally:
        numerics.set_precision("float32")
    assert found.keys() == wanted.keys() and found
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value, err_msg=str(name))
