"""Shows a dependency that permutation LM learns and masked LM cannot.

  python -m benchmarks.new_york

The paper's example (Yang et al. 2019, section 2.6): in "New York is a city" both New and York are
predicted. Masked LM predicts each only from "is a city"; permutation LM predicts the second word
given the first. In the language of this benchmark, a sentence names one of 16 cities, all equally
often, so New is rare, York is rare, and York always follows New. The same encoder (except for the
query stream) is trained with both objectives, with two random targets in a sentence.
"""

import argparse
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from official import config as configs
from official.corruption import permutation
from official.corruption.vocabulary import Vocabulary
from official.distribution import strategies
from official.modeling.encoders.inputs import encode
from official.modeling.layers.kernels import flat_positions
from official.training import optimizers
from official.training.train_step import TrainStep
from official.utils import seeding

CITIES = (
    "New York, Los Angeles, San Diego, Las Vegas, Fort Worth, El Paso, Long Beach, Baton Rouge, "
    "Santa Fe, Saint Paul, Salt Lake, Palm Springs, Des Moines, Grand Rapids, Little Rock, "
    "Ann Arbor"
).split(", ")
SPECIALS = ["[PAD]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIALS, "is", "a", "city", *" ".join(CITIES).split()]
MASK = PIECES.index("[MASK]")
SENTENCES = np.array(
    [[PIECES.index(p) for p in f"[CLS] {city} is a city [SEP]".split()] for city in CITIES],
    np.int32,
)
PLACES = (1, 2)  # the positions of New and York
BATCH, LENGTH = 64, SENTENCES.shape[1]


class Row(NamedTuple):
    """The predictions of one objective for the two words, averaged over cities."""

    name: str
    first: float  # log p of the first word
    second: float
    conditions: tuple[str, str]

    @property
    def joint(self) -> float:
        """Log p of both words."""
        return self.first + self.second


def make_config(kind: str, steps: int) -> configs.Config:
    """Returns the config of a run; `kind` is masked_lm or permutation_lm."""
    # In both cases two of seven tokens are predicted; every masked token becomes [MASK].
    corruption = {"type": "permutation", "unit": "token", "k": 3, "num_predict": 2}
    if kind == "masked_lm":
        corruption = {"type": "token_masks", "mask_rate": 0.3, "max_predictions": 2}
        corruption |= {"mask_prob": 1.0, "random_prob": 0.0}
    return configs.from_dict(
        {
            "name": f"new_york_{kind}",
            "segments": {"format": "full_sentences", "max_length": 8},
            "corruption": corruption,
            "encoder": {
                "type": "transformer_xl",
                "vocab_size": len(PIECES),
                "hidden_size": 64,
                "num_layers": 2,
                "num_heads": 4,
                "intermediate_size": 128,
                "dropout": 0.0,
                "attention_dropout": 0.0,
                "initializer_range": 0.1,
                "query_stream": kind == "permutation_lm",
            },
            "objectives": [{"type": kind}],
            "recipe": {
                "steps": steps,
                "batch_size": BATCH,
                "optimizer": {"learning_rate": 3e-3},
                "schedule": {"type": "electra", "warmup_steps": steps // 10},
            },
        }
    )


def train(config: configs.Config):
    """Trains a model on random sentences, with new targets each time."""
    vocabulary = Vocabulary(len(PIECES), MASK, tuple(range(4)), np.ones(len(PIECES), bool))
    module = configs.module_of(config.corruption)

    def batch(step):
        seeds = seeding.row_seeds(config.seed, step, tf.range(BATCH, dtype=tf.int64))
        cities = seeding.integers(seeds, seeding.Stream.RECORD_ORDER, 1, len(CITIES))[:, 0]
        return module.corrupt(config.corruption, vocabulary, sentences(cities), seeds)

    strategy = tf.distribute.get_strategy()
    model = strategies.build_model(config, strategy)
    optimizer = optimizers.make(config.recipe, config.recipe.steps, model)
    step = TrainStep(model, optimizer, strategy, seed=config.seed)
    step.run(iter(tf.data.Dataset.range(config.recipe.steps).map(batch)), config.recipe.steps)
    return model


def sentences(cities) -> dict[str, tf.Tensor]:
    """Returns a batch of sentences about the given cities."""
    token_ids = tf.gather(SENTENCES, cities)
    return {
        "token_ids": token_ids,
        "segment_ids": tf.zeros_like(token_ids),
        "padding_mask": tf.ones_like(token_ids, tf.bool),
        "example_weights": tf.ones(token_ids.shape[0]),
    }


def log_probs(logits, positions) -> np.ndarray:
    """Returns the mean log p of the tokens at positions [P], from logits [C * P, V]: [P]."""
    scores = np.asarray(logits, np.float64).reshape(len(CITIES), len(positions), -1)
    scores -= scores.max(axis=-1, keepdims=True)
    scores -= np.log(np.exp(scores).sum(axis=-1, keepdims=True))
    chosen = np.take_along_axis(scores, SENTENCES[:, positions, None], axis=-1)
    return chosen[..., 0].mean(axis=0)


def masked(model) -> Row:
    """Returns the predictions of the masked LM for both words, masked together."""
    batch = sentences(np.arange(len(CITIES)))
    hidden = np.array(SENTENCES)
    hidden[:, PLACES] = MASK
    encoded = encode(model.encoder, {**batch, "token_ids": hidden})["sequence_output"]
    positions = np.tile(PLACES, (len(CITIES), 1))
    logits = model.objectives[0].logits(flat_positions(encoded, positions), model.encoder)
    return Row("masked LM", *log_probs(logits, PLACES), ("is a city", "is a city"))


def permuted(model, first: int) -> Row:
    """Returns the predictions of the permutation LM, with word `first` (0 or 1) predicted first."""
    order = np.full(LENGTH, LENGTH)
    order[PLACES[first]], order[PLACES[1 - first]] = 1, 2
    order[[0, -1]] = 3, 4  # [CLS] and [SEP]
    ordered = np.isin(np.arange(LENGTH), [0, *PLACES, LENGTH - 1])
    rows = (len(CITIES), 1)
    batch = {
        **sentences(np.arange(len(CITIES))),
        "permutation_mask": permutation.may_attend(np.tile(order, rows), np.tile(ordered, rows)),
        "masked_positions": np.tile(np.array(PLACES, np.int32), rows),
    }
    query = encode(model.encoder, batch)["query_output"]
    logits = model.objectives[0].logits(tf.reshape(query, [-1, query.shape[-1]]), model.encoder)
    conditions = [["is a city", "New, is a city"], ["York, is a city", "is a city"]][first]
    name = "permutation LM, " + ("New before York", "York before New")[first]
    return Row(name, *log_probs(logits, PLACES), tuple(conditions))


def run(steps: int) -> list[Row]:
    """Trains both models and returns their rows."""
    rows = [masked(train(make_config("masked_lm", steps)))]
    model = train(make_config("permutation_lm", steps))
    return rows + [permuted(model, first) for first in (0, 1)]


def truth() -> float:
    """Returns the mean log p(New York | is a city) over cities; it is the same for each word."""
    return -float(np.log(len(CITIES)))


def table(rows: list[Row]) -> str:
    """Returns the rows as Markdown."""
    lines = [
        "| objective | log p(New ...) | log p(York ...) | log p(New York) |",
        "|---|---|---|---|",
    ]
    for row in rows:
        words = [
            f"{value:.2f}  p({word} given {given})"
            for word, value, given in zip(
                ("New", "York"), (row.first, row.second), row.conditions, strict=True
            )
        ]
        lines.append(f"| {row.name} | {words[0]} | {words[1]} | {row.joint:.2f} |")
    lines.append(f"| the truth | {truth():.2f} | {truth():.2f} | {truth():.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Trains the models and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=600, help="of each objective (default: 600)")
    rows = run(parser.parse_args().steps)
    print(table(rows))
    # Each word determines the other, so their mutual information equals the entropy of either.
    print(
        f"\nmutual information of the two words: {-truth():.2f} nats; masked LM stays short of the "
        f"truth by {truth() - rows[0].joint:.2f}, permutation LM by "
        f"{truth() - np.mean([row.joint for row in rows[1:]]):.2f}"
    )


if __name__ == "__main__":
    main()
