"""The models of `benchmarks.generation`: a T5 and a GPT-2 with random weights."""

import dataclasses
import json
from pathlib import Path

from sentencepiece import sentencepiece_model_pb2

from benchmarks import environments, process

UNUSED = 128  # 100 sentinels, and rows of the table that no id has: as many as T5 has.


@dataclasses.dataclass(frozen=True)
class Family:
    """A model and what it generates.

    Attributes:
      title: describes the layers, with the sizes by name.
      sizes: `layers`, `hidden`, `heads`, `intermediate` and `vocab`.
      length: the number of tokens read.
      new_tokens: the number of tokens generated.
      beams: the numbers of beams.
      top_k: the number of likeliest tokens to draw from; 0 = greedy, or beam search.
    """

    title: str
    sizes: dict[str, int]
    length: int
    new_tokens: int
    beams: list[int]
    top_k: int


FAMILIES = {
    "t5": Family(
        "T5 1.1, {layers} + {layers} layers",
        {"layers": 6, "hidden": 512, "heads": 8, "intermediate": 1024, "vocab": 32_128},
        length=64,
        new_tokens=32,
        beams=[1, 4],
        top_k=0,
    ),
    "gpt2": Family(
        "GPT-2, {layers} layers",
        {"layers": 12, "hidden": 768, "heads": 12, "intermediate": 3072, "vocab": 50_257},
        length=32,
        new_tokens=256,
        beams=[1],
        top_k=40,
    ),
}


def prepare(folder: Path, name: str, family: Family) -> None:
    """Writes the model of transformers, `huggingface`, and ours, `converted`, into a folder."""
    theirs = folder / "huggingface"
    positions = family.length + family.new_tokens
    given = family.sizes | {"model": name, "folder": str(theirs), "positions": positions}
    script = environments.ROOT / "benchmarks" / "peers" / "generation_model.py"
    process.run(str(script), json.dumps(given), python=environments.python("hf"))
    # The conversion wants a vocabulary, and the inputs are ids.
    if name == "t5":
        write_pieces(theirs / "spiece.model", family.sizes["vocab"] - UNUSED)
    else:
        write_pairs(theirs, family.sizes["vocab"])
    process.run(
        "-m", "official.convert", "--source=hf", f"--input={theirs}",
        f"--output={folder}/converted",
    )  # fmt: skip


def write_pieces(path: Path, count: int) -> None:
    """Writes a SentencePiece model of numbers."""
    model = sentencepiece_model_pb2.ModelProto()
    kinds = sentencepiece_model_pb2.ModelProto.SentencePiece
    for piece in ("<pad>", "</s>"):
        model.pieces.add(piece=piece, score=0, type=kinds.CONTROL)
    model.pieces.add(piece="<unk>", score=0, type=kinds.UNKNOWN)
    for number in range(3, count):
        model.pieces.add(piece=f"\u2581{number}", score=-number, type=kinds.NORMAL)
    spec = model.trainer_spec
    spec.model_type = sentencepiece_model_pb2.TrainerSpec.UNIGRAM
    spec.pad_id, spec.eos_id, spec.unk_id, spec.bos_id = 0, 1, 2, -1
    path.write_bytes(model.SerializeToString())


def write_pairs(folder: Path, count: int) -> None:
    """Writes a byte-level vocabulary: all bytes, pairs of them, and the end token at last."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spelled = [*map(chr, printable), *map(chr, range(256, 512 - len(printable)))]
    pairs = [(a, b) for a in spelled for b in spelled][: count - 257]
    pieces = [*spelled, *map("".join, pairs), "<|endoftext|>"]
    ids = {piece: i for i, piece in enumerate(pieces)}
    (folder / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
    lines = ["#version: 0.2", *map(" ".join, pairs), ""]
    (folder / "merges.txt").write_text("\n".join(lines), encoding="utf-8")
