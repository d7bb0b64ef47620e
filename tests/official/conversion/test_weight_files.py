"""Weights of transformers' folders in torch's and TensorFlow's formats, and prefixes of names."""

import json
import shutil

import numpy as np
import pytest
import safetensors.numpy

from benchmarks.torture import foreign_files, hostile_weights
from official.conversion import hdf5, huggingface
from official.conversion.torch_files import TorchFile
from official.saving import model_folder
from official.utils.errors import UserError
from tests import GOLDEN
from tests.official.conversion import systems

BARE = GOLDEN / "hf_files" / "bare"
PRETRAINING = GOLDEN / "hf_files" / "pretraining"
CLOSE = dict(rtol=0, atol=1e-5)


@pytest.fixture
def source(tmp_path):
    """A copy to change."""
    shutil.copytree(PRETRAINING, tmp_path / "source")
    return tmp_path / "source"


def rename(folder, name_of):
    path = folder / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    safetensors.numpy.save_file({name_of(name): array for name, array in tensors.items()}, path)


def assert_same(folder, expected=PRETRAINING):
    """Asserts that a folder has the variables of another, and returns what it says of them."""
    actual, right = huggingface.read(folder), huggingface.read(expected)
    assert actual.config.encoder == right.config.encoder
    assert actual.variables.keys() == right.variables.keys()
    for path, array in right.variables.items():
        np.testing.assert_array_equal(actual.variables[path], array, err_msg=path)
    return actual


@pytest.mark.parametrize("name", ["archive.bin", "old.bin", "checkpoint.pth"])
def test_tensors_of_torch(name):
    """Views, shared storages, parameters, all types; made by `make_torch_files.py`."""
    expected = dict(np.load(GOLDEN / "torch_files" / "numbers.npz"))
    tensors = TorchFile(GOLDEN / "torch_files" / name)
    assert set(tensors) == set(expected)
    for key, right in expected.items():
        actual = np.asarray(tensors[key])
        assert actual.shape == right.shape
        np.testing.assert_array_equal(actual.astype(np.float32), right, err_msg=key)
    types = {key: tensors[key].dtype.name for key in ("double", "half", "bfloat16", "long", "bool")}
    assert types == {
        "double": "float64", "half": "float16", "bfloat16": "bfloat16", "long": "int64",
        "bool": "bool",
    }  # fmt: skip
    tensors.close()


@pytest.mark.parametrize("write", [foreign_files.torch_archive, foreign_files.old_torch])
def test_folders_of_torch(source, write):
    foreign_files.to_torch(source, write)
    assert list(assert_same(source).notes) == []


def test_a_file_of_torch_by_another_name(source):
    foreign_files.to_torch(source)
    (source / "pytorch_model.bin").rename(source / "model.pth")
    (source / "training_args.bin").write_bytes(b"another file")
    assert_same(source)
    (source / "other.pth").write_bytes(b"")
    with pytest.raises(UserError, match=r"files of weights \(model.pth, other.pth\): rename"):
        huggingface.read(source)


def test_torch_in_several_files(source):
    names = sorted(tensors := safetensors.numpy.load_file(source / "model.safetensors"))
    (source / "model.safetensors").unlink()
    parts = {f"pytorch_model-0000{i + 1}-of-00002.bin": names[i::2] for i in range(2)}
    for file, part in parts.items():
        foreign_files.torch_archive(source / file, {name: tensors[name] for name in part})
    index = {"weight_map": {name: file for file, part in parts.items() for name in part}}
    (source / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    assert_same(source)
    (source / "pytorch_model-00002-of-00002.bin").unlink()
    with pytest.raises(UserError, match=r"00002\.bin is missing: pytorch_model.bin.index.json nam"):
        huggingface.read(source)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("a call of os.system", r"names posix.system, .*only tensors are read"),
        ("a call hidden in an attribute", r"names builtins.exec"),
        ("an instance", "has the opcode INST"),
        ("texts that double 90 times", "keys that are neither text nor numbers"),
        ("four million opcodes", "more than 1,000,000 opcodes"),
        ("a shape of strides 0", r"shape \[1099511627776, 32\] from 0 on is larger than its stor"),
        ("strides out of the storage", r"larger than its storage \d+ of 420 numbers"),
        ("a storage of few numbers", "larger than its storage"),
        ("a storage of 2^40 numbers", r"has 1,680 bytes, but its pickle says 4,398,046,511,104"),
        ("a storage of 2^40 numbers, in the old format", "420 numbers, its pickle says 1,099,511"),
        ("a file cut in half, in the old format", "the file is incomplete"),
        ("a missing storage", "member data/3 is missing: the file is incomplete"),
        ("compressed members", "is compressed, which torch never does"),
        ("an empty state", "has no tensors by name"),
    ],
)
def test_what_is_refused_of_torch(source, case, message):
    hostile_weights.TORCH_FILES[case](source)
    with pytest.raises(UserError, match=f"pytorch_model.bin cannot be read as a .*: .*{message}"):
        huggingface.read(source)
    assert not list(source.parent.glob("executed"))


