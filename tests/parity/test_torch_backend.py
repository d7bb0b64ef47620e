"""The same layers give the same numbers under Keras' torch backend."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from official.config.encoders import TransformerXLConfig
from official.config.heads import ClassificationConfig, RegressionConfig
from official.config.objectives import MaskedLMConfig, SentencePairConfig
from tests.official.modeling.test_model import BATCH, ENCODER, make

XL = TransformerXLConfig(
    vocab_size=29,
    hidden_size=12,
    num_layers=2,
    num_heads=3,
    intermediate_size=20,
    memory_length=3,
    pooler=True,
)
FORMS = {
    "BERT": ENCODER,
    "pre-norm, causal": dataclasses.replace(
        ENCODER, norm="pre", causal=True, pooled_position="last", activation="gelu"
    ),
    "shared, factorised": dataclasses.replace(
        ENCODER, layer_groups=1, embedding_size=7, activation="relu"
    ),
    "XLNet": XL,
    "Transformer-XL": dataclasses.replace(
        XL, attention="uni", clamp_length=2, untie_biases=False, query_stream=False, segment_types=0
    ),
}


def batch_of(config):
    """With all that the encoder reads."""
    rng = np.random.default_rng(1)
    more = {}
    if config.type == "transformer_xl":
        memory = rng.standard_normal((2, config.num_layers, config.memory_length, 12))
        more["memory"] = memory.astype("float32")
        more["memory_mask"] = np.array([[0, 1, 1], [1, 1, 1]], bool)
        more["backward"] = np.array([True, False])
        if config.query_stream:
            more["permutation_mask"] = rng.random((2, 8, 8)) < 0.5
    return BATCH | more


@pytest.mark.parametrize("config", FORMS.values(), ids=FORMS)
def test_outputs_losses_and_gradients_under_torch(hf, tmp_path, config):
    batch = batch_of(config)
    model = make(
        MaskedLMConfig(),
        SentencePairConfig(),
        ClassificationConfig(num_labels=3),
        RegressionConfig(),
        encoder=config,
    )
    rng = np.random.default_rng(0)
    variables = model.variables_by_path()
    for path, variable in variables.items():
        noise = 0.2 * rng.standard_normal(variable.shape)
        variable.assign(1 + noise if path.endswith("scale") else noise)
    np.savez(
        tmp_path / "in.npz",
        type=config.type,
        config=json.dumps(dataclasses.asdict(config)),
        **{f"variable/{path}": v.numpy() for path, v in variables.items()},
        **{f"batch/{name}": value for name, value in batch.items()},
    )
    hf.run(Path(__file__).parent / "torch_backend.py", tmp_path / "in.npz", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as file:
        theirs = dict(file)

    with tf.GradientTape() as tape:
        encoded = model.encode(batch, output_all=True)
        losses, metrics = model.terms(batch, encoded=encoded)
        loss = tf.add_n(list(losses.values()))
        if "query_output" in encoded:
            loss += tf.reduce_sum(encoded["query_output"] ** 2)
    gradients = tape.gradient(loss, [v.value for v in variables.values()])
    ours = {
        "hidden_states": np.stack(encoded["hidden_states"]),
        "attentions": np.stack(encoded["attentions"]),
        "pooled_output": encoded["pooled_output"],
        **{name: encoded[name] for name in ("query_output", "memory") if name in encoded},
        **{f"loss/{name}": value for name, value in losses.items()},
        **{f"metric/{name}": value for name, (value, _) in metrics.items()},
        **{f"prediction/{name}": value for name, value in model.predictions(batch).items()},
        **{f"gradient/{path}": g for path, g in zip(variables, gradients, strict=True)},
    }
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        scale = max(1.0, np.abs(theirs[name]).max()) if "gradient" in name else 1.0
        np.testing.assert_allclose(value, theirs[name], rtol=0, atol=1e-5 * scale, err_msg=name)
