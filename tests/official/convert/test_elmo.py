import json
import shutil

import h5py
import numpy as np
import pytest

from benchmarks.torture import elmo as hostile_release
from benchmarks.torture import hostile_elmo
from official.convert import elmo
from official.modeling.encoders.bilm import Encoder
from official.utils import keras_private
from official.utils.errors import UserError
from tests import ROOT

GOLDEN = ROOT / "tests" / "golden" / "elmo"


def shapes(config):
    with keras_private.uninitialized_variables():
        encoder = Encoder(config)
        encoder.build()
    return {v.path: tuple(v.shape) for v in encoder.weights}


def test_files_out_and_in_are_the_same(tmp_path):
    config = elmo.read_options(GOLDEN / "options.json")
    weights = elmo.read_weights(GOLDEN / "weights.hdf5", config, shapes(config))
    assert sum(value.size for value in weights.values()) == 105_120
    elmo.write_release(config, weights, tmp_path)
    assert elmo.read_options(tmp_path / "options.json") == config
    again = elmo.read_weights(tmp_path / "weights.hdf5", config, shapes(config))
    for path, value in weights.items():
        np.testing.assert_array_equal(again[path], value)
    with h5py.File(GOLDEN / "weights.hdf5") as theirs, h5py.File(tmp_path / "weights.hdf5") as ours:
        for _, name in elmo.names(config):
            np.testing.assert_array_equal(ours[name], theirs[name])


def test_options_of_training_count_one_character_less(tmp_path):
    options = json.loads((GOLDEN / "options.json").read_text())
    options["char_cnn"]["n_characters"] = 261
    (tmp_path / "options.json").write_text(json.dumps(options))
    assert elmo.read_options(tmp_path / "options.json") == elmo.read_options(
        GOLDEN / "options.json"
    )


@pytest.mark.parametrize(
    ("section", "name", "value", "message"),
    [
        ("char_cnn", "n_characters", 263, "char_cnn.n_characters: 263, expected 261"),
        ("char_cnn", "max_characters_per_token", 30, "max_characters_per_token: 30, expected 50"),
        ("char_cnn", "activation", "swish", "activation: 'swish' is not one of"),
        ("lstm", "dim", None, "lstm.dim: missing"),
    ],
)
def test_bad_options(tmp_path, section, name, value, message):
    options = json.loads((GOLDEN / "options.json").read_text())
    options[section][name] = value
    (tmp_path / "options.json").write_text(json.dumps(options))
    with pytest.raises(UserError, match=message):
        elmo.read_options(tmp_path / "options.json")


def test_every_disagreement_is_named(tmp_path):
    config = elmo.read_options(GOLDEN / "options.json")
    shutil.copy(GOLDEN / "weights.hdf5", tmp_path / "weights.hdf5")
    with h5py.File(tmp_path / "weights.hdf5", "r+") as file:
        del file["CNN_proj/b_proj"], file["CNN/W_cnn_1"]
        file["CNN/W_cnn_1"] = np.zeros((1, 2, 4, 9))
        file["more"] = np.zeros(3)
    with pytest.raises(UserError) as error:
        elmo.read_weights(tmp_path / "weights.hdf5", config, shapes(config))
    lines = str(error.value).splitlines()
    assert lines[0].endswith("weights.hdf5: does not belong to these options:")
    assert lines[1:] == [
        "CNN/W_cnn_1: shape [1, 2, 4, 9], expected [1, 2, 4, 8]",
        "CNN_proj/b_proj: missing",
        "more: not expected",
    ]
    (tmp_path / "weights.hdf5").write_text("no")
    with pytest.raises(UserError, match="weights.hdf5: not an HDF5 file that can be read"):
        elmo.read_weights(tmp_path / "weights.hdf5", config, shapes(config))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a data set in another file", "b_proj: its values are in another file"),
        ("a data set that is a view of another file", "b_proj: its values are in another file"),
        ("a link to another HDF5 file", "b_proj: a link to another place"),
        ("a link to another data set", "b_proj: a link to another place"),
        ("a group that is a link", "CNN_proj: a link to another place"),
        ("a data set that was never written", "b_proj: 64 bytes, of which the file holds 0"),
        ("a chunk of 1 GiB", "b_proj: 1 chunks of 1,073,741,824 bytes for 64 bytes"),
        ("a GiB of chunks in a small file", "all data sets: 1,2"),
        ("10,000 names", "x1000: not expected\n(.*\n)*and 181 more"),
        ("a data set of integers", "b_proj: expected floating-point numbers of 2, 4 or 8 bytes"),
        ("a filter of a plugin", "b_proj: packed with filter 32123, expected one of gzip"),
        ("a number beyond float32", "b_proj has NaN or infinity in it"),
    ],
)
def test_hostile_files(tmp_path, name, message):
    folder = tmp_path / "folder"
    folder.mkdir()
    hostile_release.write(folder)
    next(case for case in hostile_elmo.CASES if case.name == name).spoil(folder)
    config = elmo.read_options(folder / "options.json")
    with pytest.raises(UserError, match=message):
        elmo.read_weights(folder / "weights.hdf5", config, shapes(config))


def test_packed_weights_are_read(tmp_path):
    """Chunks, gzip and float64 say nothing against a file."""
    config = elmo.read_options(GOLDEN / "options.json")
    expected = elmo.read_weights(GOLDEN / "weights.hdf5", config, shapes(config))
    with h5py.File(GOLDEN / "weights.hdf5") as old, h5py.File(tmp_path / "new.hdf5", "w") as new:
        for _, name in elmo.names(config):
            values = np.asarray(old[name], np.float64)
            new.create_dataset(name, data=values, compression="gzip", shuffle=True)
    actual = elmo.read_weights(tmp_path / "new.hdf5", config, shapes(config))
    for path, value in expected.items():
        np.testing.assert_array_equal(actual[path], value)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"char_cnn": []}, "options.json: char_cnn: expected an object"),
        ({"lstm": {"dim": "64"}}, "lstm.dim: expected a whole number, got '64'"),
        ({"char_cnn": {"embedding": 4}}, "char_cnn.embedding: expected an object"),
        ({"char_cnn": {"filters": [[1.5, 8]]}}, "char_cnn.filters.0.0: expected a whole number"),
        ({"char_cnn": {"filters": [[1, 8], [1, 8]]}}, "filters: width 1 is there twice"),
    ],
)
def test_options_of_wrong_types(tmp_path, option, message):
    options = json.loads((GOLDEN / "options.json").read_text())
    for section, values in option.items():
        options[section] = {**options[section], **values} if values else values
    (tmp_path / "options.json").write_text(json.dumps(options))
    with pytest.raises(UserError, match=message):
        elmo.read_options(tmp_path / "options.json")
