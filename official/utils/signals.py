"""Temporary handlers of SIGTERM and SIGINT."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


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
