"""Times text generation by a T5 and a GPT-2: ours and PyTorch transformers'.

  python -m benchmarks.generation
  python -m benchmarks.generation --model gpt2

The models have random weights. They are made by transformers and brought here by
`official.convert`. The T5 reads 64 tokens and generates 32, greedily and by beam search. The GPT-2
has the sizes of the small one, reads 32 tokens and draws 256, each of the 40 likeliest. Every side
runs in its own process and environment (made as by `make parity` when missing), in float32 and in
bfloat16. First, both sides generate without draws, and in float32 their tokens must be equal. The
processes take turns, round after round, on the same cores; each has its key-value cache. What is
shown is new tokens per second, the median of the rounds, and the ratio of the better precisions.
"""

import argparse
import dataclasses
import os
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks import process
from benchmarks.generation_models import FAMILIES, Family, prepare

OURS, THEIRS = "encoder garden", "PyTorch transformers"
SIDES = {OURS: (None, "generation_ours.py"), THEIRS: ("hf", "generation_transformers.py")}

Case = tuple[int, int]  # rows, beams


class Side(process.Process):
    """A process that generates on request."""

    def __init__(self, name: str, settings: dict):
        environment, script = SIDES[name]
        super().__init__(f"{name}, {settings['precision']}", environment, script, settings)
        self.side, self.precision = name, settings["precision"]
        self.new_tokens = settings["new_tokens"]
        self.seconds: dict[Case, list[float]] = {}

    def generate(self, case: Case, top_k: int = 0) -> list[list[int]]:
        """Generates once, with draws if `top_k` is not 0; returns the tokens."""
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
    given = {key: value for key, value in vars(options).items() if value is not None}
    sizes = {key: given.get(key, value) for key, value in chosen.sizes.items()}
    others = {key: given[key] for key in ("length", "new_tokens") if key in given}
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
            side.seconds.clear()  # The first calls trace graphs and allocate memory.
        for _ in range(options.rounds):
            for case in cases:
                for side in sides:
                    side.generate(case, family.top_k)
    for side in sides:
        side.close()
    drawn = f", each of the {family.top_k} likeliest" if family.top_k else ""
    print(
        f"\n{family.title.format(**family.sizes)}, hidden {family.sizes['hidden']}, "
        f"{family.sizes['vocab']:,} pieces, {family.length} tokens read, "
        f"{family.new_tokens} generated{drawn}, {os.cpu_count()} cores\n"
    )
    print("\n".join(table(sides, cases)), flush=True)


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


if __name__ == "__main__":
    main()
