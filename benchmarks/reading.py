"""Measures how training reads shards: shuffling, the share of each worker, the start of a run.

  python -m benchmarks.reading [--parts mixing workers start]

mixing   Two corpora, one after the other in the input, become shards. In every window of 200
         batches of two epochs, the share of the first corpus is compared with its share of the
         whole, in standard deviations of a random sample. The pairs of next neighbors that the
         epochs have in common are counted: in random orders of each shard, these are about two for
         each shard. A task whose file is sorted by label is read in the same way.
workers  The bytes that each of W workers reads in an epoch, as the system counts them, beside the
         bytes of the shards; whether each example is read once; and whether the batches of all
         workers together are those of one.
start    Time from the start of the command to the first step on a large folder, from the beginning
         and from a late step. The folder is one shard under many names.
"""

import argparse
import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import tensorflow as tf
import yaml

from benchmarks import environments
from official.data.order import Files, Lanes
from official.shards import features, manifest, parsing

SEED = 0
WINDOW = 200  # batches
WORDS = ("alpha", "beta")
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def write_tokenizer(folder: Path) -> None:
    """Writes a vocabulary of two words."""
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join([*SPECIALS, *WORDS]) + "\n")


def write_config(path: Path, batch_size: int) -> None:
    """Writes a config with a tiny network."""
    config = {
        "name": "reading",
        "segments": {"format": "doc_sentences", "max_length": 8, "short_seq_prob": 0.0},
        "corruption": {"type": "token_masks", "max_predictions": 2},
        "encoder": {
            "type": "transformer", "hidden_size": 8, "num_layers": 1, "num_heads": 1,
            "intermediate_size": 8, "max_positions": 128,
        },
        "objectives": [{"type": "masked_lm"}],
        "recipe": {"steps": 100_000, "batch_size": batch_size, "report_every": 1},
    }  # fmt: skip
    path.write_text(yaml.safe_dump(config))


def corpora(folder: Path, examples: int) -> Files:
    """Returns shards of two corpora; the first has two fifths of the examples."""
    write_config(folder / "config.yaml", 256)
    sizes = examples * 2 // 5, examples - examples * 2 // 5
    for name, word, size in zip("ab", WORDS, sizes, strict=True):
        with open(folder / f"{name}.txt", "w") as stream:
            stream.writelines(f"{word} {word}\n\n" for _ in range(size))
    output = folder / "pretraining"
    environments.run(
        "tfrecords_tools.build_shards",
        f"--config={folder}/config.yaml", f"--input={folder}/[ab].txt",
        f"--tokenizer={folder}/tokenizer", f"--output={output}",
    )  # fmt: skip
    return Files.from_manifest(output, manifest.read(output))


