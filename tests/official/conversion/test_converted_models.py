"""The table of docs/conversion.md: what each head can do when it is converted."""

import json
import re

import pytest

import official
from official import tasks
from official.conversion import converted_model, huggingface
from official.serving.export import saved_model
from official.serving.signatures import table as signature_table
from official.tasks.kinds import KINDS
from official.utils import json_files
from tests import GOLDEN, ROOT
from tests.official.conversion import systems, xlnets
from tests.official.serving.test_predictor import BERT, load

LABELS = ["O", "B-X", "I-X"]
# Our heads with BERT's encoder, or another one, by the objectives of the table.
HEADS = {
    ("classification",): {"type": "classification", "labels": LABELS},
    ("multi_label",): {"type": "multi_label", "labels": LABELS},
    ("ranking",): {"type": "ranking"},
    ("regression",): {"type": "regression"},
    ("token_classification",): {"type": "token_classification", "labels": LABELS},
    ("span_answer",): {"type": "span_answer"},
    ("multiple_choice",): {"type": "multiple_choice"},
}
FOLDERS = {(): "bare", ("masked_lm", "sentence_pair"): "pretraining"}
SYSTEMS = {("replaced_tokens",): "electra_discriminator", ("causal_lm",): "gpt2_causal_lm"}
CALLS = {
    "encode": (["the cat"],),
    "fill_mask": (["the [MASK] sat"],),
    "classify": (["the cat"],),
    "rank": ("the", ["cat"]),
    "score": (["the cat"],),
    "tag": (["the cat"],),
    "answer": (["the"], ["the cat sat"]),
    "choose": (["the cat"], ["?"], [["the", "cat"]]),
    "generate": (["the cat"],),
}


def table():
    """The rows: class, objectives, methods, signatures and the last column."""
    text = (ROOT / "docs" / "conversion.md").read_text()
    part = text[text.index("| class of transformers | objective") :]
    rows = part.split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in rows]
    return [
        (row[0], *(tuple(re.findall(r"`([^`]+)`", cell)) for cell in row[1:4]), row[4])
        for row in cells
    ]


def source(folder, name, objectives):
    """A folder of transformers with the head."""
    if objectives in FOLDERS:
        return GOLDEN / "hf_files" / FOLDERS[objectives]
    if objectives == ("seq2seq_lm",):
        return GOLDEN / "t5" / "v1_0"
    if objectives in SYSTEMS:
        config, parts, _ = systems.load(SYSTEMS[objectives])
        return systems.write(folder / "theirs", config, parts["weight"])
    if objectives == ("masked_lm",):
        load(folder / "ours", {"type": "masked_lm"})
    elif objectives == ("permutation_lm",):
        config, weights, _ = xlnets.load("xlnet_lm")
        return xlnets.write(folder / "theirs", config, weights)
    else:
        load(folder / "ours", HEADS[objectives], encoder={**BERT, "max_positions": 96})
    huggingface.write(folder / "ours", folder / "theirs", "last")
    return folder / "theirs"


def test_the_table_has_every_class_that_is_written():
    names = {re.sub(r".*?`(\w+)`.*", r"\1", row[0]) for row in table() if row[0].startswith("`")}
    bert = huggingface.SYSTEMS["bert"]
    written = {head.architecture for head in bert.heads.values()} | set(bert.architectures.values())
    assert written - names == {"BertForNextSentencePrediction"}
    assert len(table()) == 14


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("row", table(), ids=lambda row: "+".join(row[1]) or "bare")
def test_each_cell(tmp_path, row):
    name, objectives, methods, signatures, shards = row
    theirs = source(tmp_path, name, objectives)
    (architecture,) = json_files.read(theirs / "config.json")["architectures"]
    if name.startswith("`"):
        assert name.startswith(f"`{architecture}`")
    converted = huggingface.read(theirs)
    converted_model.write(converted, tmp_path / "model")
    assert tuple(o.type for o in converted.config.objectives) == objectives
    loaded = official.load(tmp_path / "model")
    for method in methods:
        options = {"max_new_tokens": 2} if method == "generate" else {}
        assert len(getattr(loaded, method)(*CALLS[method], **options)) == 1
    assert loaded.encode(["the cat"]).shape[0] == 1
    context, module, default = saved_model.restore(tmp_path / "model")
    assert set(signatures) <= set(signature_table.make(context, module, default)[1])
    if found := re.fullmatch(r"`--task=(\w+)`", shards):
        task = tasks.TASKS.get(found[1])
        assert objectives[0] in KINDS[task.kind if task else found[1]].objectives
    elif shards == "`build_shards`":
        assert converted.config.segments is not None
    huggingface.write(tmp_path / "model", tmp_path / "back", "last")
    again = json.loads((tmp_path / "back" / "config.json").read_text())
    assert again["architectures"] == [architecture]
