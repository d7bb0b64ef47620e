"""Workers on two hosts, whose network is slow, loses packets, or is cut.

They end at the weights of one process, or stop in words, and the same command goes on.
"""

import contextlib
import json
import signal
import time

import numpy as np
import pytest

from official import config as configs
from official.saving import checkpoints
from tests import commands, small, two_hosts

pytestmark = [pytest.mark.slow, pytest.mark.long]

STEPS = 60
LIMIT = 60  # seconds until both have stopped


@pytest.fixture
def cable():
    try:
        cable = two_hosts.Cable(delay=0.02, loss=0.01)
    except OSError as error:
        pytest.skip(f"this process may not make a network: {error}")
    with contextlib.closing(cable):
        yield cable


@pytest.fixture
def folder(tmp_path):
    config = small.replace(
        small.config(), steps=STEPS, precision="float64", report_every=5, save_every=5
    )
    small.shard_folder(tmp_path / "shards", config)
    configs.save(config, tmp_path / "run.yaml")
    return tmp_path


def start(folder, name, *flags, **options):
    return commands.Command(
        "official.main", "--mode=train", f"--config={folder / 'run.yaml'}",
        f"--data={folder / 'shards'}", f"--model_dir={folder / name}", *flags, merge=True,
        **options,
    )  # fmt: skip


def start_worker(folder, cable, index, *flags):
    workers = [f"{address}:2222" for address in two_hosts.ADDRESSES]
    cluster = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
    return start(
        folder,
        "two",
        "--distribution_strategy=multi_worker",
        *flags,
        host=cable.hosts[index],
        environment={"TF_CONFIG": json.dumps(cluster)},
    )


def start_both(folder, cable, *flags):
    return [start_worker(folder, cable, index, *flags) for index in (0, 1)]


def wait_for_step(folder, processes, step):
    while (checkpoints.last_step(folder / "two") or 0) < step:
        assert all(process.returncode is None for process in processes), processes[0].output()
        time.sleep(0.05)


def check_weights(folder, *processes, flags=(), steps=STEPS):
    """Compares the weights of a run that ends with those of one process."""
    one = start(folder, "one", *flags)
    for process in (one, *processes):
        assert process.wait() == 0, process.output()
    wanted, actual = (
        checkpoints.load_variables(folder / name, "last", optimizer=True) for name in ("one", "two")
    )
    assert checkpoints.last_step(folder / "two") == steps and wanted.keys() == actual.keys()
    for path, value in wanted.items():
        error = np.abs(actual[path] - value).max()
        assert error <= 1e-9 * max(np.abs(value).max(), 1e-300), path


def test_a_slow_network_that_loses_packets_changes_nothing(folder, cable):
    """A tenth of a second each way."""
    cable.delay = 0.1
    flags = ("--override=recipe.steps=15",)
    check_weights(folder, *start_both(folder, cable, *flags), flags=flags, steps=15)
    assert cable.lost > 10
    print(f"{cable.lost} of {cable.sent} packets were lost")


def test_runs_go_on_after_a_cut_and_after_a_kill(folder, cable):
    """A cut of 30 s while the graph is made and in training; a worker that dies in training."""
    for at in ("graph", "training"):
        processes = start_both(folder, cable)
        if at == "graph":
            processes[0].wait_for("weights (all learn)")
        else:
            wait_for_step(folder, processes, 5)
        cable.whole = False
        asked = time.monotonic()
        for process in processes:
            assert process.wait(LIMIT) == 2
            assert "error: another worker has ended or cannot be reached" in process.output()
            assert "Traceback" not in process.output()
        print(f"cut ({at}): both have stopped after {time.monotonic() - asked:.1f} s")
        time.sleep(max(0.0, asked + 30 - time.monotonic()))
        cable.whole = True

    for killed in (1, 0):
        step = checkpoints.last_step(folder / "two")
        processes = start_both(folder, cable)
        wait_for_step(folder, processes, step + 5)
        processes[killed].kill()
        asked = time.monotonic()
        assert processes[killed].wait() == -signal.SIGKILL
        assert processes[1 - killed].wait(LIMIT) == 2
        assert "another worker has ended" in processes[1 - killed].output()
        print(
            f"worker {killed} killed: the other has stopped after {time.monotonic() - asked:.1f} s"
        )
    step = checkpoints.last_step(folder / "two")
    processes = start_both(folder, cable)
    check_weights(folder, *processes)
    assert f"going on from step {step} of" in processes[0].output()


def test_a_worker_says_that_it_waits_for_a_host_that_cannot_be_reached(folder, cable):
    cable.whole = False
    processes = start_both(folder, cable)
    for process, other in zip(processes, two_hosts.ADDRESSES[::-1], strict=True):
        process.wait_for(f"waiting for {other}:2222 (timed out)")
    processes[0].interrupt()
    assert processes[0].wait(10) == 130
    cable.whole = True
    time.sleep(5)
    assert processes[1].returncode is None
    processes[0] = start_worker(folder, cable, 0)
    check_weights(folder, *processes)
