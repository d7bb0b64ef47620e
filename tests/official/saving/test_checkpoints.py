import itertools
import json
import os
import shutil
import sys
import warnings

import keras
import numpy as np
import pytest

from official.saving import checkpoints, named_arrays
from official.utils.errors import UserError

ARRAYS = {
    "encoder/kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
    "optimizer/iteration": np.array(7),
    "optimizer/encoder/kernel/m": np.full((2, 3), 1 / 3),
}


def save(folder, step, keep=2, arrays=ARRAYS, **state):
    return checkpoints.save(folder, step, arrays, {"seed": 1, "figures": {}, **state}, keep)


def steps(folder):
    return sorted(int(p.name[5:]) for p in (folder / "checkpoints").glob("step-*"))


def test_arrays_come_back_bit_for_bit(tmp_path):
    path = save(tmp_path, 5)
    actual = checkpoints.load_variables(tmp_path, "last", optimizer=True)
    assert actual.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert actual[name].dtype == array.dtype and actual[name].shape == array.shape
        np.testing.assert_array_equal(actual[name], array)
    assert list(checkpoints.load_variables(tmp_path, "last")) == ["encoder/kernel"]
    assert checkpoints.load_state(path)["step"] == 5


def test_the_newest_and_the_best_are_kept(tmp_path):
    for step in (1, 2, 3, 4):
        save(tmp_path, step)
        if step == 1:
            checkpoints.mark_best(tmp_path, 1, "accuracy", 0.5)
    assert steps(tmp_path) == [1, 3, 4]
    assert checkpoints.find(tmp_path, "best").name == "step-00000001"
    assert checkpoints.find(tmp_path, "last").name == "step-00000004"
    assert checkpoints.find(tmp_path, "3").name == "step-00000003"
    assert checkpoints.find(tmp_path, str(tmp_path / "checkpoints" / "step-00000003")).is_dir()


def test_without_an_evaluation_the_best_is_the_last(tmp_path):
    save(tmp_path, 9)
    assert checkpoints.find(tmp_path, "best").name == "step-00000009"


def test_what_a_kill_leaves_is_swept_and_never_taken_for_a_checkpoint(tmp_path):
    path = save(tmp_path, 1)
    (tmp_path / "checkpoints" / ".tmp-step-00000002-abcd1234").mkdir()
    (path / ".tmp-variables-2.safetensors-abcd1234").write_text("")
    assert checkpoints.last_step(tmp_path) == 1
    checkpoints.remove_leftovers(tmp_path)
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]
    assert sorted(p.name for p in path.iterdir()) == ["state.json", "variables.safetensors"]


def test_a_step_that_is_written_again(tmp_path):
    path = save(tmp_path, 1, figures={})
    other = {name: array + 1 for name, array in ARRAYS.items()}
    for arrays, figures in ((other, {"loss": 1.0}), (ARRAYS, {"loss": 2.0})):
        assert save(tmp_path, 1, arrays=arrays, figures=figures) == path
        actual = checkpoints.load(tmp_path, "last", optimizer=True)
        assert actual.path == path and actual.state["figures"] == figures
        for name, array in arrays.items():
            np.testing.assert_array_equal(actual.variables[name], array)
        assert len(list(path.iterdir())) == 2


# What Python tells an audit hook before it is done. Between two of these a kill leaves the same.
CALLS = {
    "open", "os.chmod", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "shutil.rmtree",
    "tempfile.mkdtemp", "tempfile.mkstemp",
}  # fmt: skip


