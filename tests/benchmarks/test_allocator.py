"""benchmarks.allocator: its table, and the variables that glibc reads."""

import os
import platform
import subprocess
import sys

import pytest

from benchmarks import allocator, memory


def test_a_table_has_the_medians_and_the_ratio():
    one = {"rate": 0.5, "faults": 8_000_000, "kernel": 40.0, "peak": 7e9}
    answers = {
        "as it is": [one, {**one, "rate": 0.1}, {**one, "rate": 0.6}],
        "kept": [{"rate": 0.75, "faults": 1_000_000, "kernel": 10.4, "peak": 8.125e9}],
    }
    assert allocator.rows("bert", answers) == [
        "| bert | as it is | 0.500 | 1.00 | 8.0 million | 40 | 7.00 GB |",
        "| bert | kept | 0.750 | 1.50 | 1.0 million | 10 | 8.12 GB |",
    ]


def test_each_run_is_one_of_the_memory_benchmark():
    assert {run.config for run in memory.RUNS} >= set(allocator.RUNS)


SCRIPT = """
import concurrent.futures
import resource

def work():
    for _ in range(5):
        bytearray(40 << 20)  # 10,240 pages

with concurrent.futures.ThreadPoolExecutor(1) as pool:
    pool.submit(work).result()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the variables are glibc's")
def test_a_thread_keeps_its_memory_with_the_variables():
    faults = []
    for more in allocator.SIDES.values():
        environment = {**os.environ, "GLIBC_TUNABLES": "", **more}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, check=True
        )
        faults.append(int(done.stdout))
    assert faults[0] - faults[1] > 4 * 10_000
