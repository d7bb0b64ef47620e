"""Each part of the torture bench, in a tiny slice: it passes here, and it can fail."""

import json
import os
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.torture import (
    changes,
    configs,
    disk,
    flips,
    fuzz,
    hostile,
    hostile_folders,
    kills,
    lines,
    nan,
    parts,
)
from benchmarks.torture.materials import SERVED_LENGTH, Materials
from official import config as run_configs
from official import tokenizers
from official.data.checks import task_labels
from official.modeling.model import Model
from official.saving import checkpoints, model_folder, named_arrays, task_file
from official.shards import manifest
from official.shards import shard_folder as shard_folder
from official.training import resolve
from official.utils.errors import UserError
from tests import ROOT, small


@pytest.fixture(scope="module")
def materials(tmp_path_factory):
    return Materials(tmp_path_factory.mktemp("materials"))


class Untrained(Materials):
    """Materials whose models have their first weights: what a reader refuses are their files."""

    def _trained(self, name, *options):
        given = dict(option.removeprefix("--").split("=", 1) for option in options)
        with self._made(name) as path:
            if path:
                content = manifest.read(given["data"])
                tokenizer = shard_folder.load_tokenizer(self.folder / given["data"], content)
                initial = run_configs.load(given["init"]) if "init" in given else None
                config = resolve.inherit(run_configs.load(given["config"]), initial)
                config = resolve.fill_in(config, tokenizer.vocab_size, task_labels(content))
                weights = named_arrays.values(Model(config).variables_by_path())
                model_folder.write_new(config, tokenizer, weights, path)
                task_file.save(content, path)
        return self.folder / name


def program(folder, monkeypatch, name, text):
    """A module that child processes find."""
    (folder / f"{name}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return name


# A part of six cases: 1 fails, 3 kills its process, and 5 breaks.
COUNTING = """
import os
import pytest
@pytest.mark.parametrize("case", [pytest.param(i, id=f"counting-{i}") for i in range(6)])
def test_case(case, record_property):
    if case == 3 and not os.path.exists("survives"):
        os._exit(1)
    assert case != 5, "five"
    failures = ["1 is odd"] if case == 1 else []
    kinds = {"failed" if failures else "even": 1}
    about = ["numbers", "they are even"]
    record_property(
        "outcome", {"done": 1, "kinds": kinds, "failures": failures, "about": about}
    )
    assert not failures
"""


@pytest.mark.slow
def test_a_run_goes_on_with_what_has_not_passed_and_tells_of_a_case_that_killed_it(tmp_path):
    (tmp_path / "test_counting.py").write_text(COUNTING)

    def run():
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-n", "1", "-p", "benchmarks.torture.conftest"),
                *("-p", "no:cacheprovider", f"--work={tmp_path / 'work'}", f"--rootdir={tmp_path}"),
                tmp_path / "test_counting.py",
            ],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True,
            text=True,
        )  # fmt: skip
        (journal,) = tmp_path.glob("work/*/journal-0.jsonl")
        lines = [json.loads(line)[0] for line in journal.read_text().splitlines()]
        return done, [int(name.removeprefix("counting-")) for name in lines]

    done, cases = run()
    assert done.returncode == 1 and sorted(cases) == list(range(6)), done.stdout
    assert "| numbers | 6 | they are even | 3 even | 3 | 0:00:0" in done.stdout
    (tmp_path / "survives").touch()
    done, cases = run()
    assert done.returncode == 1 and sorted(cases[6:]) == [1, 3, 5]
    assert "| numbers | 6 | they are even | 4 even | 2 | 0:00:0" in done.stdout


def test_a_case_is_a_function_of_its_number():
    draws = [
        configs.Typos(seed).rng(case).integers(2**32) for seed, case in ((0, 1), (0, 1), (1, 1))
    ]
    assert draws[0] == draws[1] != draws[2]


