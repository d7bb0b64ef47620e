"""Tests of official.utils.parallel."""

import os
import platform
import signal
import subprocess
import sys
import time

import pytest

from official.utils import parallel
from official.utils.errors import UserError
from tests import small
from tfrecords_tools.pretraining import examples


def slow_square(number):
    time.sleep(0.02 * (number % 3))
    return number * number, os.getpid()


def fail(number):
    raise UserError(f"number {number}")


def die(number):
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.fixture(name="ordered")
def fixture_ordered():
    with parallel.Pool(2, examples.start_worker) as pool:
        yield pool.ordered


def test_results_in_order_from_several_processes(ordered):
    results = list(ordered(slow_square, range(40)))
    assert [square for square, _ in results] == [n * n for n in range(40)]
    workers = {process for _, process in results}
    assert len(workers) == 2 and os.getpid() not in workers


def test_items_are_read_as_needed(ordered):
    read = []

    def items():
        for number in range(50):
            read.append(number)
            yield number

    results = ordered(slow_square, items())
    next(results)
    assert len(read) <= 4
    next(results)
    assert len(read) <= 5
    results.close()
    assert len(read) <= 5


def test_errors_of_workers_come_back(ordered):
    with pytest.raises(UserError, match="^number 0$"):
        list(ordered(fail, range(10)))
    assert len(list(ordered(slow_square, range(10)))) == 10


def test_processes_are_used_again(ordered):
    first, second = ({process for _, process in ordered(slow_square, range(8))} for _ in range(2))
    assert len(first | second) <= 2  # the second one may have started late


def test_a_killed_worker_is_an_error(ordered):
    with pytest.raises(UserError, match="a worker process was killed.*fewer --workers"):
        list(ordered(die, range(10)))


def test_no_items(ordered):
    assert list(ordered(die, [])) == []


SCRIPT = """
import resource
from official.utils import parallel

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

parallel.use_one_thread()
bytearray(40 << 20)
before = faults()
for _ in range(5):
    bytearray(40 << 20)  # 10,240 pages
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc's mallopt")
def test_memory_of_deleted_arrays_is_used_again():
    environment = {**os.environ, "GLIBC_TUNABLES": ""}
    command = [sys.executable, "-c", SCRIPT]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert int(result.stdout) < 1000, result.stderr


PRELOADED = """
import sys
import official.utils.forkserver
import importlib
importlib.import_module(sys.argv[1])

from official import tokenizers

before = set(sys.modules)
tokenizers.load(sys.argv[2])
print(sorted(set(sys.modules) - before))
"""


@pytest.mark.parametrize(
    "module",
    [
        "official.serving.vector_pieces",
        "tfrecords_tools.pretraining.examples",
        "tfrecords_tools.tasks.splits",
    ],
)
def test_workers_share_what_tokenizers_import(tmp_path, module):
    folder = small.tokenizer_folder(tmp_path / "tokenizer")
    command = [sys.executable, "-c", PRELOADED, module, str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]", result.stderr
