import dataclasses
import json
import os

import pytest
from absl import flags

from official import tasks
from official.shards import manifest
from official.tasks import kinds
from official.utils.engines import Engine
from official.utils.errors import UserError
from tests import commands
from tfrecords_tools import build_task_shards
from tfrecords_tools.writing.execution import Execution


def _plan(*arguments):
    values = flags.FlagValues()
    build_task_shards.define_flags(values)
    values(["build_task_shards", *arguments])
    return build_task_shards.plan(values)


@pytest.fixture
def folder(tmp_path):
    for name in ("train.tsv", "dev.tsv", "test.tsv", "train_sample.tsv", "more.csv"):
        (tmp_path / name).write_text("text\tlabel\n")
    return tmp_path


def test_a_named_task_knows_its_files(folder):
    task, files = _plan("--task=rte", f"--input={folder}")
    assert task == tasks.TASKS["rte"]
    assert files == {
        "train": folder / "train.tsv",
        "validation": folder / "dev.tsv",
        "test": folder / "test.tsv",
    }


def test_files_of_a_named_task_can_be_others(folder):
    _, files = _plan("--task=qnli", f"--input={folder}", "--train_file=train_sample.tsv")
    assert files["train"] == folder / "train_sample.tsv"
    assert files["validation"] == folder / "dev.tsv"
    # A test file that is not there is gone without, one that is named is not.
    (folder / "test.tsv").unlink()
    _, files = _plan("--task=qnli", f"--input={folder}")
    assert list(files) == ["train", "validation"]
    with pytest.raises(UserError, match="there is no file .*test.tsv for the test split"):
        _plan("--task=qnli", f"--input={folder}", "--test_file=test.tsv")
    _, files = _plan("--task=qnli", f"--test_file={folder / 'dev.tsv'}")
    assert files == {"test": folder / "dev.tsv"}
    _, files = _plan(
        "--task=qnli", f"--input={folder}", "--train_file=", "--validation_file=",
        "--test_file=dev.tsv",
    )  # fmt: skip
    assert files == {"test": folder / "dev.tsv"}


def test_wnut17_has_the_names_of_its_release(tmp_path):
    released = ["wnut17train.conll", "emerging.dev.conll", "emerging.test.annotated"]
    for name in released:
        (tmp_path / name).touch()
    task, files = _plan("--task=wnut17", f"--input={tmp_path}")
    assert [path.name for path in files.values()] == released and task.split_words == "unicode"
    (tmp_path / "dev.conll").touch()
    task, files = _plan("--task=wnut17", f"--input={tmp_path}", "--split_words=tokens")
    assert files["validation"].name == "dev.conll" and task.split_words == "tokens"
    with pytest.raises(UserError, match="--split_words is for tagging, not for --task=rte"):
        _plan("--task=rte", f"--input={tmp_path}", "--split_words=tokens")


def test_mnli_has_two_files_of_each_kind(tmp_path):
    for name in ("train", "dev_matched", "dev_mismatched", "test_mismatched", "dev_sample"):
        (tmp_path / f"{name}.tsv").write_text("text\tlabel\n")
    _, files = _plan("--task=mnli", f"--input={tmp_path}")
    assert {split: path.name for split, path in files.items()} == {
        "train": "train.tsv",
        "validation": "dev_matched.tsv",
        "validation_mismatched": "dev_mismatched.tsv",
        "test_mismatched": "test_mismatched.tsv",
    }
    given = ("--validation_mismatched_file=dev_sample.tsv", "--test_mismatched_file=")
    _, files = _plan("--task=mnli", f"--input={tmp_path}", *given)
    assert files["validation_mismatched"].name == "dev_sample.tsv"
    assert "test_mismatched" not in files


def test_ax_is_a_test_file_alone(tmp_path):
    with pytest.raises(UserError, match=f"{tmp_path} has none of diagnostic.tsv"):
        _plan("--task=ax", f"--input={tmp_path}")
    (tmp_path / "diagnostic.tsv").write_text("index\n")
    _, files = _plan("--task=ax", f"--input={tmp_path}")
    assert files == {"test": tmp_path / "diagnostic.tsv"}


