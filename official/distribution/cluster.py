"""The workers that TF_CONFIG names, and the wait until all of them have been started.

TensorFlow waits for the other workers too, but for up to an hour, without a word, and it does not
answer Ctrl-C while it does. So workers wait here first.
"""

import contextlib
import json
import os
import socket
import time
from typing import NamedTuple

from official.utils import progress
from official.utils.errors import UserError

_EXAMPLE = (
    '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'
)
_ANSWER_SECONDS = 2.0  # for a connection, to a host that may not be there
_SECONDS_BETWEEN_CALLS = 0.5
_SHOWN = 5  # workers that a line names


class Cluster(NamedTuple):
    """The workers of a run.

    Attributes:
      workers: the address of each, HOST:PORT.
      task: which of them this process is, from 0.
    """

    workers: list[str]
    task: int


def read() -> Cluster:
    """Reads TF_CONFIG.

    Raises:
      UserError: it is not set, is not as TensorFlow defines it, or has other jobs than workers.
    """
    text = os.environ.get("TF_CONFIG")
    if not text:
        raise UserError(
            "--distribution_strategy=multi_worker needs the variable TF_CONFIG, for example "
            f"{_EXAMPLE}"
        )
    try:
        config = json.loads(text)
        jobs, workers, task = config["cluster"], config["cluster"]["worker"], config["task"]
        cluster = Cluster([str(worker) for worker in workers], int(task["index"]))
        cluster.workers[cluster.task]
        for worker in cluster.workers:
            _address(worker)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise UserError(f"TF_CONFIG={text}: {type(error).__name__}: {error}") from None
    if [*jobs] != ["worker"] or task.get("type", "worker") != "worker":
        raise UserError(
            f"TF_CONFIG={text}: it must have the job `worker` alone, whose first worker writes "
            f"--model_dir, for example {_EXAMPLE}"
        )
    return cluster


def wait(cluster: Cluster, report: progress.Report) -> None:
    """Waits until all workers have been started, and says which of them do not answer.

    Meanwhile it answers the others at the port of this worker. At the end the port is free for
    TensorFlow, which answers there from then on.

    Args:
      cluster: the workers.
      report: is called with lines.

    Raises:
      UserError: the port of this worker cannot be used.
    """
    own = cluster.workers[cluster.task]
    silent = {worker: "" for worker in cluster.workers if worker != own}
    if not silent:
        return
    started = reported = time.monotonic()
    with _listener(own) as listener:
        while True:
            _answer(listener)
            for worker in list(silent):
                try:
                    socket.create_connection(_address(worker), _ANSWER_SECONDS).close()
                    del silent[worker]
                except OSError as error:
                    silent[worker] = error.strerror or str(error)
            if not silent:
                return
            now = time.monotonic()
            if now - reported >= progress.SECONDS_BETWEEN_SIGNS:
                reported = now
                report(f"waiting for {_words(silent)}: {now - started:.0f} s so far")
            time.sleep(_SECONDS_BETWEEN_CALLS)


def _words(silent: dict[str, str]) -> str:
    """Returns the workers that do not answer, with the reasons of the system."""
    words = [f"{worker} ({reason})" for worker, reason in silent.items()][:_SHOWN]
    more = f" and {len(silent) - _SHOWN} more" if len(silent) > _SHOWN else ""
    return ", ".join(words) + more


def _address(worker: str) -> tuple[str, int]:
    host, _, port = worker.rpartition(":")
    if not host:
        raise ValueError(f"{worker} is not HOST:PORT")
    return host.strip("[]"), int(port)


def _listener(own: str) -> socket.socket:
    _, port = _address(own)
    try:
        listener = (
            socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
            if socket.has_dualstack_ipv6()
            else socket.create_server(("", port))
        )
    except OSError as error:
        raise UserError(
            f"TF_CONFIG: this worker, {own}, cannot use port {port} of this machine "
            f"({os.strerror(error.errno or 0)}); does another process use it?"
        ) from None
    listener.setblocking(False)
    return listener


def _answer(listener: socket.socket) -> None:
    """Takes the connections that are there; the system itself has answered them."""
    with contextlib.suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()
