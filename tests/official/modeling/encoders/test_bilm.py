"""The encoder of ELMo against the authors' recorded outputs, and against a loop."""

import dataclasses
import json

import numpy as np
import pytest

from official import config as configs
from official.config.encoders import BilmConfig
from official.conversion import elmo
from official.modeling import weight_counts
from official.modeling.encoders.bilm import Encoder
from official.modeling.encoders.inputs import encode
from official.utils.errors import UserError
from tests import ROOT
from tests.official.modeling.encoders import numpy_bilm

GOLDEN = ROOT / "tests" / "golden" / "elmo"
SMALL = BilmConfig(
    vocab_size=9, character_size=3, filters=((1, 2), (3, 4)), cell_size=5, projection_size=3,
    cell_clip=0.4, projection_clip=0.5, dropout=0.0,
)  # fmt: skip
WIDTH = 6


def make(config, dtype="float64"):
    encoder = Encoder(config, dtype=dtype)
    encoder.build()
    rng = np.random.default_rng(0)
    for variable in encoder.weights:
        variable.assign(rng.normal(size=variable.shape))
    weights = {v.path.removeprefix("encoder/"): v.numpy() for v in encoder.weights}
    return encoder, weights


def characters(words):
    """The characters of words and of the marks around them, as the release has them, plus 1."""

    def framed(ids):
        return ([259, *ids[:48], 260] + [261] * 50)[:50]

    return [
        framed([257]),
        *(framed([b + 1 for b in word.encode()]) for word in words),
        framed([258]),
    ]


