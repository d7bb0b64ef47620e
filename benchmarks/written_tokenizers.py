"""Counts the texts whose ids in transformers differ from those of a tokenizer of this project.

python -m benchmarks.written_tokenizers --texts=FOLDER [--number=3000] [--vocab_size=4000]
  [--kinds=wordpiece,...]

FOLDER has text files, one for each language; a line is a text. A tokenizer of each kind is learned
from them and written as `official.convert --target=hf` does. The benchmark compares, for each text,
the ids in Python, in a graph and with offsets, and those of the written folder in transformers 4
and 5 and in the `tokenizers` package of both. The slice of the text at the offsets of a token must
become the piece of the token after normalization. A line is printed for each kind, with the
languages whose texts differ, and the first of these texts.
"""

import argparse
import collections
import itertools
import json
import subprocess
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from benchmarks import environments
from official import tokenizers
from official.config.encoders import EncoderDecoderConfig, TransformerConfig, TransformerXLConfig
from official.conversion import (
    albert,
    bert,
    deberta,
    modernbert,
    system,
    t5,
    tokenizer_files,
    xlnet,
)  # fmt: skip
from tfrecords_tools.vocabulary import builder

REFERENCES = ("hf", "hf5")
_SCRIPT = environments.ROOT / "tests" / "parity" / "hf_tokenizer_json.py"
_SIZES = {"vocab_size": 16, "hidden_size": 8, "num_layers": 1, "num_heads": 1}
_ENCODER = TransformerConfig(**_SIZES, intermediate_size=8)
_XL = TransformerXLConfig(**_SIZES, intermediate_size=8)
_T5 = EncoderDecoderConfig(**_SIZES, intermediate_size=8)


def _with(change: Callable[[tokenizers.Tokenizer], tokenizers.Tokenizer]) -> dict[str, Any]:
    return {"change": change}


def _modern(tokenizer: tokenizers.ByteBPE) -> tokenizers.ByteBPE:
    """Returns a byte-level BPE that composes characters first, as ModernBERT's."""
    settings = {**tokenizer.settings, "unicode_normalization": "NFC", "pair_separators": 1}
    return tokenizers.ByteBPE(tokenizer.pieces, tokenizer.merges, False, settings, nfc=True)


# {kind: (the system that it is written as, its encoder, the options of `build_vocab`)}.
KINDS: dict[str, tuple[system.System, Any, dict[str, Any]]] = {
    "wordpiece": (bert.BERT, _ENCODER, {"kind": "wordpiece"}),
    "wordpiece_lower": (bert.BERT, _ENCODER, {"kind": "wordpiece", "lower_case": True}),
    "wordpiece_lower_accents": (
        bert.BERT, _ENCODER, {"kind": "wordpiece", "lower_case": True, "strip_accents": False},
    ),
    "unigram": (bert.XLM, _ENCODER, {"kind": "unigram"}),
    "unigram_t5": (t5.SYSTEM, _T5, {"kind": "unigram", "sentinels": 10}),
    "albert": (
        albert.SYSTEM, _ENCODER,
        {"kind": "unigram", "normalize_text": True, "lower_case": True, "strip_accents": True},
    ),
    "albert_accents": (
        albert.SYSTEM, _ENCODER,
        {"kind": "unigram", "normalize_text": True, "lower_case": True, "strip_accents": False},
    ),
    "xlnet": (
        xlnet.SYSTEM, _XL, {"kind": "unigram", "normalize_text": True, "strip_accents": True}
    ),
    "bpe": (bert.XLM, _ENCODER, {"kind": "bpe"}),
    "bpe_albert": (
        albert.SYSTEM, _ENCODER,
        {"kind": "bpe", "normalize_text": True, "lower_case": True, "strip_accents": True},
    ),
    "deberta_v3": (deberta.SYSTEM, _ENCODER, {"kind": "unigram"}),
    "byte_bpe": (bert.ROBERTA, _ENCODER, {"kind": "byte_bpe"}),
    "byte_bpe_prefix": (bert.ROBERTA, _ENCODER, {"kind": "byte_bpe", "add_prefix_space": True}),
    "modernbert": (modernbert.SYSTEM, _ENCODER, {"kind": "byte_bpe", **_with(_modern)}),
}  # fmt: skip


def read(folder: Path, number: int) -> tuple[list[str], list[str]]:
    """Returns texts of all files in turn, at most `number`, and the language of each."""
    files = {path.stem: path.read_text("utf-8").splitlines() for path in sorted(folder.glob("*.*"))}
    lines = [[(line, name) for line in lines if line.strip()] for name, lines in files.items()]
    turns = (each for row in itertools.zip_longest(*lines) for each in row if each)
    texts, languages = zip(*itertools.islice(turns, number), strict=True)
    return list(texts), list(languages)


def write(folder: Path, texts: Sequence[str], vocab_size: int) -> dict[str, tokenizers.Tokenizer]:
    """Learns a tokenizer of each kind from texts, and writes its folder."""
    corpus = folder / "corpus.txt"
    corpus.write_text("\n".join(texts) + "\n", "utf-8")
    made: dict[str, tokenizers.Tokenizer] = {}
    learned: dict[str, tokenizers.Tokenizer] = {}
    for name, (described, encoder, given) in KINDS.items():
        options = dict(given)
        change = options.pop("change", lambda tokenizer: tokenizer)
        key = json.dumps(options, sort_keys=True)
        if key not in learned:
            learned[key] = builder.build(
                str(corpus), folder / "learned" / name, vocab_size=vocab_size, coverage=1.0,
                **options,
            )  # fmt: skip
        made[name] = change(learned[key])
        (folder / name).mkdir()
        tokenizer_files.save(made[name], folder / name, described, encoder, 512)
        config = {"model_type": described.model_type}
        (folder / name / "config.json").write_text(json.dumps(config))
    (folder / "texts.json").write_text(json.dumps(list(texts)))
    return made


