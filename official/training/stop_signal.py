"""Stops a run after SIGTERM or SIGINT, on all workers at the same step."""

import signal
from contextlib import AbstractContextManager

import numpy as np
import tensorflow as tf

from official.distribution import strategies
from official.utils import signals


class Stopped(Exception):
    """A signal asked the run to stop. When `train` raises it, the state is saved."""

    def __init__(self, number: int):
        super().__init__(signal.Signals(number).name)
        self.number = number


class StopSignal:
    """Remembers the last signal that this process received.

    Args:
      strategy: the strategy that the workers share.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        self._strategy = strategy
        self._number = 0  # 0 = none

    def handled(self) -> AbstractContextManager[None]:
        """Handles SIGTERM and SIGINT inside of a block."""
        return signals.handled(self._receive)

    def _receive(self, number: int, frame: object) -> None:
        del frame
        self._number = number

    def on_any_worker(self, seconds: float = 0.0) -> tuple[int, float]:
        """Returns a signal that any worker received, and the largest `seconds` of all workers.

        Every worker must call this at the same step. The signal is 0 if there was none.
        """
        gathered = strategies.gather(self._strategy, np.array([self._number, seconds]))
        number, slowest = gathered.max(axis=0)
        return int(number), float(slowest)

    def check(self) -> None:
        """Raises `Stopped` if any worker received a signal."""
        if number := self.on_any_worker()[0]:
            raise Stopped(number)