def test_a_generic_task_is_made_of_flags(folder):
    task, files = _plan(
        "--task=classification",
        f"--train_file={folder / 'train.tsv'}",
        f"--validation_file={folder / 'more.csv'}",
        "--text_column=text",
        "--text_pair_column=1",
        "--label_column=label",
        '--labels=no, yes,"so, so"',
        "--metrics=f1,accuracy",
    )
    assert task.columns == tasks.Columns("text", "1", "label")
    assert task.labels == ("no", "yes", "so, so")
    assert task.metrics == ("f1", "accuracy")
    assert files == {"train": folder / "train.tsv", "validation": folder / "more.csv"}
    task, _ = _plan(
        "--task=regression", f"--input={folder}", "--train_file=train.tsv", "--text_column=0",
        "--label_column=1", "--noheader",
    )  # fmt: skip
    assert (task.kind, task.columns) == ("regression", tasks.Columns("0", None, "1", header=False))


def test_questions_with_choices(folder):
    task, files = _plan("--task=choice", f"--input={folder}", "--train_file=train.tsv")
    assert task == tasks.choice() and files == {"train": folder / "train.tsv"}
    (folder / "train").mkdir()
    (folder / "dev").mkdir()
    task, files = _plan("--task=race", f"--input={folder}")  # folders, and no test
    assert task == tasks.TASKS["race"]
    assert files == {"train": folder / "train", "validation": folder / "dev"}


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("--task=mpc --input={d}", "there is no task 'mpc' (did you mean 'mrpc'?): tasks are"),
        (
            "--task=sst2",
            "--task=sst2 needs --input=DIR, the folder with train.tsv, dev.tsv, test.tsv",
        ),
        (
            "--task=sst2 --input={d}/none",
            "there is no file {d}/none/train.tsv for the train split (--train_file names "
            "another, --train_file= leaves the split out)",
        ),
        (
            "--task=sst2 --input={d} --text_column=text",
            "--text_column is for --task=classification and --task=regression: the columns and "
            "labels of sst2 are known",
        ),
        ("--task=sst2 --input={d} --noheader", "--header is for --task=classification"),
        (
            "--task=choice",
            "--task=choice needs its files: --train_file, --validation_file, --test_file",
        ),
        (
            "--task=choice --train_file={d}/train.tsv --labels=A,B",
            "--labels is for --task=classification and --task=regression",
        ),
        ("--task=swag --input={d}", "there is no file {d}/train.csv"),
        (
            "--task=race --train_file={d} --format=jsonl",
            "--format is for tasks of tables: the files of race have one format",
        ),
        (
            "--task=classification --text_column=text",
            "--task=classification needs its files: --train_file, --validation_file, --test_file",
        ),
        (
            "--task=regression --train_file={d}/train.tsv",
            "--task=regression needs --text_column, the name or index of the text",
        ),
        (
            "--task=classification --train_file={d}/train.tsv --text_column=text",
            "--label_column is missing: only a test file may lack labels",
        ),
        (
            "--task=regression --train_file={d}/train.tsv --text_column=a --label_column=b "
            "--labels=x,y",
            "a regression task has scores and no labels: remove the labels",
        ),
        (
            "--task=classification --train_file={d}/train.tsv --text_column=a --label_column=b "
            "--labels=x,x",
            "label 'x' is named twice",
        ),
        (
            "--task=classification --train_file={d}/train.tsv --text_column=a --label_column=a",
            "column 'a' is given twice",
        ),
        (
            "--task=classification --train_file={d}/train.tsv --validation_file={d}/./train.tsv "
            "--text_column=a --label_column=b",
            "{d}/train.tsv is used twice, as the train and the validation split",
        ),
    ],
)
def test_errors_of_flags(folder, arguments, message):
    with pytest.raises(UserError) as error:
        _plan(*arguments.format(d=folder).split())
    assert message.format(d=folder) in str(error.value)


def test_builders_have_the_flags_of_their_kinds():
    """`build` gives them to a builder by their names; the others change the task."""
    values = flags.FlagValues()
    build_task_shards.define_flags(values)
    of_tasks = {"split_words", "prefix", "punctuation", "answers"}
    of_tasks |= {"bleu_tokenization", "rouge_words"}
    of_tasks |= {"negative_columns", "score_range", "task_name", "teacher_scores_column"}
    for kind in tasks.KINDS.values():
        names = {each.name for each in dataclasses.fields(kinds.load(kind.builder).Builder)}
        assert set(kind.flags) - of_tasks <= names
        assert names - {"files", "rows", "report"} <= set(values)
        assert set(kind.flags) <= set(values)


