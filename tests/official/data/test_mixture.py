import dataclasses
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official import tasks, tokenizers
from official.data import ShardDataset, mixture
from official.data.mixture import Mixture
from official.distribution import strategies
from official.distribution.strategies import distribute
from official.evaluation.evaluator import Evaluator
from official.evaluation.run import write_predictions
from official.modeling.model import Model
from official.saving import checkpoints, metrics_log, named_arrays, task_file
from official.serving.export import saved_model
from official.training import resolve
from official.training.trainer import Trainer
from official.utils.errors import UserError
from tests import commands, small
from tfrecords_tools.tasks import builder as task_builder

ONE = tf.distribute.get_strategy()
# Name, size, and columns; the first word of a text tells its label or score.
RTE, MNLI, STSB = tasks.find("rte"), tasks.find("mnli"), tasks.find("stsb")
SIZES = {"rte": 12, "mnli": 40, "stsb": 20}


def _file(path, task, count, seed):
    rng = np.random.default_rng(seed)
    columns = [task.columns.text, task.columns.text_pair, task.columns.label]
    lines = ["\t".join(columns)]
    for _ in range(count):
        number = int(rng.integers(len(task.labels) or 5))
        first = small.WORDS[number]
        target = task.labels[number] if task.labels else str(float(number))
        lines.append(f"{first} {' '.join(rng.choice(small.WORDS, 3))}\tba\t{target}")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A shard folder of each task."""
    parent = tmp_path_factory.mktemp("tasks")
    tokenizer = tokenizers.load(small.tokenizer_folder(parent / "tokenizer"))
    result = {}
    for number, task in enumerate((RTE, MNLI, STSB)):
        files = {"train": parent / f"{task.name}.tsv", "validation": parent / f"{task.name}-v.tsv"}
        _file(files["train"], task, SIZES[task.name], number)
        _file(files["validation"], task, 13, 10 + number)
        result[task.name] = parent / task.name
        task_builder.build(
            task, files, tokenizer, result[task.name], 16, report=lambda line: None
        )  # fmt: skip
    return result


def _config(names=("rte", "mnli", "stsb"), **changes):
    kinds = {"rte": "classification", "mnli": "classification", "stsb": "regression"}
    raw = {
        "name": "several",
        "encoder": configs.to_dict(small.config())["encoder"],
        "objectives": [{"type": kinds[name], "task": name} for name in names],
        "recipe": {
            "steps": 12, "batch_size": 4, "save_every": 5, "keep_checkpoints": 9,
            "task_sampling": "annealed", "precision": "float32",
            "optimizer": {"learning_rate": 1e-2, "weight_decay": 0.0}, **changes,
        },
    }  # fmt: skip
    labels = {task.name: task.labels for task in (RTE, MNLI, STSB)}
    return resolve.fill_in(configs.from_dict(raw), 125, labels)


def _mixture(folders, config, split="train", training=True, names=("rte", "mnli", "stsb")):
    return Mixture([ShardDataset(folders[name], config, split, training) for name in names], config)


def _plain(batch):
    return {name: value.numpy() for name, value in batch.items()}


def _same(a, b):
    assert set(a) == set(b)
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


def test_tasks_are_drawn_by_their_sizes():
    sizes, steps = [1000, 8000, 27000], 30_000
    drawn = mixture.choices(mixture.rates(sizes, steps), 1)
    shares = np.bincount(drawn) / steps
    np.testing.assert_allclose(shares, np.array(sizes) / sum(sizes), atol=0.01)
    np.testing.assert_array_equal(drawn, mixture.choices(mixture.rates(sizes, steps), 1))
    assert (drawn != mixture.choices(mixture.rates(sizes, steps), 2)).any()


def test_annealing_ends_near_alike():
    sizes, steps = [1000, 8000, 27000], 60_000
    drawn = mixture.choices(mixture.rates(sizes, steps, "annealed"), 1)
    for place, alpha in ((0, 1.0), (0.5, 0.6), (1, 0.2)):
        middle = int(place * (steps - 3000)) + 1500
        near = drawn[middle - 1500 : middle + 1500]
        wanted = np.array(sizes, float) ** (1 - 0.8 * middle / (steps - 1))
        assert 1 - 0.8 * middle / (steps - 1) == pytest.approx(alpha, abs=0.03)
        shares = np.bincount(near, minlength=3) / len(near)
        np.testing.assert_allclose(shares, wanted / wanted.sum(), atol=0.03)


def test_each_batch_is_of_one_task_and_has_nothing_for_the_others(folders):
    config = _config()
    source = _mixture(folders, config)
    assert source.num_examples == sum(SIZES.values())
    drawn = mixture.choices(mixture.rates(list(SIZES.values()), 12, "annealed"), config.seed)
    batches = [_plain(batch) for batch in source.dataset(4)]
    assert len(batches) == 12 and len(set(drawn)) == 3
    for number, batch in zip(drawn, batches, strict=True):
        mine = list(SIZES)[number]
        assert "label" not in batch and "score" not in batch
        first = batch["token_ids"][:, 1] - len(small.SPECIALS)  # the number of the word
        for name in SIZES:
            target = batch[f"{name}/{'score' if name == 'stsb' else 'label'}"]
            weights = batch[f"{name}/example_weights"]
            np.testing.assert_array_equal(weights, np.full(4, float(name == mine)))
            np.testing.assert_array_equal(target, first if name == mine else np.zeros(4))


@pytest.mark.slow
@pytest.mark.long
def test_it_goes_on_from_any_step_and_on_any_number_of_replicas(folders):
    config = _config()
    source = _mixture(folders, config)
    batches = [_plain(batch) for batch in source.dataset(4)]
    for start in (1, 11):
        rest = [_plain(batch) for batch in source.dataset(4, start_step=start)]
        assert len(rest) == 12 - start
        for ours, theirs in zip(rest, batches[start:], strict=True):
            _same(ours, theirs)
    halves = [_plain(batch) for batch in source.dataset(4, start_step=3, replicas_per_worker=2)]
    assert len(halves) == 2 * 9
    for i, whole in enumerate(batches[3:]):
        pair = halves[2 * i : 2 * i + 2]
        _same({name: np.concatenate([half[name] for half in pair]) for name in whole}, whole)


def test_the_fingerprint_is_of_all_tasks_in_their_order(folders):
    config = _config()
    prints = {
        _mixture(folders, config, split, names=names).fingerprint
        for split, names in (
            ("train", ("rte", "mnli", "stsb")),
            ("train", ("mnli", "rte", "stsb")),
            ("train", ("rte", "mnli")),
            ("validation", ("rte", "mnli", "stsb")),
        )
    }
    assert len(prints) == 4
    assert _mixture(folders, config).fingerprint in prints


def test_a_head_learns_from_its_own_task_alone(folders):
    config = _config()
    model = Model(config)
    (batch,) = ShardDataset(folders["mnli"], config, "validation").dataset(13)
    losses, metrics = model.terms(batch)
    sums = model.weight_sums(batch)
    assert {name: float(value) for name, value in sums.items()} == {
        "rte": 0.0, "mnli": 13.0, "stsb": 0.0,
    }  # fmt: skip
    assert float(losses["rte"]) == float(losses["stsb"]) == 0.0
    # What a model of that task alone says, with the same weights.
    alone = dataclasses.replace(
        config, objectives=(dataclasses.replace(config.objectives[1], task=""),)
    )
    single = Model(alone)
    ours = model.variables_by_path()
    for path, variable in single.variables_by_path().items():
        variable.assign(ours[path.replace("classification/", "mnli/", 1)])
    (plain,) = ShardDataset(folders["mnli"], alone, "validation").dataset(13)
    theirs, _ = single.terms(plain)
    np.testing.assert_allclose(losses["mnli"], theirs["classification"], rtol=1e-6)
    np.testing.assert_allclose(
        model.predictions(batch)["mnli/probabilities"],
        single.predictions(plain)["probabilities"],
        rtol=1e-5,
    )


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("replicas, accumulation, kind", [
    (1, 2, "adamw"), (2, 1, "lamb"),
])  # fmt: skip
def test_a_step_leaves_the_heads_of_other_tasks_as_they_are(
    folders, tmp_path, mirrored, replicas, accumulation, kind
):
    optimizer = {"type": kind, "learning_rate": 1e-2, "bias_correction": True}
    config = _config(accumulation=accumulation, optimizer=optimizer)
    strategy = ONE if replicas == 1 else mirrored(replicas)
    source = _mixture(folders, config)
    model = strategies.build_model(config, strategy)
    trainer = Trainer(config, model, source, strategy, tmp_path)
    batches = iter(distribute(strategy, source, 4))
    drawn = mixture.choices(mixture.rates(list(SIZES.values()), 12, "annealed"), config.seed)[:5]
    assert len(set(drawn)) > 1
    before = named_arrays.values(trainer.variables)
    for number in drawn:
        trainer.train_step.run(batches, 1)
        after = named_arrays.values(trainer.variables)
        for task in SIZES:
            own = [path for path in after if f"/{task}/" in f"/{path}"]
            assert len(own) == 6  # kernel and bias, and the two moments of each
            changed = {path for path in own if (before[path] != after[path]).any()}
            assert changed == (set(own) if task == list(SIZES)[number] else set()), task
        moved = [p for p in after if p.startswith("encoder/") and (before[p] != after[p]).any()]
        assert len(moved) > 15
        before = after
    for place, task in enumerate(SIZES):
        assert after[f"optimizer/updates_{task}"] == (drawn == place).sum()


def _train(folders, config, model_dir, validation=None):
    model = strategies.build_model(config, ONE)
    source = _mixture(folders, config)
    trainer = Trainer(config, model, source, ONE, model_dir)
    figures = trainer.train(validation)
    configs.save(config, model_dir / "config.yaml")
    source.tokenizer.save(model_dir / "tokenizer")
    task_file.save(source.manifest, model_dir)
    return model, figures


@pytest.mark.slow
@pytest.mark.long
def test_training_evaluation_resumption_prediction_and_export(folders, tmp_path):
    config = _config()
    validation = _mixture(folders, config, "validation", training=False)
    model, figures = _train(folders, config, tmp_path / "model", validation)

    # Figures of each task are those of the task evaluated by itself; the average decides.
    evaluator = Evaluator(config, model, ONE)
    firsts = []
    for source, metric in zip(validation.sources, ("accuracy", "accuracy", "pearson"), strict=True):
        actual = evaluator.run(source)
        firsts.append(actual[metric])
        for name in ("loss", source.task_name, metric):
            assert figures[f"{source.task_name}/{name}"] == pytest.approx(actual[name], rel=1e-6)
    assert figures["average"] == pytest.approx(np.mean(firsts))
    assert figures["stsb/loss"] == figures["stsb/stsb"] == figures["stsb/stsb_squared_error"]
    assert not {name for name in figures if name.startswith("rte/") and "mnli" in name}
    best = checkpoints.best(tmp_path / "model")
    assert (best["metric"], best["value"]) == ("average", figures["average"])

    # From the checkpoint in the middle to the same weights, bit for bit.
    (tmp_path / "again" / "checkpoints").mkdir(parents=True)
    shutil.copytree(
        tmp_path / "model" / "checkpoints" / "step-00000005",
        tmp_path / "again" / "checkpoints" / "step-00000005",
    )
    _train(folders, config, tmp_path / "again")
    _same(
        checkpoints.load_variables(tmp_path / "again", "last", optimizer=True),
        checkpoints.load_variables(tmp_path / "model", "last", optimizer=True),
    )

    # One head predicts its task, and is served alone.
    source = ShardDataset(folders["mnli"], config, "validation")
    write_predictions(Evaluator(config, model, ONE), source, tmp_path / "predictions.jsonl")
    lines = map(json.loads, (tmp_path / "predictions.jsonl").read_text().splitlines())
    predicted = [[line["probabilities"][name] for name in MNLI.labels] for line in lines]
    done = saved_model.export(tmp_path / "model", tmp_path / "saved", task="mnli")
    assert done == ("pair", 16)
    rows = (folders["mnli"].parent / "mnli-v.tsv").read_text().splitlines()[1:]
    first, second = zip(*(row.split("\t")[:2] for row in rows), strict=True)
    serve = tf.saved_model.load(tmp_path / "saved").signatures["serving_default"]
    answers = serve(text=tf.constant(first), text_b=tf.constant(second))
    np.testing.assert_allclose(answers["probabilities"], predicted, atol=1e-5)
    assert set(answers["label"].numpy()) <= {label.encode() for label in MNLI.labels}
    for task, message in (
        (None, "--task: missing: the tasks that this model has heads for are rte, mnli, stsb"),
        ("qqp", "--task: 'qqp' is not known: the tasks that this model has heads for are rte, mn"),
    ):
        with pytest.raises(UserError, match=message):
            saved_model.export(tmp_path / "model", tmp_path / "other", task=task)


@pytest.mark.slow
@pytest.mark.long
def test_command_line(folders, tmp_path):
    def run(*options):
        return commands.run("official.main", *options)

    config = configs.to_dict(_config(steps=3))
    for objective in config["objectives"]:
        objective.pop("labels", None)  # they come from the data
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    every = f"--data={','.join(map(str, folders.values()))}"
    model = f"--model_dir={tmp_path}/model"
    done = run("--mode=train_and_eval", f"--config={tmp_path}/config.yaml", every, model)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{sum(SIZES.values())} training examples, 3 steps of 4 on" in done.stdout
    lines = (tmp_path / "model" / "metrics.jsonl").read_text().splitlines()
    marks = ("step", "split", "scale")
    figures = {k: v for k, v in json.loads(lines[-1]).items() if k not in marks}
    done = run("--mode=eval", every, model, f"--output={tmp_path}/metrics.json")
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, last = done.stdout.splitlines()
    actual = {line.split()[0]: float(line.split()[1]) for line in lines}
    assert actual == pytest.approx(metrics_log.figures(figures), abs=1e-5) and "average" in actual
    assert last == f"wrote {tmp_path}/metrics.json"
    written = json.loads((tmp_path / "metrics.json").read_text())
    assert written == {"validation": pytest.approx(figures, abs=1e-5)}
    done = run("--mode=eval", every, model, f"--output={tmp_path}/metrics.txt")
    assert done.returncode == 2 and not (tmp_path / "metrics.txt").exists()
    assert done.stderr.endswith("metrics are written as .json: name such a file\n")
    done = run("--mode=predict", every, model, f"--output={tmp_path}/p.tsv", "--split=validation")
    assert done.returncode == 2
    assert done.stderr.endswith("error: --data: predict takes one folder at a time\n")


def test_what_does_not_go_together(folders, tmp_path):
    config = _config()
    with pytest.raises(UserError, match="rte is of the task rte again: name a folder for each"):
        _mixture(folders, config, names=("rte", "mnli", "rte"))
    two = _config(names=("rte", "mnli"))
    with pytest.raises(UserError) as error:
        _mixture(folders, two).check(two)
    assert str(error.value).endswith(
        "tasks mnli, rte, stsb, and objectives for mnli, rte: give an objective for each, such as "
        "`type: classification` with `task: stsb`"
    )
    with pytest.raises(UserError, match="tasks mnli, rte, and objectives for mnli, rte, stsb"):
        _mixture(folders, config, names=("rte", "mnli")).check(config)
    _mixture(folders, config, "validation", False, names=("rte", "mnli")).check(config)
    with pytest.raises(UserError, match="its task is stsb, and the model has heads for rte, mnli:"):
        ShardDataset(folders["stsb"], two, "validation").check(two, predicting=True)
    with pytest.raises(UserError, match="task_sampling: 'even' is not one of proportional, equal"):
        _config(task_sampling="even")
    longer = tmp_path / "longer"
    tokenizer = tokenizers.load(folders["rte"] / "tokenizer")
    path = folders["rte"].parent / "rte.tsv"
    task_builder.build(RTE, {"train": path}, tokenizer, longer, 20, report=lambda line: None)
    with pytest.raises(UserError, match="cannot be read together: max_length 20 in the first, 16"):
        Mixture([ShardDataset(f, config) for f in (longer, folders["mnli"])], config)
    other = tokenizers.load(small.tokenizer_folder(tmp_path / "tokenizer", small.WORDS[:-1]))
    task_builder.build(RTE, {"train": path}, other, tmp_path / "o", 16, report=lambda line: None)
    with pytest.raises(UserError, match="cannot be read together: tokenizer"):
        Mixture([ShardDataset(f, config) for f in (tmp_path / "o", folders["mnli"])], config)
