"""Tokenizers of other packages, for `benchmarks.tokenizers` and `benchmarks.sentencepiece_ids`."""

import functools
import importlib
import os
import time
from collections.abc import Callable
from typing import Any

import server


def timed(settings: dict) -> None:
    """The side of a `package`: tokenizers, nanotoken or gigatoken, with a tokenizer.json `file`.

    For each list of texts it answers with the CPU seconds, the ids of all texts, and the number of
    ids of each text.
    """
    # one thread, as in one of our workers
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    package, file = importlib.import_module(settings["package"]), settings["file"]

    def encoder() -> Callable[[list[str]], Any]:
        if settings["package"] == "tokenizers":
            hugging_face = package.Tokenizer.from_file(file)
            # `encode_batch` would also compute offsets, which the other sides do not.
            return lambda texts: [
                each.ids for each in hugging_face.encode_batch_fast(texts, add_special_tokens=False)
            ]
        encode = package.Tokenizer(file).encode_batch
        if settings["package"] == "nanotoken":
            return functools.partial(encode, parallel=False, add_special_tokens=False)
        return functools.partial(encode, parallel=False)

    encode = encoder()
    encode(["start-up is not counted"])

    def answer(texts: list[str]) -> dict:
        started = time.process_time()
        rows = encode(texts)
        seconds = time.process_time() - started
        ids = [list(map(int, row)) for row in rows]
        return {
            "seconds": seconds,
            "ids": [i for row in ids for i in row],
            "lengths": list(map(len, ids)),
        }

    server.serve(answer)


def slow(settings: dict) -> None:
    """A slow tokenizer of transformers; answers lists of texts with their ids.

    The settings are `class`, AlbertTokenizer or XLNetTokenizer, and `model`, the path of a
    SentencePiece model.
    """
    import transformers

    tokenizer = getattr(transformers, settings["class"])(settings["model"])
    server.serve(lambda texts: tokenizer(texts, add_special_tokens=False)["input_ids"])


if __name__ == "__main__":
    server.main(timed, slow)
