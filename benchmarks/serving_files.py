"""Writes the requests and the models that the sides of `benchmarks.serving` load."""

import argparse
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import environments, process

LENGTHS = {"short": (32, 32), "long": (128, 128), "mixed": (8, 128)}
MAX_LENGTH = 128
SPECIALS = 2  # [CLS] and [SEP].


def lengths(kind: str, count: int, rng: np.random.Generator) -> list[int]:
    """Returns the length of each of `count` texts, special tokens counted."""
    shortest, longest = LENGTHS[kind]
    drawn = np.exp(rng.uniform(np.log(shortest), np.log(longest + 1), count))
    return np.clip(drawn.astype(int), shortest, longest).tolist()


def cut(words: Iterator[tuple[str, list[int]]], length: int) -> tuple[str, list[int]]:
    """Returns the next words that form a text of a given length, as text and as ids."""
    text, ids = [], []
    while len(ids) < length - SPECIALS:
        word, pieces = next(words)
        if len(ids) + len(pieces) <= length - SPECIALS:
            text.append(word)
            ids += pieces
    return " ".join(text), ids


def write_requests(source: Path, folder: Path, count: int) -> None:
    """Writes requests.json: texts and their ids, with special tokens, for each kind of length."""
    from official import tokenizers

    tokenizer = tokenizers.load(folder / "tokenizer")

    def words() -> Iterator[tuple[str, list[int]]]:
        while True:  # A small text is read again.
            with open(source, encoding="utf-8") as lines:
                for line in filter(str.strip, lines):
                    words = line.split()
                    pieces = tokenizer.tokenize(words).to_list()
                    for word, ids in zip(words, pieces, strict=True):
                        if ids and tokenizer.unk_id not in ids:
                            yield word, ids

    rng, stream = np.random.default_rng(0), words()
    requests = {}
    for kind in LENGTHS:
        pairs = [cut(stream, length) for length in lengths(kind, count, rng)]
        requests[kind] = {
            "texts": [text for text, _ in pairs],
            "ids": [[tokenizer.cls_id, *ids, tokenizer.sep_id] for _, ids in pairs],
        }
    (folder / "requests.json").write_text(json.dumps(requests))


def write_tokenizer(vocabulary: Path, folder: Path, size: int) -> None:
    """Writes an uncased WordPiece tokenizer, with unused pieces up to a size."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    pieces = vocabulary.read_text("utf-8").splitlines()
    pieces += [f"[unused{number}]" for number in range(len(pieces), size)]
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), "utf-8")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}\n')


def prepare(folder: Path, options: argparse.Namespace, exports: list[str], onnx: bool) -> None:
    """Creates the files that a folder lacks: vocabulary, texts, models.

    Args:
      folder: of all that.
      options: those of the command line.
      exports: our exports, each a precision, or a format and a precision: `int8`, `litert_int8`.
      onnx: whether what others read is needed, too: a model folder of transformers, and graphs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = folder / "tokenizer"
    if not (folder / "requests.json").exists():
        if options.text is None:
            from demo import corpus

            corpus.write(folder / "corpus")
            options.text = folder / "corpus" / "text" / "train.txt"
        vocabulary = options.vocabulary
        if vocabulary is None:
            process.run(
                "-m", "tfrecords_tools.build_vocab", f"--input={options.text}",
                f"--output={folder}/learned", f"--vocab_size={min(8000, options.vocab)}",
                "--lower_case",
            )  # fmt: skip
            vocabulary = folder / "learned" / "vocab.txt"
        write_tokenizer(vocabulary, tokenizer, options.vocab)
        write_requests(options.text, folder, options.requests)
    sizes = {k: getattr(options, k) for k in "layers hidden heads intermediate".split()}
    pieces = len((tokenizer / "vocab.txt").read_text("utf-8").splitlines())
    if (onnx or not (folder / "converted").exists()) and not (folder / "int8.onnx").exists():
        given = {"folder": str(folder), "vocab": pieces} | sizes
        script = environments.ROOT / "benchmarks" / "peers" / "serving_model.py"
        process.run(str(script), json.dumps(given), python=environments.python("hf"))
    if not (folder / "converted").exists():
        process.run(
            "-m", "official.convert", "--source=hf", f"--input={folder}/huggingface",
            f"--output={folder}/converted",
        )  # fmt: skip
    for name in exports:
        form, _, precision = name.rpartition("_")
        if not (folder / f"saved_{name}").exists():
            process.run(
                "-m", "official.export", f"--model_dir={folder}/converted",
                f"--output={folder}/saved_{name}", f"--max_length={MAX_LENGTH}",
                f"--precision={precision}", f"--format={form or 'saved_model'}",
            )  # fmt: skip
