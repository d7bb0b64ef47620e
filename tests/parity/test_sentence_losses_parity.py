"""The losses of sentence encoders, with gradients, against those that PyTorch computes."""

import json

import numpy as np
import pytest

from tests.official.modeling.objectives.test_sentence_embedding import (
    CASES,
    objective,
    value_and_gradient,
)

B, V = 6, 8
SCORES = np.array([0.9, 0.1, 0.5, 0.5, 1.0, 0.0])
TAKEN = {n: (o, 3 if o.get("loss") == "triplet" else c) for n, (o, c) in CASES.items()}


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
