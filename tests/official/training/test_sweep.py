import json
import os
import signal
import sys

import numpy as np
import pytest

from official import config as configs
from official.saving import run_lock
from official.training import sweep as sweep_lib
from official.training.sweep import Sweep, overrides
from official.utils.errors import UserError
from tests import small

RATE = "recipe.optimizer.learning_rate"
# A run whose figures are those of its settings; it notes each time that it is started.
CHILD = """
import json, pathlib, sys
folder, result = pathlib.Path(sys.argv[1]), float(sys.argv[2])
folder.mkdir(parents=True, exist_ok=True)
with open(folder / "started", "a") as stream:
    stream.write("x")
if result != -2:
    (folder / "config.yaml").write_text("")
(folder / "result").write_text(json.dumps(result))
sys.exit(3 if result < 0 else 0)
"""


def _results(results):
    """A command whose result for each combination is looked up among `results`."""

    def command(folder, overrides):
        values = dict(option.split("=", 1) for option in overrides)
        key = tuple(json.loads(value) for value in values.values())
        return [sys.executable, "-c", CHILD, str(folder), str(results[key])]

    return command


def _figures(folder):
    value = json.loads((folder / "result").read_text())
    return {
        "metric": "f1", "higher": True, "metrics": ["f1", "accuracy"], "step": 7,
        "figures": {"f1": value, "accuracy": value / 2, "loss": 9.0},
    }  # fmt: skip


def _run(sweep, folder, results, lines=None, about=None):
    report = [].append if lines is None else lines.append
    about = about or {"data": "shards", "config": {"seed": 0}}
    return sweep_lib.run(sweep, folder, about, _results(results), report, _figures)


def test_a_second_sweep_in_a_folder_is_refused(tmp_path):
    sweep = Sweep.parse(["seed=0,1"])
    with run_lock.held(tmp_path), pytest.raises(UserError, match="another run trains in this"):
        _run(sweep, tmp_path, {(0,): 1.0, (1,): 2.0})
    assert not list(tmp_path.iterdir())
    _run(sweep, tmp_path, {(0,): 1.0, (1,): 2.0})
    assert (tmp_path / sweep_lib.FILE).exists() and not (tmp_path / run_lock.FILE).exists()


def test_values_of_keys_and_their_combinations():
    sweep = Sweep.parse(["seed=0,1", f"{RATE}=1e-5,3.0e-5", "recipe.bucket_lengths=[16, 32],[]"])
    assert list(sweep.values) == [RATE, "recipe.bucket_lengths", "seed"]
    runs = sweep.runs()
    assert len(runs) == 8
    assert runs[1] == {RATE: "1e-5", "recipe.bucket_lengths": [16, 32], "seed": 1}
    assert sweep.name(runs[1]) == "learning_rate=1e-5,bucket_lengths=_16_32_,seed=1"
    assert overrides(runs[1]) == [
        f'{RATE}="1e-5"', "recipe.bucket_lengths=[16, 32]", "seed=1",
    ]  # fmt: skip
    alike = Sweep.parse(["encoder.dropout=0,0.1", "objectives.0.dropout=0.1"])
    assert alike.name(alike.runs()[1]) == "encoder.dropout=0.1,objectives.0.dropout=0.1"


@pytest.mark.parametrize(
    "texts, message",
    [
        (["seed"], "--sweep=seed: expected key.subkey=value,value,..."),
        (["seed="], "--sweep=seed=: expected key.subkey=value,value,..."),
        (["=1,2"], "--sweep==1,2: expected key.subkey=value,value,..."),
        (["seed=[1,2"], "--sweep=seed=[1,2: expected key.subkey=value,value,..."),
        (["seed=1", "seed=2"], "--sweep=seed=2: seed is swept over twice: list all its values"),
        (["seed=1,2,1"], "--sweep=seed=1,2,1: 1 is given twice"),
    ],
)
def test_errors_of_the_option(texts, message):
    with pytest.raises(UserError) as error:
        Sweep.parse(texts)
    assert str(error.value) == message


def test_median_and_spread_over_seeds(tmp_path):
    results = {
        ("1e-5", 0): 0.5, ("1e-5", 1): 0.9, ("1e-5", 2): 0.6,
        ("3e-5", 0): 0.7, ("3e-5", 1): 0.8, ("3e-5", 2): 0.65,
    }  # fmt: skip
    sweep, lines = Sweep.parse([f"{RATE}=1e-5,3e-5", "seed=0,1,2"]), []
    low, high = _run(sweep, tmp_path / "sweep", results, lines)
    assert (low["settings"], high["settings"]) == ({RATE: "1e-5"}, {RATE: "3e-5"})
    for actual, values in ((low, [0.5, 0.9, 0.6]), (high, [0.7, 0.8, 0.65])):
        for metric, factor in (("f1", 1), ("accuracy", 0.5)):
            array = np.array(values) * factor
            assert actual["spread"][metric] == pytest.approx(
                {
                    "median": np.median(array),
                    "min": array.min(),
                    "max": array.max(),
                    "std": array.std(ddof=1),
                },
                abs=1e-12,
            )
    # The best setting is that of the best median, not that of the best run.
    assert lines[-4:] == [
        "setting             runs  f1: median  min     max     std",
        "learning_rate=1e-5  3     0.6000      0.5000  0.9000  0.2082",
        "learning_rate=3e-5  3     0.7000      0.6500  0.8000  0.0764",
        "best setting: learning_rate=3e-5 (median f1 0.7000); best run: "
        "learning_rate=1e-5,seed=1 (0.9000)",
    ]
    table = (tmp_path / "sweep" / "sweep.tsv").read_text().splitlines()
    assert table[0].split("\t") == [
        "learning_rate", "runs", "f1_median", "f1_min", "f1_max", "f1_std", "accuracy_median",
        "accuracy_min", "accuracy_max", "accuracy_std",
    ]  # fmt: skip
    assert table[2] == "\t".join(
        "3e-5 3 0.700000 0.650000 0.800000 0.076376 0.350000 0.325000 0.400000 0.038188".split()
    )
    record = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert record["settings"] == [low, high]
    assert record["runs"][4] == {
        "settings": {RATE: "3e-5", "seed": 1}, "folder": "learning_rate=3e-5,seed=1",
        **_figures(tmp_path / "sweep" / "learning_rate=3e-5,seed=1"),
    }  # fmt: skip