def bench(*options, **how):
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "benchmarks/torture"]
    return subprocess.Popen([*command, *map(str, options)], cwd=ROOT, text=True, **how)


@pytest.mark.slow
@pytest.mark.long
def test_the_table_has_a_row_for_each_part():
    process = bench("-k", "configs", "--share=0.02", stdout=subprocess.PIPE)
    output = process.communicate()[0]
    assert process.returncode == 0, output
    assert "| typing errors and wrong types in published configs | 10 |" in output
    assert "| 10 refused | 0 |" in output


@pytest.mark.slow
@pytest.mark.long
def test_sigterm_ends_the_bench_and_its_processes_at_once(tmp_path):
    process = bench(
        "-n2", "-k", "flips or nan", f"--work={tmp_path / 'work'}",
        env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.DEVNULL,
    )  # fmt: skip

    def running():
        words = ["ps", "-eo", "args"]
        listed = subprocess.run(words, capture_output=True, text=True).stdout.splitlines()
        return [line for line in listed if str(tmp_path / "work") in line]

    try:
        limit = time.monotonic() + 500
        while not any("benchmarks.torture.nan" in line for line in running()):
            assert process.poll() is None and time.monotonic() < limit
            time.sleep(0.1)
        process.terminate()
        stopped = time.monotonic()
        process.wait(60)
    finally:
        process.kill()
    assert time.monotonic() - stopped < 30
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert [path.name for path in tmp_path.iterdir()] == ["work"]  # no scratch is left
    assert not running()


def reader(folder, read):
    return flips.Reader("tokenizer", folder, ("*",), read, 1)


def test_flips(tmp_path, materials):
    folder = tmp_path / "tokenizer"
    tokenizers.WordPiece([*small.SPECIALS, *small.WORDS]).save(folder)
    strict = flips.Flips(0, materials, lambda _: [reader(folder, flips.read_tokenizer)])
    actual = parts.total(strict.run(case) for case in range(60))
    assert actual.done == 60 and not actual.failures and actual.kinds["refused"] > 30

    def careless(folder):
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        return settings, (folder / "vocab.txt").read_text()

    loose = flips.Flips(0, materials, lambda _: [reader(folder, careless)])
    failures = parts.total(loose.run(case) for case in range(60)).failures
    assert any("JSONDecodeError" in failure for failure in failures)
    assert any("read otherwise: /1" in failure for failure in failures)

    def silent(folder):
        raise UserError("something is wrong")

    whole = {"first": True}
    named = lambda folder: whole.pop("first", False) or silent(folder)  # noqa: E731
    wordless = flips.Flips(0, materials, lambda _: [reader(folder, named)])
    assert "the message names no file" in wordless.run(0).failures[0]


def test_a_flip_of_a_foreign_file_changes_one_value():
    # A piece with another spelling may no longer be a special token.
    piece, role = "/pieces/4: '[MASK]' and '[mASK]'", "/tokenizer/0: 5 and 4 items"
    assert flips._is_one([piece], False) and flips._is_one([piece, role], False)
    assert not flips._is_one([piece, piece.replace("4", "5"), role], False)
    assert not flips._is_one([piece, "/variables/a: element 1"], False)


def test_what_was_read_is_compared_to_the_bit():
    a = {"x": np.array([1.0, 2.0], np.float32), "y": [1, "b"]}
    assert flips.same(a, {"x": a["x"].copy(), "y": [1, "b"]})
    assert flips.differences(a, {**a, "x": np.nextafter(a["x"], [1, 9], dtype=np.float32)}) == [
        "/x: element 1"
    ]
    assert not flips.same(a, {**a, "y": [True, "b"]})
    assert not flips.same(np.zeros(1), -np.zeros(1))


