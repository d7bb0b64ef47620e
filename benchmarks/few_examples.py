r"""Compares `official.finetune(few=True)` with setfit, on eight examples of each class.

  python -m benchmarks.few_examples --model=FOLDER --train=FILE --test=FILE [--text=text] \
      [--label=label] [--labels=3,5,12] [--words=14] [--shots=8] [--seeds=5]

FOLDER is one of sentence-transformers, which both sides start from; the files are TSV with a
header. Each seed draws other examples, which both sides and a logistic regression on the vectors of
the model as it is learn from; all rows of the test file, or the first --test_rows, are judged.
The table shows the accuracy of each seed, the mean, and the CPU seconds of the training.
"""

import argparse
import csv
import random
import statistics
from pathlib import Path

from benchmarks import environments

OURS, THEIRS, ALONE = "encoder garden, few=True", "setfit", "a regression on the released vectors"
SIDES = {OURS: (None, "ours"), THEIRS: ("setfit", "setfit"), ALONE: (None, "regression")}


def main() -> None:
    """Runs the benchmark and prints its table."""
    options = _options()
    labels = options.labels.split(",") if options.labels else None
    rows = {
        name: read(file, options.text, options.label, labels, options.words)
        for name, file in (("train", options.train), ("test", options.test))
    }
    test = rows["test"][: options.test_rows]
    sides = {
        name: environments.Process(
            name, environment, f"few_examples.{side}", {"model": str(options.model.resolve())}
        )
        for name, (environment, side) in SIDES.items()
    }
    answers: dict[str, list[dict]] = {name: [] for name in sides}
    for seed in range(options.seeds):
        question = {"train": drawn(rows["train"], options.shots, seed), "test": test, "seed": seed}
        for name, process in sides.items():
            given = process.ask(question)
            right = statistics.mean(
                own == label for own, (_, label) in zip(given["labels"], test, strict=True)
            )
            answers[name].append({"accuracy": right, "cpu": given["cpu"]})
            print(f"seed {seed}: {name}: {right:.4f}, {given['cpu']:.0f} CPU s", flush=True)
    for process in sides.values():
        process.close()
    print(f"\n{len(test)} rows, {options.shots} examples of each class\n")
    print("\n".join(table(answers)))


def read(
    file: Path, text: str, label: str, labels: list[str] | None, words: int | None
) -> list[tuple[str, str]]:
    """Returns the texts of a TSV file with their labels.

    Args:
      file: has a header.
      text: the column of the texts.
      label: that of the labels.
      labels: those that are taken; None = all.
      words: the first ones of a text that are taken; None = all.
    """
    with open(file, encoding="utf-8", newline="") as stream:
        rows = [
            (row[text], row[label])
            for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        ]
    return [
        (" ".join(words_of[:words]), own)
        for words_of, own in ((given.split(), own) for given, own in rows)
        if labels is None or own in labels
    ]


def drawn(rows: list[tuple[str, str]], shots: int, seed: int) -> list[tuple[str, str]]:
    """Returns random examples: of each label the same number."""
    order = random.Random(seed).sample(rows, len(rows))
    labels = sorted({label for _, label in rows})
    return [row for label in labels for row in [r for r in order if r[1] == label][:shots]]


def table(answers: dict[str, list[dict]]) -> list[str]:
    """Returns the lines of a Markdown table, a row for each side."""
    seeds = range(len(next(iter(answers.values()))))
    lines = [
        "| side | " + " | ".join(f"seed {seed}" for seed in seeds) + " | mean | CPU seconds |",
        "|---|" + "---:|" * (len(seeds) + 2),
    ]
    for name, given in answers.items():
        found = [each["accuracy"] for each in given]
        cells = [*found, statistics.mean(found)]
        seconds = statistics.mean(each["cpu"] for each in given)
        lines.append(f"| {name} | {' | '.join(f'{x:.4f}' for x in cells)} | {seconds:.0f} |")
    return lines


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="of sentence-transformers")
    parser.add_argument("--train", type=Path, required=True, help="TSV with a header")
    parser.add_argument("--test", type=Path, required=True, help="TSV with a header")
    parser.add_argument("--text", default="text", help="the column of the texts")
    parser.add_argument("--label", default="label", help="the column of the labels")
    parser.add_argument("--labels", help="the labels that are taken, by commas; default: all")
    parser.add_argument("--words", type=int, help="the first words of each text; default: all")
    parser.add_argument("--shots", type=int, default=8, help="examples of each class")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--test_rows", type=int, help="default: all")
    return parser.parse_args()


if __name__ == "__main__":
    main()
