"""Greedy decoding with the cache against decoding the whole output again for every token."""

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.modeling import token_loop
from official.modeling.model import Model

END = 3


def _model(**encoder):
    sizes = {"vocab_size": 13, "hidden_size": 16, "num_layers": 2, "num_heads": 2, "head_size": 6}
    raw = {
        "name": "tiny",
        "encoder": {"type": "encoder_decoder", "intermediate_size": 24, **sizes, **encoder},
        "objectives": [{"type": "seq2seq_lm", "start_id": 2}],
        "recipe": {"steps": 1},
    }
    model = Model(configs.from_dict(raw))
    rng = np.random.default_rng(1)
    for variable in model.trainable_variables:  # A new table would repeat one token.
        size = 0.2 if variable.path.endswith("table") else 0.8
        size = 0.01 if variable.path.endswith(("bias", "offset")) else size
        scale = variable.path.endswith("scale")
        variable.assign(size * rng.standard_normal(variable.shape) + scale)
    return model


def _batch():
    rng = np.random.default_rng(0)
    mask = np.arange(7) < np.array([[7], [4], [5], [1]])
    return {"token_ids": rng.integers(4, 13, (4, 7)) * mask, "padding_mask": mask}


def _whole(model, batch, length):
    """Runs the decoder from the start for each token."""
    head, written = model.objectives[0], np.full((4, 1), 2)
    for _ in range(length):
        states = model.encode({**batch, "decoder_ids": written})["decoder_output"]
        logits = np.array(head.logits(states[:, -1], model.encoder))
        written = np.concatenate([written, logits.argmax(-1)[:, None]], axis=1)
    rows = written[:, 1:]
    ended = np.cumsum(rows == END, axis=1) - (rows == END) > 0
    return np.where(ended, 0, rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    "encoder",
    [{}, {"tied_output": False, "gated": True, "activation": "gelu_tanh"},
     {"positions": "sinusoidal", "norm": "layer", "norm_position": "post", "use_bias": True,
      "scale_embeddings": True, "num_layers": 1}],
    ids=["t5", "t5_1.1", "transformer"],
)  # fmt: skip
def test_tokens_are_those_of_decoding_without_a_cache(encoder):
    model, batch = _model(**encoder), _batch()
    wanted = _whole(model, batch, 9)
    assert len({tuple(row) for row in wanted.tolist()}) > 2 and len(np.unique(wanted)) > 3

    @tf.function
    def generate():
        return token_loop.greedy(model, batch, model.encode(batch), 9, END)

    np.testing.assert_array_equal(generate(), wanted)
    np.testing.assert_array_equal(
        token_loop.greedy(model, batch, model.encode(batch), 9, END), wanted
    )


def test_padding_follows_the_end():
    model, batch = _model(), _batch()
    encoded = model.encode(batch)
    free = np.array(token_loop.greedy(model, batch, encoded, 6, -1))
    end = int(free[1, 2])
    found = np.array(token_loop.greedy(model, batch, encoded, 6, end))
    for row, whole in zip(found, free, strict=True):
        stop = [*whole, end].index(end) + 1
        np.testing.assert_array_equal(row[:stop], whole[:stop])
        assert (row[stop:] == 0).all()


def test_padding_of_the_inputs_changes_nothing():
    model, batch = _model(), _batch()
    found = np.array(token_loop.greedy(model, batch, model.encode(batch), 6, END))
    alone = {name: value[1:2, :4] for name, value in batch.items()}
    other = np.array(token_loop.greedy(model, alone, model.encode(alone), 6, END))
    np.testing.assert_array_equal(found[1:2], other)
