"""Runs our network under another backend of Keras; `test_keras_backends.py` starts it.

    python keras_backend.py BACKEND FOLDER

FOLDER has a file `NAME.npz` for each model: `config` (JSON: the encoder and the objectives),
`variable/PATH` and `batch/FIELD`. `BACKEND/NAME.npz` in it gets what `results` returns.
"""

import json
import os
import sys
import types
from pathlib import Path

if __name__ == "__main__":
    os.environ["KERAS_BACKEND"] = sys.argv[1]
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import ops  # noqa: E402

from official.config.registry import ENCODERS, OBJECTIVES  # noqa: E402
from official.modeling.layers import local_attention  # noqa: E402
from official.modeling.layers.random import Draws  # noqa: E402
from official.modeling.model import Model  # noqa: E402
from official.utils import (
    keras_private,
    strict,  # noqa: E402
)

local_attention._SMALLEST = 3  # blocks of rows as short as those of the test


def shapes(config):
    """The shapes of the variables of a config, by path."""
    return {path: tuple(v.shape) for path, v in _model(config).variables_by_path().items()}


def build(config, variables):
    """The model of a config, with these values."""
    model = _model(config)
    for path, variable in model.variables_by_path().items():
        keras_private.initialize(variable, variables[path])
    return model


def _model(config):
    parts = {
        "encoder": strict.build_tagged(ENCODERS, config["encoder"], "config", "encoder"),
        "objectives": [
            strict.build_tagged(OBJECTIVES, each, "config", "objectives")
            for each in config["objectives"]
        ],
    }
    with keras_private.uninitialized_variables():  # JAX compiles each draw of weights
        return Model(types.SimpleNamespace(seed=0, **parts))


def forward(model, batch, rng):
    """The sum of all losses, and by name what the model computes."""
    batch = model.prepare(batch, rng)
    encoded = model.encode(batch, rng, output_all=True)
    losses, metrics = model.terms(batch, rng, encoded)
    loss = sum(losses.values())
    outputs = {name: x for name, x in encoded.items() if name in ("pooled_output", "memory")}
    for name in ("query_output", "decoder_output"):
        if name in encoded:  # which no objective here reads
            outputs[name] = encoded[name]
            loss = loss + 0.01 * ops.sum(ops.square(encoded[name]))
    if getattr(model.encoder.config, "local_attention", None) is not None:  # in blocks too
        outputs["states"] = model.encode(batch, rng)["sequence_output"]
        loss = loss + 0.01 * ops.sum(ops.square(outputs["states"]))
    outputs["hidden_states"] = ops.stack(encoded["hidden_states"])
    if "attentions" in encoded:
        outputs["attentions"] = ops.stack(encoded["attentions"])
    outputs |= {f"loss/{name}": value for name, value in losses.items()}
    outputs |= {f"metric/{n}": x for n, (x, _) in metrics.items() if not n.endswith("_auc")}
    if rng is None:
        predicted = model.predictions(batch, encoded)
        outputs |= {f"prediction/{name}": value for name, value in predicted.items()}
    return loss, outputs


def results(model, batch):
    """What the model computes in inference, and with dropout, and the gradients with dropout."""
    batch = {name: ops.convert_to_tensor(value) for name, value in batch.items()}
    variables = model.variables_by_path()

    def everything():
        _, found = forward(model, batch, None)
        loss, dropped = forward(model, batch, Draws((1, 2)))
        return loss, found | {f"dropout/{name}": value for name, value in dropped.items()}

    gradients, found = GRADIENTS[keras.backend.backend()](everything, list(variables.values()))
    for (path, variable), gradient in zip(variables.items(), gradients, strict=True):
        # Backends differ in what they return for a variable that no loss reads.
        found[f"gradient/{path}"] = ops.zeros(variable.shape) if gradient is None else gradient
    return {name: ops.convert_to_numpy(value) for name, value in found.items()}


def under_tensorflow(function, variables):
    """The gradients of a function's first result, and its second one."""
    import tensorflow as tf

    with tf.GradientTape() as tape:
        loss, outputs = function()
    gradients = tape.gradient(loss, [v.value for v in variables])
    return [None if g is None else tf.convert_to_tensor(g) for g in gradients], outputs


def under_torch(function, variables):
    """As `under_tensorflow`."""
    loss, outputs = function()
    loss.backward()
    return [v.value.grad for v in variables], outputs


def under_jax(function, variables):
    """As `under_tensorflow`, compiled."""
    import jax

    jax.config.update("jax_disable_most_optimizations", True)  # compiles sooner

    def of_values(values):
        with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
            return function()

    return jax.jit(jax.grad(of_values, has_aux=True))([v.value for v in variables])


GRADIENTS = {"tensorflow": under_tensorflow, "torch": under_torch, "jax": under_jax}


def main(backend, folder):
    """Reads, computes, writes."""
    output = Path(folder) / backend
    output.mkdir()
    for path in sorted(Path(folder).glob("*.npz")):
        with np.load(path) as file:
            arrays = dict(file)
        named = {
            kind: {k.removeprefix(kind): v for k, v in arrays.items() if k.startswith(kind)}
            for kind in ("variable/", "batch/")
        }
        model = build(json.loads(str(arrays["config"])), named["variable/"])
        np.savez(output / path.name, **results(model, named["batch/"]))
    assert keras.backend.backend() == backend
    assert "tensorflow" not in sys.modules


if __name__ == "__main__":
    main(*sys.argv[1:])
