"""What is wrong with teachers is refused before any of them runs."""

import pytest

from official import config as configs
from official.evaluation import teacher_outputs
from official.saving import model_folder
from official.utils.errors import UserError
from tests import small
from tests.official.training.test_frozen_encoder import task_shards


def folder(path, **head):
    """A model folder with nothing but its config."""
    path.mkdir()
    raw = {"name": "teacher", "encoder": {"type": "transformer"}, "objectives": [head]}
    configs.save(configs.from_dict(raw, "teacher"), path / "config.yaml")
    return str(path)


def test_outputs_that_cannot_be_averaged_are_refused_first(tmp_path):
    two, three = (folder(tmp_path / f"{n}", type="classification", num_labels=n) for n in (2, 3))
    score = folder(tmp_path / "score", type="regression")
    for folders, shown in (
        ([two, three], "2 of classification, 3 of classification"),
        ([score, two], "2 of classification, 1 of regression"),
    ):
        with pytest.raises(UserError, match=rf"cannot be averaged \({shown}\): name teachers of"):
            teacher_outputs.write(folders, tmp_path / "shards", ["train"], tmp_path / "out")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "kept").touch()
    with pytest.raises(UserError, match="out is there already: name another folder or remove it"):
        teacher_outputs.write([two, two], tmp_path / "shards", ["train"], tmp_path / "out")


def test_data_of_another_tokenizer_is_refused_first(tmp_path, monkeypatch):
    """Of two teachers, the second has other tokens; the first does not run before it is said."""
    task_shards(tmp_path)
    teachers = []
    for name, words in (("same", small.WORDS), ("other", small.WORDS[::-1])):
        teachers.append(folder(tmp_path / name, type="classification", num_labels=2))
        small.tokenizer_folder(tmp_path / name / "tokenizer", words)
    monkeypatch.setattr(model_folder, "restore", lambda *_: pytest.fail("a teacher runs"))
    with pytest.raises(UserError, match=f"{tmp_path / 'other'}.*tokenizer"):
        teacher_outputs.write(teachers, tmp_path / "shards", ["train"], tmp_path / "out")
