"""What every side of `serving` does alike: settings, requests and clock.

A side is a process that gets its settings as its first argument (JSON), loads its model and
answers one text; then it answers lines of JSON, which say what to do with which texts.
This file needs only numpy, so that it runs in every environment.

Shapes: B batch, T length of the longest text in the batch, C classes.
"""

import functools
import json
import sys
import threading
import time
from collections.abc import Callable
from concurrent import futures
from pathlib import Path

import numpy as np


def settings() -> dict:
    """What `serving` gives to each side.

    `folder`, `mode` and `max_length`; `at_once` requests at a time, with so many `threads` each.
    """
    return json.loads(sys.argv[1])


def serve(
    load: Callable[[], tuple[Callable, Callable, Callable]],
    settings: dict,
) -> None:
    """Loads, and answers until stdin ends. What is timed, `at_once` clients ask together.

    Args:
      load: gives three functions: from token ids, a list of lists, to what the model takes;
        from that to probabilities [B, C]; and from a list of strings to probabilities [B, C].
      settings: what `settings` gave.
    """
    # Libraries print as they like: the answers have a channel of their own.
    answers = sys.stdout
    sys.stdout = sys.stderr
    requests = json.loads((Path(settings["folder"]) / "requests.json").read_text())
    before = _mib("VmRSS")
    started = time.perf_counter()
    made, of_ids, of_texts = load()
    of_texts(requests["short"]["texts"][:1])
    loaded = {
        "seconds": time.perf_counter() - started,
        "before_mib": before,
        "mib": _mib("VmRSS"),
    }
    functions = {"ids": of_ids, "text": of_texts}
    clients = futures.ThreadPoolExecutor(settings["at_once"])
    for line in sys.stdin:
        asked = json.loads(line)
        if asked == "ready":
            answer = loaded
        elif asked == "peak":
            answer = {"mib": _mib("VmHWM")}
        else:
            given = requests[asked["length"]]["ids" if asked["inputs"] == "ids" else "texts"]
            size = asked["batch"]
            batches = [given[at : at + size] for at in range(0, len(given), size)]
            batches = batches[: asked.get("calls")]
            if asked["inputs"] == "ids":
                batches = [made(batch) for batch in batches]
            function = functions[asked["inputs"]]
            if asked.get("answers"):
                found = np.concatenate([function(batch) for batch in batches])
                answer = {"probabilities": found.tolist()}
            else:
                calls = batches * settings["at_once"]  # each client has as many as one alone
                began = time.perf_counter()
                seconds = list(clients.map(functools.partial(_timed, function), calls))
                answer = {
                    "seconds": seconds,
                    "whole": time.perf_counter() - began,
                    "texts": len(given) * settings["at_once"],
                }
        print(json.dumps(answer), file=answers, flush=True)


def padded(rows: list[list[int]]) -> dict[str, np.ndarray]:
    """Ids and mask, int32 [B, T] each, of texts of different lengths; 0 is padding."""
    width = max(map(len, rows))
    ids = np.array([row + [0] * (width - len(row)) for row in rows], np.int32)
    mask = np.array([[1] * len(row) + [0] * (width - len(row)) for row in rows], np.int32)
    return {"ids": ids, "mask": mask}


def tokenized(tokenizer: Callable, settings: dict, tensors: str) -> Callable:
    """What a tokenizer of transformers makes of a list of strings, padded to the longest.

    Args:
      tokenizer: a fast one, which is one thread's at a time.
      settings: what `settings` gave.
      tensors: "np" or "pt".
    """
    lock = threading.Lock()

    def of_texts(texts: list[str]) -> dict:
        with lock:
            return tokenizer(
                texts,
                padding=True,
                truncation=True,
                max_length=settings["max_length"],
                return_tensors=tensors,
            )

    return of_texts


def softmax(logits: np.ndarray) -> np.ndarray:
    """Of the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def _timed(function: Callable, batch: object) -> float:
    started = time.perf_counter()
    function(batch)
    return time.perf_counter() - started


def _mib(what: str) -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{what}:")[2].split()[0]) / 1024
