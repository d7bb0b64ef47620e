"""benchmarks.runners: its table, the bytes that it compares, and the seconds of a process."""

import subprocess
import sys

from benchmarks import runners


def test_the_table_has_the_cost_once_started():
    lines = runners.table({"local": [9.0, 15.2], "ray": [50.0, 57.75]}, [10, 41]).splitlines()
    assert lines[2:] == [
        "| local | 9.0 | 15.2 | 0.200 | 1.00 |",
        "| ray | 50.0 | 57.8 | 0.250 | 1.25 |",
    ]


def test_names_and_contents_are_compared(tmp_path):
    seen = set()
    for name, content in (("a", b"1"), ("b", b"1"), ("a", b"2")):
        folder = tmp_path / f"{len(seen)}"
        (folder / "in").mkdir(parents=True)
        (folder / "in" / name).write_bytes(content)
        seen.add(runners.digest(folder))
        assert runners.digest(folder) in seen
    assert len(seen) == 3


def test_seconds_of_a_process_below_another_count():
    burn = "import time\nwhile time.process_time() < 0.5: pass"
    start = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    process = subprocess.Popen([sys.executable, "-c", start])
    cpu = runners.Cpu(process.pid)
    cpu.start()
    process.wait()
    assert 0.25 < cpu.end() < 1
