"""Published configs are found from any working directory."""

import pytest

from official import config
from official.config import yaml_files
from official.utils.errors import UserError
from tests import CONFIGS, ROOT, commands

NAME = "configs/pretrain/bert_mini.yaml"


def test_a_published_config_is_found_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert yaml_files.find(NAME) == CONFIGS / "pretrain/bert_mini.yaml"
    assert config.load(NAME) == config.load(CONFIGS / "pretrain/bert_mini.yaml")


def test_a_file_of_the_working_directory_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own = tmp_path / NAME
    own.parent.mkdir(parents=True)
    own.write_text((CONFIGS / "pretrain/bert_mini.yaml").read_text().replace("bert_mini", "own"))
    assert yaml_files.find(NAME).resolve() == own
    assert config.load(NAME).name == "own"


@pytest.mark.parametrize(
    "name",
    ["configs/pretrain/none.yaml", "pretrain/bert_mini.yaml", "/configs/pretrain/bert_mini.yaml"],
)
def test_other_names_are_paths(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=f"{name}: no such config file"):
        config.load(name)


def test_a_misspelt_name_is_told_the_nearest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="such config file; is it configs/pretrain/bert_mini.yaml"):
        config.load("configs/pretrain/bert_mimi.yaml")
    with pytest.raises(UserError, match="no such config file; --list_configs prints the published"):
        config.load("qqqqqq.yaml")


@pytest.mark.parametrize("module", ["official.main", "tfrecords_tools.build_shards"])
def test_published_configs_are_listed(module):
    listed = commands.run(module, "--list_configs", status=0).stdout.splitlines()
    assert listed == sorted(path.relative_to(ROOT).as_posix() for path in CONFIGS.glob("*/*.yaml"))
