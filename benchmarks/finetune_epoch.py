"""Times an epoch of SST-2 with at most 128 tokens: ours and tf-models-official's.

  python -m benchmarks.finetune_epoch --data=SST-2 --init=PRETRAINED [--examples=20000]

Both sides read the same rows with the same vocabulary, start from the same weights (an encoder of
ours from the model folder `--init`, or else a new encoder of 4 layers of 256, with a new head), and
train with AdamW (bias corrected, as theirs), the same learning rate, warm-up and batches of 32. Our
side is configs/finetune/sst2.yaml, whose `bucket_lengths` put texts of similar length into a batch;
their side is their records, with every row padded to 128, their data loader and their sentence
prediction task. Each side is a process in a separate environment (made as by `make parity` when
missing); the two take turns, a part of the epoch at a time, on the same cores. Before and after the
epoch both are evaluated on dev.tsv; before it, with the same weights, their results must agree.

--examples=N takes N rows of train.tsv, drawn with the seed, for a part of an epoch.
"""

import argparse
import contextlib
import dataclasses
import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import yaml

from benchmarks import environments
from benchmarks.environments import Process
from official.config.heads import ClassificationConfig

OURS, THEIRS = "encoder garden", "tf-models-official"
CONFIG = environments.ROOT / "configs" / "finetune" / "sst2.yaml"
LENGTH = 128
TOLERANCE = 1e-4  # for the initial losses
ENCODER = {
    "type": "transformer",
    "hidden_size": 256,
    "num_layers": 4,
    "num_heads": 4,
    "intermediate_size": 1024,
    "max_positions": LENGTH,
    "dropout": 0.1,
}


