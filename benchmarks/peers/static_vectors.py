"""The sides of `benchmarks.static_vectors`.

The settings are `model`, a folder of model2vec's format, `texts`, a file with a text on each line,
and `threads`. A request names the `output`, a file for the vectors; the answer has the seconds of
wall time, of CPU time, and those of CPU time that splitting the texts takes alone.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import server


def answers(encode: Callable, split: Callable, texts: list[str]) -> None:
    """Answers requests with the functions `encode` and `split` of texts."""
    encode(texts[:100])

    def answer(request: dict) -> dict:
        start, cpu = time.perf_counter(), time.process_time()
        vectors = encode(texts)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        np.save(request["output"], vectors)
        start = time.process_time()
        split(texts)
        return {"seconds": seconds, "cpu": cpu, "splitting": time.process_time() - start}

    server.serve(answer)


def ours(settings: dict) -> None:
    """`official.load(...).encode`."""
    os.environ["OMP_NUM_THREADS"] = str(settings["threads"])
    import tensorflow as tf

    import official

    tf.config.threading.set_intra_op_parallelism_threads(settings["threads"])
    tf.config.threading.set_inter_op_parallelism_threads(settings["threads"])
    model = official.load(settings["model"])
    words = model.tokenizer._words

    def anew(function: Callable) -> Callable:
        def call(texts: list[str]):
            if words is not None:
                words._forget()
            return function(texts)

        return call

    texts = Path(settings["texts"]).read_text("utf-8").splitlines()
    answers(anew(model.encode), anew(model.tokenizer.encode_ragged), texts)


def theirs(settings: dict) -> None:
    """`model2vec.StaticModel.encode`."""
    os.environ["RAYON_NUM_THREADS"] = str(settings["threads"])
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if settings["threads"] > 1 else "false"
    from model2vec import StaticModel

    model = StaticModel.from_pretrained(settings["model"])
    texts = Path(settings["texts"]).read_text("utf-8").splitlines()
    # The texts are too short for its other processes, which it takes for long lists.
    answers(
        lambda texts: model.encode(texts, use_multiprocessing=False),
        lambda texts: model.tokenizer.encode_batch_fast(texts, add_special_tokens=False),
        texts,
    )


if __name__ == "__main__":
    server.main(ours, theirs)
