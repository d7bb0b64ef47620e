"""Two worker processes end at the weights of one, and at what one remembers of each row."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

from official import config as config_lib
from official.training import checkpoints
from tests import small
from tests.systems import SYSTEMS, shard_folder


def free_ports(count):
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def start(folder, name, *flags, environment=None):
    return subprocess.Popen(
        [
            sys.executable, "-m", "official.main", "--mode=train_and_eval",
            f"--config={folder / 'run.yaml'}", f"--data={folder / 'shards'}",
            f"--validation_data={folder / 'shards'}", f"--model_dir={folder / name}", *flags,
        ],
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip


def bert(folder):
    config = small.config(encoder__dropout=0.0, encoder__attention_dropout=0.0)
    config = small.replace(config, steps=50, accumulation=2)
    small.shard_folder(folder, config)
    return config


def xlnet(folder):
    """Permutations of rows that go on, half of them backward, into a second epoch."""
    config = small.config(**SYSTEMS["xlnet_stream"], recipe__steps=20)
    shard_folder(folder, config)
    return config


@pytest.mark.slow
@pytest.mark.parametrize("made", [bert, xlnet])
def test_two_workers_equal_one_device(tmp_path, made):
    config = made(tmp_path / "shards")
    half = config.recipe.steps // 2
    config = small.replace(
        config, precision="float64", report_every=10, save_every=half, eval_every=half
    )
    config_lib.save(config, tmp_path / "run.yaml")
    one = start(tmp_path, "one")
    workers = [f"localhost:{port}" for port in free_ports(2)]
    two = [
        start(
            tmp_path,
            "two",
            "--distribution_strategy=multi_worker",
            environment={
                "TF_CONFIG": json.dumps(
                    {"cluster": {"worker": workers}, "task": {"type": "worker", "index": i}}
                )
            },
        )
        for i in range(2)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in (one, *two)]
    for process, output in zip((one, *two), outputs, strict=True):
        assert process.returncode == 0, output
    wanted = checkpoints.load_variables(tmp_path / "one", "last", optimizer=True)
    found = checkpoints.load_variables(tmp_path / "two", "last", optimizer=True)
    assert wanted.keys() == found.keys()
    assert ("memory/states" in wanted) == (made is xlnet)
    for path, value in wanted.items():
        if value.dtype == bool:
            np.testing.assert_array_equal(found[path], value, err_msg=path)
            continue
        scale = max(np.abs(value).max(), 1e-300)
        assert np.abs(found[path] - value).max() <= 1e-9 * scale, path
    figures = [
        [json.loads(line) for line in (tmp_path / n / "metrics.jsonl").read_text().splitlines()]
        for n in ("one", "two")
    ]
    assert [f["step"] for f in figures[0]] == [f["step"] for f in figures[1]]
    for a, b in zip(*figures, strict=True):
        assert b["loss"] == pytest.approx(a["loss"], rel=1e-9)
    last = f"step {config.recipe.steps}/{config.recipe.steps}"
    assert last in outputs[1] and last not in outputs[2]
