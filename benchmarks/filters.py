"""Measures the filters of text: recall and precision, speed and memory.

  python -m benchmarks.filters [--documents=1000000] [--text=FILE]

Synthetic documents: unrelated documents share boilerplate, up to six of ten words, and a fifth are
copies of others with 1 to 5% of their words changed, left out or added. The benchmark counts the
copies, and the other documents, that `--deduplicate=near` leaves out. Memory is the peak, as the
system reports it, of the main process, which has all documents, and of the largest worker.

--text    A build with each filter beside one without, on a text with one sentence a line, and on
          the same text with copies of every tenth document. The near-duplicates of the text beside
          those that a comparison of all pairs finds.
"""

import argparse
import collections
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import environments, preprocess
from official.shards.text_filters import TextFilters
from official.utils import parallel
from tfrecords_tools.text import corpus, dropped, duplicates, filters
from tfrecords_tools.text.corpus import Corpus, Reading
from tfrecords_tools.vocabulary.phrases import start_worker

SEED = 0
BOILERPLATE = 100  # distinct texts
COPIES = 0.2  # of the documents
CHANGED = 0.01, 0.05  # of the words of a copy
RARE = 40  # documents that share a run of words; more frequent runs find no pair
BUILDS = {
    "none": [],
    "`--min_words=20 --max_symbol_share=0.2`": ["--min_words=20", "--max_symbol_share=0.2"],
    "`--deduplicate=exact`": ["--deduplicate=exact"],
    "`--deduplicate=near`": ["--deduplicate=near"],
}


def write_documents(path: Path, count: int) -> np.ndarray:
    """Writes documents; returns whether each is a copy of an earlier one, bool [count]."""
    rng = np.random.default_rng(SEED)
    vocabulary = np.array([f"{a}{b}{i}" for i in range(300) for a in "bdfgk" for b in "aeiou"])
    frequencies = np.cumsum(1 / np.arange(1, len(vocabulary) + 1))
    frequencies /= frequencies[-1]

    def draw(size: int) -> np.ndarray:
        return vocabulary[np.searchsorted(frequencies, rng.random(size))]

    shared = [draw(60) for _ in range(BOILERPLATE)]
    recent: list[np.ndarray] = []
    copies = np.zeros(count, bool)
    with open(path, "w") as stream:
        for number in range(count):
            if recent and rng.random() < COPIES:
                words = changed(recent[rng.integers(len(recent))], rng, draw)
                copies[number] = True
            else:
                used = shared[rng.integers(BOILERPLATE)]
                words = np.concatenate([used[:30], draw(rng.integers(40, 150)), used[30:]])
                # A copy is of one of the last thousands of documents, or of a much earlier one.
                if len(recent) < 5000:
                    recent.append(words)
                elif rng.random() < 0.5:
                    recent[rng.integers(2500)] = words
            stream.write("\n".join(" ".join(part) for part in np.array_split(words, 5)) + "\n\n")
    return copies


def changed(words: np.ndarray, rng: np.random.Generator, draw) -> np.ndarray:
    """Returns words of which some are changed, left out or added."""
    found = list(words)
    for _ in range(max(1, round(len(found) * rng.uniform(*CHANGED)))):
        place, change = rng.integers(len(found)), rng.integers(3)
        found[place : place + (change != 1)] = draw(int(change != 2))
    return np.array(found)


def left_out(files: Corpus, reading: Reading) -> Iterator[bool]:
    """Yields whether each document is left out."""
    table = np.load(reading.dropped)
    pairs = set(map(tuple, table[:2].T.tolist()))
    plain = Reading(files.range_bytes)
    for group in files.groups(seed=None):
        for chunk in corpus.read_chunks(group, plain, shared=False):
            for document in chunk.documents:
                if not document.part:
                    yield (dropped.key(*document.identity[:2]), document.identity[2]) in pairs


def child(text: Path, folder: Path, workers: int) -> None:
    """Finds near-duplicates, and prints the seconds that it took."""
    files = Corpus.find(str(text))
    reading = Reading(files.range_bytes)
    started = time.monotonic()
    with parallel.Pool(workers, start_worker) as pool:
        near = TextFilters(deduplicate="near")
        filters.passed(near, files, reading, pool.ordered, folder, lambda line: None)
    print(time.monotonic() - started)


