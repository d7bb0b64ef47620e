"""The losses of sentence encoders, with gradients, against PyTorch and sentence-transformers.

PyTorch computes them of vectors. sentence-transformers has its own losses, of the states of tokens
that its module pools.

Shapes: B examples, C texts of an example, T tokens, V size of a vector or a state.
"""

import json

import numpy as np
import pytest
import tensorflow as tf

from official.config.sentence_embedding import POOLINGS
from tests.official.modeling.objectives.test_sentence_embedding import (
    CASES,
    objective,
    value_and_gradient,
)

B, V = 6, 8
SCORES = np.array([0.9, 0.1, 0.5, 0.5, 1.0, 0.0])
TAKEN = {n: (o, 3 if o.get("loss") == "triplet" else c) for n, (o, c) in CASES.items()}

# Of sentence-transformers; numbers that float32 has, in which it holds some scores.
T, THEIR_SCORES = 5, np.array([0.875, 0.125, 0.5, 0.5, 1.0, 0.0, 0.25])
POOLED = [name for name in POOLINGS if name != "pooled"]


def theirs_too():
    """The cases that sentence-transformers has, each with a pooling: {name: (options, count)}."""
    cached = {"cached_rows": 2, "symmetric": True}
    cases = {**TAKEN, "cached": (cached, 3), "cached_sizes": ({**cached, "sizes": (8, 5)}, 2)}
    found = {}
    for number, (name, (options, count)) in enumerate(cases.items()):
        known = {key: value for key, value in options.items() if key != "hard_negative_weight"}
        found[name] = {**known, "pooling": POOLED[number % len(POOLED)]}, count
    several = {"loss": "cosine", "pooling": "first,max,mean"}  # in the order of its release
    return {**found, "several_poolings": (several, 2)}


@pytest.fixture(scope="module")
def both(hf, tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("losses"), np.random.default_rng(0)
    x = {name: rng.standard_normal((B, count, V)) for name, (_, count) in TAKEN.items()}
    given = {f"x/{name}": values for name, values in x.items()}
    cases = json.dumps({name: options for name, (options, _) in TAKEN.items()})
    np.savez(folder / "in.npz", cases=cases, scores=SCORES, **given)
    hf.run("hf_sentence_losses.py", folder / "in.npz", folder / "out.npz")
    return x, dict(np.load(folder / "out.npz"))


@pytest.mark.parametrize("name", TAKEN)
def test_losses_are_those_of_pytorch(name, both):
    x, theirs = both
    layer = objective(**TAKEN[name][0])
    value, gradient, _ = value_and_gradient(layer, x[name], SCORES, np.ones(B))
    assert value == pytest.approx(float(theirs[f"loss/{name}"]), rel=1e-6)
    np.testing.assert_allclose(gradient, theirs[f"gradient/{name}"], rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def of_tokens(hf5, tmp_path_factory):
    """The states of tokens, where they are real, and what sentence-transformers computes."""
    folder, rng = tmp_path_factory.mktemp("losses"), np.random.default_rng(0)
    given = {}
    for name, (options, count) in theirs_too().items():
        size = 8 if "sizes" in options or options.get("loss") == "angle" else 9
        given[f"states/{name}"] = rng.standard_normal((len(THEIR_SCORES), count, T, size))
        lengths = rng.integers(1, T + 1, (len(THEIR_SCORES), count, 1))
        real = np.arange(T) < lengths
        real[1::2] = real[1::2, :, ::-1]  # padding before the tokens
        given[f"real/{name}"] = real
    cases = json.dumps({name: options for name, (options, _) in theirs_too().items()})
    np.savez(folder / "in.npz", cases=cases, scores=THEIR_SCORES, **given)
    hf5.run("st_sentence_losses.py", folder / "in.npz", folder / "out.npz")
    return given, dict(np.load(folder / "out.npz"))


@pytest.mark.parametrize("name", theirs_too())
def test_losses_are_those_of_sentence_transformers(name, of_tokens):
    given, theirs = of_tokens
    layer = objective(**theirs_too()[name][0])
    states, real = given[f"states/{name}"], given[f"real/{name}"]
    rows = np.arange(real.shape[0] * real.shape[1], dtype=np.int32)
    batch = {
        "padding_mask": tf.constant(real.reshape(-1, T)),
        "example_rows": tf.constant(rows.reshape(real.shape[:2])),
        "example_weights": tf.ones(len(real), "float64"),
        "score": tf.constant(THEIR_SCORES),
    }
    states = tf.constant(states)
    with tf.GradientTape() as tape:
        tape.watch(states)
        encoded = {"sequence_output": tf.reshape(states, (-1, *states.shape[2:]))}
        terms = layer.terms_of_vectors(layer.vectors(batch, encoded), batch)
        loss = terms.losses[layer.name] / len(real)
    assert float(loss) == pytest.approx(float(theirs[f"loss/{name}"]), rel=1e-6)
    gradient = tape.gradient(loss, states).numpy()
    assert np.abs(gradient).max() > 1e-3 and np.all(gradient[~real] == 0)
    np.testing.assert_allclose(gradient, theirs[f"gradient/{name}"], rtol=1e-5, atol=1e-6)