def test_a_flipped_bit_of_an_archive_is_found(source):
    foreign_files.to_torch(source)
    data = bytearray((source / "pytorch_model.bin").read_bytes())
    table = safetensors.numpy.load_file(PRETRAINING / "model.safetensors")
    place = data.index(table["bert.pooler.dense.weight"].tobytes())
    data[place + 5] ^= 1
    (source / "pytorch_model.bin").write_bytes(data)
    with pytest.raises(UserError, match=r"pytorch_model.bin cannot .*Bad CRC-32 for file"):
        huggingface.read(source)


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_folders_of_tensorflow(tmp_path, name):
    """`tf_model.h5`, and safetensors with short names; made by tests/parity/tf_folders.py."""
    folder = tmp_path / "source"
    shutil.copytree(GOLDEN / "tf_folders" / name, folder)
    systems.write_vocabulary(folder, name)
    converted = huggingface.read(folder)
    assert list(converted.leftover) == []
    model = model_folder.build(converted.config)
    for path, variable in model.variables_by_path().items():
        variable.assign(converted.variables[path])
    inputs, theirs = (np.load(folder / f"{kind}.npz") for kind in ("inputs", "outputs"))
    batch = {"token_ids": inputs["input_ids"], "padding_mask": inputs["attention_mask"] > 0}
    zeros = np.zeros_like(batch["token_ids"])
    batch["segment_ids"] = inputs.get("token_type_ids", zeros)
    assert not batch["padding_mask"].all()
    logits = model.objectives[0].logits(model.encode(batch))
    np.testing.assert_allclose(logits, theirs["logits"], **CLOSE)


def test_keras_names_of_old_files(source):
    """With the name of the model before those of its variables, in one file or in two."""
    import h5py

    foreign_files.to_keras(source)
    assert_same(source)
    with h5py.File(source / "tf_model.h5", "a") as file:
        for group in list(file):
            file.move(group, f"{group}_kept")
            file.move(f"{group}_kept/{group}", f"{group}/tf_bert_for_pre_training/{group}")
    assert_same(source)
    with h5py.File(source / "tf_model.h5", "a") as file:
        file["bert/extra"] = h5py.SoftLink("/cls")
        del file["cls/tf_bert_for_pre_training/cls/predictions/bias:0"]
    with pytest.raises(UserError, match=r"tf_model.h5 lacks the tensor cls.predictions.bias: the"):
        huggingface.read(source)


def test_a_second_value_of_a_tensor_of_keras_is_refused(source):
    import h5py

    foreign_files.to_keras(source)
    with h5py.File(source / "tf_model.h5", "a") as file:
        name = "bert/embeddings/word_embeddings/weight:0"
        file[f"mlm___cls/{name}"] = file[f"bert/{name}"][()] + 1
    with pytest.raises(
        UserError, match=r"mlm___cls/\S+ and bert/\S+ are copies of one tensor, but differ"
    ):
        huggingface.read(source)


