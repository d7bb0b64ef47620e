"""Files beside shards whose checksums are right, and whose content is not."""

import numpy as np
import pytest

from official.shards import layer_states, teacher_outputs
from official.utils import checksums, json_files
from official.utils.errors import UserError


def huge(path, shape, dtype="<f4"):
    """A header of an array that the file does not hold."""
    with open(path, "wb") as stream:
        header = {"descr": dtype, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, header)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: huge(path, (1 << 40, 1, 2)), "train.npy is not a file of an array"),
        (lambda path: path.write_bytes(b"\x93NUMPY"), "train.npy is not a file of an array"),
        (lambda path: np.save(path, np.zeros((4, 2), np.float32)), "train.npy: expected float32"),
        (lambda path: np.save(path, np.zeros((4, 1, 2), int)), "train.npy: expected float32"),
    ],
)
def test_outputs_of_teachers(tmp_path, write, message):
    folder = tmp_path / "outputs"
    outputs = {"train": ("examples", np.zeros((4, 1, 2)))}
    teacher_outputs.write(folder, "classification", {"teacher": "0" * 64}, outputs)
    write(folder / "train.npy")
    record = teacher_outputs.read_record(folder)
    split = record.splits["train"]
    digest = checksums.hash_file(folder / "train.npy")
    record.splits["train"] = teacher_outputs.Split(split.file, digest, split.fingerprint)
    with pytest.raises(UserError, match=message):
        teacher_outputs.read(folder, record, "train", "examples")


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        (
            "train.npy",
            lambda path: huge(path, (1 << 40, 3, 2)),
            "train.npy is not a file of an array",
        ),
        ("train.npy", lambda path: huge(path, (0, 3, 2)), "not those of the lengths"),
        ("train-lengths.npy", lambda path: np.save(path, np.array([9, -4], np.int32)), "lengths"),
        ("train-lengths.npy", lambda path: np.save(path, np.array([2.0, 3.0])), "lengths"),
    ],
)
def test_states_of_layers(tmp_path, name, write, message):
    writer = layer_states.Writer(tmp_path, "model", "0" * 64)
    lengths, states = np.array([2, 3]), np.zeros((5, 3, 2), np.float32)
    writer.write("train", "examples", lengths, (3, 2), [(np.array([0, 1]), states)])
    writer.finish()
    assert layer_states.read(tmp_path, "train", "examples", True).shape == (3, 2)
    write(tmp_path / name)
    path = tmp_path / layer_states.FILE
    values = json_files.checked(json_files.read(path), path)
    key = "sha256" if name == "train.npy" else "lengths_sha256"
    values["splits"]["train"][key] = checksums.hash_file(tmp_path / name)
    with open(path, "w") as stream:
        json_files.dump(values, stream)
    with pytest.raises(UserError, match=message):
        layer_states.read(tmp_path, "train", "examples", True)
