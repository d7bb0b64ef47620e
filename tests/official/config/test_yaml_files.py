"""Published configs are found from any working directory; a config may have a base."""

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


def test_a_misspelled_name_is_told_the_nearest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="such config file; is it configs/pretrain/bert_mini.yaml"):
        config.load("configs/pretrain/bert_mimi.yaml")
    with pytest.raises(UserError, match="no such config file; --list_configs prints the published"):
        config.load("qqqqqq.yaml")


@pytest.mark.parametrize("module", ["official.main", "tfrecords_tools.build_shards"])
def test_published_configs_are_listed(module):
    listed = commands.run(module, "--list_configs", status=0).stdout.splitlines()
    files = sorted(path.relative_to(ROOT).as_posix() for path in CONFIGS.glob("*/*.yaml"))
    assert listed == [file for file in files if not file.startswith("configs/studies/")]


def write(folder, **texts):
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)


BASE = """\
name: base
corruption: {type: token_masks, mask_rate: 0.3}
segments: {max_length: 64}
encoder:
  type: transformer
  hidden_size: 32
  num_heads: 4
  dropout: 0.2
objectives: [{type: masked_lm, weight: 2.0}, {type: sentence_pair}]
recipe: {steps: 9, optimizer: {type: lamb, epsilon: 0.1}, schedule: {warmup_steps: 3}}
"""


def test_a_config_has_the_lines_that_differ_from_its_base(tmp_path):
    child = """\
base: base.yaml
name: child
encoder: {hidden_size: 64, dropout: null}
objectives: [{type: masked_lm}]
recipe:
  optimizer: {type: adamw}
"""
    (tmp_path / "sub").mkdir()
    write(tmp_path, base=BASE, child=child)
    write(tmp_path / "sub", last="base: ../child.yaml\nsegments: {max_length: 32}\n")
    whole = config.load(tmp_path / "base.yaml")
    ours = config.load(tmp_path / "sub/last.yaml", ["recipe.steps=8"])
    expected = config.from_dict(
        {
            "name": "child",
            "corruption": {"type": "token_masks", "mask_rate": 0.3},
            "segments": {"max_length": 32},
            "encoder": {"type": "transformer", "hidden_size": 64, "num_heads": 4},
            "objectives": [{"type": "masked_lm"}],
            "recipe": {
                "steps": 8, "optimizer": {"type": "adamw"}, "schedule": {"warmup_steps": 3},
            },
        }
    )  # fmt: skip
    assert ours == expected and whole.encoder.dropout == 0.2 and ours.encoder.dropout == 0.1
    # The config that a run saves is whole.
    config.save(ours, tmp_path / "saved.yaml")
    (tmp_path / "base.yaml").unlink()
    assert config.load(tmp_path / "saved.yaml") == ours


def test_a_base_may_be_a_published_config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, own=f"base: {NAME}\nname: own\n")
    assert config.differences(config.load("own.yaml"), config.load(NAME)) == [
        ("name", "own", "bert_mini")
    ]


def test_aliases_of_a_base_are_changed_one_by_one(tmp_path):
    write(
        tmp_path,
        base="a: &x {k: 1, m: {n: 1}}\nb: *x\n",
        child="base: base.yaml\na: {k: 2, m: {n: 2}}\n",
    )
    values = yaml_files.read(tmp_path / "child.yaml").values
    assert values == {"a": {"k": 2, "m": {"n": 2}}, "b": {"k": 1, "m": {"n": 1}}}


@pytest.mark.parametrize(
    "child, message",
    [
        ("base: base.yaml\nencoder:\n  num_heads: 5\n", "child.yaml:3: encoder.num_heads: 5 heads"),
        ("base: base.yaml\nencoder: {hidden_size: 30}", "base.yaml:7: encoder.num_heads: 4 heads"),
        ("base: base.yaml\nrecipe:\n\n  stesp: 1", "child.yaml:4: recipe.stesp: unknown key"),
        ("base: base.yaml\nrecipe: {stesp: null}", "child.yaml:2: recipe.stesp: unknown key"),
        (
            "base: base.yaml\nobjectives:\n- type: masked_lm\n- {type: masked_lm, weight: x}",
            "child.yaml:4: objectives.1.weight: expected a number",
        ),
        (
            "base: base.yaml\nsegments: {max_length: 999}",
            "child.yaml:2: segments.max_length: 999 t",
        ),
        ("name: x\nbase: none.yaml\n", "child.yaml:2: base: .*none.yaml: no such config file"),
        ("base: [base.yaml]\n", r"child.yaml:1: base: \['base.yaml'\]: expected the name of a"),
        ("base: loop.yaml\n", "loop.yaml:1: base: a config may not be its own base: .*child.* → "),
        ("base: broken.yaml\n", "broken.yaml: not YAML"),
        ("base: list.yaml\n", "list.yaml: a config is a mapping"),
    ],
)
def test_errors_name_the_file_and_the_line(tmp_path, child, message):
    write(tmp_path, base=BASE, child=child, loop="base: child.yaml", broken="a: [", list="- 1")
    with pytest.raises(UserError, match=message):
        config.load(tmp_path / "child.yaml")


def test_an_error_of_an_override_names_no_line(tmp_path):
    write(tmp_path, base=BASE)
    path = tmp_path / "base.yaml"
    with pytest.raises(UserError, match=r"base.yaml: objectives.0.weight: expected a number"):
        config.load(path, ["objectives.masked_lm.weight=x"])
    with pytest.raises(UserError, match=r"base.yaml: encoder.num_heads: 5 heads do not divide"):
        config.load(path, ["encoder={type: transformer, hidden_size: 32, num_heads: 5}"])


def test_a_config_and_its_bases_may_be_ten_files(tmp_path):
    above = {f"config_{i}": f"base: config_{i - 1}.yaml" for i in range(1, 11)}
    write(tmp_path, config_0=BASE, **above)
    assert config.load(tmp_path / "config_9.yaml") == config.load(tmp_path / "config_0.yaml")
    with pytest.raises(UserError, match=r"config_1.yaml:1: base: .*config_0.yaml: .* at most 10 "):
        config.load(tmp_path / "config_10.yaml")
