"""Times SentencePiece tokenizers against the `sentencepiece` package, and compares the ids.

  python -m benchmarks.sentencepiece_speed --text=FILE [--tokenizers DIR ...] [--megabytes=5]

--tokenizers has folders with a `spiece.model`; by default a unigram and a BPE model of 8,000 pieces
are learned from the text. The texts are the lines of the file. Four sides take turns in one
process, round after round, with one thread each. Seconds are CPU seconds; the medians are shown:

new            `encode_ragged` of a tokenizer that has no words yet
again          the same once more: all words are known
whole          `tokenize`, as a graph splits whole texts
sentencepiece  `encode` of the package, which leaves out the rules of ALBERT and XLNet

The last columns count the texts that have other ids in `new` than in `whole`, and show the largest
difference between the scores of the two segmentations, summed exactly: 0 is a tie.
"""

import argparse
import lzma
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sentencepiece
import tensorflow as tf

from benchmarks import environments
from official import tokenizers
from official.tokenizers import base

LEARNED = ("unigram", "bpe")


class Difference(NamedTuple):
    """A text with two segmentations.

    Attributes:
      text: the text.
      pieces: the pieces of its words, from the first that differs.
      others: the pieces of the whole text, from there.
      scores: the difference of the sums of their scores.
    """

    text: str
    pieces: list[str]
    others: list[str]
    scores: float


def read_lines(path: Path, megabytes: float) -> list[str]:
    """Returns the lines of the beginning of a text, .txt or .txt.xz, that are not empty."""
    with (lzma.open if path.suffix == ".xz" else open)(path, "rb") as file:
        data = file.read(int(megabytes * 1e6))
    return list(filter(None, data.decode(errors="ignore").splitlines()))


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Returns the CPU seconds of a call and its result."""
    started = time.process_time()
    result = function()
    return time.process_time() - started, result


def whole(tokenizer: tokenizers.SentencePiece, texts: Sequence[str]) -> list[np.ndarray]:
    """Returns the ids of texts that are not cut into words."""
    rows = []
    with tf.device("/CPU:0"):
        for chunk in base.chunks(texts):
            ids = tokenizer.tokenize(base.strings(chunk))
            rows += np.split(ids.values.numpy(), ids.row_splits.numpy()[1:-1])
    return rows


def differences(
    tokenizer: tokenizers.SentencePiece,
    texts: Sequence[str],
    ours: Sequence[np.ndarray],
    others: Sequence[np.ndarray],
) -> list[Difference]:
    """Returns the texts with different ids."""
    scores = [piece.score for piece in tokenizer.parsed().pieces]
    scores += [0.0] * (tokenizer.vocab_size - len(scores))  # of added tokens
    found = []
    for text, *pair in zip(texts, ours, others, strict=True):
        a, b = (ids.tolist() for ids in pair)
        if a != b:
            first = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))
            total = math.fsum([scores[i] for i in a] + [-scores[i] for i in b])
            names = ([tokenizer.pieces[i] for i in ids[first : first + 6]] for ids in (a, b))
            found.append(Difference(text, *names, total))
    return found


def take_turns(
    tokenizer: tokenizers.SentencePiece,
    package: sentencepiece.SentencePieceProcessor,
    texts: Sequence[str],
) -> dict[str, tuple[float, Any]]:
    """Returns the CPU seconds and the result of each side; the tokenizer must have no words."""
    sides: dict[str, Callable[[], Any]] = {
        "new": lambda: tokenizer.encode_ragged(texts),
        "again": lambda: tokenizer.encode_ragged(texts),
        "whole": lambda: whole(tokenizer, texts),
        "sentencepiece": lambda: package.encode(texts, num_threads=1),
    }
    return {name: timed(function) for name, function in sides.items()}


def compare(folder: Path, texts: Sequence[str], rounds: int) -> tuple[str, list[Difference]]:
    """Returns the line of the table of a tokenizer, and the texts with different ids."""
    package = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
    turns = []
    for _ in range(rounds):
        tokenizer = tokenizers.load(folder)
        assert isinstance(tokenizer, tokenizers.SentencePiece)
        tokenizer.encode(["start-up is not counted"])
        turns.append(take_turns(tokenizer, package, texts))
    (ids, splits), others = turns[0]["new"][1], turns[0]["whole"][1]
    rows = np.split(ids, splits[1:-1])
    seconds = {name: [turn[name][0] for turn in turns] for name in turns[0]}
    found = differences(tokenizer, texts, rows, others)
    size = sum(len(text.encode()) for text in texts) / 1e6
    rates = {name: size / statistics.median(times) for name, times in seconds.items()}
    ratios = (rates[name] / rates["sentencepiece"] for name in ("new", "again"))
    cells = [f"{size:.1f}", *(f"{rate:.1f}" for rate in rates.values())]
    cells += [*(f"{ratio:.2f}" for ratio in ratios), f"{len(found):,} of {len(texts):,}"]
    cells.append(f"{max((abs(each.scores) for each in found), default=0):.3g}")
    return f"| {folder.name} | {' | '.join(cells)} |", found


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--text", type=Path, required=True, help="a text, .txt or .txt.xz")
    parser.add_argument("--tokenizers", type=Path, nargs="*", help="folders; default: learned")
    parser.add_argument("--megabytes", type=float, default=5, help="of the text (default: 5)")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    parser.add_argument("--differences", action="store_true", help="print texts with other ids")
    options = parser.parse_args()
    texts = read_lines(options.text, options.megabytes)
    sides = "new | again | whole | sentencepiece"
    print(f"| MB/s | MB | {sides} | new, ratio | again, ratio | other ids | scores |")
    print(f"|---|{'---:|' * 9}")
    with tempfile.TemporaryDirectory() as name:
        folders = options.tokenizers or learn(texts, Path(name))
        for folder in folders:
            line, found = compare(folder, texts, options.rounds)
            print(line, flush=True)
            for each in found if options.differences else ():
                print(f"  {each.scores:.3g}: {each.pieces}, not {each.others}: {each.text[:60]!r}")


def learn(texts: Sequence[str], work: Path) -> list[Path]:
    """Learns a vocabulary of each kind from texts."""
    (work / "text.txt").write_text("\n".join(texts))
    for kind in LEARNED:
        arguments = [f"--input={work / 'text.txt'}", f"--output={work / kind}", f"--type={kind}"]
        environments.run("tfrecords_tools.build_vocab", *arguments, "--vocab_size=8000")
    return [work / kind for kind in LEARNED]


if __name__ == "__main__":
    main()