@pytest.mark.slow
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.long)])
def test_config_typos(every):
    part = configs.Typos(0)
    actual = parts.total(part.run(case) for case in range(0, part.whole, every))
    assert not actual.failures and actual.kinds == {"refused": 500 // every}


def test_config_typos_that_are_not_refused():
    taken = configs.Typos(0, load=lambda path: None)
    assert taken.run(0).failures[0].endswith("taken")

    def vague(path):
        raise UserError(f"{path}: no")

    assert "the message lacks" in configs.Typos(0, load=vague).run(0).failures[0]


@pytest.fixture
def wordpiece(tmp_path, monkeypatch):
    """One tokenizer in place of the four, of which none has to be learned."""
    folder = small.tokenizer_folder(tmp_path / "tokenizer", [*"abcdehnort", "the", "city"])
    monkeypatch.setattr(fuzz, "SIZES", {"wordpiece": 0})
    monkeypatch.setattr(fuzz, "_LINES", 150)
    monkeypatch.setattr(Materials, "fuzzed_tokenizer", lambda self, kind: folder)


@pytest.mark.slow
@pytest.mark.long
def test_fuzz(materials, wordpiece):
    actual = fuzz.Fuzz(0, materials).run(0)
    assert actual.done == 150 and not actual.failures

    class Broken(tokenizers.WordPiece):
        """Places that are one character too early."""

        def encode_with_offsets(self, texts):
            return [(ids, a - 1, b - 1) for ids, a, b in super().encode_with_offsets(texts)]

    def broken(folder):
        tokenizer = tokenizers.load(folder)
        return Broken(tokenizer.pieces, tokenizer.lower_case)

    failures = fuzz.Fuzz(0, materials, load=broken).run(0).failures
    assert any("wordpiece: the piece" in failure for failure in failures)


def test_fuzzed_lines_are_what_they_are_said_to_be():
    result = lines.lines(np.random.default_rng(0), 4000)
    text = b"".join(result).decode("utf-8", "replace")
    assert len(result) == 4000 and all(b"\n" not in line for line in result)
    assert any(len(line.decode("utf-8", "replace")) >= lines.LONG - 1 for line in result)
    assert b"" in result and sum(map(lines.is_utf8, result)) > 3000
    assert {ord(character) >> 16 for character in text} == set(range(17))
    assert set("\u202e\u2067\0\x1b\x85") <= set(text)
    assert any(len(set(line)) == 1 < len(line) for line in result)


def test_oracles_tell_wrong_places():
    tokenizer = tokenizers.WordPiece([*small.SPECIALS, "ab", "##c", "d"])
    ids, starts, ends = tokenizer.encode_with_offsets(["Abc, d"])[0]
    assert fuzz.find_problem(tokenizer, "Abc, d", ids, starts, ends) is None
    short = np.where(ends - starts > 1, ends - 1, ends)
    assert "the piece" in fuzz.find_problem(tokenizer, "Abc, d", ids, starts, short)
    assert "is in no token" in fuzz.find_problem(
        tokenizer, "Abc, d", ids[:-1], starts[:-1], ends[:-1]
    )
    assert "special ids" in fuzz.find_problem(tokenizer, "Abc, d", [2, *ids[1:]], starts, ends)
    assert "out of order" in fuzz.find_problem(tokenizer, "Abc, d", ids, starts[::-1], ends[::-1])


@pytest.mark.slow
def test_disk(tmp_path, materials, monkeypatch):
    program(
        tmp_path, monkeypatch, "careless",
        "import sys; f = open(sys.argv[1], 'wb'); f.write(b'a' * 9000); f.close()",
    )  # fmt: skip
    program(
        tmp_path, monkeypatch, "careful",
        "import sys\nfrom official.utils import atomic, command_line\n"
        "def main(argv):\n with atomic.file(OUT, 'wb') as f: f.write(b'a' * 9000)\n"
        "OUT = sys.argv.pop(1)\ncommand_line.run(main)",
    )  # fmt: skip
    result = {"careless": lambda: ["careless", "OUT"], "careful": lambda: ["careful", "OUT"]}
    part = disk.FullDisks(0, materials, lambda _: result)
    kind = part.run(1).kinds
    assert kind == {"refused": 1}, kind
    (failure,) = part.run(0).failures
    assert "careless, room 0.5: status 1" in failure and "No space left" in failure
    part.child.stdin.close()
    assert part.child.wait(60) == 0


def test_a_fault_that_a_disk_child_has_to_see(tmp_path):
    class Disk:
        path = tmp_path

        def files(self):
            return {"out": "other", "half": "b"}

    files = {"out": "a", "half": "b"}
    assert "half-written: out" in disk.find_problem(2, "error: no room", Disk(), files)
    assert "status 2" in disk.find_problem(2, "Traceback (most recent call last)", Disk(), {})


def answering(answer):
    return (
        "import json, sys\n"
        "for i, line in enumerate(sys.stdin):\n"
        f"    print(json.dumps({{'ready': 1}} if i == 0 else {answer!r}), flush=True)"
    )


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"read": True, "mib": 1, "seconds": 1}, "read as if it were good"),
        ({"refused": "no", "mib": 1, "seconds": 1}, "the message names no file: no"),
        ({"error": "KeyError: 'a'"}, "KeyError: 'a'"),
        ({"read": True, "mib": 5000, "seconds": 1}, "read as if it were good"),
    ],
)
def test_hostile_folders_that_are_not_refused(tmp_path, monkeypatch, materials, answer, message):
    case = hostile_folders.Case("spoiled", "text", "text", lambda folder: None)
    for name in ("hugging_face", "tf1", "tuned", "labelled", "elmo"):
        monkeypatch.setattr(Materials, name, lambda self: tmp_path / "good")
    monkeypatch.setattr(Materials, "shards", lambda self, system: tmp_path / "good")
    (tmp_path / "good").mkdir()
    child = program(tmp_path, monkeypatch, "child", answering(answer))
    part = hostile.Hostile(0, materials, [case], child)
    assert message in part.run(0).failures[0]
    part.child.kill()