def test_two_tensors_of_one_name_in_tensorflows_safetensors(tmp_path):
    config, parts, _ = systems.load("distilbert_masked_lm")
    folder = systems.write(tmp_path / "source", config, parts["weight"])
    tensors = {"embeddings/word_embeddings/weight:0": np.zeros((61, 15), np.float32)}
    tensors["bias:0"] = np.zeros(15, np.float32)
    path = folder / "model.safetensors"
    safetensors.numpy.save_file(tensors, path, metadata={"format": "tf"})
    two = "may be vocab_layer_norm.bias or vocab_projector.bias"
    with pytest.raises(UserError, match=f"bias:0 {two}: .*safe_serialization=F"):
        huggingface.read(folder)


def test_the_albert_of_tensorflow_reads_its_second_bias(tmp_path):
    config, parts, _ = systems.load("albert_masked_lm")
    folder = systems.write(tmp_path / "source", config, parts["weight"])
    foreign_files.to_keras(folder)
    import h5py

    right = huggingface.read(folder).variables["masked_lm/output_bias"]
    with h5py.File(folder / "tf_model.h5", "a") as file:
        file["predictions/predictions/decoder/bias:0"] = right + 1
    actual = huggingface.read(folder).variables["masked_lm/output_bias"]
    np.testing.assert_array_equal(actual, right + 1)


@pytest.mark.parametrize("prefix", ["module.", "model.", "module._orig_mod.", "net.encoder."])
def test_prefixes_are_left_out_and_said(source, prefix):
    rename(source, lambda name: prefix + name)
    notes = assert_same(source).notes
    stripped = prefix.replace("_orig_mod.", "")
    assert f"{stripped} at the beginning of tensor names is removed" in notes


def test_a_prefix_of_a_bare_encoder(tmp_path):
    shutil.copytree(BARE, tmp_path / "source")
    rename(tmp_path / "source", lambda name: "model." + name)
    assert len(assert_same(tmp_path / "source", BARE).notes) == 1


def test_a_compiled_module_inside(source):
    rename(source, lambda name: name.replace("bert.", "bert._orig_mod."))
    assert list(assert_same(source).notes) == ["_orig_mod. in the names of tensors is left out"]


def test_two_encoders_in_a_file(source):
    tensors = safetensors.numpy.load_file(source / "model.safetensors")
    two = {f"{tower}.{name}": array for tower in "ab" for name, array in tensors.items()}
    safetensors.numpy.save_file(two, source / "model.safetensors")
    with pytest.raises(UserError, match=r"model.safetensors has 2 encoders, under a\., b\.: save"):
        huggingface.read(source)


def test_tensors_of_another_model(source):
    rename(source, lambda name: name.replace("embeddings", "tables").replace("bert.", "gpt."))
    tensors = safetensors.numpy.load_file(source / "model.safetensors")
    heads = {"cls.a": np.zeros(2, np.float32)}
    others = {name: array for name, array in tensors.items() if name.startswith("gpt.")}
    safetensors.numpy.save_file({**others, **heads}, source / "model.safetensors")
    with pytest.raises(UserError, match=r"has none of the tensors of its config, such as bert.emb"):
        huggingface.read(source)


def test_a_config_without_a_model_type(source):
    path = source / "config.json"
    config = json.loads(path.read_text())
    del config["model_type"]
    path.write_text(json.dumps(config))
    assert list(assert_same(source).notes) == [
        "no model_type in config.json; its tensors are of bert"
    ]
    rename(source, lambda name: f"{name}.x")
    rename(source, lambda name: name.replace("bert.", "other."))
    with pytest.raises(UserError, match=r"config.json: model_type is missing: write it \(known: b"):
        huggingface.read(source)


def test_data_sets_of_a_file(tmp_path):
    import h5py

    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["a/b"] = np.zeros((2, 3), np.float32)
        file["link"] = h5py.ExternalLink("/etc/passwd", "/x")
        file.create_group("empty")
    assert hdf5.shapes(tmp_path / "a.h5") == {"a/b": (2, 3)}
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["a/again"] = file["a"]  # a group in itself
    with pytest.raises(UserError, match=r"a\.h5: too many groups: is this a file of weights"):
        hdf5.shapes(tmp_path / "a.h5")
