"""Runs whose data, configs, models and results are in a remote file system equal local ones.

TensorFlow's `ram://` is one. Its files last as long as the process. `test_flaky_runs` has another
one, which several processes share.
"""

import io
import json
import signal

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (its ops are in the model)

import official
from official import config as configs
from official import training
from official.conversion import converted_model, huggingface
from official.evaluation import layer_states, run
from official.evaluation import teacher_outputs as teachers
from official.plots import curves, figures
from official.saving import checkpoints, metrics_log
from official.serving.export import saved_model
from official.training import reporting
from official.training.stop_signal import Stopped
from official.utils import atomic, paths
from official.utils.errors import UserError
from tests import small
from tests.official.training.test_frozen_encoder import task_shards
from tfrecords_tools import inspect_shards

HEAD = {"segments": None, "corruption": None, "objectives": [{"type": "classification"}]}
pytestmark = pytest.mark.slow
SPEED = ("steps_per_second", "tokens_per_second")


@pytest.fixture(scope="module")
def ram():
    """A folder in TensorFlow's file system in memory."""
    folder = paths.path("ram://test_remote_runs")
    folder.mkdir()
    yield folder
    paths.remove_tree(folder)


def metrics(model_dir):
    """The metrics of a run without its speed."""
    return [
        (r.step, r.split, {k: v for k, v in r.metrics.items() if k not in SPEED})
        for r in metrics_log.read(model_dir)
    ]


def scalars(model_dir, split):
    """The values of all files of events, in the order of their times."""
    found = {}
    for file in (paths.path(model_dir) / split).glob("events.*"):
        for event in tf.compat.v1.train.summary_iterator(str(file)):
            for value in event.summary.value:
                if value.tag not in SPEED:
                    found[value.tag, event.step] = tf.make_ndarray(value.tensor).item()
    return found


def assert_equal_models(actual, wanted):
    """Equal bits of everything in a checkpoint, and the same files beside it."""
    variables = [checkpoints.load_variables(d, "last", optimizer=True) for d in (actual, wanted)]
    assert variables[0].keys() == variables[1].keys()
    for path, value in variables[1].items():
        np.testing.assert_array_equal(variables[0][path], value, err_msg=path)
    for file in sorted(each for each in wanted.rglob("*") if each.is_file()):
        if file.suffix in (".yaml", ".txt") or file.name.endswith(("config.json", "best.json")):
            name = file.relative_to(wanted).as_posix()
            assert (actual / name).read_bytes() == file.read_bytes(), name


@pytest.mark.long
def test_a_remote_run_is_stopped_and_goes_on_to_the_bits_of_a_local_one(
    ram, tmp_path, monkeypatch, capsys
):
    config = small.config(objectives=[{"type": "masked_lm"}])
    config = small.replace(config, eval_every=2, report_every=1)
    shards = small.shard_folder(tmp_path / "shards", config)
    remote = ram / "run"
    atomic.copy_tree(shards, remote / "shards", "manifest.json")

    def train(folder, data):
        configs.save(config, folder / "run.yaml")
        training.train(
            str(folder / "run.yaml"), str(data), folder / "model", validation_data=[data]
        )

    train(tmp_path, shards)
    save, steps = checkpoints.save, []

    def save_and_stop(model_dir, step, *args, **options):
        steps.append(step)
        if steps == [2, 4]:
            signal.raise_signal(signal.SIGTERM)
        return save(model_dir, step, *args, **options)

    monkeypatch.setattr(checkpoints, "save", save_and_stop)
    monkeypatch.setattr(reporting, "_SECONDS_BETWEEN_COPIES", 0)
    with pytest.raises(Stopped, match="SIGTERM"):
        train(remote, remote / "shards")
    train(remote, remote / "shards")
    assert f"going on from step 5 of {remote}/model" in capsys.readouterr().out
    assert steps == [2, 4, 5, 6] and checkpoints.last_step(remote / "model") == 6
    assert_equal_models(remote / "model", tmp_path / "model")
    assert metrics(remote / "model") == metrics(tmp_path / "model")
    for split in ("train", "validation"):
        wanted = scalars(tmp_path / "model", split)
        assert wanted and scalars(remote / "model", split) == wanted
    assert not list(remote.glob("**/.*"))  # nothing of what is written before
    kept = {path.name for path in (remote / "model" / "checkpoints").glob("step-*")}
    assert kept > {"step-00000005", "step-00000006"} and len(kept) == 3  # and an earlier best one
    here, there = run.evaluate(tmp_path / "model", shards), run.evaluate(remote / "model", shards)
    assert here == there
    figure = curves.draw({"run": metrics_log.read(str(remote / "model"))})
    figures.save(figure, str(remote / "curves.png"))
    assert (remote / "curves.png").read_bytes().startswith(b"\x89PNG")
    variables = remote / "model" / "checkpoints" / "step-00000006" / "variables.safetensors"
    variables.write_bytes(variables.read_bytes()[:-1])
    with pytest.raises(UserError, match=f"{variables}: damaged .its SHA-256 is not the one"):
        checkpoints.load(remote / "model", "6")
    assert checkpoints.load(remote / "model", "last").step == 5


