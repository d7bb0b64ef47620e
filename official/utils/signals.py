"""Temporary handlers of SIGTERM and SIGINT."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


class Terminated(KeyboardInterrupt):
    """SIGTERM was received: the process ends, as after Ctrl-C."""


@contextlib.contextmanager
def terminated() -> Iterator[None]:
    """Raises `Terminated` at SIGTERM inside the block, so that unfinished files are removed.

    A second SIGTERM ends the process at once. A handler that is there already stays, and so does
    that of any thread but the main one.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def receive(number: int, frame: object) -> None:
        del number, frame
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    signal.signal(signal.SIGTERM, receive)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextlib.contextmanager
def handled(receive: Callable[[int, object], None]) -> Iterator[None]:
    """Calls a function at SIGTERM and SIGINT inside of the block.

    Python sets handlers in the main thread only. In any other thread, such as one of a web server,
    the handlers of the program stay in place.

    Args:
      receive: takes the number of the signal and the frame that it interrupts.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {s: signal.signal(s, receive) for s in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