@pytest.fixture(scope="module")
def recorded():
    config = elmo.read_options(GOLDEN / "options.json")
    encoder = Encoder(config, dtype="float32")
    encoder.build()
    shapes = {v.path: tuple(v.shape) for v in encoder.weights}
    weights = elmo.read_weights(GOLDEN / "weights.hdf5", config, shapes)
    for variable in encoder.weights:
        variable.assign(weights[variable.path])
    return encoder


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_recorded_outputs(recorded, number):
    """The state is carried from sentence to sentence. A fresh one gives other vectors."""
    sentences = json.loads((GOLDEN / "sentences.json").read_text())[number]
    outputs = np.load(GOLDEN / "outputs.npz")
    memory = np.zeros((1, *recorded.config.memory_shape), np.float32)
    for place, sentence in enumerate(sentences):
        ids = np.array([characters(sentence.split())], np.int32)
        batch = {"token_ids": ids[:, :, 0], "character_ids": ids}
        encoded = encode(recorded, {**batch, "memory": memory})
        memory = encoded["memory"]
        wanted = outputs[f"{number}_{place}"].transpose(1, 0, 2).reshape(-1, 32)
        np.testing.assert_allclose(encoded["sequence_output"][0, 1:-1], wanted, atol=1e-5)
        fresh = encode(recorded, batch)["sequence_output"][0, 1:-1]
        apart = np.abs(fresh - wanted).max()
        assert apart > 0.3 if place else apart < 1e-5


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("skip", [False, True])
def test_features_are_those_of_a_loop(activation, skip):
    config = dataclasses.replace(SMALL, activation=activation, skip_connections=skip, num_layers=3)
    encoder, weights = make(config)
    rng = np.random.default_rng(1)
    ids = rng.integers(1, 262, (3, 4, WIDTH))
    ids[0, 1, 2:] = 0  # 0 = no character
    lengths = [4, 1, 3]
    batch = {
        "token_ids": np.zeros((3, 4), np.int32),
        "character_ids": ids.astype(np.int32),
        "padding_mask": np.arange(4) < np.array(lengths)[:, None],
    }
    encoded = encode(encoder, batch, output_all=True)
    for row, length in enumerate(lengths):
        vectors = np.array([numpy_bilm.word_vector(w, weights, config) for w in ids[row, :length]])
        forward = numpy_bilm.run(vectors, "forward", weights, config, numpy_bilm.fresh(config))
        backward = numpy_bilm.run(
            vectors[::-1], "backward", weights, config, numpy_bilm.fresh(config)
        )
        assert len(encoded["hidden_states"]) == 4
        for found, a, b in zip(encoded["hidden_states"], forward, backward, strict=True):
            wanted = np.concatenate([a, b[::-1]], axis=-1)
            np.testing.assert_allclose(found[row, :length], wanted, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(encoded["sequence_output"], encoded["hidden_states"][-1])


def test_rows_that_continue_are_one_long_row():
    """In rows of language modeling, each direction reads its own row in order."""
    config = dataclasses.replace(SMALL, tokens="words")
    encoder, weights = make(config)
    rng = np.random.default_rng(2)
    rows = {name: rng.integers(0, 9, (2, 6)) for name in ("token_ids", "backward_token_ids")}
    whole = encode(encoder, rows)["sequence_output"]
    memory, mask, parts = np.zeros((2, *config.memory_shape)), np.array([[False], [False]]), []
    for start in (0, 4):
        batch = {name: ids[:, start : start + 4] for name, ids in rows.items()}
        encoded = encode(encoder, {**batch, "memory": memory, "memory_mask": mask})
        memory, mask = encoded["memory"], encoded["memory_mask"]
        parts.append(encoded["sequence_output"])
    np.testing.assert_allclose(np.concatenate(parts, axis=1), whole, rtol=1e-12)
    for row in range(2):
        for part, (direction, name) in enumerate(zip(("forward", "backward"), rows, strict=True)):
            vectors = weights["words/table"][rows[name][row]]
            states = numpy_bilm.fresh(config)
            layers = numpy_bilm.run(vectors, direction, weights, config, states)
            found = whole[row, :, 3 * part : 3 * part + 3]
            np.testing.assert_allclose(found, layers[-1], rtol=1e-9)
            kept = np.array([np.concatenate(state) for state in states])
            np.testing.assert_allclose(memory[row, 2 * part : 2 * part + 2, 0], kept, rtol=1e-9)
    # A row with a fresh state does not read the memory.
    batch = {name: ids[:, 4:] for name, ids in rows.items()}
    fresh = encode(encoder, batch)["sequence_output"]
    mask = np.array([[True], [False]])
    encoded = encode(encoder, {**batch, "memory": memory, "memory_mask": mask})
    np.testing.assert_allclose(encoded["sequence_output"][1], fresh[1], rtol=1e-12)
    assert np.abs(encoded["sequence_output"][0] - fresh[0]).max() > 1e-3


@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        ({}, 93_600_848),
        ({"cell_size": 2048, "projection_size": 256, "highway_layers": 1}, 28_027_728),
        ({"cell_size": 1024, "projection_size": 128, "highway_layers": 1}, 13_593_296),
    ],
)
def test_published_counts(sizes, count):
    encoder = {"type": "bilm", "vocab_size": 10, **sizes}
    config = configs.from_dict({"name": "elmo", "encoder": encoder, "recipe": {"steps": 1}})
    assert weight_counts.count(config).encoders["encoder"] == count


def test_initial_weights():
    encoder = Encoder(dataclasses.replace(SMALL, filters=((2, 500),), highway_layers=1))
    encoder.build()
    weights = {v.path.removeprefix("encoder/"): v.numpy() for v in encoder.weights}
    assert np.abs(weights["words/table"]).max() == pytest.approx(1, abs=0.01)
    assert np.abs(weights["words/convolution_2/kernel"]).max() == pytest.approx(0.05, rel=0.01)
    assert weights["words/highway_0/gate/kernel"].std() == pytest.approx(500**-0.5, rel=0.02)
    assert set(weights["words/highway_0/gate/bias"]) == {-2}
    assert not weights["words/highway_0/transform/bias"].any()


def test_bad_input():
    encoder, _ = make(SMALL)
    with pytest.raises(UserError, match="characters: the batch has no character_ids"):
        encode(encoder, {"token_ids": np.zeros((1, 2), np.int32)})
    for change, message in {
        "filters: [[1]]": "give pairs of a width and a number",
        "filters: [[51, 2]]": "width 51 exceeds the 50 ids of a word",
        "memory_length: 2": "memory_length",
    }.items():
        name, _, value = change.partition(": ")
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(SMALL, **{name: json.loads(value)})
