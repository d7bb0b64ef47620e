"""Times text generation by a T5 and a GPT-2: ours and PyTorch transformers'.

  python -m benchmarks.generation
  python -m benchmarks.generation --model gpt2

The models have random weights. They are made by transformers and converted by `official.convert`.
The T5 reads 64 tokens and generates 32, greedily and by beam search. The GPT-2 has the sizes of
GPT-2 small, reads 32 tokens and samples 256, each from the 40 most probable. Every side runs in its
own process and environment (made as by `make parity` when missing), in float32 and in bfloat16.
First, both sides generate without sampling, and in float32 their tokens must be equal. The
processes take turns, round after round, on the same cores; each uses a key-value cache. The table
shows new tokens per second, the median of the rounds, and the ratio of each side's better
precision.
"""

import argparse
import dataclasses
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from sentencepiece import sentencepiece_model_pb2

from benchmarks import environments

OURS, THEIRS = "encoder garden", "PyTorch transformers"
SIDES = {OURS: (None, "generation.ours"), THEIRS: ("hf", "generation.transformers")}

UNUSED = 128  # 100 sentinels and 28 unused rows of the table, as in T5

Case = tuple[int, int]  # rows, beams


@dataclasses.dataclass(frozen=True)
class Family:
    """A model, and the lengths and methods of generation.

    Attributes:
      title: describes the layers, with the sizes by name.
      sizes: `layers`, `hidden`, `heads`, `intermediate` and `vocab`.
      length: the number of tokens read.
      new_tokens: the number of tokens generated.
      beams: the numbers of beams.
      top_k: the number of most probable tokens to sample from; 0 = greedy, or beam search.
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


class Side(environments.Process):
    """A process that generates on request."""

    def __init__(self, name: str, settings: dict):
        environment, function = SIDES[name]
        super().__init__(f"{name}, {settings['precision']}", environment, function, settings)
        self.side, self.precision = name, settings["precision"]
        self.new_tokens = settings["new_tokens"]
        self.seconds: dict[Case, list[float]] = {}

    def generate(self, case: Case, top_k: int = 0) -> list[list[int]]:
        """Generates once, by sampling if `top_k` is not 0; returns the tokens."""
        answer = self.ask({"rows": case[0], "beams": case[1], "top_k": top_k})
        self.seconds.setdefault(case, []).append(answer["seconds"])
        return answer["tokens"]

    def rate(self, case: Case) -> float:
        """Returns the new tokens per second of a case, the median of the rounds."""
        return case[0] * self.new_tokens / statistics.median(self.seconds[case])


def main() -> None:
    """Runs the benchmark and prints a table for each model."""
    options = _options()
    for name in options.model:
        measure(name, family(name, options), options)


def family(name: str, options: argparse.Namespace) -> Family:
    """Returns a model with the sizes that the flags change."""
    chosen = FAMILIES[name]
    changed = {key: value for key, value in vars(options).items() if value is not None}
    sizes = {key: changed.get(key, value) for key, value in chosen.sizes.items()}
    others = {key: changed[key] for key in ("length", "new_tokens") if key in changed}
    return dataclasses.replace(chosen, sizes=sizes, **others)


def measure(name: str, family: Family, options: argparse.Namespace) -> None:
    """Measures a model and prints its table."""
    cases = [(rows, beams) for beams in family.beams for rows in options.rows]
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), name, family)
        settings = {
            "model": name,
            "folder": folder,
            "vocab": family.sizes["vocab"],
            "length": family.length,
            "new_tokens": family.new_tokens,
        }
        sides = [
            Side(side, settings | {"precision": precision})
            for side in SIDES
            for precision in options.precisions
        ]
        for case in cases:
            compare(sides, case)
            if family.top_k:
                for side in sides:
                    side.generate(case, family.top_k)
        for side in sides:
            side.seconds.clear()  # the first calls trace graphs and allocate memory
        for _ in range(options.rounds):
            for case in cases:
                for side in sides:
                    side.generate(case, family.top_k)
    for side in sides:
        side.close()
    drawn = f", each from the {family.top_k} most probable" if family.top_k else ""
    print(
        f"\n{family.title.format(**family.sizes)}, hidden {family.sizes['hidden']}, "
        f"{family.sizes['vocab']:,} pieces, {family.length} tokens read, "
        f"{family.new_tokens} generated{drawn}, {os.cpu_count()} cores\n"
    )
    print("\n".join(table(sides, cases)), flush=True)


def compare(sides: list[Side], case: Case) -> None:
    """Checks that both sides generate the same tokens in float32; exits if they do not."""
    tokens = {side.name: side.generate(case) for side in sides}
    exact = [rows for name, rows in tokens.items() if name.endswith("float32")]
    if any(rows != exact[0] for rows in exact[1:]):
        sys.exit(f"error: {case[0]} rows, {case[1]} beams: the sides generate other tokens")


def table(sides: list[Side], cases: list[Case]) -> list[str]:
    """Returns the lines of the table: tokens per second, and the ratio of the better precisions."""
    names = " | ".join(f"{side.side}, {side.precision}" for side in sides)
    lines = [f"| rows | beams | {names} | ratio |", f"|---|---|{'---:|' * (len(sides) + 1)}"]
    for case in cases:
        rates = [side.rate(case) for side in sides]
        best = {
            name: max(r for side, r in zip(sides, rates, strict=True) if side.side == name)
            for name in SIDES
        }
        shown = " | ".join(f"{rate:,.0f}" for rate in rates)
        lines.append(f"| {case[0]} | {case[1]} | {shown} | {best[OURS] / best[THEIRS]:.2f} |")
    return [*lines, "", "In new tokens per second; ratio: ours over theirs."]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    models = list(FAMILIES)
    parser.add_argument("--model", nargs="+", choices=models, default=models, help="default: both")
    for name in ("layers", "hidden", "heads", "intermediate", "vocab", "length", "new_tokens"):
        parser.add_argument(f"--{name}", type=int, help="default: that of the model")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8], help="default: 1 8")
    precisions = ["float32", "bfloat16"]
    parser.add_argument("--precisions", nargs="+", choices=precisions, default=precisions)
    return parser.parse_args()


def prepare(folder: Path, name: str, family: Family) -> None:
    """Writes the model of transformers (`huggingface`) and ours (`converted`) into a folder."""
    theirs = folder / "huggingface"
    positions = family.length + family.new_tokens
    size = family.sizes | {"model": name, "folder": str(theirs), "positions": positions}
    environments.run_peer("generation.write", "hf", size)
    # The conversion needs a vocabulary, although the inputs are ids.
    if name == "t5":
        write_pieces(theirs / "spiece.model", family.sizes["vocab"] - UNUSED)
    else:
        write_pairs(theirs, family.sizes["vocab"])
    environments.run(
        "official.convert", "--source=hf", f"--input={theirs}",
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
    """Writes a byte-level vocabulary: all bytes, pairs of bytes, and the end token."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spelled = [*map(chr, printable), *map(chr, range(256, 512 - len(printable)))]
    pairs = [(a, b) for a in spelled for b in spelled][: count - 257]
    pieces = [*spelled, *map("".join, pairs), "<|endoftext|>"]
    ids = {piece: i for i, piece in enumerate(pieces)}
    (folder / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
    lines = ["#version: 0.2", *map(" ".join, pairs), ""]
    (folder / "merges.txt").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
