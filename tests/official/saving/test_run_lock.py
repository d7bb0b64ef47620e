"""One run at a time in a model folder, with real processes that are killed."""

import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from official.saving import run_lock
from official.utils import paths
from official.utils.errors import UserError
from tests import ROOT

# Holds the lock until it is killed. With `lease` the file system has no locks.
HOLD = """
import errno, fcntl, sys, time
from official.saving import run_lock
folder, kind = sys.argv[1:]
if kind == "lease":
    def flock(*arguments):
        raise OSError(errno.ENOLCK, "no locks")
    fcntl_flock, fcntl.flock = fcntl.flock, flock
    run_lock.RENEWAL = 0.1
with run_lock.held(folder):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def hold(tmp_path):
    """Starts a process that holds the lock of `tmp_path / "model"`."""
    processes = []

    def start(kind):
        command = [sys.executable, "-c", HOLD, str(tmp_path / "model"), kind]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def no_locks(monkeypatch):
    """A file system without locks, and little patience."""

    def flock(*arguments):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(run_lock, "RENEWAL", 0.1)
    monkeypatch.setattr(run_lock, "PATIENCE", 1.0)


def refused_for(process):
    return pytest.raises(
        UserError,
        match=rf"model: another run trains in this model folder \(process {process.pid} of "
        rf"{re.escape(os.uname().nodename)}, since 20\d\d-.* UTC\)\. Wait until it has ended, stop "
        r"it \(at SIGTERM .* or name another --model_dir",
    )


def test_a_second_process_is_refused_until_the_first_one_is_killed(tmp_path, hold):
    model = tmp_path / "model"
    process = hold("lock")
    with refused_for(process), run_lock.held(model):
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (model / run_lock.FILE).exists()  # it is left behind, and nobody holds it
    with run_lock.held(model) as check:
        check()
        assert json.loads((model / run_lock.FILE).read_text())["process"] == os.getpid()
        with pytest.raises(UserError, match="another run trains"), run_lock.held(model):
            pass
        assert (model / run_lock.FILE).exists()
        (model / "config.yaml").touch()
    assert [path.name for path in model.iterdir()] == ["config.yaml"]


def test_a_run_that_wrote_nothing_leaves_no_folder(tmp_path):
    with pytest.raises(ZeroDivisionError), run_lock.held(tmp_path / "model"):
        1 / 0  # noqa: B018
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write"), run_lock.held(tmp_path / "file"):
        pass


def test_without_locks_a_file_that_is_written_again_is_the_lock(tmp_path, hold, no_locks):
    model, said = tmp_path / "model", []
    process = hold("lease")
    with refused_for(process), run_lock.held(model, said.append):
        pass
    assert len(said) == 1 and f"process {process.pid} of" in said[0]
    process.kill()
    process.wait()
    # This machine knows that the process has ended.
    with run_lock.held(model, said.append) as check:
        check()
        before = (model / run_lock.FILE).read_text()
        deadline = time.monotonic() + 30
        while (model / run_lock.FILE).read_text() == before:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert len(said) == 1 and not list(model.iterdir())


def test_a_file_of_another_machine_is_taken_over_after_a_while(tmp_path, no_locks):
    model, said = tmp_path / "model", []
    model.mkdir()
    theirs = {"host": "far", "process": 7, "since": "2026-01-01 00:00:00 UTC", "machine": "other"}
    (model / run_lock.FILE).write_text(json.dumps(theirs))
    started = time.monotonic()
    with run_lock.held(model, said.append) as check:
        assert time.monotonic() - started >= run_lock.PATIENCE
        assert said[0].endswith(
            "names process 7 of far, since 2026-01-01 00:00:00 UTC: waiting 1 s for a sign that it "
            "goes on"
        )
        check()
        # Another run takes it over in its turn, as after a pause of this machine.
        (model / run_lock.FILE).write_text(json.dumps({**theirs, "host": "farther"}))
        with pytest.raises(UserError, match="process 7 of farther"):
            check()
        time.sleep(3 * run_lock.RENEWAL)
    assert json.loads((model / run_lock.FILE).read_text())["host"] == "farther"  # and keeps it


def test_a_remote_folder_is_locked_by_a_file(monkeypatch):
    monkeypatch.setattr(run_lock, "RENEWAL", 0.05)
    model = paths.path("ram://run-lock/model")
    with run_lock.held(model):
        inside = threading.Event()
        failed = []

        def second():
            try:
                with run_lock.held(model, lambda line: inside.set()):
                    pass
            except UserError as error:
                failed.append(str(error))

        thread = threading.Thread(target=second)
        thread.start()
        thread.join(30)
        assert inside.is_set() and f"(process {os.getpid()} of " in failed[0]
    assert not (model / run_lock.FILE).exists()


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path, monkeypatch):
    def write(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", write)
    with (
        pytest.raises(UserError, match=r"no room to write .*training\.lock"),
        run_lock.held(tmp_path / "model"),
    ):
        pass
    assert not list(tmp_path.iterdir())