@pytest.fixture(scope="module")
def task(ram):
    """A classification of texts, from files to a tuned model, all in `ram`."""
    folder = ram / "task"
    folder.mkdir()
    task_shards(folder)
    config = small.config(**HEAD, recipe__steps=10, recipe__eval_every=5)
    training.train(config, folder / "shards", folder / "model")
    return folder


def local_copy(remote, local):
    """Copies a remote folder, as other tools do."""
    for path in remote.rglob("*"):
        to = local / str(path).removeprefix(f"{remote}/")
        if path.is_dir():
            to.mkdir(parents=True, exist_ok=True)
        else:
            to.parent.mkdir(parents=True, exist_ok=True)
            paths.copy(path, to)
    return local


def texts_of(folder):
    lines = (folder / "test.jsonl").read_text().splitlines()
    return [json.loads(line)["a"] for line in lines]


def test_shards_of_a_task(task, tmp_path, capsys):
    assert inspect_shards.verify(task / "shards") == []
    assert "classification" in "\n".join(inspect_shards.summary(task / "shards"))
    copied = local_copy(task / "shards", tmp_path / "shards")
    assert inspect_shards.verify(copied) == []
    shard = next((task / "shards").glob("train-*"))
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-1])
    said = f"{shard} is cut: expected {len(whole)} bytes, found {len(whole) - 1}"
    assert inspect_shards.verify(task / "shards") == [said]
    shard.write_bytes(whole)
    moved = (task / "shards" / "manifest.json").rename(task / "manifest.json")
    with pytest.raises(UserError, match="shards is not a complete shard folder; make it with"):
        inspect_shards.verify(task / "shards")
    moved.rename(task / "shards" / "manifest.json")
    with pytest.raises(UserError, match=f"{task}/none: no such folder; name a folder that build"):
        inspect_shards.verify(task / "none")


@pytest.mark.slow
@pytest.mark.long
def test_predictions_and_answers(task, tmp_path):
    local_copy(task / "model", tmp_path / "model")
    local_copy(task / "shards", tmp_path / "shards")
    for name in ("predictions.tsv", "predictions.jsonl"):
        run.predict(str(task / "model"), str(task / "shards"), str(task / name))
        run.predict(tmp_path / "model", tmp_path / "shards", tmp_path / name)
        assert (task / name).read_bytes() == (tmp_path / name).read_bytes()
    texts = texts_of(task)
    here, there = official.load(tmp_path / "model"), official.load(str(task / "model"))
    assert here.classify(texts) == there.classify(texts)
    np.testing.assert_array_equal(here.encode(texts), there.encode(texts))
    labels = [row.split("\t")[1] for row in (task / "predictions.tsv").read_text().splitlines()[1:]]
    assert [answer.label for answer in there.classify(texts)] == labels
    with pytest.raises(
        UserError, match=f"{task}/none: not a model folder: there is no config.yaml"
    ):
        official.load(f"{task}/none")


