"""Child processes of the bench: commands of the project, workers of one training, readers."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
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


def run(module: str, *options: str) -> None:
    """Runs a command that has to succeed."""
    child = start(command(module, *options))
    output = child.communicate()[0]
    if child.returncode:
        raise RuntimeError(f"{module} {' '.join(options)} ended with:\n{output[-2000:]}")
