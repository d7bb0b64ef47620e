import json
import random

import pytest

from official import tasks, tokenizers
from official.serving import precision_report
from official.utils.errors import UserError
from tests import commands
from tests.official import test_export
from tfrecords_tools.tasks import builder as task_builder

WORDS = "the a cat dog sat ran on under mat tree and quickly".split()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    draw = random.Random(0)
    labels = ("bad", "good", "neither")
    rows = [
        {
            "text": " ".join(draw.choices(WORDS, k=draw.randrange(1, 9))),
            "label": draw.choice(labels),
        }
        for _ in range(40)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = tasks.generic("classification", "text", None, "label", labels)
    task_builder.build(
        task, {"validation": folder / "rows.jsonl"}, tokenizers.load(test_export.GOLDEN),
        folder / "shards", 12, report=lambda line: None,
    )  # fmt: skip
    return test_export.make(folder / "model", "classification"), folder / "shards"


@pytest.mark.slow
@pytest.mark.long
def test_the_figures_of_each_precision_stand_side_by_side(folders):
    model_dir, shards = folders
    actual = precision_report.compare(model_dir, shards, "bfloat16")
    assert list(actual) == ["float32", "bfloat16"]
    exact, rounded = actual.values()
    assert exact.keys() == rounded.keys() >= {"loss", "accuracy"}
    assert 1e-6 < abs(exact["loss"] - rounded["loss"]) < 0.05 * exact["loss"]
    integers = precision_report.compare(model_dir, shards, "int8")["int8"]
    assert integers["loss"] not in (exact["loss"], rounded["loss"])
    assert integers["loss"] == pytest.approx(exact["loss"], rel=0.1)
    assert list(precision_report.compare(model_dir, shards, "float32")) == ["float32"]
    lines = precision_report.table(actual).splitlines()
    assert lines[0].split() == ["validation", "float32", "bfloat16"]
    (loss,) = (line.split() for line in lines if line.startswith("loss"))
    assert loss[1:] == [f"{exact['loss']:.6f}", f"{rounded['loss']:.6f}"]


def test_the_data_must_be_of_the_model(folders, tmp_path):
    model_dir, shards = folders
    other = test_export.make(tmp_path / "model", "regression")
    with pytest.raises(UserError, match="does not give score, which regression needs"):
        precision_report.compare(other, shards, "int8")
    with pytest.raises(UserError, match="nowhere: no such folder"):
        precision_report.compare(model_dir, tmp_path / "nowhere", "int8")


def test_an_export_checks_its_data_before_it_writes(folders, tmp_path):
    model_dir, _ = folders
    flags = f"--model_dir={model_dir}", f"--output={tmp_path / 'out'}", "--precision=bfloat16"
    done = commands.run("official.export", *flags, f"--data={tmp_path / 'nowhere'}")
    assert done.returncode == 2 and "nowhere: no such folder" in done.stderr
    assert not (tmp_path / "out").exists()
