"""Common code of all sides of `serving`: settings, requests and timing.

A side is a process that gets its settings as its first argument (JSON), loads its model and runs it
on one text. Then it answers lines of JSON, which name an action and the texts.
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
    """Returns the settings that `serving` passes to each side.

    `folder`, `mode` and `max_length`; `at_once` requests at a time, with so many `threads` each.
    """
    return json.loads(sys.argv[1])


def serve(
    load: Callable[[], tuple[Callable, Callable, Callable]],
    settings: dict,
) -> None:
    """Loads the model and answers requests until stdin ends; `at_once` clients are timed together.

    Args:
      load: returns three functions: from lists of token ids to the inputs of the model, from these
        inputs to probabilities [B, C], and from a list of strings to probabilities [B, C].
      settings: the result of `settings`.
    """
    # Libraries may print to stdout, so the answers use a channel of their own.
    answers = sys.stdout
    sys.stdout = sys.stderr
    requests = json.loads((Path(settings["folder"]) / "requests.json").read_text())
    before = _mib("VmRSS")
    started = time.perf_counter()
    inputs_from, predict_ids, predict_texts = load()
    predict_texts(requests["short"]["texts"][:1])
    loaded = {
        "seconds": time.perf_counter() - started,
        "before_mib": before,
        "mib": _mib("VmRSS"),
    }
    functions = {"ids": predict_ids, "text": predict_texts}
    clients = futures.ThreadPoolExecutor(settings["at_once"])
    for line in sys.stdin:
        request = json.loads(line)
        if request == "ready":
            answer = loaded
        elif request == "peak":
            answer = {"mib": _mib("VmHWM")}
        else:
            given = requests[request["length"]]["ids" if request["inputs"] == "ids" else "texts"]
            size = request["batch"]
            batches = [given[at : at + size] for at in range(0, len(given), size)]
            batches = batches[: request.get("calls")]
            if request["inputs"] == "ids":
                batches = [inputs_from(batch) for batch in batches]
            function = functions[request["inputs"]]
            if request.get("answers"):
                probabilities = np.concatenate([function(batch) for batch in batches])
                answer = {"probabilities": probabilities.tolist()}
            else:
                calls = batches * settings["at_once"]  # Each client has as many calls as one alone.
                began = time.perf_counter()
                seconds = list(clients.map(functools.partial(_timed, function), calls))
                answer = {
                    "seconds": seconds,
                    "whole": time.perf_counter() - began,
                    "texts": len(given) * settings["at_once"],
                }
        print(json.dumps(answer), file=answers, flush=True)


def padded(rows: list[list[int]]) -> dict[str, np.ndarray]:
    """Returns the padded ids and the mask of texts, int32 [B, T] each; 0 is padding."""
    width = max(map(len, rows))
    ids = np.array([row + [0] * (width - len(row)) for row in rows], np.int32)
    mask = np.array([[1] * len(row) + [0] * (width - len(row)) for row in rows], np.int32)
    return {"ids": ids, "mask": mask}


def tokenized(tokenizer: Callable, settings: dict, tensors: str) -> Callable:
    """Returns a function that tokenizes a list of strings, padded to the longest.

    Args:
      tokenizer: a fast tokenizer of transformers, which one thread may use at a time.
      settings: the result of `settings`.
      tensors: "np" or "pt".
    """
    lock = threading.Lock()

    def tokenize(texts: list[str]) -> dict:
        with lock:
            return tokenizer(
                texts,
                padding=True,
                truncation=True,
                max_length=settings["max_length"],
                return_tensors=tensors,
            )

    return tokenize


def softmax(logits: np.ndarray) -> np.ndarray:
    """Returns the softmax over the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def _timed(function: Callable, batch: object) -> float:
    started = time.perf_counter()
    function(batch)
    return time.perf_counter() - started


def _mib(what: str) -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{what}:")[2].split()[0]) / 1024
