"""Processes that share a remote file system that fails, and that lists new files late.

`flaky://` is a file system plugin for TensorFlow; see `tests/flaky/flaky.cc`.
"""

import json
import time

import numpy as np
import pytest

from official import config as configs
from official.saving import checkpoints, metrics_log
from official.utils import atomic
from tests import ROOT, commands, flaky, small
from tests.end_to_end.test_multi_worker import free_ports

pytestmark = pytest.mark.slow
GOLDEN = ROOT / "tests" / "golden" / "hf_files" / "pretraining"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of local files that is also `flaky://`."""
    folder = tmp_path_factory.mktemp("flaky")
    flaky.environment(folder)
    return folder


@pytest.fixture(scope="module")
def place(folder):
    """The folder, with shards and a local run."""
    config = small.config(
        encoder__dropout=0.0,
        encoder__attention_dropout=0.0,
        objectives=[{"type": "masked_lm"}],
    )
    config = small.replace(
        config, precision="float64", steps=12, save_every=3, eval_every=6, report_every=3
    )
    configs.save(config, folder / "run.yaml")
    small.shard_folder(folder / "shards", config)
    commands.run("official.main", *flags(f"{folder}/", "local"), status=0)
    return folder


@pytest.fixture(scope="module")
def local_figures(place):
    """What the evaluation of the local run prints."""
    return evaluated(f"{place}/", "local")


def flags(root, name):
    return [
        "--mode=train_and_eval", f"--config={root}run.yaml", f"--data={root}shards",
        f"--validation_data={root}shards", f"--model_dir={root}{name}",
    ]  # fmt: skip


def assert_same_run(place, name, tolerance=0.0):
    """Compares with the local run; its files are read where `flaky://` has them."""
    wanted, actual = (
        checkpoints.load_variables(place / n, "last", optimizer=True) for n in ("local", name)
    )
    assert wanted.keys() == actual.keys() and int(actual["optimizer/iteration"]) == 12
    for path, value in wanted.items():
        scale = np.abs(value).max() or 1
        assert np.abs(actual[path] - value).max() <= tolerance * scale, path
    steps = [[(r.step, r.split) for r in metrics_log.read(place / n)] for n in ("local", name)]
    assert steps[0] == steps[1]
    assert checkpoints.best(place / name)["step"] == checkpoints.best(place / "local")["step"]
    left = [p.name for p in (place / name).rglob("*") if p.name.startswith((".tmp-", ".unfin"))]
    assert not left


def evaluated(root, name, environment=None):
    options = [f"--data={root}shards", f"--model_dir={root}{name}"]
    process = commands.Command(
        "official.main", "--mode=eval", *options, environment=environment, merge=True
    )
    assert process.wait() == 0, process.output()
    lines = process.output().splitlines()
    # A slow machine also shows how far it is.
    return [line for line in lines if not line.startswith("warning:") and " left" not in line]


@pytest.mark.long
def test_killed_runs_end_at_the_bits_of_a_local_run(place, local_figures):
    unsteady = flaky.environment(place, every=17, late=3)
    command = ["official.main", *flags("flaky://", "killed")]
    process = commands.Command(*command, environment=unsteady, merge=True)
    while not (place / "killed" / "checkpoints" / "last.json").exists():
        assert process.returncode is None, process.output()
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert checkpoints.last_step(place / "killed") < 12, "the run ended before it was killed"
    # What a kill in the middle of a save leaves.
    half = place / "killed" / "checkpoints" / "step-00000099"
    half.mkdir()
    (half / "variables.safetensors").write_bytes(b"half")
    (half.parent / ".tmp-last.json-0123abcd").write_bytes(b"{")
    time.sleep(3)  # until it is in listings
    again = commands.Command(*command, environment=unsteady, merge=True)
    assert again.wait() == 0, again.output()
    print(again.output())
    assert "going on from step" in again.output() and "Traceback" not in again.output()
    assert_same_run(place, "killed")
    assert not half.exists()
    # Another process reads what this one has written.
    assert evaluated("flaky://", "killed", unsteady) == local_figures


@pytest.mark.long
def test_the_newest_checkpoint_is_found_before_listings_have_it(place, local_figures):
    environment = flaky.environment(place, late=3600)
    options = flags("flaky://", "late")
    once = commands.Command("official.main", *options, environment=environment, merge=True)
    assert once.wait() == 0, once.output()
    assert_same_run(place, "late")
    again = commands.Command("official.main", *options, environment=environment, merge=True)
    assert again.wait() == 0, again.output()
    assert "trained already, to step 12" in again.output()
    assert evaluated("flaky://", "late", environment) == local_figures


@pytest.mark.long
def test_two_workers_on_a_failing_file_system(place):
    """Both end when one cannot read a shard; started again they go on, to the same weights."""
    starts = 0
    while (checkpoints.last_step(place / "workers") or 0) < 12:
        starts += 1
        assert starts < 12, "no end"
        ports = [f"localhost:{port}" for port in free_ports(2)]
        processes = []
        for i in range(2):
            task = {"cluster": {"worker": ports}, "task": {"type": "worker", "index": i}}
            variables = flaky.environment(place, every=(17, 19)[i] * starts, late=3)
            variables["TF_CONFIG"] = json.dumps(task)
            options = [*flags("flaky://", "workers"), "--distribution_strategy=multi_worker"]
            processes.append(
                commands.Command("official.main", *options, environment=variables, merge=True)
            )
        statuses = [process.wait(300) for process in processes]
        outputs = [process.output() for process in processes]
        assert set(statuses) <= {0, 2} and "Traceback" not in "".join(outputs), outputs
        print(f"start {starts}: exit statuses {statuses}", *outputs, sep="\n")
    assert starts > 1, "no worker has failed"
    assert_same_run(place, "workers", tolerance=1e-9)


@pytest.mark.slow
@pytest.mark.long
def test_a_killed_conversion_is_refused_and_made_again(folder):
    environment = flaky.environment(folder, every=31, late=3)
    options = ["official.convert", "--source=hf", f"--input={GOLDEN}", "--output=flaky://converted"]
    process = commands.Command(*options, environment=environment, merge=True)
    sign, marker = folder / "converted" / atomic.UNFINISHED, folder / "converted/config.yaml"
    while not sign.exists():
        assert process.returncode is None, process.output()
        time.sleep(0.001)
    process.kill()
    process.wait()
    if marker.exists():  # the kill was too late: this is what an earlier one leaves
        marker.unlink()
        sign.touch()
    embed = [
        "official.main", "--mode=embed", "--model_dir=flaky://converted",
        f"--texts={folder / 'texts'}", "--output=flaky://vectors.npy",
    ]  # fmt: skip
    (folder / "texts").write_text("the cat sat\n")
    refused = commands.Command(*embed, environment=environment, merge=True)
    assert refused.wait() == 2
    assert "flaky://converted: not a model folder: there is no config.yaml" in refused.output()
    again = commands.Command(*options, environment=environment, merge=True)
    assert again.wait() == 0, again.output()
    assert not sign.exists()
    done = commands.Command(*embed, environment=environment, merge=True)
    assert done.wait() == 0, done.output()
    commands.run(*options[:3], f"--output={folder / 'here'}", status=0)
    local = [*embed[:2], f"--model_dir={folder / 'here'}", embed[3], f"--output={folder}/here.npy"]
    commands.run(*local, status=0)
    assert (folder / "vectors.npy").read_bytes() == (folder / "here.npy").read_bytes()
    exists = commands.Command(*options, environment=environment, merge=True)
    assert exists.wait() == 2 and "flaky://converted is there already" in exists.output()
