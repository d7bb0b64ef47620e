"""Times the encoding of many texts by our command, sentence-transformers and fastembed in int8.

  python -m benchmarks.encoding --model=FOLDER --text=FILE [--texts 10000 100000] [--sts=dev.tsv]

All sides run the same sentence encoder from sentence-transformers' files (--model; default: a BERT
with random weights): ours after `official.convert`, the others after export to ONNX int8 by
sentence-transformers. A side is a command that reads a file with a text on each line and writes
their vectors. A text is 4 to 192 consecutive words of --text, with as many texts of 4 to 8 words as
of 96 to 192. The model cuts texts at its maximum length.

The sides take turns. The table shows for each side: texts a second (the median of the rounds) after
its model is loaded, where the time of ours includes the start of workers and the conversion for
LiteRT; the seconds of the whole command; the peak memory of all its processes; and the cosine of
its vectors with those in float32. With --sts, rows of STS-B, it also shows the Spearman correlation
of cosines and scores.
"""

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import environments

OURS = "encoder garden"
REFERENCE = f"{OURS}, float32"  # the vectors of all sides are compared with those of this side
ENVIRONMENT = "encoding"
SHORTEST, LONGEST = 4, 192  # words
# {side: flags of our command, which may have {threads}, or a function of `peers.encoding`}.
SIDES: dict[str, list[str] | str] = {
    REFERENCE: ["--workers={threads}"],
    f"{OURS}, bfloat16": ["--workers={threads}", "--precision=bfloat16"],
    f"{OURS}, int8": ["--workers={threads}", "--precision=int8"],
    f"{OURS}, LiteRT int8": ["--runtime=litert", "--precision=int8"],
    "sentence-transformers, ONNX int8": "sentence_transformers",
    "sentence-transformers, ONNX int8, processes": "processes",
    "fastembed, ONNX int8": "fastembed",
}


class Run:
    """A command that is run until it ends.

    Attributes:
      output: its stdout.
      seconds: the time that it took.
      peak: the largest sum of the memory of its processes, in MiB.
    """

    def __init__(self, words: list[str], environ: dict[str, str]):
        """Runs a command; exits if it fails."""
        started = time.perf_counter()
        self.peak = 0.0
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(
                words, cwd=environments.ROOT, env=environ, stdout=output, stderr=errors
            )
            while process.poll() is None:
                self.peak = max(self.peak, memory(tree(process.pid)))
                time.sleep(0.2)
            self.seconds = time.perf_counter() - started
            output.seek(0)
            errors.seek(0)
            self.output = output.read()
            if process.returncode:
                sys.exit(f"error: {' '.join(words)} ended early:\n{errors.read()[-3000:]}")


