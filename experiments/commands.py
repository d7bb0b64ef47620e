"""Runs commands of the project, each printed before it runs, and counts their time."""

import os
import resource
import shlex
import subprocess
import sys
import time
from typing import NamedTuple

from benchmarks import environments


class Done(NamedTuple):
    """What a command has printed, and the seconds it took, of the clock and of a core."""

    printed: str
    seconds: float
    core_seconds: float


def run(module: str, *arguments: object) -> Done:
    """Runs `python -m MODULE ARGUMENTS`, and shows what it prints; exits if it fails."""
    words = [module, *map(str, arguments)]
    print("$ python -m", shlex.join(words), flush=True)
    started, before = time.monotonic(), _cores()
    process = subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=environments.ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # JAX, which TensorFlow imports, has set another level in this process.
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    printed = []
    for line in process.stdout:
        print(line, end="", flush=True)
        printed.append(line)
    if code := process.wait():
        raise SystemExit(f"error: {module} ended with {code}")
    return Done("".join(printed), time.monotonic() - started, _cores() - before)


def _cores() -> float:
    """Returns the CPU time of the commands so far, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
