"""Times static vectors of texts, by `official.load(...).encode` and by model2vec.

  python -m benchmarks.static_vectors --text=FILE [--model=FOLDER] [--texts 20000] [--words 64]

Both sides read the same folder of model2vec's format (--model, a model folder of static vectors;
default: random vectors of the words of the text) and the same texts, of up to --words consecutive
words, and take turns. FILE may end in `.xz`. Each process has --threads threads. The table shows
the texts in a second of wall time and of CPU time, the medians of the rounds; the share of the CPU
time that splitting the texts takes alone; and the largest difference of the vectors. In each round
the cache of words of our tokenizer is empty at first.
"""

import argparse
import json
import lzma
import os
import statistics
import tempfile
from pathlib import Path

import numpy as np

from benchmarks import environments

OURS, THEIRS = "encoder garden", "model2vec"
_SIZE = 256  # of random vectors


def write_texts(source: Path, file: Path, count: int, words: int) -> None:
    """Writes texts of 1 to `words` consecutive words of lines, one on each line."""
    rng = np.random.default_rng(0)
    opener = lzma.open if source.suffix == ".xz" else open
    written = 0
    with opener(source, "rt", encoding="utf-8") as lines, file.open("w", encoding="utf-8") as out:
        for line in lines:
            rest = line.split()
            while rest and written < count:
                length = rng.integers(1, words + 1)
                out.write(" ".join(rest[:length]) + "\n")
                rest, written = rest[length:], written + 1
            if written == count:
                return


def write_model(folder: Path, texts: Path) -> None:
    """Writes a model folder with random vectors for the pieces of a learned vocabulary."""
    from official.config.encoders import StaticConfig
    from official.saving import model_folder, static_vectors
    from official.tokenizers import loading
    from official.utils import strict

    environments.run(
        "tfrecords_tools.build_vocab", f"--input={texts}", f"--output={folder}-vocabulary",
        "--type=wordpiece", "--vocab_size=8000",
    )  # fmt: skip
    tokenizer = loading.load(f"{folder}-vocabulary")
    shape = tokenizer.vocab_size, _SIZE
    encoder = StaticConfig(
        vocab_size=shape[0], hidden_size=_SIZE, skipped_ids=tuple(tokenizer.special_ids)
    )
    model_folder.write_new(
        static_vectors.config_of("random", encoder, normalize=True),
        tokenizer,
        {static_vectors.TABLE: np.random.default_rng(0).normal(size=shape).astype(np.float32)},
        folder,
        embedding=strict.to_dict(static_vectors.settings_of(tokenizer, normalize=True)),
    )


def table(answers: dict[str, list[dict]], count: int) -> list[str]:
    """Returns the lines of the table.

    Args:
      answers: {side: its answers}, the last side is that of model2vec.
      count: the number of texts.
    """
    middle = {
        name: {kind: statistics.median(a[kind] for a in of_side) for kind in of_side[0]}
        for name, of_side in answers.items()
    }
    lines = [
        "| side | texts/s | times theirs | texts/CPU s | times theirs | of it splitting |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, of_side in middle.items():
        cells = []
        for kind in ("seconds", "cpu"):
            cells.append(f"{count / of_side[kind]:,.0f}")
            cells.append(f"{middle[THEIRS][kind] / of_side[kind]:.2f}")
        share = of_side["splitting"] / of_side["cpu"]
        lines.append(f"| {name} | {' | '.join(cells)} | {share:.0%} |")
    return lines


def main() -> None:
    """Runs the benchmark and prints its table."""
    options = _options()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        texts, model = folder / "texts.txt", options.model
        write_texts(options.text, texts, options.texts, options.words)
        if model is None:
            model = folder / "model"
            write_model(model, texts)
        environments.run(
            "official.convert", "--target=hf", f"--input={model}", f"--output={folder}/hf"
        )
        settings = {"model": f"{folder}/hf", "texts": str(texts), "threads": options.threads}
        sides = {
            OURS: environments.Process(OURS, None, "static_vectors.ours", settings),
            THEIRS: environments.Process(THEIRS, "model2vec", "static_vectors.theirs", settings),
        }
        answers: dict[str, list[dict]] = {name: [] for name in sides}
        for _ in range(options.rounds):
            for name, side in sides.items():
                answers[name].append(side.ask({"output": f"{folder}/{name}.npy"}))
        for side in sides.values():
            side.close()
        vectors = [np.load(folder / f"{name}.npy") for name in sides]
        size = texts.stat().st_size / 1e6
    print(f"\n{options.texts:,} texts, {size:.1f} MB, {options.threads} threads, "
          f"{options.rounds} rounds; vectors at most {np.abs(vectors[0] - vectors[1]).max():.1e} "
          "apart\n")  # fmt: skip
    print("\n".join(table(answers, options.texts)))
    if options.results is not None:
        options.results.write_text(json.dumps(answers) + "\n", "utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--text", type=Path, required=True, help="text to cut; .xz is read too")
    parser.add_argument("--model", type=Path, help="a model folder of static vectors")
    parser.add_argument("--texts", type=int, default=20_000, help="their number (default: 20000)")
    parser.add_argument("--words", type=int, default=64, help="of the longest text (default: 64)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--results", type=Path, help="a file of the seconds of all rounds, .json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
