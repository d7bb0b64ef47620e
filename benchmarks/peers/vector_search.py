"""The sides of `benchmarks.vector_search`: a search of stored vectors for each request.

The settings are `folder`, with the folder `vectors` and the file `queries.npy`, and `top_k`. The
numbers of the documents that are found are written to the file `{side}.npy`.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import server


def ours(settings: dict) -> None:
    """The files are mapped."""
    from official.serving.vectors.stored import Stored

    index = Stored(Path(settings["folder"], "vectors")).index
    _serve(settings, "ours", lambda queries, top_k: index.search(queries, top_k).numbers)


def flat(settings: dict) -> None:
    """All vectors are compared, of which faiss has a copy."""
    import faiss

    pieces = sorted(Path(settings["folder"], "vectors").glob("vectors-*.npy"))
    index = faiss.IndexFlatIP(np.load(pieces[0], mmap_mode="r").shape[1])
    for piece in pieces:
        index.add(np.load(piece))
    _serve(settings, "flat", lambda queries, top_k: index.search(queries, top_k)[1])


def _serve(settings: dict, side: str, search: Callable[[np.ndarray, int], np.ndarray]) -> None:
    queries = np.load(Path(settings["folder"], "queries.npy"))

    def answer(_: int) -> dict:
        before = server.mib("RssAnon")
        with _Peak() as peak:
            started, cpu = time.perf_counter(), time.process_time()
            numbers = search(queries, settings["top_k"])
            seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        np.save(Path(settings["folder"], f"{side}.npy"), numbers)
        memory = max(0.0, peak.found - before)
        return {"seconds": seconds, "cpu": cpu, "memory": memory, "queries": len(queries)}

    server.serve(answer)


class _Peak:
    """Finds the most memory that the process has during a block, in MiB."""

    def __enter__(self) -> "_Peak":
        self.found, self._end = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(0.02):
            self.found = max(self.found, server.mib("RssAnon"))


if __name__ == "__main__":
    server.main(ours, flat)