def _execution(folder, *arguments):
    values = flags.FlagValues()
    build_task_shards.define_flags(values)
    argv = values(["build_task_shards", f"--input={folder}", *arguments])
    _, files = build_task_shards.plan(values)
    return build_task_shards.choose_execution(argv, values, files)


def test_small_files_start_no_processes(folder, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert _execution(folder, "--task=rte") == Execution()
    assert _execution(folder, "--task=rte", "--workers=3") == Execution(3)
    beam = _execution(folder, "--task=rte", "--runner=beam", "--", "--direct_num_workers=2")
    assert beam == Execution(engine=Engine("beam", ("--direct_num_workers=2",)))
    for path in folder.glob("*.tsv"):
        os.truncate(path, 3 << 20)
    assert _execution(folder, "--task=rte") == Execution(6)
    assert _execution(folder, "--task=rte", "--test_file=") == Execution()
    with pytest.raises(UserError, match="unexpected argument 'more'"):
        _execution(folder, "--task=rte", "more")


def test_the_texts_of_a_ranking_and_of_folders_count_too(folder, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    (folder / "run").write_text("1 2 3\n")
    (folder / "texts.tsv").write_text("x" * 100)
    (folder / "train" / "middle").mkdir(parents=True)
    (folder / "train" / "middle" / "1.txt").write_text("x" * 100)
    ranked = ("--task=ranking", "--validation_file=run", "--queries=run", "--documents=texts.tsv")
    read = ("--task=race", "--validation_file=")
    assert _execution(folder, *ranked) == _execution(folder, *read) == Execution()
    os.truncate(folder / "texts.tsv", 8 << 20)
    os.truncate(folder / "train" / "middle" / "1.txt", 8 << 20)
    assert _execution(folder, *ranked) == _execution(folder, *read) == Execution(6)


@pytest.mark.parametrize("name", ["queries", "documents", "qrels"])
def test_the_texts_of_a_ranking_are_there(folder, name):
    (folder / "run").write_text("1 2 3\n")
    names = {"queries": "run", "documents": "run", "qrels": "run"} | {name: "none.tsv"}
    with pytest.raises(UserError, match=f"--{name}: there is no file .*none.tsv"):
        _execution(
            folder, "--task=ranking", "--validation_file=run",
            *(f"--{flag}={file}" for flag, file in names.items()),
        )  # fmt: skip


@pytest.mark.slow
def test_command_line(tmp_path):
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    vocabulary = "[PAD] [UNK] [CLS] [SEP] [MASK] good bad film ##s".split()
    (tokenizer / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    (tokenizer / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    (tmp_path / "train.csv").write_text('text,stars\n"good, films",1\nbad,0\n')

    def run(*arguments):
        return commands.run("tfrecords_tools.build_task_shards", *arguments)

    flags_given = (
        "--task=classification",
        f"--input={tmp_path}",
        "--train_file=train.csv",
        "--text_column=text",
        "--label_column=stars",
        f"--tokenizer={tokenizer}",
        f"--output={tmp_path / 'out'}",
    )
    done = run(*flags_given, "--max_length=32")
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    assert first == ("train: 2 examples; 9 tokens; 0 cut at 32 tokens; 0 1 (50.0%), 1 1 (50.0%)")
    assert last.startswith(f"{tmp_path / 'out'}: classification, 2 examples, 9 tokens, ")
    assert manifest.read(tmp_path / "out").totals.examples == 2
    done = run(*flags_given[:4], "--tokenizer=x", "--output=y")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == (
        "error: --label_column is missing: only a test file may lack labels, and with "
        "--unlabelled_train the train file"
    )
    done = run("--task=sst2", "--output=y")
    assert done.stderr.splitlines()[-1] == "error: --tokenizer is missing; --help says what it is"


def test_a_train_file_may_go_without_labels_if_it_is_said(tmp_path):
    (tmp_path / "train.tsv").write_text("text\nx\n")
    generic = "--task=classification", f"--input={tmp_path}", "--text_column=text", "--labels=a,b"
    task, files = _plan(*generic, "--train_file=train.tsv", "--unlabelled_train")
    assert (task.columns.label, set(files)) == (None, {"train"})
    with pytest.raises(UserError, match="with --unlabelled_train the train file"):
        _plan(*generic, "--train_file=train.tsv")
    with pytest.raises(UserError, match="--unlabelled_train is for .*, not for --task=squad1"):
        _plan("--task=squad1", f"--input={tmp_path}", "--unlabelled_train")
