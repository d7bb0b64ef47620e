"""Runs a function in a process whose files may have so many bytes, as on a disk with so much room.

The limit is one of a process. That of the tests writes files of its own: its report may go to one.
"""

import os
import resource
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from tests import commands


def run(size: int, function: Callable, *arguments: Any) -> Any:
    """Returns what a function returns, or raises what it raises.

    Args:
      size: the number of bytes that a file may have.
      function: one of a module, which the other process imports.
      arguments: its arguments.
    """
    ours, theirs = commands.CONTEXT.Pipe()
    process = commands.CONTEXT.Process(
        target=_limited, args=(theirs, size, function, arguments), daemon=True
    )
    process.start()
    theirs.close()
    try:
        result, error = ours.recv()
    finally:
        process.join()
    if error is not None:
        raise error
    return result


def _limited(answer: Connection, size: int, function: Callable, arguments: tuple) -> None:
    # What it prints might go to a file.
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    try:
        answer.send((function(*arguments), None))
    except Exception as error:
        answer.send((None, error))
