"""Times text generation by a T5: ours and PyTorch transformers', greedily and by beam search.

  python -m benchmarks.generation

A T5 1.1 with random weights, made by transformers and brought here by `official.convert`, reads 64
tokens and generates 32. Every side runs in its own process and environment (made as by `make
parity` when missing), in float32 and in bfloat16. In float32 the tokens of both sides must be
equal. The processes take turns, round after round, on the same cores; each has its key-value cache.
What is shown is new tokens per second, the median of the rounds, and the ratio of the better
precisions.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from sentencepiece import sentencepiece_model_pb2

from benchmarks import environments, process

OURS, THEIRS = "encoder garden", "PyTorch transformers"
SIDES = {OURS: (None, "generation_ours.py"), THEIRS: ("hf", "generation_transformers.py")}

UNUSED = 128  # 100 sentinels, and rows of the table that no id has: as many as T5 has.

Case = tuple[int, int]  # rows, beams


class Side(process.Process):
    """A process that generates on request."""

    def __init__(self, name: str, settings: dict):
        environment, script = SIDES[name]
        super().__init__(f"{name}, {settings['precision']}", environment, script, settings)
        self.side, self.precision = name, settings["precision"]
        self.new_tokens = settings["new_tokens"]
        self.seconds: dict[Case, list[float]] = {}

    def generate(self, case: Case) -> list[list[int]]:
        """Generates once; returns the tokens."""
        answer = self.ask(dict(zip(("rows", "beams"), case, strict=True)))
        self.seconds.setdefault(case, []).append(answer["seconds"])
        return answer["tokens"]

    def rate(self, case: Case) -> float:
        """Returns the new tokens per second of a case, the median of the rounds."""
        return case[0] * self.new_tokens / statistics.median(self.seconds[case])


def main() -> None:
    """Runs the benchmark and prints its table."""
    options = _options()
    cases = [(rows, beams) for beams in options.beams for rows in options.rows]
    sizes = {key: getattr(options, key) for key in "layers hidden heads intermediate vocab".split()}
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder), sizes)
        settings = {"folder": folder, "vocab": options.vocab, "length": options.length}
        settings["new_tokens"] = options.new_tokens
        sides = [
            Side(name, settings | {"precision": precision})
            for name in SIDES
            for precision in options.precisions
        ]
        for case in cases:
            compare(sides, case)
        for side in sides:
            side.seconds.clear()  # The first calls trace graphs and allocate memory.
        for _ in range(options.rounds):
            for case in cases:
                for side in sides:
                    side.generate(case)
    for side in sides:
        side.close()
    print(
        f"\n{options.layers} + {options.layers} layers, hidden {options.hidden}, "
        f"{options.vocab:,} pieces, {options.length} tokens read, {options.new_tokens} generated, "
        f"{os.cpu_count()} cores\n"
    )
    print("\n".join(table(sides, cases)))


def compare(sides: list[Side], case: Case) -> None:
    """Checks that both sides generate the same tokens in float32; exits if they do not."""
    tokens = {side.name: side.generate(case) for side in sides}
    exact = [said for name, said in tokens.items() if name.endswith("float32")]
    if any(said != exact[0] for said in exact[1:]):
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


def prepare(folder: Path, sizes: dict) -> None:
    """Writes the model of transformers and, converted, ours."""
    given = sizes | {"folder": f"{folder}/huggingface"}
    script = environments.ROOT / "benchmarks" / "peers" / "generation_model.py"
    process.run(str(script), json.dumps(given), python=environments.python("hf"))
    write_pieces(folder / "huggingface" / "spiece.model", sizes["vocab"] - UNUSED)
    process.run(
        "-m", "official.convert", "--source=hf", f"--input={folder}/huggingface",
        f"--output={folder}/converted",
    )  # fmt: skip


def write_pieces(path: Path, count: int) -> None:
    """Writes a SentencePiece model of numbers: the conversion wants one, and the inputs are ids."""
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


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, default in {
        "layers": 6, "hidden": 512, "heads": 8, "intermediate": 1024, "vocab": 32_128,
        "length": 64, "new_tokens": 32, "rounds": 5,
    }.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default: {default}")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8], help="default: 1 8")
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4], help="default: 1 4")
    precisions = ["float32", "bfloat16"]
    parser.add_argument("--precisions", nargs="+", choices=precisions, default=precisions)
    return parser.parse_args()


if __name__ == "__main__":
    main()
