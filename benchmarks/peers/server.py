"""The server of all sides: a line of JSON in, a line of JSON out.

A side is a function in a file of this folder, which runs in a separate process, in any environment.
This file needs only the standard library.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def main(*sides: Callable[[dict], None]) -> None:
    """Runs the side that the first argument names, with the settings in the second, JSON."""
    _, name, settings = sys.argv
    {side.__name__: side for side in sides}[name](json.loads(settings))


def serve(answer: Callable[[Any], Any]) -> None:
    """Answers requests until stdin ends; `answer` takes and returns JSON values."""
    # Libraries may print to stdout, so prints go to stderr, and only answers to stdout.
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)


def sizes(size: dict) -> dict[str, int]:
    """Returns the sizes of a side under the names of BERT's config in transformers."""
    return {
        "vocab_size": size["vocab"],
        "hidden_size": size["hidden"],
        "num_hidden_layers": size["layers"],
        "num_attention_heads": size["heads"],
        "intermediate_size": size["intermediate"],
    }


def timed(function: Callable, *arguments: Any) -> tuple[float, Any]:
    """Calls a function; returns the seconds that it took, and its result."""
    started = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - started, result


def mib(kind: str) -> float:
    """Returns the memory of this process in MiB.

    Args:
      kind: `VmRSS` (now), `RssAnon` (now, without files) or `VmHWM` (its peak).
    """
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{kind}:")[2].split()[0]) / 1024
