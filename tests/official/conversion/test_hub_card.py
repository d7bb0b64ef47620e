"""The README.md of a folder for the hub: license, base, task, metrics and data, where known."""

import re

import pytest

from official.conversion.run import convert
from official.saving import checkpoints, metrics_log, model_card, model_folder
from official.saving.metrics_log import Record
from tests.official.conversion import systems

CARD = """---
language: en
license: apache-2.0
base_model:
- some/ancestor
tags: [a, b]
---

# theirs

license: mit
"""


@pytest.fixture
def source(tmp_path):
    config, parts, _ = systems.load("roberta_classification")
    folder = systems.write(tmp_path / "base", config, parts["weight"])
    (folder / "README.md").write_text(CARD)
    return folder


def front(folder):
    text = (folder / "README.md").read_text()
    assert text.startswith("---\n")
    return text.split("---\n")[1].splitlines(), text.split("---\n", 2)[2]


def test_a_card_keeps_the_license_and_the_base(source, tmp_path):
    convert(source, tmp_path / "model", source="hf")
    keys, text = front(tmp_path / "model")
    assert keys == ["license: apache-2.0", "base_model: some/ancestor"]
    assert model_card.MARK in text and "# model" in text
    convert(tmp_path / "model", tmp_path / "out", target="hf")
    keys, text = front(tmp_path / "out")
    assert keys == [
        "tags:", "- transformer", "pipeline_tag: text-classification",
        "library_name: transformers", "license: apache-2.0", "base_model: some/ancestor",
    ]  # fmt: skip
    assert text.startswith("\n# base\n\n| | |") and "## Metrics" not in text
    # a run that begins with the model takes them over, and keeps them when it goes on
    model = model_folder.ModelFolder.open(tmp_path / "model")
    (tmp_path / "run").mkdir()
    for init in (tmp_path / "model", None):
        model_folder.save_card(tmp_path / "run", model.config, model.tokenizer, init)
        assert front(tmp_path / "run")[0] == ["license: apache-2.0", "base_model: some/ancestor"]


def test_a_card_has_the_metrics_of_its_step_and_the_data(source, tmp_path):
    convert(source, tmp_path / "model", source="hf")
    folder = tmp_path / "model"
    arrays = dict(checkpoints.load_variables(folder))
    data = {"train": {"examples": 1000, "fingerprint": "ab12"}}
    for step in (10, 20):
        checkpoints.save(folder, step, arrays, {"data": data, "total_steps": 20})
    checkpoints.mark_best(folder, 10, "accuracy", 0.875)
    with (folder / metrics_log.FILE).open("w") as stream:
        for step, value in ((10, 0.875), (20, 0.5)):
            stream.write(Record(step, "validation", {"accuracy": value}).line())
    convert(folder, tmp_path / "best", target="hf")
    text = (tmp_path / "best" / "README.md").read_text()
    found = dict(re.findall(r"^\| (.+?) \| (.*) \|$", text, re.M))
    assert found["train data"] == "1,000 examples, fingerprint `ab12`"
    assert found["accuracy"] == "0.875"
    command = f"--mode=eval --model_dir={folder} --data=SHARDS --checkpoint=10"
    assert command in text and "at step 10:" in text
    convert(folder, tmp_path / "last", target="hf", checkpoint="last")
    text = (tmp_path / "last" / "README.md").read_text()
    assert "| accuracy | 0.5 |" in text and "--checkpoint=20" in text


def test_fronts_of_cards():
    assert model_card.with_front("# x\n", {}) == "# x\n"
    assert model_card.with_front("# x\n", {"license": "mit"}) == "---\nlicense: mit\n---\n\n# x\n"
    text = "---\ntags: [a]\n---\n\n# x\n"
    assert model_card.with_front(text, {"license": "mit"}) == (
        "---\ntags: [a]\nlicense: mit\n---\n\n# x\n"
    )


@pytest.mark.parametrize(
    "front_matter",
    ["# no front\nlicense: mit\n", "---\nlicense:\n- mit\n- bsd\n---\n", "---\nlicense: mit\n"],
)
def test_what_is_unclear_is_not_known(tmp_path, front_matter):
    (tmp_path / "README.md").write_text(front_matter)
    assert model_card.origin_of(tmp_path / "README.md") == {}
    assert model_card.origin_of(tmp_path / "missing.md") == {}
