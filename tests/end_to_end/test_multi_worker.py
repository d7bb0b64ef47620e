"""Two worker processes end at the weights of one, and at what one remembers of each row."""

import dataclasses
import functools
import json
import signal
import socket
import time

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.data import ShardDataset
from official.distribution import strategies
from official.saving import checkpoints
from official.training.trainer import Trainer
from tests import commands, embedding_tasks, small
from tests.systems import SYSTEMS, shard_folder


def free_ports(count):
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def start(folder, name, *flags, environment=None):
    return commands.Command(
        "official.main", "--mode=train_and_eval", f"--config={folder / 'run.yaml'}",
        f"--data={folder / 'shards'}", f"--validation_data={folder / 'shards'}",
        f"--model_dir={folder / name}", *flags, environment=environment, merge=True,
    )  # fmt: skip


def start_two(folder, names, *flags, second=()):
    """Two workers; `names` are those of their model folders. The second one has more flags."""
    workers = [f"localhost:{port}" for port in free_ports(2)]
    return [
        start(
            folder,
            name,
            "--distribution_strategy=multi_worker",
            *flags,
            *(second if i == 1 else ()),
            environment={
                "TF_CONFIG": json.dumps(
                    {"cluster": {"worker": workers}, "task": {"type": "worker", "index": i}}
                )
            },
        )
        for i, name in enumerate(names)
    ]


def end(processes, *statuses):
    """Waits for processes to end with these exit statuses; returns what they have said."""
    for process in processes:
        process.wait(300)
    outputs = [process.output() for process in processes]
    for process, output, status in zip(processes, outputs, statuses, strict=True):
        assert process.returncode == status, output
        assert "Traceback" not in output
    return outputs


def bert(folder):
    config = small.replace(small.config(), steps=20, accumulation=2)
    small.shard_folder(folder, config)
    return config


def system(folder, name):
    """A published system with dropout."""
    config = small.config(**SYSTEMS[name], recipe__steps=20)
    rates = {"dropout", "attention_dropout", "inner_dropout"}
    rates &= {field.name for field in dataclasses.fields(config.encoder)}
    encoder = dataclasses.replace(config.encoder, **dict.fromkeys(rates, 0.1))
    config = dataclasses.replace(config, encoder=encoder)
    shard_folder(folder, config)
    return config


def vectors(folder, **options):
    """Vectors of texts, each of which is compared with those of both workers."""
    embedding_tasks.shards(folder, embedding_tasks.TRIPLES, train=80, validation=20)
    objective = {"type": "sentence_embedding", "symmetric": True, **options}
    return embedding_tasks.config(
        objectives=[objective], encoder__dropout=0.1, recipe__steps=20, recipe__distinct_texts=True
    )


SPECIAL = {
    "bert": bert,
    "sentence_embedding": vectors,
    "cached_rows": functools.partial(vectors, cached_rows=2),
}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", [*SPECIAL, *SYSTEMS])
def test_two_workers_equal_one_device(name, tmp_path):
    """Sums over workers, with accumulation; sparse sums, dropout, and the states of each row."""
    shards = tmp_path / "shards"
    config = SPECIAL[name](shards) if name in SPECIAL else system(shards, name)
    half = config.recipe.steps // 2
    config = small.replace(
        config, precision="float64", report_every=10, save_every=half, eval_every=half
    )
    configs.save(config, tmp_path / "run.yaml")
    one = start(tmp_path, "one", "--override=recipe.accumulation=1")
    outputs = end((one, *start_two(tmp_path, ["two", "two"])), 0, 0, 0)
    wanted = checkpoints.load_variables(tmp_path / "one", "last", optimizer=True)
    actual = checkpoints.load_variables(tmp_path / "two", "last", optimizer=True)
    assert wanted.keys() == actual.keys()
    streamed = config.segments is not None and config.segments.format == "stream"
    assert ("memory/states" in wanted) == streamed
    for path, value in wanted.items():
        if value.dtype == bool:
            np.testing.assert_array_equal(actual[path], value, err_msg=path)
            continue
        scale = max(np.abs(value).max(), 1e-300)
        assert np.abs(actual[path] - value).max() <= 1e-9 * scale, path
    figures = [
        [json.loads(line) for line in (tmp_path / n / "metrics.jsonl").read_text().splitlines()]
        for n in ("one", "two")
    ]
    assert [f["step"] for f in figures[0]] == [f["step"] for f in figures[1]]
    for a, b in zip(*figures, strict=True):
        assert b["loss"] == pytest.approx(a["loss"], rel=1e-9)
    last = f"step {config.recipe.steps}/{config.recipe.steps}"
    assert last in outputs[1] and last not in outputs[2]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", ["xlnet_stream", "elmo"])