def test_what_was_run_is_not_run_again(tmp_path):
    results = {(seed,): 0.1 * seed for seed in range(4)}
    _run(Sweep.parse(["seed=1,2"]), tmp_path, results)
    lines = []
    (actual,) = _run(Sweep.parse(["seed=0,1,2,3"]), tmp_path, results, lines)
    assert actual["runs"] == 4 and actual["spread"]["f1"]["median"] == pytest.approx(0.15)
    assert f"{tmp_path}/seed=1: run already" in lines
    assert [(tmp_path / f"seed={seed}" / "started").read_text() for seed in range(4)] == ["x"] * 4
    assert lines[-2] == "as in the config  4     0.1500      0.0000  0.3000  0.1291"
    assert lines[-1].startswith("best setting: as in the config (median f1 0.1500)")
    with pytest.raises(UserError) as error:
        _run(Sweep.parse(["seed=1"]), tmp_path, {}, about={"data": "x", "config": {"seed": 0}})
    assert str(error.value) == (
        f"{tmp_path}/sweep.json: this folder belongs to a sweep with another command (data: shards "
        "there, x now). Name another --model_dir"
    )


def test_a_damaged_record_is_named(tmp_path):
    results = {(1,): 0.5}
    _run(Sweep.parse(["seed=1"]), tmp_path, results)
    record = tmp_path / "sweep.json"
    record.write_bytes(record.read_bytes()[:-9])
    with pytest.raises(UserError, match="sweep.json: damaged .*: remove it; the same command"):
        _run(Sweep.parse(["seed=1"]), tmp_path, results)
    record.unlink()
    (actual,) = _run(Sweep.parse(["seed=1"]), tmp_path, results)
    assert actual["runs"] == 1


def test_one_run_of_a_setting_has_no_deviation(tmp_path):
    lines = []
    (actual,) = _run(Sweep.parse([f"{RATE}=1e-5"]), tmp_path, {("1e-5",): 0.5}, lines)
    assert actual["spread"]["f1"] == {"median": 0.5, "min": 0.5, "max": 0.5, "std": None}
    assert lines[-2] == "learning_rate=1e-5  1     0.5000      0.5000  0.5000"
    assert (tmp_path / "sweep.tsv").read_text().splitlines()[1].split("\t")[5] == ""


def test_a_run_that_fails_is_not_counted_and_is_tried_again(tmp_path):
    results, lines = {(0,): 0.5, (1,): -1, (2,): 0.7}, []
    (actual,) = _run(Sweep.parse(["seed=0,1,2"]), tmp_path, results, lines)
    assert actual["runs"] == 2 and actual["spread"]["f1"]["median"] == pytest.approx(0.6)
    assert "failed, and not counted: seed=1 (diverged)" in lines
    (actual,) = _run(Sweep.parse(["seed=0,1,2"]), tmp_path, {**results, (1,): 0.9})
    assert actual["runs"] == 3
    assert (tmp_path / "seed=1" / "started").read_text() == "xx"
    alone = tmp_path / "alone"
    lines = []
    assert _run(Sweep.parse(["seed=1"]), alone, results, lines) == []
    assert lines[-1] == "failed, and not counted: seed=1 (diverged)"


def test_a_run_that_cannot_begin_ends_the_sweep(tmp_path):
    with pytest.raises(UserError, match="seed=0: ended with status 3 before it trained: see above"):
        _run(Sweep.parse(["seed=0,1"]), tmp_path, {(0,): -2, (1,): 0.5})
    assert not (tmp_path / "seed=1").exists()


def test_two_runs_in_one_folder_are_refused(tmp_path):
    with pytest.raises(UserError, match="two combinations would have the same folder: name plain"):
        _run(Sweep.parse(["name='a b',a_b"]), tmp_path, {})


def test_a_signal_reaches_the_run_and_ends_the_sweep(tmp_path):
    child = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))\n"
        "os.kill(os.getppid(), signal.SIGTERM)\n"
        "time.sleep(60)\n"
    )
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as stopped:
        sweep_lib.run(
            Sweep.parse(["seed=0,1"]), tmp_path, {},
            lambda *_: [sys.executable, "-c", child], lambda line: None, _figures,
        )  # fmt: skip
    assert stopped.value.code == 143
    assert not os.path.exists(tmp_path / "sweep.json")
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_sweep_that_cannot_run_is_refused_before_its_first_run(tmp_path):
    """Masks of the input pipeline go with these shards, and static ones do not."""
    config = small.config()
    shards, file = tmp_path / "shards", tmp_path / "run.yaml"
    small.shard_folder(shards, config)
    configs.save(config, file)
    flags = dict.fromkeys(("init", "checkpoint")) | {"data": str(shards)}
    flags["validation_data"] = str(shards)
    with pytest.raises(UserError, match=r"^static_masks=True: .*static_masks"):
        sweep_lib.train(
            ["segments.static_masks=false,true"], str(file), [], flags, tmp_path / "sweep"
        )
    assert not (tmp_path / "sweep").exists()