def tree(pid: int) -> list[int]:
    """Returns the ids of a process and of all its descendants."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for children in Path(f"/proc/{parent}/task").glob("*/children"):
                found += map(int, children.read_text().split())
    return found


def memory(pids: list[int]) -> float:
    """Returns the memory of processes in MiB.

    Anonymous memory that processes share is counted once. Pages of files, which other programs may
    share, are counted for the process that has the most of them.
    """
    written, files = 0, [0]
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
            size = {name: int(kb) for name, kb, *_ in map(str.split, lines)}
            written += size["Pss_Anon:"]
            files.append(size["Rss:"] - size["Anonymous:"])
    return (written + max(files)) / 1024


def main() -> None:
    """Runs the benchmark and prints its tables."""
    options = _options()
    with environments.folder(options.folder) as folder:
        prepare(folder, options)
        similarity = {name: "" for name in options.sides}
        if options.sts:
            similarity = {
                name: f" {100 * spearman(options.sts, folder, name, options.threads):.2f} |"
                for name in options.sides
            }
        for count in options.texts:
            texts = folder / f"texts-{count}.txt"
            if not texts.exists():
                write_texts(options.text, texts, count)
            runs: dict[str, list[tuple[float, Run]]] = {name: [] for name in options.sides}
            vectors = {}
            for number in range(options.rounds):
                for name in options.sides:
                    rate, run, vectors[name] = encode(name, folder, texts, options.threads)
                    runs[name].append((rate, run))
                    print(f"round {number + 1}, {count:,} texts: {name}: {rate:.1f}", flush=True)
            print(f"\n{count:,} texts, {options.rounds} rounds, {options.threads} threads:\n")
            table(runs, vectors, similarity)


def table(
    runs: dict[str, list[tuple[float, Run]]],
    vectors: dict[str, np.ndarray],
    similarity: dict[str, str],
) -> None:
    """Prints a line for each side.

    Args:
      runs: {side: its runs, each with its texts a second}.
      vectors: {side: its vectors [N, D]}.
      similarity: {side: the text of a last column, or ""}.
    """
    rates = {name: statistics.median(rate for rate, _ in of_side) for name, of_side in runs.items()}
    theirs = max((rate for name, rate in rates.items() if not name.startswith(OURS)), default=0)
    extra, line = (" STS-B |", "---:|") if any(similarity.values()) else ("", "")
    print(f"| side | texts/s | of their best | whole, s | peak MiB | cosine, mean, least |{extra}")
    print(f"|---|---:|---:|---:|---:|---:|{line}")
    for name, of_side in runs.items():
        ratio = f"{rates[name] / theirs:.2f}" if theirs else ""
        seconds = statistics.median(run.seconds for _, run in of_side)
        peak = max(run.peak for _, run in of_side)
        cosines = ""
        if REFERENCE in vectors:
            cosine = np.sum(vectors[name] * vectors[REFERENCE], axis=1)
            cosines = f"{cosine.mean():.4f}, {cosine.min():.4f}"
        row = f"{rates[name]:.0f} | {ratio} | {seconds:.0f} | {peak:,.0f} | {cosines} |"
        print(f"| {name} | {row}{similarity[name]}")


def encode(name: str, folder: Path, texts: Path, threads: int) -> tuple[float, Run, np.ndarray]:
    """Runs a side on a file of texts; returns texts a second, the run, and the vectors [N, D]."""
    side = SIDES[name]
    environ = environments.variables()
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        output = Path(temporary) / "vectors"
        if isinstance(side, str):
            settings = {
                "model": str(folder / "onnx"),
                "texts": str(texts),
                "output": f"{output}.npy",
                "threads": threads,
            }
            run = Run(environments.command(f"encoding.{side}", ENVIRONMENT, settings), environ)
            return json.loads(run.output)["rate"], run, np.load(f"{output}.npy")
        count = sum(1 for _ in texts.open(encoding="utf-8"))
        words = [
            *(sys.executable, "-m", "official.main", "--mode=embed", "--pieces=npy"),
            *(f"--model_dir={folder / 'model'}", f"--texts={texts}", f"--output={output}"),
            # Each worker gets several pieces.
            f"--piece_size={max(1, min(16_384, count // (4 * threads)))}",
            *(flag.format(threads=threads) for flag in side),
        ]
        run = Run(words, environ)
        rate = re.search(r"\(([\d,]+) texts/s\)", run.output.splitlines()[-1])
        assert rate is not None
        pieces = sorted(output.glob("vectors-*.npy"))
        vectors = np.concatenate([np.load(piece) for piece in pieces])
        return float(rate[1].replace(",", "")), run, vectors


def spearman(rows: Path, folder: Path, name: str, threads: int) -> float:
    """Returns the rank correlation of cosines (of a side's vectors) and scores of STS-B's rows.

    Args:
      rows: a file of STS-B with scores; two texts and the score are the last columns.
      folder: as for `encode`.
      name: the side.
      threads: as for `encode`.
    """
    from scipy import stats

    lines = [line.split("\t")[-3:] for line in rows.read_text("utf-8").splitlines()[1:]]
    texts = folder / "sts.txt"
    texts.write_text("".join(f"{a}\n{b}\n" for a, b, _ in lines), "utf-8")
    vectors = encode(name, folder, texts, threads)[2]
    cosines = np.sum(vectors[0::2] * vectors[1::2], axis=1)
    return float(stats.spearmanr(cosines, [float(score) for _, _, score in lines])[0])


def write_texts(source: Path, file: Path, count: int) -> None:
    """Writes texts of consecutive words of a source, one on each line.

    The logarithm of their number is uniform from `SHORTEST` to `LONGEST`.
    """
    rng = np.random.default_rng(0)
    drawn = np.exp(rng.uniform(np.log(SHORTEST), np.log(LONGEST + 1), count))

    def words() -> Iterator[str]:
        while True:  # a small text is read repeatedly
            with open(source, encoding="utf-8") as lines:
                for line in lines:
                    yield from line.split()

    stream = words()
    with open(file, "w", encoding="utf-8") as output:
        for length in np.clip(drawn.astype(int), SHORTEST, LONGEST):
            output.write(" ".join(next(stream) for _ in range(length)) + "\n")


def prepare(folder: Path, options: argparse.Namespace) -> None:
    """Creates the models that are missing in a folder: ours, and ONNX for other sides."""
    folder.mkdir(parents=True, exist_ok=True)
    if options.text is None:
        from demo import corpus

        corpus.write(folder / "corpus")
        options.text = folder / "corpus" / "text" / "train.txt"
    ours, onnx = folder / "model", folder / "onnx"
    missing = [] if ours.exists() else [ours]
    if not onnx.exists() and any(isinstance(SIDES[name], str) for name in options.sides):
        missing.append(onnx)
    model = options.model or folder / "random"
    if missing and not model.exists():
        settings = {"output": str(model), "text": str(options.text)}
        environments.run_peer("encoding.random", ENVIRONMENT, settings)
    if ours in missing:
        environments.run("official.convert", "--source=hf", f"--input={model}", f"--output={ours}")
    if onnx in missing:
        settings = {"model": str(model.resolve()), "output": str(onnx)}
        environments.run_peer("encoding.write", ENVIRONMENT, settings)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, help="folder in sentence-transformers' layout")
    parser.add_argument("--text", type=Path, help="text to cut; default: the demo's corpus")
    parser.add_argument("--texts", nargs="+", type=int, default=[10_000, 100_000])
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--sts", type=Path, help="dev.tsv of STS-B")
    parser.add_argument(
        "--folder", type=Path, help="folder that keeps the files, and whose files are used again"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
