"""Times byte-level BPE on text and on long words: ours and the `tokenizers` package's.

  python -m benchmarks.byte_bpe [--text=FILE] [--tokenizer=DIR]

Both sides read the same vocabulary and the same texts and take turns, round after round. Seconds
are those of all processors together, so MB/s are those of one core. Each round starts without known
words, and the text is encoded twice: the second time its words are known. The long words are random
letters: GPT-2's pattern does not split them, so the cost of one word shows. The package runs in an
environment of its own (made as by `make parity` when missing). The ids are compared.
"""

import argparse
import random
import statistics
import string
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks import environments

LETTERS = (1_000, 10_000, 100_000, 1_000_000)


def make_tokenizer(text: Path, folder: Path) -> None:
    """Learns a vocabulary of 8,000 pieces."""
    arguments = f"--input={text} --output={folder} --type=byte_bpe --vocab_size=8000"
    command = [sys.executable, "-m", "tfrecords_tools.build_vocab", *arguments.split()]
    subprocess.run(command, cwd=environments.ROOT, check=True)


def make_rows(text: Path, megabytes: float, letters: tuple[int, ...]) -> dict[str, list[str]]:
    """Returns the texts of each row of the table."""
    rng = random.Random(0)
    lines = text.read_text(encoding="utf-8")[: int(megabytes * 1e6)].splitlines()
    words = {
        f"a word of {n:,}": ["".join(rng.choices(string.ascii_lowercase, k=n))] for n in letters
    }
    return {"text": lines, "text, again": lines, **words}


def run_ours(rows: dict[str, list[str]], folder: Path) -> dict[str, tuple[float, np.ndarray]]:
    """Returns the seconds and the ids of each row, with our tokenizer."""
    from official import tokenizers

    tokenizer = tokenizers.load(folder)
    tokenizer.encode_ragged(["start-up is not counted"])
    results = {}
    for name, texts in rows.items():
        started = time.process_time()
        ids, _ = tokenizer.encode_ragged(texts)
        results[name] = time.process_time() - started, ids
    return results


def run_theirs(rows: dict[str, list[str]], folder: Path) -> dict[str, tuple[float, np.ndarray]]:
    """Returns the seconds and the ids of each row, with the package."""
    peer = environments.Process(
        "tokenizers", "hf", "tokenization.byte_bpe", {"folder": str(folder)}
    )
    answers = {name: peer.ask(texts) for name, texts in rows.items()}
    peer.close()
    return {name: (a["seconds"], np.array(a["ids"], np.int32)) for name, a in answers.items()}


def compare(options: argparse.Namespace) -> None:
    """Prints the table."""
    rows = make_rows(options.text, options.megabytes, options.letters)
    sides = [], []
    for _ in range(options.rounds):
        sides[0].append(run_ours(rows, options.tokenizer))
        sides[1].append(run_theirs(rows, options.tokenizer))
    print("| | MB | ours, s | theirs, s | ours, MB/s | theirs, MB/s | theirs / ours | ids |")
    print(f"|---|{'---:|' * 6}---|")
    for name, texts in rows.items():
        size = sum(len(text.encode()) for text in texts) / 1e6
        ours, theirs = (statistics.median(results[name][0] for results in side) for side in sides)
        equal = np.array_equal(*(side[0][name][1] for side in sides))
        print(
            f"| {name} | {size:.3f} | {ours:.3f} | {theirs:.3f} | {size / ours:.1f} "
            f"| {size / theirs:.1f} | {theirs / ours:.2f} | {'equal' if equal else 'DIFFERENT'} |"
        )


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--text", type=Path, help="a text file; default: the demo's corpus")
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer folder; default: learned")
    parser.add_argument("--megabytes", type=float, default=8, help="of text (default: 8)")
    parser.add_argument("--letters", type=int, nargs="*", default=LETTERS, help="of the long words")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        if options.text is None:
            from demo import corpus

            corpus.write(work / "corpus")
            options.text = work / "corpus" / "text" / "train.txt"
        if options.tokenizer is None:
            options.tokenizer = work / "tokenizer"
            make_tokenizer(options.text, options.tokenizer)
        compare(options)


if __name__ == "__main__":
    main()
