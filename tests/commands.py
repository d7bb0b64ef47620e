"""Runs the project's command lines in processes that have TensorFlow imported already.

`python -m MODULE` spends most of a short command's time importing TensorFlow. Here a server imports
it once, and each command runs in a process forked from the server, in which no operation has run.
A process has one such server, which also forks the workers of builds: `start_server` comes before a
build, which would start it without TensorFlow.
"""

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from multiprocessing import forkserver
from pathlib import Path

from tests import ROOT, two_hosts

CONTEXT = multiprocessing.get_context("forkserver")


def start_server() -> None:
    """Starts the server that imports TensorFlow; returns at once."""
    CONTEXT.set_forkserver_preload(["tensorflow", "tensorflow_text", "keras"])
    forkserver.ensure_running()


class Command:
    """A command line that runs, with the files of its output.

    Args:
      module: what follows `python -m`, or the path of a script, which runs in its own folder and
        cannot import this project.
      options: the arguments.
      environment: variables to set.
      merge: whether standard error goes to `stdout`.
      host: the network namespace to run in, as `two_hosts.enter` takes it; None = that of this
        process.
    """

    def __init__(
        self,
        module: str | Path,
        *options: object,
        environment: Mapping[str, str] | None = None,
        merge: bool = False,
        host: str | None = None,
    ):
        self._folder = tempfile.TemporaryDirectory()
        self.stdout = Path(self._folder.name, "stdout")
        self.stderr = self.stdout if merge else Path(self._folder.name, "stderr")
        words = [module, *map(str, options)]
        self._process = CONTEXT.Process(
            target=_execute,
            args=(words, self.stdout, self.stderr, dict(environment or {}), host),
        )
        self._process.start()

    @property
    def returncode(self) -> int | None:
        """The exit status, -N after signal N, or None while the command runs."""
        return self._process.exitcode

    def kill(self) -> None:
        """Sends SIGKILL."""
        self._process.kill()

    def terminate(self) -> None:
        """Sends SIGTERM."""
        self._process.terminate()

    def interrupt(self) -> None:
        """Sends SIGINT, as Ctrl-C does."""
        os.kill(self._process.pid, signal.SIGINT)

    def wait(self, timeout: float = 500) -> int:
        """Waits for the end and returns the exit status."""
        self._process.join(timeout)
        if self.returncode is None:
            self.kill()
            raise TimeoutError(f"no end after {timeout} s: {self.output()}")
        return self.returncode

    def output(self) -> str:
        """Returns what is on standard output so far."""
        return _read(self.stdout)

    def wait_for(self, words: str, timeout: float = 500) -> None:
        """Waits until the output contains `words`."""
        end = time.monotonic() + timeout
        while words not in self.output():
            assert self.returncode is None and time.monotonic() < end, self.output()
            time.sleep(0.02)


def run(
    module: str | Path, *options: object, status: int | None = None
) -> subprocess.CompletedProcess:
    """Runs `python -m MODULE OPTIONS...` or a script to its end.

    Args:
      module: the module, or the script's path.
      options: the arguments.
      status: the exit status that is expected; None = any.
    """
    command = Command(module, *options)
    command.wait()
    done = subprocess.CompletedProcess(
        [module, *options], command.returncode, command.output(), _read(command.stderr)
    )
    assert status is None or done.returncode == status, done.stdout + done.stderr
    return done


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


class _NoProject:
    """Finds no module of this project, which `make` installs, for scripts that do without."""

    @staticmethod
    def find_spec(name: str, *others: object) -> None:
        del others
        if name.partition(".")[0] in ("official", "tfrecords_tools"):
            raise ModuleNotFoundError(name, name=name)


def _execute(
    words: list[str | Path],
    stdout: Path,
    stderr: Path,
    environment: Mapping[str, str],
    host: str | None,
) -> None:
    for descriptor, path in ((1, stdout), (2, stderr)):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, descriptor)
        os.close(file)
    if host:
        two_hosts.enter(host)
    os.environ.update(environment)
    sys.argv = list(map(str, words))
    if isinstance(words[0], Path):
        os.chdir(words[0].parent)
        sys.path = [path for path in sys.path if Path(path).resolve() != ROOT]
        sys.meta_path.insert(0, _NoProject)
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        os.chdir(ROOT)
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
