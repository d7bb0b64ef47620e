"""Measures how fast sequences are masked or permuted, for each unit.

python -m benchmarks.masks

Sequences (of 128 tokens) go through the corruption inside tf.data, as in training, on all cores.
"""

import argparse
import os
import statistics
import time

import numpy as np
import tensorflow as tf

from official.config.corruptions import TARGET_UNITS, UNITS, PermutationConfig, TokenMasksConfig
from official.corruption import permutation, token_masks
from official.corruption.vocabulary import Vocabulary
from official.utils import seeding

VOCABULARY, SPECIALS = 30_522, (0, 1, 2, 3, 4)
CLS, SEP, MASK = 2, 3, 4
SPANS = {"count": "up", "action": "unit", "random_tokens": "unigram"}
# {row of the table: (corruption, its settings)}.
ROWS = {
    **{unit: (token_masks, {"unit": unit}) for unit in UNITS},
    "span": (token_masks, {"unit": "span", **SPANS}),
    **{f"permutation/{unit}": (permutation, {"unit": unit}) for unit in TARGET_UNITS},
}


def make_batches(sizes: argparse.Namespace) -> tuple[Vocabulary, dict[str, tf.Tensor]]:
    """Returns random pairs; a fifth of the pieces continues a word, and a tenth a phrase."""
    rng = np.random.default_rng(0)
    word_starts = rng.random(VOCABULARY) > 0.2
    word_starts[list(SPECIALS)] = True
    counts = (1e8 / np.arange(1, VOCABULARY + 1)).astype(np.int64)  # Zipf's law
    counts[list(SPECIALS)] = 0
    shape = (sizes.batch, sizes.length)
    shares = counts / counts.sum()
    token_ids = rng.choice(VOCABULARY, shape, p=shares).astype(np.int32)
    token_ids[:, [0, sizes.length // 2, -1]] = [CLS, SEP, SEP]
    batch = {
        "token_ids": token_ids,
        "padding_mask": np.ones(shape, bool),
        "phrase_inner": rng.random(shape) < 0.1,
        "entity_inner": rng.random(shape) < 0.1,
    }
    vocabulary = Vocabulary(VOCABULARY, MASK, SPECIALS, word_starts, counts)
    return vocabulary, {name: tf.constant(value) for name, value in batch.items()}


def measure(row: str, sizes: argparse.Namespace) -> float:
    """Returns the number of sequences per second."""
    module, settings = ROWS[row]
    if module is permutation:
        # XLNet: one token in six, blocks of half a row.
        size = sizes.length // 2
        config = PermutationConfig(
            num_predict=sizes.length // 6, max_span=min(5, size // 7), perm_size=size, **settings
        )
    else:
        config = TokenMasksConfig(max_predictions=sizes.length * 20 // 128, **settings)
    vocabulary, batch = make_batches(sizes)
    rows = tf.range(sizes.batch, dtype=tf.int64)

    def corrupt(step):
        seeds = seeding.row_seeds(0, 0, rows + step * sizes.batch)
        corrupted = module.corrupt(config, vocabulary, batch, seeds)
        return {name: corrupted[name] for name in ("token_ids", *config.gives())}

    warm_up = 4
    data = tf.data.Dataset.range(warm_up + sizes.batches)
    data = iter(data.map(corrupt, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True))
    for _ in range(warm_up):
        next(data)
    started = time.perf_counter()
    for _ in data:
        pass
    return sizes.batches * sizes.batch / (time.perf_counter() - started)


def main() -> None:
    """Runs the benchmark and prints its table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--units", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--batch", type=int, default=256, help="default: 256")
    parser.add_argument("--length", type=int, default=128, help="default: 128")
    parser.add_argument("--batches", type=int, default=100, help="of a round (default: 100)")
    parser.add_argument("--rounds", type=int, default=3, help="default: 3")
    sizes = parser.parse_args()
    rates = {unit: [] for unit in sizes.units}
    for _ in range(sizes.rounds):
        for unit in sizes.units:
            rates[unit].append(measure(unit, sizes))
    print(
        f"\nbatches of {sizes.batch} × {sizes.length}, {os.cpu_count()} cores; medians of "
        f"{sizes.rounds} rounds of {sizes.batches} batches\n"
    )
    print("| unit | sequences/s | range |\n|---|---:|---:|")
    for unit, rate in rates.items():
        print(f"| {unit} | {statistics.median(rate):,.0f} | {min(rate):,.0f}-{max(rate):,.0f} |")


if __name__ == "__main__":
    main()
