"""Times the reading of a build's groups, which each part of the shuffle reads, and their planning.

  python -m benchmarks.groups [--groups=1000] [--records=2000] [--parts=800]
      [--gigabytes 10 100 1000]

A build on one machine stores the examples of its groups of text in files, and each shard takes its
own from all of them. The table shows the CPU time for each group and shard, and of all, if a file
has one group or several neighboring ones, and is opened for one shard or for several neighboring
ones at a time. The sides take turns. A second table has the groups of corpora of files of 1 GB, and
the CPU time and memory that the main process needs to find them.
"""

import argparse
import resource
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from official.utils.batched import batched
from official.utils.input_files import InputFile
from tfrecords_tools.pretraining.counts import Counts
from tfrecords_tools.text.corpus import Corpus
from tfrecords_tools.writing import local
from tfrecords_tools.writing.shuffle import Keyed, first_key

_BYTES = 300  # of a record
_MOST = local.MOST_NEIGHBORS
_SIDES = [(1, 1), (1, _MOST), (_MOST, 1), (_MOST, _MOST)]  # groups in a file, shards at a time


def main() -> None:
    """Runs the benchmark and prints its table."""
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        files = {
            groups: write(Path(folder), options.groups, groups, options.records)
            for groups in (1, _MOST)
        }
        times: dict[tuple[int, int], list[float]] = {side: [] for side in _SIDES}
        for _ in range(options.rounds):
            for (groups, shards), found in times.items():
                found.append(read(files[groups], options.parts, shards))
    print("\n".join(table(times, options.groups, options.parts)))
    print("\n| text, GB | groups | CPU seconds | MiB |\n|---:|---:|---:|---:|")
    for gigabytes in sorted(options.gigabytes):  # a smaller one needs no more memory
        number, seconds, memory = planned(gigabytes)
        print(f"| {gigabytes:,} | {number:,} | {seconds:.1f} | {memory:,.0f} |")


def write(folder: Path, groups: int, together: int, count: int) -> list[local.SortedRuns]:
    """Stores groups with random records; returns their files, with so many groups together."""

    def made(group: int) -> Keyed[Counts]:
        rng = np.random.default_rng(group)
        keys = rng.integers(0, 1 << 64, size=count, dtype=np.uint64, endpoint=False)
        return Keyed(keys, [bytes(_BYTES)] * count, Counts())

    stored = []
    for number, some in enumerate(batched(range(groups), together)):
        stored.append(local.SortedRuns(folder, together * groups + number))
        stored[-1].write(map(made, some), Counts(), together * local.RUN_BYTES)
    return stored


def read(files: list[local.SortedRuns], parts: int, count: int) -> float:
    """Returns the CPU seconds of the reading of all parts, so many at a time."""
    started = time.process_time()
    for start in range(0, parts, count):
        first, end = first_key(start, parts), first_key(min(start + count, parts), parts)
        for file in files:
            file.read(first, end)
    return time.process_time() - started


def planned(gigabytes: int) -> tuple[int, float, float]:
    """Returns the number of groups of a corpus of so many files, CPU seconds and MiB to find them.

    The memory is 0 if this process has had as much before.
    """
    corpus = Corpus([InputFile(Path(f"{i}.txt"), 10**9) for i in range(gigabytes)])
    before, started = _peak(), time.process_time()
    number = len(corpus.groups(0))
    return number, time.process_time() - started, _peak() - before


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def table(times: dict[tuple[int, int], list[float]], groups: int, parts: int) -> list[str]:
    """Returns the lines of a Markdown table."""
    lines = [
        "| groups in a file | shards at a time | CPU seconds | microseconds | ratio |",
        "|---:|---:|---:|---:|---:|",
    ]
    medians = {side: statistics.median(found) for side, found in times.items()}
    for (together, count), seconds in medians.items():
        each, ratio = seconds / (groups * parts) * 1e6, medians[1, 1] / seconds
        lines.append(f"| {together} | {count} | {seconds:.1f} | {each:.1f} | {ratio:.1f} |")
    return lines


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--records", type=int, default=2000, help="of a group")
    parser.add_argument("--parts", type=int, default=800, help="shards")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gigabytes", type=int, nargs="*", default=[10, 100, 1000])
    return parser.parse_args()


if __name__ == "__main__":
    main()
