"""Compares random tokenizers of the `tokenizers` package with what is read here.

python -m tests.parity.random_tokenizers [--count=2000] [--seed=1] [--first=0] [--only=hf|hf5]

Each tokenizer is drawn by the seed and its number from all components, flags and models, in the
versions of the package that transformers 4 and 5 have. It has the same ids here for all texts, or
is refused by the name of a component: a difference is a fault. What is left out are the texts that
the docstring of `official.tokenizers.tokenizer_json` names: `Precompiled` next to marks where the
tokenizer is a SentencePiece model here, and segmentations with equal scores.
"""

import argparse
import collections
import json
import tempfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from official import tokenizers
from official.tokenizers.sentencepiece import SentencePiece
from official.utils.errors import UserError
from tests.parity.conftest import Reference

_AT_ONCE = 100


def _known(text: str, described: dict[str, Any]) -> bool:
    """Returns whether the ids of a text may be other ones."""
    steps = json.dumps(described["normalizer"])
    if "Precompiled" in steps:
        marks = [i for i, c in enumerate(text) if unicodedata.category(c)[0] == "M" and i]
        before = [text[i - 1] for i in marks]
        if any(unicodedata.normalize("NFKC", c) != c or c.isspace() for c in before):
            return True
    return False


def _score(ids: list[int], vocabulary: list[Any], unk_id: int) -> tuple[str, float, int]:
    """Returns what is the same in segmentations that are equally good."""
    pieces = [vocabulary[i] if i < len(vocabulary) else (f"<{i}>", 0.0) for i in ids if i != unk_id]
    total = round(sum(score for _, score in pieces), 3)
    return "".join(piece for piece, _ in pieces), total, ids.count(unk_id)


def differences(folder: Path, texts: list[str], theirs: list[list[int]]) -> list[str] | str:
    """Returns the texts with other ids; or why the tokenizer is refused."""
    try:
        tokenizer = tokenizers.load(folder)
    except UserError as error:
        return str(error)
    described = json.loads((folder / "tokenizer.json").read_text())
    model = described["model"]
    found = []
    ours = [row.tolist() for row in tokenizer.encode(texts, special=True)]
    with_offsets = tokenizer.encode_with_offsets(texts, special=True)
    for text, own, right, (ids, starts, ends) in zip(
        texts, ours, theirs, with_offsets, strict=True
    ):
        assert ids.tolist() == own, (folder, text)
        assert all(0 <= a < b <= len(text) for a, b in zip(starts, ends, strict=True)), text
        if own == right:
            continue
        if isinstance(tokenizer, SentencePiece) and _known(text, described):
            continue
        if model["type"] == "Unigram":
            scores = [_score(row, model["vocab"], model["unk_id"]) for row in (own, right)]
            if scores[0] == scores[1]:
                continue
        found.append(text)
    return found


def compared(
    reference: Reference, out: Path, seed: int, first: int, count: int
) -> Iterator[tuple[int, list[str] | str]]:
    """Yields the number of each tokenizer, and what `differences` says."""
    reference.run("hf_random_tokenizers.py", out, seed, first, count, timeout=3600)
    saved = json.loads((out / "ids.json").read_text())
    for number, theirs in saved["ids"].items():
        yield int(number), differences(out / number, saved["texts"], theirs)


def main() -> None:
    """Prints the differences, and the counts at the end."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", choices=["hf", "hf5"])
    options = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    refused: collections.Counter[str] = collections.Counter()
    end = options.first + options.count
    for start in range(options.first, end, _AT_ONCE):
        names = ["hf", "hf5"] if options.only is None else [options.only]
        name = names[start // _AT_ONCE % len(names)]
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder)
            size = min(_AT_ONCE, end - start)
            for number, found in compared(Reference(name), out, options.seed, start, size):
                if isinstance(found, str):
                    counts["refused"] += 1
                    refused[found.split("tokenizer.json", 1)[-1][2:70]] += 1
                else:
                    counts["different" if found else "equal"] += 1
                    if found:
                        print(f"{name} seed {options.seed} number {number}: {len(found)} texts, "
                              f"such as {min(found, key=len)!r}", flush=True)  # fmt: skip
        print(f"{start + size:,}: {dict(counts)}", flush=True)
    for why, count in refused.most_common():
        print(f"{count:6,}  {why}")


if __name__ == "__main__":
    main()
