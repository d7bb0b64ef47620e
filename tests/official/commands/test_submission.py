import zipfile

import numpy as np
import pytest

from official import tasks
from official.evaluation import glue_submission
from official.utils.errors import UserError


def _fill(folder, leave=()):
    """Every file of a submission, with the rows that the benchmark wants."""
    folder.mkdir(exist_ok=True)
    for task in tasks.TASKS.values():
        for taken in task.submissions.values():
            value = task.values[0] if task.values else "2.500"
            lines = "".join(f"{row}\t{value}\n" for row in range(taken.rows))
            if taken.file not in leave:
                (folder / taken.file).write_text("index\tprediction\n" + lines)
    return folder


@pytest.mark.parametrize(
    "name, split, outputs, file, lines",
    [
        ("cola", "test", [[0.9, 0.1], [0.2, 0.8]], "CoLA.tsv", ["0\t0", "1\t1"]),
        ("mrpc", "test", [[0.2, 0.8], [0.9, 0.1]], "MRPC.tsv", ["0\t1", "1\t0"]),
        (
            "rte", "test", [[0.9, 0.1], [0.2, 0.8]], "RTE.tsv",
            ["0\tentailment", "1\tnot_entailment"],
        ),
        ("wnli", "test", [[0.9, 0.1], [0.2, 0.8]], "WNLI.tsv", ["0\t0", "1\t1"]),
        (
            "mnli", "test_mismatched", [[0.1, 0.2, 0.7], [0.1, 0.6, 0.3]], "MNLI-mm.tsv",
            ["0\tcontradiction", "1\tneutral"],
        ),
        ("ax", "test", [[0.8, 0.1, 0.1]], "AX.tsv", ["0\tentailment"]),
        (
            "stsb", "test", [-0.3, 1.23456, 5.2, 5], "STS-B.tsv",
            ["0\t0.000", "1\t1.235", "2\t5.000", "3\t5.000"],
        ),
    ],
)  # fmt: skip
def test_labels_in_the_words_of_glue(tmp_path, name, split, outputs, file, lines):
    key = "score" if name == "stsb" else "probabilities"
    outputs = {key: np.array(outputs, np.float32)}
    path = glue_submission.write(tmp_path / "new", name, split, np.arange(len(lines)), outputs)
    assert path == tmp_path / "new" / file
    assert path.read_text() == "\n".join(["index\tprediction", *lines, ""])


def test_zip_of_all_files(tmp_path):
    one, two = _fill(tmp_path / "one", leave=["AX.tsv", "RTE.tsv"]), tmp_path / "two"
    two.mkdir()
    _fill(tmp_path / "rest")
    for name in ("AX.tsv", "RTE.tsv"):
        (tmp_path / "rest" / name).rename(two / name)
    names = glue_submission.pack([one, two], tmp_path / "glue.zip")
    assert sorted(names) == [
        "AX.tsv", "CoLA.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "MRPC.tsv", "QNLI.tsv", "QQP.tsv",
        "RTE.tsv", "SST-2.tsv", "STS-B.tsv", "WNLI.tsv",
    ]  # fmt: skip
    with zipfile.ZipFile(tmp_path / "glue.zip") as archive:
        assert archive.namelist() == names
        assert archive.read("RTE.tsv") == (two / "RTE.tsv").read_bytes()
        assert archive.read("CoLA.tsv") == (one / "CoLA.tsv").read_bytes()
    glue_submission.pack([two, one], tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == (tmp_path / "glue.zip").read_bytes()


def test_what_a_zip_lacks(tmp_path):
    folder = _fill(tmp_path / "one", leave=["AX.tsv", "MNLI-mm.tsv"])
    with pytest.raises(UserError) as error:
        glue_submission.pack([folder], tmp_path / "glue.zip")
    assert str(error.value) == (
        f"{folder}: no MNLI-mm.tsv (--task=mnli), AX.tsv (--task=ax): GLUE needs all of its files; "
        "--mode=predict --submission=DIR writes those of a model"
    )
    other = tmp_path / "two"
    other.mkdir()
    (other / "CoLA.tsv").write_text("")
    with pytest.raises(UserError, match="CoLA.tsv is there twice, .*one/CoLA.tsv and .*two/CoLA"):
        glue_submission.pack([folder, other], tmp_path / "glue.zip")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one", "two"]


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("RTE.tsv", "", "RTE.tsv: not UTF-8, or empty: write it again"),
        ("RTE.tsv", "id\tlabel\n", "RTE.tsv, line 1: expected 'index\\tprediction', got"),
        ("RTE.tsv", "index\tprediction\n1\t0\n", "RTE.tsv, line 2: expected index 0, got '1'"),
        (
            "RTE.tsv", "index\tprediction\n0\tentailment\n1\t1\n",
            "RTE.tsv, line 3: prediction '1' is not one of 'entailment', 'not_entailment'",
        ),
        (
            "STS-B.tsv", "index\tprediction\n0\t5.1\n",
            "STS-B.tsv, line 2: prediction '5.1' is not a number from 0 to 5",
        ),
        ("STS-B.tsv", "index\tprediction\n0\tnan\n", "line 2: prediction 'nan' is not a number"),
        ("STS-B.tsv", "index\tprediction\n0\tx\n", "line 2: prediction 'x' is not a number"),
        (
            "CoLA.tsv", "index\tprediction\n0\t1\n",
            "CoLA.tsv: 1 predictions, and the test file of cola has 1,063 rows: make the shards of",
        ),
    ],
)  # fmt: skip
def test_files_that_glue_would_refuse(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError) as error:
        glue_submission.pack([tmp_path], tmp_path / "glue.zip")
    assert message in str(error.value)


def test_errors_of_splits_and_rows(tmp_path):
    outputs = {"probabilities": np.eye(2)}
    with pytest.raises(UserError, match="no predictions for the validation split of the task cola"):
        glue_submission.write(tmp_path, "cola", "validation", np.arange(2), outputs)
    with pytest.raises(UserError, match=r"those for cola \(test\), .*, mnli \(test_mismatched\)"):
        glue_submission.write(tmp_path, "classification", "test", np.arange(2), outputs)
    with pytest.raises(UserError, match="row 1 of the test file of cola has no prediction: it was"):
        glue_submission.write(tmp_path, "cola", "test", np.array([0, 2]), outputs)
    assert not list(tmp_path.iterdir())
