import json
import shutil

import h5py
import numpy as np
import pytest

from official.convert import elmo
from official.modeling.encoders.bilm import Encoder
from official.utils.errors import UserError
from tests import ROOT

GOLDEN = ROOT / "tests" / "golden" / "elmo"


def shapes(config):
    encoder = Encoder(config)
    encoder.build()
    return {v.path: tuple(v.shape) for v in encoder.variables}


def test_files_out_and_in_are_the_same(tmp_path):
    config = elmo.read_options(GOLDEN / "options.json")
    weights = elmo.read_weights(GOLDEN / "weights.hdf5", config, shapes(config))
    assert sum(value.size for value in weights.values()) == 105_120
    elmo.write(config, weights, tmp_path)
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
        "CNN/W_cnn_1: shape [1, 2, 4, 9], the options say [1, 2, 4, 8]",
        "CNN_proj/b_proj: missing",
        "more: the options do not have it",
    ]
    (tmp_path / "weights.hdf5").write_text("no")
    with pytest.raises(UserError, match="weights.hdf5: not an HDF5 file that can be read"):
        elmo.read_weights(tmp_path / "weights.hdf5", config, shapes(config))