def sorted_task(folder: Path, examples: int) -> Files:
    """Returns shards of a task whose file has all rows of one label before those of the other."""
    with open(folder / "train.tsv", "w") as stream:
        stream.write("text\tlabel\n")
        for i in range(examples):
            label = int(i >= examples * 2 // 5)
            stream.write(f"{WORDS[label]} {WORDS[label]}\t{label}\n")
    output = folder / "task"
    environments.run(
        "tfrecords_tools.build_task_shards",
        "--task=classification", "--text_column=text", "--label_column=label",
        f"--train_file={folder}/train.tsv", f"--tokenizer={folder}/tokenizer", f"--output={output}",
    )  # fmt: skip
    return Files.from_manifest(output, manifest.read(output))


def mixing(folder: Path, options: argparse.Namespace) -> None:
    """Prints how well two epochs are shuffled."""
    first_word = len(SPECIALS)
    for name, files in (
        ("pretraining", corpora(folder, options.examples)),
        ("a sorted task", sorted_task(folder, options.examples)),
    ):
        total = sum(files.counts)
        lanes = Lanes(files, SEED, options.batch)
        steps = 2 * total // options.batch + 1
        rows = lanes.dataset(0, 0, options.batch, options.batch).take(steps)

        def columns(rows: dict) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            ids = parsing.parse(rows["record"], ["token_ids"])["token_ids"]
            return rows["epoch"], rows["index"], ids.to_tensor()[:, 1] == first_word  # after [CLS]

        rows = rows.map(columns, num_parallel_calls=tf.data.AUTOTUNE).prefetch(8)
        epoch, index, firsts = map(np.concatenate, zip(*rows.as_numpy_iterator(), strict=True))
        whole = options.examples * 2 // 5 / options.examples
        shares = windows(firsts.astype(float), WINDOW * options.batch)
        sigma = np.sqrt(whole * (1 - whole) / (WINDOW * options.batch))
        off = np.abs(shares - whole).max() / sigma
        epochs = index[epoch == 0], index[epoch == 1]
        once = len(epochs[0]) == len(np.unique(epochs[0])) == total
        near = common_neighbors(*epochs, distance=1)
        along = common_neighbors(*epochs, distance=lanes.lanes)
        print(
            f"mixing, {name}: {total:,} examples in {len(files.counts)} shards, {lanes.lanes} "
            f"lanes; {len(shares):,} windows: at most {off:.2f} sigma from the share of the whole "
            f"({whole:.2f}); each example once an epoch: {once}; pairs of neighbors in common: "
            f"{near} in a batch, {along} along a lane",
            flush=True,
        )


def windows(values: np.ndarray, size: int) -> np.ndarray:
    """Returns the means of all windows that start at a multiple of a tenth of `size`."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    starts = np.arange(0, len(values) - size + 1, max(size // 10, 1))
    return (sums[starts + size] - sums[starts]) / size


def common_neighbors(first: np.ndarray, second: np.ndarray, distance: int) -> int:
    """Returns how many pairs of examples are `distance` apart in both orders [N]."""
    pairs = []
    for order in (first, second):
        a, b = order[:-distance], order[distance:]
        pairs.append(np.minimum(a, b) * (max(first.max(), second.max()) + 1) + np.maximum(a, b))
    return len(np.intersect1d(*pairs))


def workers(folder: Path, options: argparse.Namespace) -> None:
    """Prints the bytes and examples that each of several workers reads in an epoch."""
    files = numbered(folder, options.examples // 2, shards=options.shards)
    size = files.bytes
    total = sum(files.counts)
    for count in options.workers:
        batch = max(options.batch, count)
        steps = total // batch
        one = read(files, batch, steps, 1, 0)
        indices, shares = [], []
        for worker in range(count):
            before = bytes_read()
            indices.append(read(files, batch, steps, count, worker))
            shares.append((bytes_read() - before) / size)
        together = np.concatenate(indices, axis=1)
        ends = np.cumsum(files.counts)
        opened = [len(np.unique(np.searchsorted(ends, each, side="right"))) for each in indices]
        print(
            f"workers: {count} of {total:,} examples ({size / 1e6:.0f} MB, {len(files.counts)} "
            f"shards), batch {batch}: a worker reads {min(shares):.4f} to {max(shares):.4f} of the "
            f"bytes and opens {max(opened)} files at most; the "
            f"batches of one reader: {np.array_equal(one, together)}; each example once: "
            f"{len(np.unique(together)) == steps * batch}",
            flush=True,
        )


def numbered(folder: Path, examples: int, shards: int) -> Files:
    """Writes small examples in shards of equal size."""
    counts = [examples * (i + 1) // shards - examples * i // shards for i in range(shards)]
    names = [str(folder / f"{i:05d}.tfrecord") for i in range(shards)]
    number = 0
    for name, count in zip(names, counts, strict=True):
        examples_of_shard = [
            {"token_ids": np.arange(number + i, number + i + 1)} for i in range(count)
        ]
        with tf.io.TFRecordWriter(name) as writer:
            for record in features.serialize(examples_of_shard):
                writer.write(record)
        number += count
    return Files(names, counts, sum(map(os.path.getsize, names)))


def read(files: Files, batch: int, steps: int, count: int, worker: int) -> np.ndarray:
    """Returns the indices of the examples of a worker's rows: [steps, rows]."""
    share = batch // count
    rows = Lanes(files, SEED, batch).dataset(0, worker * share, share, share).take(steps)
    return np.stack([each["index"] for each in rows.as_numpy_iterator()])


def bytes_read() -> int:
    """Returns the bytes that this process has read from files so far."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"])


def start(folder: Path, options: argparse.Namespace) -> None:
    """Prints how long a command takes to its first step on a large folder."""
    output = large_folder(folder, options)
    built = manifest.read(output)
    size = sum(shard.bytes for shard in built.shards)
    model = folder / "model"
    print(
        f"start: {size / 1e9:.1f} GB in {len(built.shards)} shards, batch {options.batch}",
        flush=True,
    )
    for words in ("the first step", "a step after a checkpoint"):
        seconds = first_report(folder, output, model)
        print(f"start: {seconds:.1f} s from the command to {words}", flush=True)
    for step in (0, options.step):
        files = Files.from_manifest(output, built)
        before, bytes_before = time.monotonic(), bytes_read()
        rows = Lanes(files, SEED, options.batch).dataset(step, 0, options.batch, options.batch)
        next(iter(rows))
        print(
            f"start: first batch at step {step:,} after {time.monotonic() - before:.1f} s, "
            f"{(bytes_read() - bytes_before) / 1e6:,.0f} MB read",
            flush=True,
        )


def large_folder(folder: Path, options: argparse.Namespace) -> Path:
    """Returns a shard folder whose shards are one file under many names."""
    write_config(folder / "large.yaml", options.batch)
    text = folder / "large.txt"
    rng = np.random.default_rng(SEED)
    with open(text, "w") as stream:
        for _ in range(options.documents):
            stream.write(" ".join(rng.choice(WORDS, 120)) + "\n\n")
    output = folder / "large"
    environments.run(
        "tfrecords_tools.build_shards",
        f"--config={folder}/large.yaml", f"--input={text}", "--num_shards=1",
        "--override=segments.max_length=128", f"--tokenizer={folder}/tokenizer",
        f"--output={output}",
    )  # fmt: skip
    built = manifest.read(output)
    (shard,) = built.shards
    copies = int(options.gigabytes * 1e9 / shard.bytes)
    first = output / shard.name
    shards = []
    for number in range(copies):
        name = f"train-{number:05d}-of-{copies:05d}.tfrecord"
        os.link(first, output / name)
        shards.append(dataclasses.replace(shard, name=name))
    first.unlink()
    manifest.write(output, dataclasses.replace(built, shards=tuple(shards)))
    return output


def first_report(folder: Path, shards: Path, model: Path) -> float:
    """Trains until the first report, saves a checkpoint, and returns the time to the report."""
    command = [
        sys.executable, "-u", "-m", "official.main", "--mode=train",
        f"--config={folder}/large.yaml", "--override=segments.max_length=128",
        f"--data={shards}", f"--model_dir={model}",
    ]  # fmt: skip
    started = time.monotonic()
    training = subprocess.Popen(
        command, cwd=environments.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    lines = []
    for line in training.stdout:
        lines.append(line)
        if line.startswith("step "):
            seconds = time.monotonic() - started
            training.terminate()  # the run saves a checkpoint
            training.communicate()
            return seconds
    sys.exit(f"error: no step:\n{''.join(lines)[-3000:]}")


PARTS = {"mixing": mixing, "workers": workers, "start": start}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--examples",
        type=int,
        default=2_000_000,
        help="of the two corpora; `--parts workers` reads half as many (default: 2,000,000)",
    )
    parser.add_argument("--batch", type=int, default=256, help="rows of a batch (default: 256)")
    parser.add_argument("--workers", type=int, nargs="+", default=[4], help="default: 4")
    parser.add_argument("--shards", type=int, default=1024, help="shards of the workers' folder")
    parser.add_argument("--gigabytes", type=float, default=13, help="of the large folder")
    parser.add_argument("--documents", type=int, default=60_000, help="of a shard of it")
    parser.add_argument("--step", type=int, default=10_000, help="of the late start")
    return parser.parse_args()


def main() -> None:
    """Runs the parts and prints their results."""
    options = _options()
    for name in options.parts:
        with tempfile.TemporaryDirectory() as folder:
            write_tokenizer(Path(folder) / "tokenizer")
            PARTS[name](Path(folder), options)


if __name__ == "__main__":
    main()