# Folders and files of each kind that need no model; in CI, a sixth of their cases.
SIMPLE = [case for case in hostile.CASES if case.source in ("tasks", "text", "shards", "byte_bpe")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "cases", [SIMPLE[::6], pytest.param(hostile.CASES, marks=pytest.mark.long)]
)
def test_hostile_folders(tmp_path, cases):
    part = hostile.Hostile(0, Untrained(tmp_path / "materials"), cases)
    actual = parts.total(part.run(case) for case in range(len(cases)))
    part.child.stdin.close()
    assert part.child.wait(60) == 0
    assert not actual.failures
    assert actual.done == len(cases)


def test_there_are_hostile_folders_enough():
    assert len(hostile.CASES) >= 150
    assert len({case.name for case in hostile.CASES}) == len(hostile.CASES)


def stepping(change):
    steps = [
        {"finite": i not in (2, 4), "step": i + 1, "digests": [str(i - (i in (2, 4)))] * 2}
        for i in range(6)
    ]
    change(steps)
    return "import json\n" + "".join(f"print('''{json.dumps(step)}''')\n" for step in steps)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda steps: steps[2].update(digests=["x", "x"]), "step 2: weights were changed"),
        (lambda steps: steps[4].update(digests=["3", "y"]), "step 4: the replicas have different"),
        (lambda steps: steps[4].update(step=4), "step 4: the replicas are at step [4]"),
        (lambda steps: steps[2].update(finite=True), "step 2: the gradient is finite"),
        (lambda steps: None, None),
    ],
)
def test_nan_that_reaches_weights(tmp_path, monkeypatch, materials, change, message):
    monkeypatch.setattr(Materials, "shards", lambda self, system: tmp_path)
    child = program(tmp_path, monkeypatch, "child", stepping(change).replace("false", "0 > 1"))
    text = (tmp_path / "child.py").read_text().replace("0 > 1", "false")
    (tmp_path / "child.py").write_text(text)
    actual = nan.Nans(0, materials, child).run(0)
    assert actual.failures[:1] == ([f"bert, mirrored, {message}"] if message else []) or (
        message and message in actual.failures[0]
    )
    assert message or actual.kinds == {"left out by all": 2}


