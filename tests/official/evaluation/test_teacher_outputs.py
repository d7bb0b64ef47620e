"""What is wrong with teachers is refused before any of them runs."""

import pytest

from official import config as configs
from official.evaluation import teacher_outputs
from official.utils.errors import UserError


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
