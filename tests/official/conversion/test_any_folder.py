"""A folder of transformers, opened in memory: what the model folder that it becomes gives."""

import numpy as np
import pytest
import tensorflow as tf

import official
from official.conversion.any_folder import is_foreign, open_folder
from official.saving.model_folder import ModelFolder
from official.utils.errors import UserError
from tests import GOLDEN

NAMES = ["bare", "classification", "pretraining"]
FOLDERS = GOLDEN / "hf_files"
TEXTS = ["the dog is big", "a", ""]


def opened(name, folder):
    """The folder as it is, and the model folder that it becomes."""
    official.convert(FOLDERS / name, folder, source="hf")
    return open_folder(FOLDERS / name, report=[].append), ModelFolder.open(folder)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_opened_is_what_convert_writes(name, tmp_path):
    here, written = opened(name, tmp_path / "model")
    for field in ("config", "max_length", "task", "generation", "embedding", "has_embedding"):
        assert getattr(here, field) == getattr(written, field), field
    assert here.tokenizer.fingerprint == written.tokenizer.fingerprint
    ids = [tokenizer.encode(TEXTS) for tokenizer in (here.tokenizer, written.tokenizer)]
    assert list(map(list, ids[0])) == list(map(list, ids[1]))
    (ours, _), (theirs, _) = here.variables(), written.variables()
    assert sorted(ours) == sorted(theirs)
    for path, value in ours.items():
        np.testing.assert_array_equal(value, theirs[path], path)


def test_load_takes_it_and_says_so(tmp_path, capsys):
    vectors = official.load(FOLDERS / "bare").encode(TEXTS)
    assert "a folder of transformers, converted in memory" in capsys.readouterr().err
    official.convert(FOLDERS / "bare", tmp_path / "model", source="hf")
    np.testing.assert_array_equal(official.load(tmp_path / "model").encode(TEXTS), vectors)
    assert not capsys.readouterr().err


@pytest.mark.slow
def test_export_takes_it(tmp_path):
    official.export(FOLDERS / "bare", tmp_path / "saved")
    served = tf.saved_model.load(str(tmp_path / "saved"))
    vectors = served.signatures["embed"](text=tf.constant(TEXTS))["vectors"]
    expected = official.load(FOLDERS / "bare").encode(TEXTS)
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)


def test_what_is_refused(tmp_path):
    with pytest.raises(UserError, match="checkpoint: '7': .* with one checkpoint"):
        official.load(FOLDERS / "bare", checkpoint="7")
    with pytest.raises(UserError, match="not a model folder"):
        official.load(tmp_path)


def test_which_folders_are_foreign(tmp_path):
    assert is_foreign(FOLDERS / "bare") and not is_foreign(tmp_path)
    (tmp_path / "modules.json").touch()
    assert is_foreign(tmp_path)
    (tmp_path / "config.yaml").touch()
    assert not is_foreign(tmp_path)
