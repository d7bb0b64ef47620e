"""Commands that make runs, each in a process of its own: those of a sweep and of a study."""

import os
import signal
import subprocess
from collections.abc import Collection, Sequence
from typing import Any

from official.utils.errors import Diverged


class Commands:
    """Runs commands, in any number of threads, and ends them together.

    Attributes:
      stopped: the signal that ended them; None = none did. After it no command starts.
    """

    def __init__(self) -> None:
        self.stopped: int | None = None
        self._processes: set[subprocess.Popen] = set()

    def run(
        self, words: Sequence[str], cores: Collection[int] | None = None, **options: Any
    ) -> int:
        """Runs a command line to its end, and returns its status, that of the signal if stopped.

        Args:
          words: the command line.
          cores: the cores to compute on; None = all.
          **options: those of Popen.
        """
        if self.stopped is not None:
            return -self.stopped
        process = subprocess.Popen(words, **options)
        self._processes.add(process)
        try:
            if cores is not None:
                os.sched_setaffinity(process.pid, cores)
            if self.stopped is not None:  # meanwhile
                process.send_signal(self.stopped)
            return process.wait()
        finally:
            self._processes.discard(process)

    def stop(self, number: int = signal.SIGTERM, frame: object = None) -> None:
        """Sends a signal to all; trainings save a checkpoint first. A signal handler as well."""
        del frame
        self.stopped = number
        for process in list(self._processes):
            process.send_signal(number)


def diverged(status: int) -> bool:
    """Returns whether a run ended because its gradients were not finite."""
    return status == Diverged.status