def test_a_saved_model(task):
    saved_model.export(str(task / "model"), str(task / "saved"))
    assert not (task / "saved" / ".unfinished").exists()
    texts = texts_of(task)
    served = tf.saved_model.load(str(task / "saved")).signatures["serving_default"]
    answers = served(**{next(iter(served.structured_input_signature[1])): tf.constant(texts)})
    wanted = official.load(task / "model").classify(texts)
    for probabilities, answer in zip(answers["probabilities"].numpy(), wanted, strict=True):
        expected = list(answer.probabilities.values())
        np.testing.assert_allclose(probabilities, expected, rtol=0, atol=1e-6)
    with pytest.raises(UserError, match=f"{task}/saved is there already: name another folder"):
        saved_model.export(task / "model", task / "saved")


def test_conversion_there_and_back(task):
    huggingface.write(task / "model", str(task / "hf"), "best")
    assert {p.name for p in (task / "hf").iterdir()} == {
        "README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
        "vocab.txt",
    }  # fmt: skip
    converted_model.write(huggingface.read(str(task / "hf")), task / "back")
    texts = texts_of(task)
    wanted = official.load(task / "model").classify(texts)
    for actual, answer in zip(official.load(task / "back").classify(texts), wanted, strict=True):
        assert actual.label == answer.label
        assert actual.probabilities == pytest.approx(answer.probabilities, abs=1e-6)
    (task / "hf" / "model.safetensors").write_bytes(b"no")
    with pytest.raises(UserError, match=f"{task}/hf/model.safetensors is broken"):
        huggingface.read(task / "hf")
    (task / "hf" / "model.safetensors").unlink()
    with pytest.raises(UserError, match=f"{task}/hf/model.safetensors is missing"):
        huggingface.read(task / "hf")


@pytest.mark.long
def test_what_other_models_computed_before(task):
    """Cached outputs of a teacher, and cached states of an encoder, are read from remote files."""
    data, quiet = task / "shards", lambda line: None
    teachers.write([str(task / "model")], data, ["train"], task / "outputs", report=quiet)
    distillation = {"type": "distillation", "cache": str(task / "outputs"), "cross_entropy": 1.0}
    objectives = [*HEAD["objectives"], distillation]
    student = small.config(**HEAD | {"objectives": objectives}, recipe__steps=4)
    training.train(student, data, task / "student", evaluate=False, report=quiet)
    assert checkpoints.last_step(task / "student") == 4
    layer_states.write(task / "model", data, [], task / "states", report=quiet)
    mixed = [{"type": "classification", "pooling": "mean", "mix": {}}]
    frozen = small.config(
        **HEAD | {"objectives": mixed},
        recipe__steps=4,
        recipe__layer_states=str(task / "states"),
        recipe__freeze_encoder=True,
    )
    training.train(frozen, data, task / "frozen", init=task / "model", report=quiet)
    assert checkpoints.last_step(task / "frozen") == 4


def test_a_config_of_another_run_is_refused_there_too(task):
    config = small.config(**HEAD)
    with pytest.raises(UserError, match=f"{task}/model/config.yaml: this model folder was made"):
        training.train(config, task / "shards", task / "model")


def test_numpy_reads_vectors_from_remote_files(task):
    from official.serving.vectors import vector_files

    texts = texts_of(task)
    loaded = official.load(task / "model").embedder
    vector_files.write(loaded, texts, f"{task}/v.npy", report=lambda line: None)
    read = np.load(io.BytesIO((task / "v.npy").read_bytes()))
    # The first batch runs without a graph, which may round differently from later ones.
    again = official.load(task / "model").embedder
    np.testing.assert_array_equal(read, again.texts(texts, layer=-1))
    assert json.loads((task / "model" / "task.json").read_text())["max_length"] == 16
