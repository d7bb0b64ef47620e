"""Child processes of the bench: commands of the project, workers of one training, readers."""

import functools
import json
import multiprocessing
import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import environments


def environment() -> dict[str, str]:
    """The environment of child processes: no GPU, and TensorFlow logs errors alone."""
    kept = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
    return {**kept, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}


def workers(count: int) -> list[dict[str, str]]:
    """The variables that tell each worker on this machine who it is; a single one has none."""
    if count == 1:
        return [{}]
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    addresses = [f"localhost:{server.getsockname()[1]}" for server in sockets]
    for server in sockets:
        server.close()
    tasks = [{"type": "worker", "index": index} for index in range(count)]
    cluster = {"worker": addresses}
    return [{"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})} for task in tasks]


def command(module: str, *options: str) -> list[str]:
    """The command line of one of the project's modules."""
    return [sys.executable, "-m", module, *options]


def start(
    words: Sequence[str], variables: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen:
    """Starts a command in the root of the repository, which reads nothing and answers in text.

    Args:
      words: the command line.
      variables: of its environment, beside those of `environment`.
      **options: of Popen: where its input comes from and where its output goes.
    """
    return subprocess.Popen(
        words,
        **{
            "cwd": environments.ROOT,
            "env": {**environment(), **(variables or {})},
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
            "text": True,
            **options,
        },
    )


class Fork:
    """A command of the project in a session of its own, without the seconds of its imports.

    It is a fork of a process that has imported them.

    Args:
      words: the module of the command, and its flags.
      log: the file that its output is appended to.
      variables: of its environment, beside those of `environment`.
      before: what the process does first.
    """

    def __init__(
        self,
        words: Sequence[str],
        log: Path,
        variables: Mapping[str, str] | None = None,
        before: Callable[[], Any] | None = None,
    ):
        work = words, str(log), {**environment(), **(variables or {})}, before
        self._process = _forks().Process(target=_run_forked, args=work)
        self._process.start()

    @property
    def pid(self) -> int:
        """The number of the process, and of its session."""
        return self._process.pid

    def poll(self) -> int | None:
        """Its exit status; negative is the number of a signal, None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for its end.

        Raises:
          TimeoutError: it runs after `timeout` seconds.
        """
        self._process.join(timeout)
        status = self.poll()
        if status is None:
            raise TimeoutError(f"still runs after {timeout} s")
        return status

    def kill(self) -> None:
        """Sends SIGKILL to the process alone."""
        self._process.kill()


@functools.cache
def _forks() -> Any:
    """The context of multiprocessing whose processes are forks of one with the imports."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["official.commands.main", "official.training.run"])
    return context


def _run_forked(
    words: Sequence[str],
    log: str,
    variables: Mapping[str, str],
    before: Callable[[], Any] | None,
) -> None:
    """Runs a command as `python -m` would, with its output in a file."""
    os.setsid()
    os.chdir(environments.ROOT)
    os.environ.clear()
    os.environ.update(variables)
    paths = variables.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [str(environments.ROOT), *filter(None, paths)]
    with open(log, "ab") as stream:
        os.dup2(stream.fileno(), sys.stdout.fileno())
        os.dup2(stream.fileno(), sys.stderr.fileno())
    # The workers of the command are forks of a server of its own, as ever.
    for name in ("forkserver", "popen_forkserver"):
        sys.modules.pop(f"multiprocessing.{name}", None)
        vars(multiprocessing).pop(name, None)
    if before is not None:
        before()
    sys.argv = [*words]
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


def run(module: str, *options: str) -> None:
    """Runs a command that has to succeed."""
    child = start(command(module, *options))
    output = child.communicate()[0]
    if child.returncode:
        raise RuntimeError(f"{module} {' '.join(options)} ended with:\n{output[-2000:]}")
