"""A folder of transformers, opened in memory: what the model folder that it becomes gives."""

import ctypes
import gc
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import official
from official import config as configs
from official.conversion.any_folder import is_foreign, open_folder
from official.saving import model_folder
from official.saving.model_folder import ModelFolder
from official.utils import process_memory
from official.utils.errors import UserError
from tests import CONFIGS, GOLDEN

NAMES = ["bare", "classification", "pretraining"]
FOLDERS = GOLDEN / "hf_files"
TEXTS = ["the dog is big", "a", ""]
LARGEST = Path("/proc/self/clear_refs")


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


def test_variables_are_read_again_for_whoever_asks_again():
    folder = open_folder(FOLDERS / "bare", report=[].append)
    (first, source), (second, _) = folder.variables(), folder.variables()
    assert source == str(FOLDERS / "bare") and first.keys() == second.keys()
    for path, value in first.items():
        np.testing.assert_array_equal(value, second[path], path)
    built = folder.model()
    for path, variable in built.variables_by_path().items():
        np.testing.assert_array_equal(variable.numpy(), first[path], path)


@pytest.mark.skipif(not LARGEST.exists(), reason="needs Linux, which counts a process's memory")
@pytest.mark.parametrize("kind", ["model folder", "transformers"])
def test_weights_are_once_in_memory(kind, tmp_path):
    # 8 layers of about 12.6 MB each, and little else.
    config = configs.load(
        CONFIGS / "pretrain/bert_base.yaml",
        ["encoder.hidden_size=512", "encoder.intermediate_size=2048", "encoder.num_layers=8",
         "encoder.num_heads=8", "encoder.vocab_size=35"],
    )  # fmt: skip
    tokenizer = open_folder(FOLDERS / "bare", report=[].append).tokenizer
    shapes = model_folder.shapes(config)
    arrays = {path: np.full(shape, 0.5, np.float32) for path, shape in shapes.items()}
    size = sum(array.nbytes for array in arrays.values())
    assert size > 100e6
    model_folder.write_new(config, tokenizer, arrays, tmp_path / "model")
    del arrays
    folder = tmp_path / "model"
    if kind == "transformers":
        folder = tmp_path / "theirs"
        official.convert(tmp_path / "model", folder, target="hf")
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # What is free within the process counts as free.
    LARGEST.write_text("5")  # The largest size so far is that of now.
    before = process_memory.resident()
    opened = open_folder(folder, report=[].append)
    model = opened.model()
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) * 1024 - before
    assert len(model.variables_by_path()) == len(shapes)
    assert peak < 1.6 * size, f"{peak / size:.2f} times the weights"
    # What a folder was converted to is not kept.
    assert process_memory.resident() - before < 1.4 * size