def documents(folder: Path, options: argparse.Namespace) -> None:
    """Prints recall and precision on synthetic documents, and the memory."""
    print("| documents | MB | seconds | recall | precision | main MiB | worker MiB |")
    print("|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    for count in options.documents:
        text = folder / f"{count}.txt"
        truth = write_documents(text, count)
        command = [
            sys.executable, "-m", "benchmarks.filters", f"--child={text}",
            f"--workers={options.workers}",
        ]  # fmt: skip
        process = subprocess.Popen(
            command, cwd=environments.ROOT, stdout=subprocess.PIPE, text=True
        )
        memory = preprocess.Memory(process.pid)
        memory.start()
        seconds = float(process.communicate()[0])
        memory.end()
        files = Corpus.find(str(text))
        reading = Reading(files.range_bytes, dropped=dropped.find(text.with_suffix("")))
        found = np.fromiter(left_out(files, reading), bool)
        right = (found & truth).sum()
        print(
            f"| {count:,} | {files.bytes / 1e6:,.0f} | {seconds:.1f} | {right / truth.sum():.4f} "
            f"| {right / max(1, found.sum()):.4f} | {memory.main:,.0f} | {memory.worker:,.0f} |",
            flush=True,
        )
        text.unlink()


def with_copies(source: Path, target: Path) -> None:
    """Writes a text with a copy of every tenth document at the end, half of them changed."""
    rng = np.random.default_rng(SEED)
    texts = re.split(r"\n\s*\n", source.read_text())
    vocabulary = np.array(texts[0].split())
    copies = []
    for number, text in enumerate(texts[::10]):
        lines = text.split("\n")
        if number % 2:
            lines = [
                " ".join(changed(np.array(line.split()), rng, lambda n: rng.choice(vocabulary, n)))
                if rng.random() < 0.3 and line.split()
                else line
                for line in lines
            ]
        copies.append("\n".join(lines))
    target.write_text("\n\n".join(texts + copies))


def builds(folder: Path, options: argparse.Namespace) -> None:
    """Prints the time and memory of builds with each filter and without."""
    options.vocabulary, options.unit = None, "token"
    preprocess.prepare(folder, options)
    with_copies(options.text, folder / "copies.txt")
    print("\n| text | filters | seconds | MB/s | main MiB | worker MiB | left out |")
    print("|---|---|---:|---:|---:|---:|---|", flush=True)
    for name, text in (("as it is", options.text), ("with copies", folder / "copies.txt")):
        for filters_, flags in BUILDS.items():
            command = [
                sys.executable, "-m", "tfrecords_tools.build_shards",
                f"--config={folder}/config.yaml", f"--input={text}",
                f"--tokenizer={folder}/tokenizer", f"--output={folder}/shards",
                f"--workers={options.workers}", *flags,
            ]  # fmt: skip
            result = preprocess.measure(command, folder / "shards")
            (found,) = re.findall("left out: (.*)", result["said"])
            megabytes = text.stat().st_size / 1e6
            print(
                f"| {name} | {filters_} | {result['seconds']:.1f} "
                f"| {megabytes / result['seconds']:.1f} | {result['main']:,.0f} "
                f"| {result['worker']:,.0f} | {found} |",
                flush=True,
            )


def shingles(text: str) -> set[tuple[str, ...]]:
    """Returns the runs of three words of a text."""
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i : i + 3]) for i in range(max(1, len(words) - 2))}


def pairs(folder: Path, options: argparse.Namespace) -> None:
    """Prints how many documents resemble an earlier one, and how many of these are left out."""
    files = Corpus.find(str(options.text))
    reading = Reading(files.range_bytes)
    near = TextFilters(deduplicate="near")
    reading = filters.passed(near, files, reading, map, folder / "near", lambda line: None)
    found = np.fromiter(left_out(files, reading), bool)
    texts = re.split(r"\n\s*\n", options.text.read_text().strip())
    assert len(texts) == len(found)  # no document is long enough to be divided
    sets = list(map(shingles, texts))
    having = collections.defaultdict(list)
    for number, some in enumerate(sets):
        for shingle in some:
            having[shingle].append(number)
    common: collections.Counter[tuple[int, int]] = collections.Counter()
    for numbers in having.values():
        if len(numbers) <= RARE:
            common.update(itertools.combinations(numbers, 2))
    most = np.zeros(len(texts))
    for (first, second), count in common.items():
        if count > 0.3 * min(len(sets[first]), len(sets[second])):
            either = len(sets[first] | sets[second])
            share = len(sets[first] & sets[second]) / either
            most[second] = max(most[second], share)
    truth = most >= duplicates.SIMILARITY
    print(
        f"\nof {len(texts):,} documents {truth.sum():,} have a similarity of two thirds to an "
        f"earlier one; {(found & truth).sum():,} of these and {(found & ~truth).sum():,} others "
        f"are left out; the least similarity of those is {most[found].min(initial=1):.2f}"
    )


def main() -> None:
    """Runs the benchmark and prints its tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--documents", type=int, nargs="*", default=[100_000, 1_000_000], help="numbers of them"
    )
    parser.add_argument("--text", type=Path, help="text for builds with and without filters")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="default: the cores")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.child.with_suffix(""), options.workers)
        return
    with tempfile.TemporaryDirectory() as name:
        documents(Path(name), options)
        if options.text:
            builds(Path(name), options)
            pairs(Path(name), options)


if __name__ == "__main__":
    main()
