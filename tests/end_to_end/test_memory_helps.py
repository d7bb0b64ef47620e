"""A text whose answers lie one row back: found with memory, guessed without."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from official.data import ShardDataset
from official.distribution import strategies
from official.evaluation.evaluator import Evaluator
from official.training.trainer import Trainer
from tests import small
from tests.streams import MASK, stream_folder

LENGTH, ROWS, KEYS = 8, 16, 8
KEY, ANSWER = 2, 5  # where they stand in a row
FILLER, *OTHERS = small.WORDS


def text(rows, seed):
    """One document; the answer in each row is to the key in the row before."""
    keys = np.random.default_rng(seed).integers(0, KEYS, rows)
    lines = []
    for now, before in zip(keys, np.roll(keys, 1), strict=True):
        line = [FILLER] * LENGTH
        line[KEY], line[ANSWER] = OTHERS[now], OTHERS[KEYS + before]
        lines.append(" ".join(line))
    return [lines]


class Asking(ShardDataset):
    """Rows of which the answer is hidden, and asked for."""

    def dataset(self, *args, **options):
        def ask(batch):
            answers = batch["token_ids"][:, ANSWER : ANSWER + 1]
            hidden = tf.range(LENGTH) == ANSWER
            return {
                **batch,
                "token_ids": tf.where(hidden, MASK, batch["token_ids"]),
                "masked_positions": tf.fill(tf.shape(answers), ANSWER),
                "masked_ids": answers,
                "masked_weights": tf.ones_like(answers, tf.float32),
            }

        return super().dataset(*args, **options).map(ask)


def accuracy(memory_length, folder):
    config = small.config(
        segments={"format": "stream", "max_length": LENGTH, "rows": ROWS},
        encoder={
            "type": "transformer_xl", "hidden_size": 32, "num_layers": 1, "num_heads": 2,
            "intermediate_size": 64, "dropout": 0.0, "attention_dropout": 0.0,
            "memory_length": memory_length, "query_stream": False, "initializer_range": 0.2,
            "vocab_size": small.config().encoder.vocab_size,
        },
        objectives=[{"type": "masked_lm"}],
        recipe={
            "steps": 400, "batch_size": ROWS, "report_every": 400, "save_every": 400,
            "optimizer": {"learning_rate": 1e-2, "weight_decay": 0.0},
            "schedule": {"warmup_steps": 40},
        },
    )  # fmt: skip
    unasked = dataclasses.replace(config, corruption=None)
    sources = [
        Asking(stream_folder(folder / name, config, text(ROWS * 100 + 1, seed)), unasked,
               training=name == "train")
        for seed, name in enumerate(("train", "held_out"))
    ]  # fmt: skip
    strategy = tf.distribute.get_strategy()
    model = strategies.build_model(config, strategy)
    Trainer(config, model, sources[0], strategy, folder / "model").train()
    figures = Evaluator(config, model, strategy).run(sources[1])
    return figures["masked_lm_accuracy"]


@pytest.mark.slow
@pytest.mark.long
def test_an_answer_one_row_back_is_found_with_memory_and_guessed_without(tmp_path):
    actual = accuracy(LENGTH, tmp_path / "with")
    guessed = accuracy(0, tmp_path / "without")
    print(f"accuracy with memory {actual:.3f}, without {guessed:.3f}, chance {1 / KEYS:.3f}")
    # The first row of each stream has nothing before it: one of a hundred.
    assert actual > 0.95
    deviation = np.sqrt(1 / KEYS * (1 - 1 / KEYS) / (ROWS * 100))
    assert abs(guessed - 1 / KEYS) < 4 * deviation
