"""The LSTM with a projection against PyTorch's: outputs, state and gradients."""

import numpy as np
import pytest
import tensorflow as tf

from official.modeling.layers.lstm import ProjectedLSTM

BATCH, LENGTH, SIZE, CELLS, PROJECTION = 3, 13, 5, 11, 7


@pytest.fixture(scope="module")
def arrays():
    shapes = {
        "x": (BATCH, LENGTH, SIZE),
        "upstream": (BATCH, LENGTH, PROJECTION),
        "kernel": (SIZE + PROJECTION, 4 * CELLS),
        "bias": (4 * CELLS,),
        "projection": (CELLS, PROJECTION),
        "c": (BATCH, CELLS),
        "m": (BATCH, PROJECTION),
    }
    rng = np.random.default_rng(0)
    return {name: 0.5 * rng.standard_normal(shape) for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def theirs(arrays, hf, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lstm")
    np.savez(folder / "in.npz", **arrays)
    hf.run("hf_lstm.py", folder / "in.npz", folder / "out.npz")
    return dict(np.load(folder / "out.npz"))


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("float64", 1e-12)])
def test_an_lstm_is_that_of_pytorch(arrays, theirs, dtype, tolerance):
    lstm = ProjectedLSTM(
        SIZE, CELLS, PROJECTION, cell_clip=0, projection_clip=0, initializer="zeros",
        name="lstm", dtype=dtype,
    )  # fmt: skip
    lstm.build()
    variables = {"kernel": lstm.kernel, "bias": lstm.bias, "projection": lstm.projection}
    for name, variable in variables.items():
        variable.assign(arrays[name])
    sources = {name: tf.constant(arrays[name], dtype) for name in ("x", "c", "m")}
    with tf.GradientTape() as tape:
        tape.watch(sources)
        outputs, (c, m) = lstm(sources["x"], None, (sources["c"], sources["m"]))
    sources |= {name: variable.value for name, variable in variables.items()}
    upstream = tf.constant(arrays["upstream"], dtype)
    gradients = tape.gradient(outputs, sources, output_gradients=upstream)
    ours = {"outputs": outputs, "last_c": c, "last_m": m}
    ours |= {f"gradient/{name}": value for name, value in gradients.items()}
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        np.testing.assert_allclose(value, theirs[name], rtol=tolerance, atol=tolerance)
