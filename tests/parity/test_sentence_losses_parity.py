"""The losses of sentence encoders, with gradients, against PyTorch and sentence-transformers.

PyTorch computes them of vectors. sentence-transformers has its own losses, of the states of tokens
that its module pools.

Shapes: B examples, C texts of an example, T tokens, V size of a vector or a state.
"""

import json

import numpy as np
import pytest
import tensorflow as tf

from official.config.distillation import TEACHER_LOGITS, DistillationConfig
from official.config.sentence_embedding import POOLINGS
from official.modeling.objectives.distillation import Objective as Distillation
from tests.official.modeling.objectives.test_sentence_embedding import (
    CASES,
    ENCODER,
    LABELS,
    objective,
    value_and_gradient,
)

B, V = 6, 8
SCORES = np.array([0.9, 0.1, 0.5, 0.5, 1.0, 0.0])
TAKEN = {n: (o, 3 if o.get("loss") == "triplet" else c) for n, (o, c) in CASES.items()}
# PyTorch has no class for these two.
OF_PYTORCH = [n for n, (o, _) in TAKEN.items() if o.get("loss") not in ("margin_mse", "softmax")]

T = 5
# Numbers that float32 has, in which sentence-transformers holds some scores.
THEIR_SCORES = np.array([0.875, 0.125, 0.5, 0.5, 1.0, 0.0, 0.25])
POOLED = [name for name in POOLINGS if name != "pooled"]
# Of distillation: whose vectors by the teacher each text learns, and the number of texts.
TAUGHT = {"vectors_of_a_teacher": ("own", 3), "translations": ("first", 2)}


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
    x = {name: rng.standard_normal((B, TAKEN[name][1], V)) for name in OF_PYTORCH}
    given = {f"x/{name}": values for name, values in x.items()}
    cases = json.dumps({name: TAKEN[name][0] for name in OF_PYTORCH})
    np.savez(folder / "in.npz", cases=cases, scores=SCORES, **given)
    hf.run("hf_sentence_losses.py", folder / "in.npz", folder / "out.npz")
    return x, dict(np.load(folder / "out.npz"))


@pytest.mark.parametrize("name", OF_PYTORCH)
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
    rows = len(THEIR_SCORES)
    given = {"scores": THEIR_SCORES, "labels": LABELS}
    cases = theirs_too() | {
        n: ({"loss": "mse", "pooling": "mean"}, c) for n, (_, c) in TAUGHT.items()
    }
    for name, (options, count) in cases.items():
        even = {"sizes", "labels"} & set(options) or options.get("loss") == "angle"
        size = 8 if even else 9
        given[f"states/{name}"] = rng.standard_normal((rows, count, T, size))
        real = np.arange(T) < rng.integers(1, T + 1, (rows, count, 1))
        real[1::2] = real[1::2, :, ::-1]  # padding before the tokens
        given[f"real/{name}"] = real
        if options.get("loss") == "softmax":
            kernel, bias = objective(**options).classifier.weights
            given |= {f"kernel/{name}": kernel.numpy(), f"bias/{name}": bias.numpy()}
    for name, (texts, count) in TAUGHT.items():
        shape = (rows, 9) if texts == "first" else (rows, count, 9)
        given[f"teacher/{name}"] = rng.standard_normal(shape)
    options = json.dumps({name: options for name, (options, _) in cases.items()})
    np.savez(folder / "in.npz", cases=options, **given)
    hf5.run("st_sentence_losses.py", folder / "in.npz", folder / "out.npz")
    return given, dict(np.load(folder / "out.npz"))


def agree(name, of_tokens, terms, **fields):
    """Compares the loss that `terms` gives for a batch and its encoded tokens, and its gradient."""
    given, theirs = of_tokens
    states, real = tf.constant(given[f"states/{name}"]), given[f"real/{name}"]
    rows = np.arange(real.shape[0] * real.shape[1], dtype=np.int32)
    batch = {
        "padding_mask": tf.constant(real.reshape(-1, T)),
        "example_rows": tf.constant(rows.reshape(real.shape[:2])),
        "example_weights": tf.ones(len(real), "float64"),
        **{field: tf.constant(value) for field, value in fields.items()},
    }
    with tf.GradientTape() as tape:
        tape.watch(states)
        encoded = {"sequence_output": tf.reshape(states, (-1, *states.shape[2:]))}
        (loss,) = terms(batch, encoded).losses.values()
        loss /= len(real)
    assert float(loss) == pytest.approx(float(theirs[f"loss/{name}"]), rel=1e-6)
    gradient = tape.gradient(loss, states).numpy()
    assert np.abs(gradient).max() > 1e-3 and np.all(gradient[~real] == 0)
    np.testing.assert_allclose(gradient, theirs[f"gradient/{name}"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", theirs_too())
def test_losses_are_those_of_sentence_transformers(name, of_tokens):
    layer = objective(**theirs_too()[name][0])

    def terms(batch, encoded):
        return layer.terms_of_vectors(layer.vectors(batch, encoded), batch)

    agree(name, of_tokens, terms, score=THEIR_SCORES, label=LABELS)


@pytest.mark.parametrize("name", TAUGHT)
def test_distillation_is_that_of_sentence_transformers(name, of_tokens):
    texts, _ = TAUGHT[name]
    head = objective(weight=0.0)
    layer = Distillation(DistillationConfig(logits=1.0, texts=texts), ENCODER, dtype="float64")
    layer.join([head, layer])
    outputs = of_tokens[0][f"teacher/{name}"].reshape(-1, 1, 9)  # [rows, teachers, V]

    def terms(batch, encoded):
        return layer.terms(batch, encoded, None)

    agree(name, of_tokens, terms, **{TEACHER_LOGITS: outputs})
