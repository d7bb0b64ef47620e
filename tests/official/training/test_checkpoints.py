import json

import keras
import numpy as np
import pytest

from official.errors import UserError
from official.training import checkpoints

ARRAYS = {
    "encoder/kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
    "optimizer/iteration": np.array(7),
    "optimizer/encoder/kernel/m": np.full((2, 3), 1 / 3),
}


def save(folder, step, keep=2):
    return checkpoints.save(folder, step, ARRAYS, {"seed": 1, "figures": {}}, keep)


def steps(folder):
    return sorted(int(p.name[5:]) for p in (folder / "checkpoints").glob("step-*"))


def test_arrays_come_back_bit_for_bit(tmp_path):
    path = save(tmp_path, 5)
    found = checkpoints.load_variables(tmp_path, "last", optimizer=True)
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        np.testing.assert_array_equal(found[name], array)
    assert list(checkpoints.load_variables(tmp_path, "last")) == ["encoder/kernel"]
    assert checkpoints.load_state(path)["step"] == 5


def test_the_newest_and_the_best_are_kept(tmp_path):
    for step in (1, 2, 3, 4):
        save(tmp_path, step)
        if step == 1:
            checkpoints.mark_best(tmp_path, 1, "accuracy", 0.5)
    assert steps(tmp_path) == [1, 3, 4]
    assert checkpoints.find(tmp_path, "best").name == "step-00000001"
    assert checkpoints.find(tmp_path, "last").name == "step-00000004"
    assert checkpoints.find(tmp_path, "3").name == "step-00000003"
    assert checkpoints.find(tmp_path, str(tmp_path / "checkpoints" / "step-00000003")).is_dir()


def test_without_an_evaluation_the_best_is_the_last(tmp_path):
    save(tmp_path, 9)
    assert checkpoints.find(tmp_path, "best").name == "step-00000009"


def test_what_a_kill_leaves_is_swept_and_never_taken_for_a_checkpoint(tmp_path):
    save(tmp_path, 1)
    for name in (".tmp-step-00000002-x", ".tmp-old-1"):
        (tmp_path / "checkpoints" / name).mkdir()
    assert checkpoints.last_step(tmp_path) == 1
    checkpoints.sweep(tmp_path)
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]


def test_a_flipped_byte_is_found(tmp_path):
    file = save(tmp_path, 1) / "variables.safetensors"
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    with pytest.raises(UserError, match="variables.safetensors: damaged .*remove .*step-00000001"):
        checkpoints.load_variables(tmp_path)


@pytest.mark.parametrize(
    ("which", "message"),
    [("last", "no checkpoint in it"), ("12", "no such checkpoint"), ("x/y", "no such checkpoint")],
)
def test_no_such_checkpoint(tmp_path, which, message):
    with pytest.raises(UserError, match=message):
        checkpoints.find(tmp_path, which)
    save(tmp_path, 3)
    if which == "12":
        with pytest.raises(UserError, match=r"steps in .*: 3"):
            checkpoints.find(tmp_path, which)


def test_arrays_of_another_config_are_refused():
    variable = keras.Variable(np.zeros((2, 3), "float32"))
    with pytest.raises(UserError, match="here: has no a/b: it belongs to another config"):
        checkpoints.assign({"a/b": variable}, {}, "here")
    with pytest.raises(UserError, match=r"a/b has shape \[3\] there and \[2, 3\] here"):
        checkpoints.assign({"a/b": variable}, {"a/b": np.zeros(3)}, "here")


def test_best_is_plain_json(tmp_path):
    checkpoints.mark_best(tmp_path, 4, "loss", 1.5)
    text = (tmp_path / "checkpoints" / "best.json").read_text()
    assert json.loads(text) == {"step": 4, "metric": "loss", "value": 1.5}
