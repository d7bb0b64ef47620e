"""Measures time and memory of encoding one text by its size, for each kind of tokenizer.

  python -m benchmarks.text_bounds [--kinds=wordpiece,...] [--texts=letters,...]
    [--sides=python,...] [--sizes 1000 10000 ...] [--tokenizer=FOLDER]

Untrusted texts may consist of anything: letters, blanks, marks, added tokens, one word, ideographs,
or accents on one letter. Each is encoded in Python, in a graph, in a graph with offsets, and in a
graph with special tokens (as for filled masks), each in a separate process. Seconds are CPU
seconds, and MiB are the growth of the process at its peak. A line is printed for each kind of text.
The command ends with an error if ten times as long a text takes more than 20 times as long, or as
much memory, in the largest sizes.
"""

import argparse
import random
import string
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import environments

KINDS = ("wordpiece", "byte_bpe", "unigram", "bpe")
SIZES = (1_000, 10_000, 100_000, 1_000_000)
SIDES = ("python", "graph", "offsets", "special")
ADDED = "<added>"
# Smaller values are not compared: they are call overhead, and pages that Python keeps.
_SECONDS, _MIB = 0.05, 20.0
_MOST = 2.0  # the largest growth of the cost per letter


def _words(letters: Sequence[str], longest: int) -> Callable[[int], str]:
    def make(size: int) -> str:
        rng = random.Random(0)
        words, length = [], 0
        while length < size:
            words.append("".join(rng.choices(letters, k=rng.randint(1, longest))))
            length += len(words[-1]) + 1
        return " ".join(words)[:size]

    return make


def _repeated(text: str) -> Callable[[int], str]:
    return lambda size: (text * (size // len(text) + 1))[:size]


TEXTS: dict[str, Callable[[int], str]] = {
    "letters": _words(string.ascii_letters, 10),
    "blanks": _repeated(" "),
    "lines": _repeated("\n"),
    "marks": _words(string.punctuation, 10),
    "added tokens": _repeated(f"{ADDED} a "),
    "added tokens that meet": _repeated(ADDED),
    "special tokens": _repeated("[MASK]</s><mask>"),
    "one word": _repeated("a"),
    "one word of two letters": _repeated("ab"),
    "ideographs": _words([chr(code) for code in range(0x4E00, 0x4F00)], 10),
    "accents": _repeated("\u0301"),
    "Hangul": _words([chr(code) for code in range(0x1100, 0x1113)], 10),
}


def make_tokenizer(kind: str, folder: Path) -> None:
    """Learns a vocabulary with an added token."""
    text, added = folder / "text.txt", folder / "added.txt"
    text.write_text("\n".join(_words(string.ascii_lowercase[:12], 6)(200_000).split(" ")))
    added.write_text(ADDED + "\n")
    environments.run(
        "tfrecords_tools.build_vocab", f"--input={text}", f"--output={folder / 'tokenizer'}",
        f"--type={kind}", "--vocab_size=1000", f"--added_tokens={added}",
    )  # fmt: skip


def measure(
    tokenizer: Path, names: Sequence[str], sides: Sequence[str], sizes: Sequence[int]
) -> int:
    """Prints the lines of a tokenizer; returns the number of lines that grow too fast."""
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary, "text.txt")
        for name in names:
            shown = []
            for side in sides:
                settings = {"tokenizer": str(tokenizer), "side": side}
                process = environments.Process(side, None, "text_bounds.encode", settings)
                found = []
                for size in sizes:
                    file.write_text(TEXTS[name](size), encoding="utf-8", newline="")
                    found.append(process.ask(str(file)))
                process.close()
                cells = ", ".join(f"{each['seconds']:.3f} {each['mib']:.0f}" for each in found)
                growth = _growth(found, sizes)
                failed += growth > _MOST
                shown.append(f"{side} {cells}{' GROWS' * (growth > _MOST)}")
            print(f"{name}: {'; '.join(shown)}", flush=True)
    return failed


def _growth(found: Sequence[dict], sizes: Sequence[int]) -> float:
    """Returns the cost per letter of the largest text relative to the second largest."""
    if len(sizes) < 2:
        return 0.0
    before, last = found[-2:]
    times = sizes[-1] / sizes[-2]
    seconds = last["seconds"] / max(before["seconds"], _SECONDS)
    mib = last["mib"] / max(before["mib"], _MIB)
    return max(seconds, mib) / times


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--kinds", type=names, default=list(KINDS), help="default: all")
    parser.add_argument("--texts", type=names, default=list(TEXTS), help="default: all")
    parser.add_argument("--sides", type=names, default=list(SIDES), help="default: all")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="in characters")
    parser.add_argument("--tokenizer", type=Path, help="a folder, in place of learned tokenizers")
    options = parser.parse_args()
    shown = ", ".join(f"{size:,}" for size in options.sizes)
    print(f"seconds and MiB of {shown} characters")
    failed = 0
    if options.tokenizer:
        print(f"{options.tokenizer}:")
        failed += measure(options.tokenizer.resolve(), options.texts, options.sides, options.sizes)
    for kind in [] if options.tokenizer else options.kinds:
        with environments.folder(None) as folder:
            make_tokenizer(kind, folder)
            print(f"{kind}:")
            failed += measure(folder / "tokenizer", options.texts, options.sides, options.sizes)
    if failed:
        sys.exit(f"error: {failed} grow faster than their texts")


if __name__ == "__main__":
    main()
