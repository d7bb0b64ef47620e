"""Checks that the time of a function is in proportion to the length of a text."""

import gc
import time
from collections.abc import Callable
from typing import Any


def check(function: Callable[[str], Any], part: str, length: int) -> None:
    """Checks that of four times the text the time is nearer to four times than to sixteen.

    Args:
      function: of a text.
      part: what the text repeats.
      length: that of the longer text.
    """
    gc.collect()
    gc.disable()  # It looks at all objects of the process.
    try:
        short, long = (_seconds(function, part * (n // len(part))) for n in (length // 4, length))
    finally:
        gc.enable()
    assert long < 10 * short + 0.1, (short, long)


def _seconds(function: Callable[[str], Any], text: str) -> float:
    """Returns the least CPU time of three calls."""
    found = []
    for _ in range(3):
        started = time.process_time()
        function(text)
        found.append(time.process_time() - started)
    return min(found)
