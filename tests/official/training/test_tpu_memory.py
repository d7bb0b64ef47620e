"""The step that is compiled for a TPU, without that compiler: see `test_tpu_compiler`."""

import dataclasses

import pytest

from official.distribution import numerics
from official.training import run, tpu_memory
from official.utils import model_packages, tpu_compiler
from official.utils.errors import UserError
from official.utils.tpu_compiler import Program, Slice
from tests import small

LIMIT = 1000
SIZES = [(start, most) for start in (1, 3, 8, 32, 100) for most in (0, 1, 5, 8, 9, 40, 130, 1000)]


@pytest.fixture(autouse=True)
def float32():
    yield
    numerics.set_precision("float32")


@pytest.mark.parametrize("start, most", SIZES)
def test_the_largest_number_of_rows(start, most):
    """Ten are for the weights; close to the limit, a compiler finds a plan that takes less."""
    tried = []

    def program_of(rows):
        assert rows >= 1 and rows not in tried
        tried.append(rows)
        if rows > most:
            return Program(refused=LIMIT + rows)
        return Program(arguments=10, temporaries=min(950, 900 * rows // most))

    fits, refused = tpu_memory.largest(start, program_of, LIMIT)
    assert fits <= most < refused
    assert refused - fits <= max(8 if refused > 8 else 1, fits // 8)
    assert fits < 8 or fits % 8 == 0 or fits == start
    assert len(tried) <= 12, tried


def test_the_words():
    four = Slice("v5e:2x2", 4, 16 << 30)
    estimate = tpu_memory.Estimate(four, 32, Program(1322 * 10**6, 1527 * 10**6, 147 * 10**6))
    assert estimate.lines() == [
        "on each of 4 cores, 32 rows: 1,322 MB of arguments (weights, the state of the optimizer, "
        "a batch), 1,527 MB of temporaries, 147 MB of code",
        "fits: 2,996 MB in all; a core of v5e:2x2 leaves 17,180 MB",
    ]
    over = tpu_memory.Estimate(four, 32, Program(refused=(16 << 30) + (3 << 29)))
    assert over.lines() == [
        "does not fit: 1.50 GiB over: a core of v5e:2x2 leaves 17,180 MB",
    ]


@pytest.fixture(scope="module")
def run_of(tmp_path_factory):
    """A config and its shards."""
    folder = tmp_path_factory.mktemp("run")
    config = small.replace(small.config(), batch_size=16)
    small.shard_folder(folder / "shards", config, count=40)
    return config, folder / "shards"


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    """Stands for libtpu; the list gets the programs that it is given."""
    given = []

    def compile_program(program, slice_, log):
        with open(program, "rb") as file:
            given.append(file.read())
        return Program(arguments=1, temporaries=2, code=3, outputs=4)

    def describe(topology, log):
        return Slice(topology, {"v5e:1x1": 1, "v5e:2x2": 4}[topology], 100)

    monkeypatch.setattr(model_packages, "cache", lambda: tmp_path / "cache")
    monkeypatch.setattr(tpu_compiler, "version", lambda: "0.0")
    monkeypatch.setattr(tpu_compiler, "compile_program", compile_program)
    monkeypatch.setattr(tpu_compiler, "describe", describe)
    return given


def sums(program):
    """Returns the replicas of each sum over replicas of a program; none = all of them."""
    from tensorflow.compiler.xla.service import hlo_pb2

    module = hlo_pb2.HloModuleProto.FromString(program)
    found = [
        each
        for computation in module.computations
        for each in computation.instructions
        if each.opcode == "all-reduce"
    ]
    return [[*each.replica_groups] for each in found]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.xla
def test_gradients_are_summed_over_the_cores_of_a_slice(run_of, compiler):
    config, data = run_of
    for topology, rows in (("v5e:1x1", 16), ("v5e:2x2", 4)):
        [(resolved, found)] = run.estimate_tpu_memory(config, data, topology)
        assert found.rows == rows and resolved.recipe.jit_compile
    one, four = map(sums, compiler)
    assert not one and len(four) > 20 and not any(four)  # a sum for each variable, and for losses


@pytest.mark.slow
@pytest.mark.xla
def test_results_are_kept(run_of, compiler, monkeypatch):
    config, data = run_of
    for count in (1, 1):
        [(_, found)] = run.estimate_tpu_memory(config, data, "v5e:1x1")
        assert found.program.total == 10 and len(compiler) == count
    monkeypatch.setattr(tpu_compiler, "version", lambda: "0.1")
    monkeypatch.setattr(tpu_memory, "_lowered", lambda *_: b"another version")
    [*run.estimate_tpu_memory(config, data, "v5e:1x1")]
    [*run.estimate_tpu_memory(dataclasses.replace(config, seed=7), data, "v5e:1x1")]
    assert compiler[1:] == [b"another version"] * 2


def test_a_batch_is_divided_among_the_cores(run_of, compiler):
    config, data = run_of
    with pytest.raises(UserError, match="a batch of 18 cannot be shared by 4 replicas"):
        [*run.estimate_tpu_memory(small.replace(config, batch_size=18), data, "v5e:2x2")]


@pytest.mark.slow
@pytest.mark.long
def test_the_largest_batch_of_a_run(run_of, compiler, monkeypatch):
    config, data = run_of
    most = 44  # rows a core

    def compile_program(program, slice_, log):
        with open(program, encoding="utf-8") as file:
            rows = int(file.read()) // slice_.cores
        compiler.append(rows)
        return Program(temporaries=rows) if rows <= most else Program(refused=100 + rows)

    monkeypatch.setattr(tpu_compiler, "compile_program", compile_program)
    monkeypatch.setattr(
        tpu_memory, "_lowered", lambda config, *_: str(config.recipe.batch_size).encode()
    )
    for _ in range(2):
        [(_, found)] = run.estimate_tpu_memory(config, data, "v5e:2x2", find_batch=True)
        assert found.lines()[-1] == "largest batch: 160 (40 rows a core; 48 do not fit)"
    assert len(compiler) == len(set(compiler))  # The second search finds all in the cache.
    most = 0
    with pytest.raises(UserError, match="tiny: not even one row a core of v5e:1x1 fits, 0.00 GiB"):
        [*run.estimate_tpu_memory(config, data, "v5e:1x1", find_batch=True)]
