"""Which model folders can be one ensemble."""

import json

import pytest

from official import config as configs
from official import tokenizers
from official.saving import ensembles
from official.utils.errors import UserError
from tests import small

CLASSES = {"type": "classification", "labels": ["bad", "good"]}
SPANS = {"type": "span_answer"}
TAGS = {"type": "token_classification", "labels": ["O", "B-X"]}
XL = {"type": "transformer_xl", "hidden_size": 16, "num_layers": 1, "num_heads": 2, "pooler": True}


def folder(path, *objectives, words=small.WORDS, encoder=None, task=None, **changes):
    """A model folder without weights."""
    path.mkdir()
    if encoder is not None:
        changes["encoder"] = encoder
    tokenizer = tokenizers.load(small.tokenizer_folder(path.with_name(path.name + "-t"), words))
    config = small.config(
        segments=None, corruption=None, objectives=list(objectives),
        **{**changes, "encoder__vocab_size": tokenizer.vocab_size},
    )  # fmt: skip
    configs.save(config, path / "config.yaml")
    tokenizer.save(path / "tokenizer")
    if task:
        (path / "task.json").write_text(json.dumps(task))
    return path


def test_encoders_and_vocabularies_may_differ(tmp_path):
    mine = folder(tmp_path / "a", CLASSES, task={"name": "rte", "kind": "classification"})
    other = folder(tmp_path / "b", {**CLASSES, "dropout": 0.5}, words=["ba"], encoder=XL)
    found = ensembles.members([mine, other])
    assert [member.folder for member in found] == [str(mine), str(other)]
    assert [member.index for member in found] == [0, 0] and not found[0].windowed


def test_the_head_of_a_task(tmp_path):
    heads = [{**CLASSES, "task": "rte"}, {"type": "regression", "task": "stsb"}]
    several, alone = folder(tmp_path / "a", *heads), folder(tmp_path / "b", heads[1])
    members = ensembles.members([several, alone], "stsb")
    assert [member.index for member in members] == [1, 0]
    with pytest.raises(
        UserError, match="--task: missing: the tasks that .*a has heads for are rte"
    ):
        ensembles.members([several, several])


TASK = {"name": "rte", "kind": "classification", "pair": True}


@pytest.mark.parametrize(
    "mine, other, message",
    [
        (
            (CLASSES,), ({**CLASSES, "labels": ["good", "bad"]},),
            "a has labels: bad, good, and .*b has labels: good, bad: the members of an ensemble",
        ),
        ((CLASSES,), ({"type": "regression"},), "a has type: classification, and .*b has type: re"),
        (
            (CLASSES,), ({"type": "masked_lm"},),
            "b has the objectives masked_lm: a member of an ensemble has one of classification,",
        ),
        (
            ({**CLASSES, "type": "multi_label", "thresholds": [0.5, 0.2]},),
            ({**CLASSES, "type": "multi_label", "thresholds": [0.5, 0.3]},),
            "a has thresholds: 0.5, 0.2, and .*b has thresholds: 0.5, 0.3",
        ),
        ((SPANS,), ({**SPANS, "null_threshold": 1.5},), "null_threshold: 0.0, and .*: 1.5"),
        ((SPANS,), ({**SPANS, "form": "conditional"},), "b: its ends depend on its starts"),
        ((TAGS,), ({**TAGS, "crf": True},), "b: its tags are a chain"),
    ],
)  # fmt: skip
def test_other_heads_are_refused(tmp_path, mine, other, message):
    folders = folder(tmp_path / "a", *mine), folder(tmp_path / "b", *other)
    with pytest.raises(UserError, match=message):
        ensembles.members(folders)


def test_other_tasks_and_windows_are_refused(tmp_path):
    mine = folder(tmp_path / "a", CLASSES, task=TASK)
    other = folder(tmp_path / "b", CLASSES, task={**TASK, "name": "wnli"})
    with pytest.raises(UserError, match="a has name: rte, and .*b has name: wnli"):
        ensembles.members([mine, other])
    with pytest.raises(UserError, match="--model_dir: an ensemble has two members or more"):
        ensembles.members([mine])
    mine = folder(tmp_path / "c", SPANS)
    other = folder(tmp_path / "d", SPANS, words=["ba"])
    with pytest.raises(UserError, match="c has tokenizer: .*…, and .*d has tokenizer: "):
        ensembles.members([mine, other])
    other = folder(tmp_path / "e", SPANS, encoder=XL)
    with pytest.raises(UserError, match="encoder.layout: cls_first, and .*: cls_last"):
        ensembles.members([mine, other])
