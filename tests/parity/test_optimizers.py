import keras
import numpy as np
import pytest

from official.distribution import numerics
from official.training import optimizers
from tests import GOLDEN
from tests.official.training import optimizer_variables

STEPS, SIZE = 200, 50


@pytest.fixture
def float64():
    numerics.set_precision("float64")
    yield
    numerics.set_precision("float32")


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_adamw_follows_tensorflow_addons(tfa, tmp_path, float64, weight_decay):
    settings = dict(beta_1=0.9, beta_2=0.999, epsilon=1e-6, weight_decay=weight_decay)
    rng = np.random.default_rng(3)
    start = rng.normal(size=SIZE)
    # Gradients of very different sizes, some of them zero.
    gradients = rng.normal(size=(STEPS, SIZE)) * 10.0 ** rng.integers(-6, 2, SIZE)
    gradients[rng.random(gradients.shape) < 0.2] = 0
    rates = np.linspace(1e-2, 1e-4, STEPS)
    np.savez(
        tmp_path / "in.npz",
        start=start,
        gradients=gradients,
        rates=rates,
        settings=list(settings.values()),
    )
    tfa.run("tfa_adamw.py", tmp_path / "in.npz", tmp_path / "out.npz")
    theirs = np.load(tmp_path / "out.npz")["trajectory"]

    weights = keras.Variable(start, dtype="float64", name="kernel")
    optimizer = optimizers.AdamW(0.0, clip_norm=0.0, **settings)
    optimizer.build([weights])
    for gradient, rate, expected in zip(gradients, rates, theirs, strict=True):
        optimizer.learning_rate = rate
        optimizer.apply([keras.ops.convert_to_tensor(gradient)], [weights])
        # Theirs keeps rates and betas in float32.
        np.testing.assert_allclose(weights.numpy(), expected, rtol=0, atol=1e-6)
    assert np.abs(theirs[-1] - start).max() > 0.1  # The weights went somewhere.


@pytest.mark.long
def test_the_stored_trajectories_of_lamb_are_those_of_tensorflow_addons(tfa, tmp_path):
    tfa.run(GOLDEN / "make_lamb_golden.py", tmp_path / "lamb.npz")
    for file in ("lamb.npz", "lamb_blocks.npz"):
        stored, result = (dict(np.load(folder / file)) for folder in (GOLDEN, tmp_path))
        assert stored.keys() == result.keys()
        for name, values in stored.items():
            np.testing.assert_allclose(result[name], values, rtol=1e-12, atol=1e-15)


def test_adafactor_moves_whole_t5_blocks_as_transformers_does(hf, tmp_path, float64):
    rng = np.random.default_rng(4)
    variables = optimizer_variables.t5_blocks(head_size=64).trainable_variables
    start = {}
    for variable in variables:
        start |= optimizer_variables.pieces(variable.path, variable.numpy())
    patterns = {name: rng.standard_normal((5, *piece.shape)) for name, piece in start.items()}
    sizes, rates = np.exp(2 * rng.standard_normal(STEPS)), 0.02 * rng.random(STEPS)
    arrays = {f"start/{name}": piece for name, piece in start.items()}
    arrays |= {f"patterns/{name}": pattern for name, pattern in patterns.items()}
    np.savez(tmp_path / "in.npz", sizes=sizes, rates=rates, **arrays)
    hf.run("hf_adafactor.py", tmp_path / "in.npz", tmp_path / "out.npz")
    theirs = np.load(tmp_path / "out.npz")

    # transformers factors every matrix, and no vector.
    optimizer = optimizers.Adafactor(optimizer_variables.Listed(rates), min_factored=2)
    ours = optimizer_variables.train(
        optimizer, variables, start, lambda name, i: sizes[i] * patterns[name][i % 5], STEPS
    )
    for step, weights in enumerate(ours, start=1):
        for name in weights if step % 20 == 0 else ():
            np.testing.assert_allclose(
                weights[name], theirs[f"{step}/{name}"], rtol=1e-8, atol=1e-10, err_msg=name
            )
