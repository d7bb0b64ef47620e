"""Counts the paragraphs with the same ids as in the slow tokenizers of transformers.

python -m benchmarks.sentencepiece_ids --class=AlbertTokenizer --model=spiece.model \
  --input=text.txt --paragraphs=1000

Each line of the file that is not empty is a paragraph. Paragraphs with different ids are printed
with the first difference.
"""

import argparse
import itertools
import json
import lzma
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.environments import Process
from official import tokenizers


def compare(name: str, model: str | os.PathLike, texts: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the texts with different ids, each with a description of the difference.

    Args:
      name: the name of the class of transformers.
      model: a SentencePiece model.
      texts: texts without special tokens of that class, such as `<sep>`.
    """
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(model, Path(folder) / "spiece.model")
        settings = {"tokenizer_class": name}
        (Path(folder) / "tokenizer_config.json").write_text(json.dumps(settings))
        ours = tokenizers.load(folder)
        peer = Process(
            "transformers",
            "hf",
            "tokenization.slow",
            {"class": name, "model": str(Path(folder) / "spiece.model")},
        )
        theirs = peer.ask(list(texts))
        peer.close()
    different = []
    for text, a, b in zip(texts, ours.encode(texts), theirs, strict=True):
        if a.tolist() != b:
            pairs = enumerate(itertools.zip_longest(a, b))
            place = next(i for i, (ours_id, theirs_id) in pairs if ours_id != theirs_id)
            parts = (" ".join(ours.pieces[i] for i in ids[place : place + 6]) for ids in (a, b))
            different.append((text, "here {!r}, there {!r}".format(*parts)))
    return different


def _paragraphs(path: str) -> Iterator[str]:
    opened = lzma.open if path.endswith(".xz") else open
    with opened(path, "rt", encoding="utf-8") as stream:
        yield from filter(None, map(str.strip, stream))


def main() -> None:
    """Runs the comparison and prints its result."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--class", dest="name", choices=["AlbertTokenizer", "XLNetTokenizer"],
                        required=True, help="folder of a tokenizer of transformers")  # fmt: skip
    parser.add_argument("--model", required=True, help="a SentencePiece model")
    parser.add_argument("--input", required=True, help="text, .txt or .txt.xz")
    parser.add_argument("--paragraphs", type=int, default=1000, help="how many of the first")
    options = parser.parse_args()
    texts = list(itertools.islice(_paragraphs(options.input), options.paragraphs))
    different = compare(options.name, options.model, texts)
    for text, words in different:
        print(f"{words} in {text[:60]!r}")
    print(f"{options.name}: {len(texts) - len(different):,} of {len(texts):,} paragraphs equal")


if __name__ == "__main__":
    main()
