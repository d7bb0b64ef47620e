"""Times WordPiece and byte-level BPE against the `tokenizers` package and the fastest packages.

  python -m benchmarks.tokenizers [--text=FILE] [--wordpiece=DIR] [--byte_bpe=DIR]

The sides are ours, Hugging Face's `tokenizers`, and a package that caches the ids of words:
nanotoken for WordPiece, gigatoken for byte-level BPE. They read the same `tokenizer.json` and the
same texts, the lines of a file, and take turns, round after round. Seconds are CPU seconds, so MB/s
are those of one core. Each round starts with an empty cache, and the text is encoded twice: the
second time its words are cached. The long words, for byte-level BPE, are random letters: GPT-2's
pattern does not split them, so the cost of one word shows. The packages run in a separate
environment (made as by `make parity` when missing). The ids are compared: the last column counts
the texts with other ids in each package.
"""

import argparse
import json
import random
import statistics
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import environments

LETTERS = (1_000, 10_000, 100_000, 1_000_000)
# {kind: the packages that it is compared with}.
PACKAGES = {"wordpiece": ("tokenizers", "nanotoken"), "byte_bpe": ("tokenizers", "gigatoken")}


class Answer(NamedTuple):
    """The answer of a side for a row.

    Attributes:
      seconds: CPU seconds.
      ids: the ids of all texts.
      lengths: the number of ids of each text.
    """

    seconds: float
    ids: np.ndarray
    lengths: np.ndarray


def make_tokenizer(kind: str, text: Path, folder: Path) -> None:
    """Learns a vocabulary of 8,000 pieces."""
    arguments = f"--input={text} --output={folder} --type={kind} --vocab_size=8000"
    command = [sys.executable, "-m", "tfrecords_tools.build_vocab", *arguments.split()]
    subprocess.run(command, cwd=environments.ROOT, check=True)


def make_rows(text: Path, megabytes: float, letters: Sequence[int]) -> dict[str, list[str]]:
    """Returns the texts of each row of a table."""
    rng = random.Random(0)
    lines = text.read_bytes()[: int(megabytes * 1e6)].decode(errors="ignore").splitlines()
    words = {
        f"a word of {n:,}": ["".join(rng.choices(string.ascii_lowercase, k=n))] for n in letters
    }
    return {"text": lines, "text, again": lines, **words}


def run_ours(rows: dict[str, list[str]], folder: Path) -> dict[str, Answer]:
    """Returns the answers of our tokenizer by row."""
    from official import tokenizers

    tokenizer = tokenizers.load(folder)
    tokenizer.encode_ragged(["start-up is not counted"])
    answers = {}
    for name, texts in rows.items():
        started = time.process_time()
        ids, row_splits = tokenizer.encode_ragged(texts)
        answers[name] = Answer(time.process_time() - started, ids, np.diff(row_splits))
    return answers


def run_theirs(rows: dict[str, list[str]], folder: Path, package: str) -> dict[str, Answer]:
    """Returns the answers of a package by row."""
    settings = {"package": package, "file": str(folder / "tokenizer.json")}
    peer = environments.Process(package, "tokenizers", "tokenization.timed", settings)
    answers = {name: peer.ask(texts) for name, texts in rows.items()}
    peer.close()
    return {
        name: Answer(a["seconds"], np.array(a["ids"], np.int32), np.array(a["lengths"], np.int64))
        for name, a in answers.items()
    }


def describe(source: Path, folder: Path) -> None:
    """Copies our tokenizer to a folder, with the `tokenizer.json` that the packages read."""
    from official import tokenizers
    from official.tokenizers import tokenizer_json

    tokenizer = tokenizers.load(source)
    folder.mkdir()
    tokenizer.save(folder)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json.described(tokenizer)))


def different(ours: Answer, theirs: Answer) -> int:
    """Returns the number of texts with different ids."""
    parts = (np.split(each.ids, np.cumsum(each.lengths)[:-1]) for each in (ours, theirs))
    return sum(not np.array_equal(*pair) for pair in zip(*parts, strict=True))


def compare(kind: str, folder: Path, rows: dict[str, list[str]], rounds: int) -> None:
    """Prints the table of a kind."""
    packages = PACKAGES[kind]
    sides: dict[str, list[dict[str, Answer]]] = {name: [] for name in ("ours", *packages)}
    for _ in range(rounds):
        sides["ours"].append(run_ours(rows, folder))
        for package in packages:
            sides[package].append(run_theirs(rows, folder, package))
    heads = [f"{package}, MB/s | ours / {package}" for package in packages]
    print(f"\n| {kind} | MB | ours, MB/s | {' | '.join(heads)} | other ids |")
    print(f"|---|{'---:|' * (3 + 2 * len(packages))}")
    for name, texts in rows.items():
        size = sum(len(text.encode()) for text in texts) / 1e6
        rates = {
            side: size / statistics.median(answers[name].seconds for answers in results)
            for side, results in sides.items()
        }
        compared = " | ".join(
            f"{rates[package]:.1f} | {rates['ours'] / rates[package]:.2f}" for package in packages
        )
        first = {side: results[0][name] for side, results in sides.items()}
        others = ", ".join(f"{different(first['ours'], first[each]):,}" for each in packages)
        print(f"| {name} | {size:.3f} | {rates['ours']:.1f} | {compared} | {others} |")


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--text", type=Path, help="a text file; default: the demo's corpus")
    for kind in PACKAGES:
        parser.add_argument(f"--{kind}", type=Path, help="a tokenizer folder; default: learned")
    parser.add_argument("--megabytes", type=float, default=20, help="of text (default: 20)")
    parser.add_argument("--letters", type=int, nargs="*", default=LETTERS, help="of the long words")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        if options.text is None:
            from demo import corpus

            corpus.write(work / "corpus")
            options.text = work / "corpus" / "text" / "train.txt"
        for kind in PACKAGES:
            source = getattr(options, kind)
            if source is None:
                source = work / f"learned-{kind}"
                make_tokenizer(kind, options.text, source)
            describe(source, work / kind)
            # WordPiece does not split long words: they are unknown.
            letters = options.letters if kind == "byte_bpe" else ()
            rows = make_rows(options.text, options.megabytes, letters)
            compare(kind, work / kind, rows, options.rounds)


if __name__ == "__main__":
    main()