@pytest.mark.slow
@pytest.mark.long
def test_kills(materials, monkeypatch):
    monkeypatch.setattr(kills, "KILLS", 1)
    monkeypatch.setitem(kills._OVERRIDES, "steps", 30)

    def spoil(model_dir):
        """Another last bit of one weight, under a checksum that is right."""
        step = checkpoints.last_step(model_dir)
        arrays = checkpoints.load_variables(model_dir, "last", optimizer=True)
        state = checkpoints.load_state(checkpoints.find(model_dir, "last"))
        name = next(name for name, array in arrays.items() if array.dtype == np.float32)
        arrays[name] = np.nextafter(arrays[name], np.float32(np.inf))
        shutil.rmtree(checkpoints.find(model_dir, "last"))
        kept = {key: state[key] for key in ("figures", "waited")}
        checkpoints.save(model_dir, step, arrays, kept, keep=9)

    (failure,) = kills.Trainings(0, materials, spoil).run(0).failures
    assert failure.startswith("bert, 1 worker(s): other ends: /variables/")


def test_served_texts_are_compared_with_ids():
    """Another id gives another vector: what the comparison of a SavedModel rests on."""
    assert SERVED_LENGTH >= 68 and fuzz._TOLERANCE < 1e-3
    table = tf.random.stateless_normal([100, 8], [0, 0])
    near = tf.reduce_sum((table[:, None] - table[None]) ** 2, -1) + tf.eye(100) * 1e9
    assert float(tf.reduce_min(near)) > 1e-2


@pytest.mark.slow
@pytest.mark.long
def test_builds(materials, monkeypatch):
    monkeypatch.setattr(kills, "KILLS", 1)
    monkeypatch.setattr(kills, "COPIES", 5)
    part = kills.Builds(0, materials)
    outcome = part.run(0)
    assert outcome.done == 1 and not outcome.failures
    part._whole["bert"][0]["manifest.json"] = "another"
    assert part.run(4).failures == ["bert: other bytes than those of a build that nobody killed"]


READER = """
import os, sys, time
kind, file, out = sys.argv[1:]
with open(file) as opened:
    before = opened.read()
    for _ in range(20):  # in the middle of which the file is changed
        time.sleep(0.05)
changed = not os.path.exists(file) or open(file).read() != before
if changed and kind == "refuses":
    sys.exit(print(f"error: {file} has changed") or 2)
if changed and kind == "names nothing":
    sys.exit(print("error: something has changed") or 2)
os.mkdir(out)
open(f"{out}/a", "w").write("less" if changed and kind == "reads less" else before)
if changed and kind == "leaves more":
    open(f"{out}/b", "w")
"""


@pytest.mark.parametrize(
    ("kind", "ended"),
    [
        ("refuses", "refused"),
        ("reads all", "whole"),
        ("names nothing", "the file is not named"),
        ("reads less", "other bytes in out/a"),
        ("leaves more", "other bytes in out/b"),
    ],
)
def test_a_file_that_changes_while_it_is_read(tmp_path, monkeypatch, kind, ended):
    (tmp_path / "reader_of_a_file.py").write_text(READER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def make(folder):
        file = folder / "text.txt"
        file.write_text("text\n" * 100)
        return ["reader_of_a_file", kind, str(file), "OUT"], file

    part = changes.Changes(0, materials=None, made=lambda materials: {"reader": make})
    outcome = part.run(0)
    assert outcome.done == 1
    if ended in ("refused", "whole"):
        assert dict(outcome.kinds) == {ended: 1}
        assert outcome.failures == []
    else:
        assert ended in outcome.failures[0]
