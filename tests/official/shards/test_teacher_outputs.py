"""Cached outputs of teachers: what is kept, and which are refused."""

import numpy as np
import pytest

from official import config as configs
from official.data import teacher_outputs as data_outputs
from official.shards import teacher_outputs
from official.utils.errors import UserError

OUTPUTS = np.random.default_rng(0).normal(size=(5, 2, 3)).astype("float32")
TEACHERS = {"a": "1" * 64, "b": "2" * 64}


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "outputs"
    teacher_outputs.write(path, "classification", TEACHERS, {"train": ("f" * 64, OUTPUTS)})
    return path


def config_of(folder, head=None, **options):
    head = head or {"type": "classification", "labels": ["x", "y", "z"], "weight": 0.0}
    distillation = {"type": "distillation", "cache": str(folder), "cross_entropy": 1.0}
    return configs.from_dict(
        {"name": "x", "objectives": [head, {**distillation, **options}], "recipe": {"steps": 1}}
    )


def read(folder, split="train", fingerprint="f" * 64, count=5, training=True):
    return data_outputs.read(config_of(folder), split, fingerprint, count, training)


def test_outputs_are_read_as_they_were_written(folder):
    found = read(folder)
    np.testing.assert_array_equal(found.outputs, OUTPUTS)
    assert found.record.teachers == ("a", "b") and found.record.objective == "classification"
    found.check(config_of(folder))
    found.check(config_of(folder, teachers=["a", "b"], teacher_checksums=list(TEACHERS.values())))


def test_other_shards_and_splits(folder):
    with pytest.raises(
        UserError, match=r"belong to other shards \(fingerprint ffff.* than the train"
    ):
        read(folder, fingerprint="0" * 64)
    with pytest.raises(UserError, match="has outputs of train, not of test: .* --split=test"):
        read(folder, "test")
    with pytest.raises(UserError, match="5 outputs for 6 examples"):
        read(folder, count=6)
    for options in ({"fingerprint": "0" * 64}, {"split": "validation"}):
        assert read(folder, training=False, **options) is None
    assert read(folder.with_name("gone"), training=False) is None
    with pytest.raises(UserError, match="has no outputs of a teacher: make it again with"):
        read(folder.with_name("gone"))


def test_other_teachers_and_heads(folder):
    found = read(folder)
    with pytest.raises(UserError, match="outputs of other teachers .a, b, weights 1111"):
        found.check(config_of(folder, teachers=["a"], teacher_checksums=["3" * 64]))
    with pytest.raises(UserError, match="outputs of classification, and the student learns regre"):
        head = {"type": "regression", "weight": 0.0}
        found.check(config_of(folder, head, cross_entropy=0.0, logits=1.0))
    with pytest.raises(
        UserError, match="3 outputs for each example, and the student has the label"
    ):
        found.check(config_of(folder, {"type": "classification", "labels": ["x", "y"]}))


def test_files_that_have_changed(folder):
    file = folder / "train.npy"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(UserError, match="train.npy has changed since it was written"):
        read(folder)
    path = folder / teacher_outputs.FILE
    path.write_text(path.read_text().replace("1111", "1112", 1))
    with pytest.raises(UserError, match="is not as it was written"):
        read(folder)
