"""The LSTM with a projection, and the bidirectional one, against PyTorch's, with gradients."""

import numpy as np
import pytest
import tensorflow as tf

from official.modeling.layers.lstm import BiLSTM, ProjectedLSTM
from official.modeling.layers.random import Draws

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


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("float64", 1e-12)])
def test_a_bilstm_is_that_of_pytorch(hf, tmp_path, dtype, tolerance):
    """PyTorch reads packed rows; here they are padded, one on the left and one on the right."""
    lengths, starts = np.array([13, 4, 7]), np.array([0, 9, 0])
    lstm = BiLSTM(SIZE, CELLS, seed=Draws((0, 1)), dtype=dtype)
    lstm.build()
    rng = np.random.default_rng(1)
    arrays = {v.path.removeprefix("bilstm/"): rng.normal(size=v.shape) for v in lstm.variables}
    for variable, value in zip(lstm.variables, arrays.values(), strict=True):
        variable.assign(value)
    x, upstream = (rng.normal(size=(BATCH, LENGTH, n)) for n in (SIZE, 2 * CELLS))
    upstream_last = rng.normal(size=(BATCH, 2 * CELLS))
    arrays |= {"x": x, "upstream": upstream, "upstream_last": upstream_last, "lengths": lengths}
    np.savez(tmp_path / "in.npz", **arrays)
    hf.run("hf_lstm.py", tmp_path / "in.npz", tmp_path / "out.npz", "--bidirectional")
    theirs = dict(np.load(tmp_path / "out.npz"))

    def moved(rows, back=False):
        steps = -starts if back else starts
        return np.stack([np.roll(row, n, axis=0) for row, n in zip(rows, steps, strict=True)])

    real = moved(np.arange(LENGTH) < lengths[:, None])
    rows = tf.constant(moved(x), dtype)
    with tf.GradientTape() as tape:
        tape.watch(rows)
        outputs = lstm(rows, real)
        last = lstm.last(outputs, real)
        total = tf.reduce_sum(outputs * moved(upstream).astype(dtype))
        total += tf.reduce_sum(last * upstream_last.astype(dtype))
    sources = {v.path.removeprefix("bilstm/"): v.value for v in lstm.variables}
    gradients = tape.gradient(total, {"x": rows} | sources)
    gradients["x"] = moved(gradients["x"], back=True)
    ours = {"outputs": moved(outputs, back=True), "last": last}
    ours |= {f"gradient/{name}": value for name, value in gradients.items()}
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        limit = tolerance * np.abs(theirs[name]).max()
        np.testing.assert_allclose(value, theirs[name], rtol=tolerance, atol=limit)
