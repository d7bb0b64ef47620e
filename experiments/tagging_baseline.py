"""A CRF on features of words, as a baseline for taggers: entity F1 on CoNLL files.

  python -m pip install python-crfsuite==0.9.12
  python -m experiments.tagging_baseline --train=train.conll --evaluate=dev.conll

CRFsuite (Okazaki, 2007) trains a linear-chain CRF on the spelling, the shape and the prefixes and
suffixes of each word and its neighbors, by averaged perceptron, whose order of texts is drawn from
a seed. The metrics are those of `official.evaluation.tags`.
"""

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from absl import flags

from official.evaluation import tags
from official.tasks import tag_files, tagged_texts
from official.tasks.named_tasks import CONLL_COLUMNS
from official.utils import command_line, errors

ITERATIONS = 20
METRICS = ("f1", "precision", "recall", "strict_f1")


def shape(word: str) -> str:
    """Returns the shape of a word: X for capitals, x for small letters, 0 for digits, runs once."""
    result: list[str] = []
    for character in word:
        kind = "X" if character.isupper() else "x" if character.islower() else character
        kind = "0" if character.isdigit() else kind
        if not result or result[-1] != kind:
            result.append(kind)
    return "".join(result)


def features(words: Sequence[str]) -> list[list[str]]:
    """Returns the features of each word."""
    rows = []
    for i, word in enumerate(words):
        low = word.lower()
        row = ["bias", f"w={low}", f"s={shape(word)}", f"first={i == 0}"]
        row += [f"p{n}={low[:n]}" for n in (2, 3)] + [f"e{n}={low[-n:]}" for n in (1, 2, 3)]
        row.append(f"title={word.istitle()},upper={word.isupper()},digit={low.isdigit()}")
        for offset in (-2, -1, 1, 2):
            near = words[i + offset] if 0 <= i + offset < len(words) else ""
            row += [f"{offset}w={near.lower()}", f"{offset}s={shape(near)}"]
        rows.append(row)
    return rows


def train_and_score(
    train: Sequence[tagged_texts.TaggedWords],
    evaluate: Sequence[tagged_texts.TaggedWords],
    seed: int,
) -> dict[str, float]:
    """Trains on texts in an order drawn from a seed, and returns the metrics of other texts."""
    import pycrfsuite  # of the benchmark alone

    trainer = pycrfsuite.Trainer(algorithm="ap", verbose=False)
    trainer.set_params({"max_iterations": ITERATIONS})
    for text in random.Random(seed).sample(list(train), len(train)):
        trainer.append(features(text.words), list(text.tags))
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model")
        trainer.train(path)
        tagger = pycrfsuite.Tagger()
        tagger.open(path)
        predicted = [tagger.tag(features(text.words)) for text in evaluate]
        tagger.close()
    return tags.compute([text.tags for text in evaluate], predicted)


def main(argv: list[str]) -> None:
    """Prints the metrics of each seed, their mean and their standard deviation."""
    options = flags.FLAGS
    errors.require(options, "train", "evaluate")
    train, evaluate = (
        list(tag_files.read(Path(path), CONLL_COLUMNS))
        for path in (options.train, options.evaluate)
    )
    rows = []
    for seed in range(options.seeds):
        metrics = train_and_score(train, evaluate, seed)
        rows.append([metrics[name] for name in METRICS])
        shown = ", ".join(f"{name} {metrics[name]:.4f}" for name in METRICS)
        print(f"seed {seed}: {shown}", flush=True)
    means, deviations = np.mean(rows, axis=0), np.std(rows, axis=0)
    shown = zip(METRICS, means, deviations, strict=True)
    print("mean: " + ", ".join(f"{name} {mean:.4f} ± {std:.4f}" for name, mean, std in shown))


def run() -> None:
    """Defines the flags and runs the command line."""
    flags.DEFINE_string("train", None, "CoNLL file to train on")
    flags.DEFINE_string("evaluate", None, "CoNLL file to evaluate on")
    flags.DEFINE_integer("seeds", 3, "number of seeds", 1)
    command_line.run(main)


if __name__ == "__main__":
    run()