def test_two_workers_remember_rows_in_bfloat16(name, tmp_path):
    """What is remembered has the values that one process remembers, but for the sums' order."""
    config = small.replace(system(tmp_path / "shards", name), precision="mixed_bfloat16", steps=4)
    configs.save(config, tmp_path / "run.yaml")
    end((start(tmp_path, "one"), *start_two(tmp_path, ["two", "two"])), 0, 0, 0)
    wanted, actual = (
        checkpoints.load_variables(tmp_path / folder, "last", optimizer=True)
        for folder in ("one", "two")
    )
    states = wanted["memory/states"]
    assert np.abs(states).max() > 0.1
    np.testing.assert_allclose(actual["memory/states"], states, atol=0.02 * np.abs(states).max())
    # They are values of bfloat16: the low half of a float32 is empty.
    assert not (actual["memory/states"].view(np.uint32) & 0xFFFF).any()


@pytest.mark.slow
def test_workers_with_other_settings_stop_before_they_make_variables(tmp_path):
    configs.save(bert(tmp_path / "shards"), tmp_path / "run.yaml")
    other = "--override=encoder.hidden_size=32", "--override=seed=7", "--mode=train"
    outputs = end(start_two(tmp_path, ["two", "two"], second=other), 2, 2)
    for output in outputs:
        words = output[output.index("error:") :]
        assert "the workers were started with different settings (" in words
        for name, values in {
            "seed": (0, 7),
            "encoder.hidden_size": (16, 32),
            "--mode": ('"train_and_eval"', '"train"'),
        }.items():
            assert f"{name}: {values[0]} on worker 0, {values[1]} on worker 1" in words
    assert not (tmp_path / "two").exists()


@pytest.mark.slow
def test_workers_that_hold_different_checkpoints_stop(tmp_path):
    config = bert(tmp_path / "shards")
    configs.save(config, tmp_path / "run.yaml")
    strategy = tf.distribute.get_strategy()
    source = ShardDataset(tmp_path / "shards", config, "train", training=True)
    model = strategies.build_model(config, strategy)
    Trainer(config, model, source, strategy, tmp_path / "a").save(30)
    outputs = end(start_two(tmp_path, ["a", "b"], "--mode=train"), 2, 2)
    for output in outputs:
        words = output[output.index("error:") :]
        assert "the workers do not go on from the same place: " in words
        assert f"worker 0: {tmp_path / 'a'} is at step 30 " in words
        assert f"worker 1: {tmp_path / 'b'} has no checkpoint " in words
    assert checkpoints.last_step(tmp_path / "b") is None


@pytest.mark.slow
@pytest.mark.long
def test_workers_that_are_killed_or_stopped_end_at_the_same_weights(tmp_path):
    steps = 300
    config = small.replace(
        bert(tmp_path / "shards"), steps=steps, accumulation=1, report_every=20, save_every=20
    )
    configs.save(config, tmp_path / "run.yaml")
    end(start_two(tmp_path, ["whole", "whole"]), 0, 0)

    for killed in (1, 0):
        before = checkpoints.last_step(tmp_path / "other") or 0
        processes = start_two(tmp_path, ["other", "other"])
        while (checkpoints.last_step(tmp_path / "other") or 0) <= before:
            assert processes[0].returncode is None
            time.sleep(0.02)
        processes[killed].kill()
        statuses = [2, 2]
        statuses[killed] = -signal.SIGKILL
        outputs = end(processes, *statuses)
        assert "error: another worker has ended or cannot be reached" in outputs[1 - killed]

    # Neither a report nor a save is due before the end: a signal must not wait for them.
    never = [f"--override=recipe.{key}_every={steps}" for key in ("report", "save")]
    processes = start_two(tmp_path, ["other", "other"], *never)
    processes[0].wait_for("training runs")
    time.sleep(0.3)
    processes[1].terminate()
    asked = time.monotonic()
    outputs = end(processes, 143, 143)
    took = time.monotonic() - asked
    stopped = checkpoints.last_step(tmp_path / "other")
    print(f"SIGTERM was answered after {took:.1f} s, at step {stopped}")
    assert took < 20 and f"SIGTERM: saved step {stopped}, stopping" in outputs[0]
    outputs = end(start_two(tmp_path, ["other", "other"]), 0, 0)
    assert stopped < steps and f"going on from step {stopped} of" in outputs[0]

    wanted, actual = (
        checkpoints.load(tmp_path / name, "last", optimizer=True) for name in ("whole", "other")
    )
    assert wanted.variables.keys() == actual.variables.keys() and actual.step == steps
    for path, value in wanted.variables.items():
        np.testing.assert_array_equal(actual.variables[path], value, err_msg=path)
    assert wanted.state["figures"] == actual.state["figures"] != {}
    best = [checkpoints.best(tmp_path / name) for name in ("whole", "other")]
    assert best[0] == best[1] is not None
