"""The same layers give the same numbers under Keras' torch backend."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from official.encoders import transformer
from official.objectives import classification, masked_lm, regression, sentence_pair
from tests.official.test_model import BATCH, ENCODER, make

FORMS = {
    "BERT": {},
    "pre-norm, causal": {"norm": "pre", "causal": True, "activation": "gelu"},
    "shared, factorised": {"layer_groups": 1, "embedding_size": 7, "activation": "relu"},
}


@pytest.mark.parametrize("changes", FORMS.values(), ids=FORMS)
def test_outputs_losses_and_gradients_under_torch(hf, tmp_path, changes):
    config: transformer.Config = dataclasses.replace(ENCODER, **changes)
    model = make(
        masked_lm.Config(),
        sentence_pair.Config(),
        classification.Config(num_labels=3),
        regression.Config(),
        encoder=config,
    )
    rng = np.random.default_rng(0)
    variables = model.variables_by_path()
    for path, variable in variables.items():
        noise = 0.2 * rng.standard_normal(variable.shape)
        variable.assign(1 + noise if path.endswith("scale") else noise)
    np.savez(
        tmp_path / "in.npz",
        config=json.dumps(dataclasses.asdict(config)),
        **{f"variable/{path}": v.numpy() for path, v in variables.items()},
        **{f"batch/{name}": value for name, value in BATCH.items()},
    )
    hf.run(Path(__file__).parent / "torch_backend.py", tmp_path / "in.npz", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as file:
        theirs = dict(file)

    encoded = model.encode(BATCH, output_all=True)
    with tf.GradientTape() as tape:
        losses, metrics = model.terms(BATCH)
        loss = tf.add_n(list(losses.values()))
    gradients = tape.gradient(loss, [v.value for v in variables.values()])
    ours = {
        "hidden_states": np.stack(encoded["hidden_states"]),
        "attentions": np.stack(encoded["attentions"]),
        "pooled_output": encoded["pooled_output"],
        **{f"loss/{name}": value for name, value in losses.items()},
        **{f"metric/{name}": value for name, (value, _) in metrics.items()},
        **{f"prediction/{name}": value for name, value in model.predictions(BATCH).items()},
        **{f"gradient/{path}": g for path, g in zip(variables, gradients, strict=True)},
    }
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        scale = max(1.0, np.abs(theirs[name]).max()) if "gradient" in name else 1.0
        np.testing.assert_allclose(value, theirs[name], rtol=0, atol=1e-5 * scale, err_msg=name)
