"""Commands that run in processes of their own, and are ended together."""

import concurrent.futures
import os
import signal
import sys
import time

from official.training.commands import Commands, diverged
from official.utils.errors import Diverged

# Says that it runs, and leaves at SIGTERM with the status of a training that has saved.
CHILD = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
pathlib.Path(sys.argv[1]).touch()
time.sleep(60)
"""


def python(code, *arguments):
    return [sys.executable, "-c", code, *map(str, arguments)]


def test_a_signal_ends_all_and_no_other_starts(tmp_path):
    commands = Commands()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        running = [pool.submit(commands.run, python(CHILD, tmp_path / name)) for name in "ab"]
        limit = time.monotonic() + 60
        while len(list(tmp_path.iterdir())) < 2:
            assert time.monotonic() < limit
            time.sleep(0.01)
        commands.stop(signal.SIGTERM)
        assert [each.result() for each in running] == [143, 143]
    assert commands.run(python(CHILD, tmp_path / "c")) == -signal.SIGTERM
    assert not (tmp_path / "c").exists()


def test_what_a_command_gets_and_how_it_ends(tmp_path):
    code = "import os, sys; print(os.sched_getaffinity(0)); sys.exit(3)"
    core = min(os.sched_getaffinity(0))
    with open(tmp_path / "log", "wb") as log:
        # The affinity is set when the process has begun, before it has imported anything.
        wait = "import time; time.sleep(0.5); "
        status = Commands().run(python(wait + code), frozenset([core]), stdout=log)
    assert status == Diverged.status and diverged(status) and not diverged(1)
    assert (tmp_path / "log").read_text().split() == ["{" + str(core) + "}"]
