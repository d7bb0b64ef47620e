"""What both sides of `finetune_epoch` do alike: settings, first weights and clock.

A side is a process that gets its settings as its first argument (JSON), prepares itself and then
answers lines of JSON: how many steps to make next, or what else to say. This file needs only
numpy, so that it runs in every environment.
"""

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np


def settings() -> dict:
    """What `finetune_epoch` gives to each side."""
    return json.loads(sys.argv[1])


def weights(settings: dict) -> dict[str, np.ndarray]:
    """The weights that both sides start from, by our paths."""
    with np.load(Path(settings["folder"]) / "weights.npz") as arrays:
        return {name.replace("|", "/"): arrays[name] for name in arrays}


def serve(steps: int, train: Callable[[int], None], evaluate: Callable[[], dict]) -> None:
    """Answers until stdin ends.

    Args:
      steps: of the whole epoch.
      train: makes so many steps, and returns once all are finished.
      evaluate: gives `accuracy` and `loss` on the development set.
    """
    # Libraries print as they like: the answers have a channel of their own.
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        asked = json.loads(line)
        if asked == "steps":
            answer = {"steps": steps}
        elif asked == "evaluate":
            answer = evaluate()
        else:
            started = time.perf_counter()
            train(asked)
            answer = {"seconds": time.perf_counter() - started}
        answer["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(answer), file=answers, flush=True)
