"""Folders of a remote file system hold what local ones hold; here TensorFlow's `ram://`."""

import json
import sys
import zipfile

import numpy as np
import pytest

from official import tokenizers
from official.conversion import elmo, tf1
from official.evaluation import glue_submission
from official.shards import manifest
from official.training import sweep
from official.training.sweep import Sweep
from official.utils import atomic, paths
from official.utils.errors import UserError
from tests import ROOT, small
from tests.official.commands.test_submission import _fill as fill_submission
from tests.official.conversion import test_convert_tf1 as bert_release
from tests.sentences import VOCABULARY

GOLDEN = ROOT / "tests" / "golden"


def make_tokenizer(kind, folder):
    if kind == "wordpiece":
        return tokenizers.load(small.tokenizer_folder(folder))
    if kind == "sentencepiece":
        return tokenizers.load(GOLDEN / "t5" / "v1_1")
    if kind == "characters":
        return tokenizers.Characters(VOCABULARY)
    from official.tokenizers.byte_vocabulary import ALPHABET

    pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *ALPHABET.values(), "th"]
    return tokenizers.ByteBPE(pieces, [("t", "h")])


@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece", "byte_bpe", "characters"])
def test_tokenizers(ram, tmp_path, kind):
    tokenizer = make_tokenizer(kind, tmp_path / "tokenizer")
    tokenizer.save(ram / "saved")
    loaded = tokenizers.load(str(ram / "saved"))
    assert loaded.fingerprint == tokenizer.fingerprint and loaded.files == tokenizer.files
    texts = ["badi the 12"]
    np.testing.assert_array_equal(loaded.encode(texts)[0], tokenizer.encode(texts)[0])
    with pytest.raises(UserError, match=f"tokenizer folder {ram}/none is missing"):
        tokenizers.load(ram / "none")
    (ram / "saved" / "tokenizer_config.json").unlink()
    (ram / "saved" / atomic.UNFINISHED).write_bytes(b"")
    with pytest.raises(UserError, match=f"{ram}/saved is not complete: tokenizer_config.json, whi"):
        tokenizers.load(ram / "saved")


def test_a_release_of_bert(ram, tmp_path):
    for name, text in (
        ("bert_config.json", json.dumps(bert_release.CONFIG)),
        ("vocab.txt", "\n".join(bert_release.PIECES) + "\n"),
    ):
        (tmp_path / name).write_text(text)
    bert_release.save(tmp_path, bert_release.release_tensors())
    atomic.copy_tree(tmp_path, ram / "release", "vocab.txt")
    here, there = tf1.read(tmp_path), tf1.read(str(ram / "release"))
    assert there.config.encoder == here.config.encoder and there.config.name == "release"
    assert here.variables.keys() == there.variables.keys()
    for path, value in here.variables.items():
        np.testing.assert_array_equal(there.variables[path], value, err_msg=path)
    for path in (ram / "release").glob("*.index"):
        path.write_bytes(b"no")
    with pytest.raises(UserError, match=f"{ram}/release/bert_model.ckpt: cannot be read"):
        tf1.read(ram / "release")


def test_a_release_of_elmo(ram):
    for name in ("options.json", "weights.hdf5"):
        paths.copy(GOLDEN / "elmo" / name, ram / "release" / f"elmo_{name}")
    here, there = elmo.read(GOLDEN / "elmo"), elmo.read(f"{ram}/release")
    for path, value in here.variables.items():
        np.testing.assert_array_equal(there.variables[path], value, err_msg=path)
    (ram / "release" / "elmo_weights.hdf5").write_bytes(b"no")
    with pytest.raises(UserError, match=f"{ram}/release/elmo_weights.hdf5: not an HDF5 file"):
        elmo.read(ram / "release")


def test_a_sweep(ram):
    result = {"metric": "f1", "higher": True, "metrics": ["f1"], "step": 1}
    values = iter([0.5, 0.7])

    def run(texts):
        lines = []
        sweep.run(
            Sweep.parse(texts), ram / "sweep", {}, lambda *_: [sys.executable, "-c", ""],
            lines.append, lambda folder: {**result, "figures": {"f1": next(values)}},
        )  # fmt: skip
        return lines

    run(["seed=0"])
    assert f"{ram}/sweep/seed=0: run already" in run(["seed=0,1"])
    table = (ram / "sweep" / "sweep.tsv").read_text().splitlines()
    assert table[1].split("\t")[:2] == ["2", "0.600000"]


def test_a_submission(ram, tmp_path):
    fill_submission(tmp_path)
    names = [path.name for path in tmp_path.iterdir()]
    atomic.copy_tree(tmp_path, ram / "files", names[0])
    glue_submission.pack([f"{ram}/files"], f"{ram}/submission.zip")
    glue_submission.pack([tmp_path], tmp_path / "submission.zip")
    packed = (ram / "submission.zip").read_bytes()
    assert packed == (tmp_path / "submission.zip").read_bytes()
    with (ram / "submission.zip").open("rb") as stream, zipfile.ZipFile(stream) as archive:
        assert sorted(archive.namelist()) == sorted(names)


def test_a_shard_folder_that_is_not_complete(ram):
    (ram / "shards" / atomic.UNFINISHED).write_bytes(b"")
    with pytest.raises(UserError, match=f"{ram}/shards is not a complete shard folder; make"):
        manifest.read(ram / "shards")
