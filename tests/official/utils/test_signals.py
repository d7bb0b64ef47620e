"""Handlers of signals, in the main thread and in others."""

import os
import signal
import threading

import pytest

from official.utils import signals

BOTH = signal.SIGTERM, signal.SIGINT


def test_signals_are_received_inside_of_the_block():
    before, received = [signal.getsignal(number) for number in BOTH], []
    with signals.handled(lambda number, frame: received.append(number)):
        for number in BOTH:
            os.kill(os.getpid(), number)
    assert received == [*BOTH]
    assert [signal.getsignal(number) for number in BOTH] == before


def test_sigterm_ends_a_block_as_ctrl_c_does():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(signals.Terminated), signals.terminated():
        os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before and issubclass(
        signals.Terminated, KeyboardInterrupt
    )
    with signals.handled(lambda number, frame: None), signals.terminated():
        os.kill(os.getpid(), signal.SIGTERM)  # A handler that is there stays.


def test_the_handlers_of_the_program_stay_in_another_thread():
    """`signal.signal` raises ValueError there."""
    before, inside = [signal.getsignal(number) for number in BOTH], []

    def work():
        with signals.handled(lambda number, frame: None):
            inside.extend(signal.getsignal(number) for number in BOTH)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert inside == before