def draw(source: Path, target: Path, examples: int, seed: int) -> int:
    """Copies dev.tsv and a random sample of train.tsv, in random order; 0 = all rows.

    Returns:
      The number of rows of train.tsv.
    """
    target.mkdir()
    shutil.copy(source / "dev.tsv", target)
    header, *rows = (source / "train.tsv").read_text(encoding="utf-8").splitlines()
    order = np.random.default_rng(seed).permutation(len(rows))[: examples or None]
    lines = [header, *(rows[number] for number in order)]
    (target / "train.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    shutil.copy(source / "test.tsv", target)  # our shards have all three splits
    return len(order)


def prepare(folder: Path, options: argparse.Namespace) -> dict:
    """Prepares rows, initial weights and shards; returns the settings of the sides."""
    examples = draw(options.data, folder / "rows", options.examples, options.seed)
    if options.init is None:
        words = folder / "text.txt"
        lines = (folder / "rows" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]
        words.write_text("".join(f"{line.partition(chr(9))[0]}\n" for line in lines), "utf-8")
        environments.run(
            "tfrecords_tools.build_vocab", f"--input={words}", "--lower_case",
            f"--output={folder}/tokenizer", "--type=wordpiece", f"--vocab_size={options.vocab}",
        )  # fmt: skip
        tokenizer = folder / "tokenizer"
    else:
        tokenizer = options.init / "tokenizer"
    encoder, precision = write_weights(folder, tokenizer, options)
    shards = folder / "shards"
    environments.run(
        "tfrecords_tools.build_task_shards", "--task=sst2", f"--input={folder}/rows",
        f"--tokenizer={tokenizer}", f"--output={shards}", f"--max_length={LENGTH}",
    )  # fmt: skip
    if THEIRS in options.sides:
        theirs = folder / "theirs"
        theirs.mkdir()
        settings = {
            "rows": str(folder / "rows"),
            "vocabulary": str(tokenizer / "vocab.txt"),
            "output": str(theirs),
            "length": LENGTH,
        }
        environments.run_peer("tf_models.records", "tfm", settings, theirs)
    overrides = [
        "recipe.epochs=1",
        f"recipe.optimizer.learning_rate={options.learning_rate}",
        "recipe.optimizer.bias_correction=true",  # as in their AdamW
        f"recipe.precision={precision}",
        f"seed={options.seed}",
        *options.override,
    ]
    from official import config as configs

    recipe = configs.load(CONFIG, overrides).recipe
    return {
        "folder": str(folder),
        "config": str(CONFIG),
        "overrides": overrides,
        "encoder": dataclasses.asdict(encoder),
        "recipe": dataclasses.asdict(recipe),
        "precision": options.precision,
        "length": LENGTH,
        "examples": examples,
    }


def write_weights(folder: Path, tokenizer: Path, options: argparse.Namespace) -> tuple:
    """Writes the initial state of both sides: `init/config.yaml` and `weights.npz`.

    Returns:
      The encoder's config, and our name of the precision.
    """
    from official import config as configs
    from official import tokenizers
    from official.saving import checkpoints, model_folder, named_arrays

    init = folder / "init"
    init.mkdir()
    if options.init is None:
        pieces = tokenizers.load(tokenizer).vocab_size
        raw = {"name": "new", "seed": options.seed, "encoder": {**ENCODER, "vocab_size": pieces}}
        (init / "config.yaml").write_text(yaml.safe_dump(raw))
    else:
        shutil.copy(options.init / "config.yaml", init)
    config = configs.load(init)
    head = ClassificationConfig(labels=("0", "1"))
    encoder = dataclasses.replace(config.encoder, pooler=True)
    config = dataclasses.replace(
        config, segments=None, corruption=None, encoder=encoder, objectives=(head,),
        seed=options.seed,
    )  # fmt: skip
    variables = model_folder.build(config).variables_by_path()
    if options.init is not None:
        arrays = checkpoints.load_variables(options.init, "best")
        read = {path: v for path, v in variables.items() if path.startswith("encoder/")}
        named_arrays.assign(read, arrays, f"--init={options.init}")
    arrays = {path.replace("/", "|"): np.asarray(v) for path, v in variables.items()}
    np.savez(folder / "weights.npz", **arrays)
    names = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
    return encoder, names[options.precision]


class Side(Process):
    """A process that trains for a number of steps on request."""

    def __init__(self, name: str, settings: dict):
        environment, side = {
            OURS: (None, "finetune.ours"),
            THEIRS: ("tfm", "tf_models.finetune"),
        }[name]
        super().__init__(name, environment, side, settings)
        self.steps = self.ask("steps")["steps"]
        self.first = self.ask("evaluate")
        self.seconds: list[float] = []
        self.last: dict = {}

    def share(self, number: int, turns: int) -> int:
        """Returns the number of steps of one of the turns."""
        return self.steps * (number + 1) // turns - self.steps * number // turns


def main() -> None:
    """Runs the benchmark and prints its table."""
    options = _options()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        settings = prepare(folder, options)
        sides = [Side(name, settings) for name in options.sides]
        for side in sides:
            print(
                f"{side.name}: {side.steps:,} steps; before them loss {side.first['loss']:.5f}, "
                f"accuracy {side.first['accuracy']:.4f}",
                flush=True,
            )
        losses = [side.first["loss"] for side in sides]
        if options.precision == "float32" and max(losses) - min(losses) > TOLERANCE:
            sys.exit("error: the sides do not start from the same model")
        for side in sides:
            side.ask(1)  # traces the graphs; not timed
        for number in range(options.turns):
            for side in sides:
                count = side.share(number, options.turns) - (number == 0)
                side.seconds.append(side.ask(count)["seconds"] if count else 0.0)
            shown = "  ".join(f"{side.seconds[-1]:.1f}" for side in sides)
            print(f"turn {number + 1} of {options.turns}: {shown} s", flush=True)
        for side in sides:
            side.last = side.ask("evaluate")
            side.close()
        table(sides, settings, options)


def table(sides: list[Side], settings: dict, options: argparse.Namespace) -> None:
    """Prints the time, the memory and the metrics of each side."""
    encoder = settings["encoder"]
    print(
        f"\n{encoder['num_layers']} layers, hidden {encoder['hidden_size']}, "
        f"{settings['examples']:,} examples, batch {settings['recipe']['batch_size']}, "
        f"{options.precision}, learning rate {options.learning_rate}, {os.cpu_count()} cores\n"
    )
    print("| side | steps | epoch, s | examples/s | vs ours | peak MiB | dev accuracy | dev loss |")
    print(f"|---|{'---:|' * 7}")
    base = sum(sides[0].seconds)
    for side in sides:
        seconds = sum(side.seconds)
        print(
            f"| {side.name} | {side.steps:,} | {seconds:,.1f} "
            f"| {settings['examples'] / seconds:,.0f} | {seconds / base:.2f}x "
            f"| {side.last['peak_mib']:,.0f} | {side.last['accuracy']:.4f} "
            f"| {side.last['loss']:.4f} |"
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="GLUE's folder SST-2")
    parser.add_argument("--init", type=Path, help="a model folder; default: a new encoder")
    parser.add_argument("--examples", type=int, default=0, help="default: the whole epoch")
    parser.add_argument("--turns", type=int, default=8, help="parts of the epoch (default: 8)")
    parser.add_argument("--learning_rate", type=float, default=1e-4, help="default: 1e-4")
    parser.add_argument("--seed", type=int, default=0, help="of rows, weights and dropout")
    parser.add_argument("--vocab", type=int, default=8000, help="pieces of a new encoder")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--override", action="append", default=[], help="of our config")
    parser.add_argument("--sides", nargs="+", choices=[OURS, THEIRS], default=[OURS, THEIRS])
    return parser.parse_args()


if __name__ == "__main__":
    main()