def others(folder: Path, names: Sequence[str], python: str) -> Mapping[str, Mapping[str, Any]]:
    """Returns the ids of the written folders in `tokenizers` and transformers of an environment."""
    words = [python, str(_SCRIPT), str(folder), *names]
    subprocess.run(words, check=True, env=environments.variables(), capture_output=True)
    return json.loads((folder / "again.json").read_text())


def inside(tokenizer: tokenizers.Tokenizer, texts: Sequence[str]) -> dict[str, list[list[int]]]:
    """Returns the ids of a graph and with offsets, and tokens whose slice is not their piece."""
    graph = tf.function(tokenizer.tokenize, input_signature=[tf.TensorSpec([None], tf.string)])
    found = tokenizer.encode_with_offsets(texts)
    wrong = [
        [token for token, good in zip(row[0].tolist(), _sliced(tokenizer, text, *row), strict=True)
         if not good]
        for text, row in zip(texts, found, strict=True)
    ]  # fmt: skip
    return {
        "graph": graph(tf.constant(texts)).to_list(),
        "offsets": [row[0].tolist() for row in found],
        "slices": wrong,
    }


def _sliced(tokenizer: tokenizers.Tokenizer, text: str, ids, starts, ends) -> Iterator[bool]:
    """Yields, for each token, whether its slice of the text becomes its piece.

    A token that ends with a part of a character (Lao "ເຫ" of "ເໝ", whose "ໝ" becomes "ຫມ") has the
    offsets of the characters before it.
    """
    slices = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    normal = _normalized(tokenizer, slices)
    longer = _normalized(
        tokenizer, [text[start : end + 1] for start, end in zip(starts, ends, strict=True)]
    )
    last = 0
    for token, start, end, part, more in zip(ids, starts, ends, normal, longer, strict=True):
        piece = tokenizer.spellings[token].decode("utf-8", "replace").strip().replace("▁", "")
        whole = "�" in piece or token == tokenizer.unk_id or piece in part
        whole |= len(more) > len(part) + 1 and piece in more
        yield whole and last <= start <= end <= len(text)
        last = start


def _normalized(tokenizer: tokenizers.Tokenizer, texts: Sequence[str]) -> list[str]:
    if getattr(tokenizer, "nfc", False):
        return [unicodedata.normalize("NFC", text) for text in texts]
    if tokenizer.module().normalizes and texts:
        return [t.decode() for t in tokenizer.module().normalized(tf.constant(texts)).numpy()]
    return list(texts)


def compare(
    tokenizer: tokenizers.Tokenizer, texts: Sequence[str], ids: Mapping[str, list[list[int]]]
) -> dict[str, list[int]]:
    """Returns {tokenizer: the indices of the texts with other ids}."""
    ours = [row.tolist() for row in tokenizer.encode(texts)]
    wrong = {
        name: [i for i, (row, right) in enumerate(zip(rows, ours, strict=True)) if row != right]
        for name, rows in ids.items()
        if name != "slices"
    }
    return wrong | {"slices": [i for i, row in enumerate(ids.get("slices", ())) if row]}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--number", type=int, default=3000)
    parser.add_argument("--vocab_size", type=int, default=4000)
    parser.add_argument("--kinds", default=",".join(KINDS))
    given = parser.parse_args()
    for name in [*KINDS]:
        if name not in given.kinds.split(","):
            del KINDS[name]
    texts, languages = read(given.texts, given.number)
    print(f"{len(texts):,} texts of {len(set(languages))} languages")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        made = write(folder, texts, given.vocab_size)
        theirs = {
            reference: others(folder, list(made), environments.python(reference))
            for reference in REFERENCES
        }
        for name, tokenizer in made.items():
            ids = inside(tokenizer, texts)
            for reference, answers in theirs.items():
                ids |= {f"{key} of {reference}": rows for key, rows in answers[name].items()}
            wrong = {key: rows for key, rows in compare(tokenizer, texts, ids).items() if rows}
            print(f"{name}: {'all equal' if not wrong else ''}")
            for key, rows in wrong.items():
                counts = collections.Counter(languages[i] for i in rows)
                print(f"  {key}: {len(rows)} ({', '.join(f'{n} {c}' for n, c in counts.items())})")
                print(f"    {_first(tokenizer, texts[rows[0]], ids[key][rows[0]])}")


def _first(tokenizer: tokenizers.Tokenizer, text: str, found: Sequence[int]) -> str:
    """Returns the first difference of the ids of a text."""
    ours = tokenizer.encode([text])[0].tolist()
    same = len([*itertools.takewhile(lambda pair: pair[0] == pair[1], zip(ours, found))])  # noqa: B905
    parts = ([tokenizer.pieces[i] for i in row[same : same + 6]] for row in (ours, found))
    return f"here {' '.join(next(parts))!r}, there {' '.join(next(parts))!r}"


if __name__ == "__main__":
    main()
