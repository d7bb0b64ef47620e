"""Common code of both sides of `finetune_epoch`: settings, initial weights and timing.

A side is a process that gets its settings as its first argument (JSON) and then answers lines of
JSON: the number of steps to make, or "steps" or "evaluate". This file needs only numpy, so that it
runs in every environment.
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np


def settings() -> dict:
    """Returns the settings that `finetune_epoch` passes to each side."""
    return json.loads(sys.argv[1])


def weights(settings: dict) -> dict[str, np.ndarray]:
    """Returns the initial weights of both sides, by our variable paths."""
    with np.load(Path(settings["folder"]) / "weights.npz") as arrays:
        return {name.replace("|", "/"): arrays[name] for name in arrays}


def serve(steps: int, train: Callable[[int], None], evaluate: Callable[[], dict]) -> None:
    """Answers requests until stdin ends.

    Args:
      steps: the number of steps of the epoch.
      train: makes a number of steps, and returns when they are finished.
      evaluate: returns `accuracy` and `loss` on the development set.
    """
    # Libraries may print to stdout, so the answers use a channel of their own.
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        if request == "steps":
            answer = {"steps": steps}
        elif request == "evaluate":
            answer = evaluate()
        else:
            started = time.perf_counter()
            train(request)
            answer = {"seconds": time.perf_counter() - started}
        answer["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(answer), file=answers, flush=True)