def killed(action, number):
    """Runs `action` in a process that ends before its call of that number; says whether it did."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks where there are threads
        process = os.fork()
    if process == 0:
        try:
            calls = itertools.count()
            half = checkpoints.safetensors.numpy.save_file

            def hook(event, arguments):
                if event in CALLS and next(calls) == number:
                    os._exit(9)

            def save_file(arrays, path):
                if next(calls) == number:
                    path.write_bytes(b"half")
                    os._exit(9)
                half(arrays, path)

            checkpoints.safetensors.numpy.save_file = save_file
            sys.addaudithook(hook)
            action()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert status in (0, 9)
    return status == 9


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("case", ["again", "next", "after damage"])
def test_a_kill_at_any_call_leaves_the_old_or_the_new_one_whole(tmp_path, case):
    other = {name: array + 1 for name, array in ARRAYS.items()}
    step = {"again": 5, "next": 6, "after damage": 6}[case]
    save(tmp_path / "before", 5, figures={"loss": 1.0})
    if case == "after damage":
        shutil.copytree(save(tmp_path / "other", 6), tmp_path / "before/checkpoints/step-00000006")
        (tmp_path / "before/checkpoints/step-00000006/state.json").write_text("{")
    actual, number, goes_on = set(), 0, True
    while goes_on:
        model_dir = tmp_path / str(number)
        shutil.copytree(tmp_path / "before", model_dir)
        write = lambda: save(model_dir, step, 1, other, figures={"loss": 2.0})  # noqa: B023, E731
        goes_on = killed(write, number)
        for swept in (False, True):
            if swept:
                checkpoints.remove_leftovers(model_dir)
            read = checkpoints.load(model_dir, "last", optimizer=True)
            which = read.state["figures"]["loss"]
            for name, array in (ARRAYS if which == 1 else other).items():
                np.testing.assert_array_equal(read.variables[name], array, err_msg=str(number))
            actual.add(which)
        assert not list(model_dir.rglob(".tmp-*"))
        write()
        assert checkpoints.load(model_dir, "last").state["figures"] == {"loss": 2.0}
        assert steps(model_dir) == [step]
        shutil.rmtree(model_dir)
        number += 1
    assert actual == {1.0, 2.0} and number > 15


def test_a_flipped_byte_is_found(tmp_path):
    file = save(tmp_path, 1) / "variables.safetensors"
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    message = "variables.safetensors: damaged .*copy .*step-00000001 again.*--checkpoint=last"
    with pytest.raises(UserError, match=message):
        checkpoints.load_variables(tmp_path)
    with pytest.raises(UserError, match="damaged .*no checkpoint of .* is whole: .*remove "):
        checkpoints.load_variables(tmp_path, "last")


def truncated(file):
    file.write_bytes(file.read_bytes()[:-9])


def garbage(file):
    file.write_bytes(bytes(range(256)))


def nested(file):
    file.write_text("[" * 100_000)


def missing(file):
    file.unlink()


def a_folder(file):
    file.unlink()
    file.mkdir()


def altered(file):
    record = json.loads(file.read_text())
    name, value = next((n, v) for n, v in record.items() if isinstance(v, int | float))
    file.write_text(json.dumps({**record, name: value + 1}))


def without_a_key(file):
    record = json.loads(file.read_text())
    record.pop("checksum")
    record.pop("step")
    file.write_text(json.dumps(record))


def a_list(file):
    file.write_text("[1]")


DAMAGES = (truncated, garbage, missing, a_folder)
TEXT_DAMAGES = (*DAMAGES, nested, altered, without_a_key, a_list)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *(("variables.safetensors", damage) for damage in DAMAGES),
        *(("state.json", damage) for damage in TEXT_DAMAGES),
        ("", lambda folder: (shutil.rmtree(folder), folder.write_text(""))),
    ],
)
def test_a_damaged_checkpoint_is_named_and_the_newest_whole_one_taken(
    tmp_path, name, damage, capsys
):
    for step in (1, 2, 3):
        save(tmp_path, step, keep=3, figures={"loss": float(step)})
    file = tmp_path / "checkpoints" / "step-00000003" / name
    damage(file)
    for which in ("best", "3"):
        with pytest.raises(UserError, match=f"{file}.*: (damaged|missing|no such checkpoint)"):
            checkpoints.load(tmp_path, which)
    assert capsys.readouterr().err == ""
    actual = checkpoints.load(tmp_path, "last")
    assert actual.step == 2 and actual.state["figures"] == {"loss": 2.0}
    said = capsys.readouterr().err
    assert said.startswith(f"warning: {file}") and said.endswith(f" is {actual.path}\n")
    # The run goes on from there; the only whole checkpoints stay, and the damaged one is replaced.
    save(tmp_path, 2, keep=1)
    assert checkpoints.load(tmp_path, "last").step == 2
    capsys.readouterr()
    save(tmp_path, 3, keep=1)
    assert checkpoints.load(tmp_path, "3").step == checkpoints.load(tmp_path, "last").step == 3
    assert steps(tmp_path) == [3] and capsys.readouterr().err == ""


@pytest.mark.parametrize("damage", [d for d in TEXT_DAMAGES if d is not missing])
def test_a_damaged_best_is_named(tmp_path, damage):
    save(tmp_path, 1)
    save(tmp_path, 2)
    checkpoints.mark_best(tmp_path, 1, "loss", 0.5)
    file = tmp_path / "checkpoints" / "best.json"
    damage(file)
    message = f"{file}: damaged .*: give the training command again.*--checkpoint=last"
    with pytest.raises(UserError, match=message):
        checkpoints.load(tmp_path)
    assert checkpoints.load(tmp_path, "last").step == 2
    save(tmp_path, 3, keep=1)  # which one is the best is not known: none is removed
    assert steps(tmp_path) == [1, 2, 3]
    checkpoints.unmark_best(tmp_path)
    assert checkpoints.best(tmp_path) is None


def test_a_missing_best_is_named(tmp_path):
    best = {"step": 1, "metric": "loss", "value": 0.5}
    save(tmp_path, 1, best=None, figures={"loss": 0.5})
    assert checkpoints.find(tmp_path).name == "step-00000001"
    save(tmp_path, 2, best=best)
    with pytest.raises(UserError, match="best.json is missing, and .*step-00000002 was not the be"):
        checkpoints.load(tmp_path)
    checkpoints.mark_best(tmp_path, **best)
    assert checkpoints.load(tmp_path).step == 1
    shutil.rmtree(tmp_path / "checkpoints" / "step-00000001")
    with pytest.raises(UserError, match="best.json names .*step-00000001, which is missing: name"):
        checkpoints.load(tmp_path)


def test_checkpoints_from_before_the_checksum_of_the_state(tmp_path):
    path = save(tmp_path, 3, figures={"loss": 2.0})
    record = json.loads((path / "state.json").read_text())
    old = {name: record[name] for name in ("step", "sha256", "seed", "figures")}
    (path / "state.json").write_text(json.dumps(old))
    (path.parent / "best.json").write_text('{"step": 3, "metric": "loss", "value": 2.0}')
    actual = checkpoints.load(tmp_path)
    assert actual.step == 3 and actual.state["figures"] == {"loss": 2.0}
    assert checkpoints.best(tmp_path) == {"step": 3, "metric": "loss", "value": 2.0}


def test_the_digest_tells_arrays_apart():
    digests = {
        named_arrays.digest(arrays, rest)
        for arrays in (
            ARRAYS, {**ARRAYS, "a": np.zeros(2)}, {**ARRAYS, "b": np.zeros(2)},
            {**ARRAYS, "a": np.zeros((2, 1))}, {**ARRAYS, "a": np.zeros(2, bool)},
        )
        for rest in ([1], [2])
    }  # fmt: skip
    assert len(digests) == 10
    assert named_arrays.digest(dict(reversed(ARRAYS.items())), 1) == named_arrays.digest(ARRAYS, 1)


@pytest.mark.parametrize(
    ("which", "message"),
    [("last", "no checkpoint in it"), ("12", "no such checkpoint"), ("x/y", "no such checkpoint")],
)
def test_no_such_checkpoint(tmp_path, which, message):
    with pytest.raises(UserError, match=message):
        checkpoints.find(tmp_path, which)
    save(tmp_path, 3)
    if which == "12":
        with pytest.raises(UserError, match=r"steps in .*: 3"):
            checkpoints.find(tmp_path, which)


def test_arrays_of_another_config_are_refused():
    variable = keras.Variable(np.zeros((2, 3), "float32"))
    with pytest.raises(UserError, match="here: has no a/b: the weights belong to another config"):
        named_arrays.assign({"a/b": variable}, {}, "here")
    with pytest.raises(UserError, match=r"a/b has shape \[3\] there and \[2, 3\] here"):
        named_arrays.assign({"a/b": variable}, {"a/b": np.zeros(3)}, "here")


def test_best_is_plain_json(tmp_path):
    checkpoints.mark_best(tmp_path, 4, "loss", 1.5)
    record = json.loads((tmp_path / "checkpoints" / "best.json").read_text())
    assert record.pop("checksum") and record == checkpoints.best(tmp_path)
    assert record == {"step": 4, "metric": "loss", "value": 1.5}
