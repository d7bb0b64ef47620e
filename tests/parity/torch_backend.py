"""Runs our network under Keras' torch backend; `test_torch_backend.py` starts it.

    python torch_backend.py IN.npz OUT.npz

IN has `type` and `config` of the encoder (JSON: fields of its `Config`), `variable/PATH` and
`batch/FIELD`; OUT gets the outputs, the losses, and `gradient/PATH` of the sum of the losses.
"""

import json
import os
import sys
import types
from pathlib import Path

os.environ["KERAS_BACKEND"] = "torch"
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import keras  # noqa: E402
import numpy as np  # noqa: E402

from official.config.heads import ClassificationConfig, RegressionConfig  # noqa: E402
from official.config.objectives import MaskedLMConfig, SentencePairConfig  # noqa: E402
from official.config.registry import ENCODERS  # noqa: E402
from official.modeling.layers.random import Draws  # noqa: E402
from official.modeling.model import Model  # noqa: E402


def main(source, destination):
    """Reads, computes, writes."""
    with np.load(source) as file:
        arrays = dict(file)
    encoder = ENCODERS[str(arrays["type"])](**json.loads(str(arrays["config"])))
    objectives = (
        MaskedLMConfig(),
        SentencePairConfig(),
        ClassificationConfig(num_labels=3),
        RegressionConfig(),
    )
    model = Model(types.SimpleNamespace(seed=0, encoder=encoder, objectives=objectives))
    variables = model.variables_by_path()
    for path, variable in variables.items():
        variable.assign(arrays[f"variable/{path}"])
    fields = {k.removeprefix("batch/"): v for k, v in arrays.items() if k.startswith("batch/")}
    batch = {name: keras.ops.convert_to_tensor(value) for name, value in fields.items()}

    encoded = model.encode(batch, output_all=True)
    losses, metrics = model.terms(batch, encoded=encoded)
    loss = sum(losses.values())
    if "query_output" in encoded:  # Which no objective here reads.
        loss = loss + keras.ops.sum(keras.ops.square(encoded["query_output"]))
    loss.backward()
    results = {
        "hidden_states": keras.ops.stack(encoded["hidden_states"]),
        "attentions": keras.ops.stack(encoded["attentions"]),
        "pooled_output": encoded["pooled_output"],
        **{name: encoded[name] for name in ("query_output", "memory") if name in encoded},
        **{f"loss/{name}": value for name, value in losses.items()},
        **{f"metric/{name}": value for name, (value, _) in metrics.items()},
        **{f"prediction/{name}": value for name, value in model.predictions(batch).items()},
        **{f"gradient/{path}": v.value.grad for path, v in variables.items()},
    }
    kept = keras.ops.convert_to_numpy(Draws((1, 2)).keep((1000, 101), 0.25))
    assert abs(kept.mean() - 0.75) < 0.01
    noisy = [float(model.terms(batch, Draws((1, 2)))[0]["masked_lm"]) for _ in range(2)]
    assert noisy[0] == noisy[1] != float(losses["masked_lm"])

    results = {k: keras.ops.convert_to_numpy(v) for k, v in results.items()}
    np.savez(destination, **results)
    assert keras.backend.backend() == "torch"
    assert "tensorflow" not in sys.modules


if __name__ == "__main__":
    main(*sys.argv[1:])
