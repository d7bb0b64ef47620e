"""Masked and causal LM on a Markov source, whose best possible loss is computed exactly."""

import numpy as np
import pytest
import tensorflow as tf

from official.config.corruptions import TokenMasksConfig
from official.corruption import token_masks
from official.corruption.vocabulary import Vocabulary
from official.distribution import strategies
from official.evaluation.evaluator import Evaluator
from official.training import optimizers
from official.training.train_step import TrainStep
from official.utils import seeding
from tests import small

STATES, LENGTH = 6, 16
PAD, CLS, SEP, MASK, FIRST = 0, 1, 2, 3, 4
SPECIAL = (PAD, CLS, SEP, MASK)


def chain():
    """Transition probabilities and the stationary distribution."""
    transitions = np.random.default_rng(1).dirichlet([0.3] * STATES, STATES)
    values, vectors = np.linalg.eig(transitions.T)
    start = np.real(vectors[:, np.argmax(np.real(values))])
    return transitions, start / start.sum()


def sample(count, seed):
    """[CLS] x₁ … [SEP] with x from the chain: int32 [count, LENGTH + 2]."""
    rng = np.random.default_rng(seed)
    transitions, start = chain()
    cumulated = np.cumsum(transitions, axis=1)
    states = [np.searchsorted(np.cumsum(start)[:-1], rng.random(count))]
    for _ in range(LENGTH - 1):
        drawn = rng.random(count)[:, None]
        states.append(np.minimum((drawn > cumulated[states[-1]]).sum(axis=1), STATES - 1))
    ids = np.stack(states, axis=1) + FIRST
    edge = np.ones((count, 1), int)
    return np.concatenate([edge * CLS, ids, edge * SEP], axis=1).astype(np.int32)


def best_loss(batch):
    """Mean of -log p(masked token | all that is visible), by forward and backward sums."""
    transitions, start = chain()
    total = count = 0
    for row in range(len(batch["token_ids"])):
        seen = batch["token_ids"][row][1:-1]
        real = batch["masked_weights"][row] > 0
        positions = batch["masked_positions"][row][real]
        targets = batch["masked_ids"][row][real]
        evidence = np.ones((LENGTH, STATES))
        visible = seen != MASK
        evidence[visible] = np.eye(STATES)[seen[visible] - FIRST]
        forward, backward = np.zeros_like(evidence), np.ones_like(evidence)
        forward[0] = start * evidence[0]
        for t in range(1, LENGTH):
            forward[t] = forward[t - 1] @ transitions * evidence[t]
            forward[t] /= forward[t].sum()
        for t in range(LENGTH - 2, -1, -1):
            backward[t] = transitions @ (backward[t + 1] * evidence[t + 1])
            backward[t] /= backward[t].sum()
        posterior = forward * backward
        posterior /= posterior.sum(axis=1, keepdims=True)
        total -= np.log(posterior[positions - 1, targets - FIRST]).sum()
        count += len(positions)
    return total / count


def rows_of(ids, size, epochs, make):
    """What `make` of a number and `size` rows is, one after the other."""
    rows = tf.data.Dataset.from_tensor_slices(ids).repeat(epochs).batch(size, drop_remainder=True)
    return rows.enumerate().map(make, num_parallel_calls=2)


def whole(number, rows):
    """A batch of rows as they are."""
    del number
    return {
        "token_ids": rows,
        "segment_ids": tf.zeros_like(rows),
        "padding_mask": tf.ones_like(rows, tf.bool),
        "example_weights": tf.ones(rows.shape[0]),
    }


def batches(ids, size, epochs):
    """Batches with new masks each time; [MASK] only, so that the best loss can be computed."""
    corruption = TokenMasksConfig(max_predictions=4, mask_prob=1.0, random_prob=0.0)
    vocabulary = Vocabulary(STATES + FIRST, MASK, SPECIAL, np.ones(STATES + FIRST, bool))

    def make(number, rows):
        seeds = seeding.row_seeds(0, number, tf.range(size, dtype=tf.int64))
        return token_masks.corrupt(corruption, vocabulary, whole(number, rows), seeds)

    return rows_of(ids, size, epochs, make)


def config_of(learning_rate, hidden_size, warmup_steps, **changes):
    return small.config(
        **changes,
        encoder__vocab_size=STATES + FIRST,
        encoder__num_layers=2,
        encoder__hidden_size=hidden_size,
        encoder__num_heads=4,
        encoder__intermediate_size=2 * hidden_size,
        encoder__initializer_range=0.1,
        encoder__dropout=0.0,
        encoder__attention_dropout=0.0,
        recipe__optimizer__learning_rate=learning_rate,
        recipe__schedule={"type": "electra", "warmup_steps": warmup_steps},
    )


def trained_loss(config, steps, batches, held_out):
    """The mean loss on held-out batches after a training."""
    strategy = tf.distribute.get_strategy()
    model = strategies.build_model(config, strategy)
    optimizer = optimizers.make(config.recipe, steps, model)
    TrainStep(model, optimizer, strategy, seed=0).run(iter(batches), steps)
    evaluator = Evaluator(config, model, strategy)
    step = tf.function(evaluator.replica_step, reduce_retracing=True)
    rows = np.stack([step(batch)[0].numpy() for batch in held_out])
    return evaluator.statistics.summarize(rows, model.term_weights)["loss"]


@pytest.mark.slow
@pytest.mark.long
def test_masked_lm_comes_within_five_percent_of_the_best_loss():
    config = config_of(2e-3, 64, 100, objectives=[{"type": "masked_lm"}])
    held_out = list(batches(sample(2_000, seed=3), 200, epochs=1))
    loss = trained_loss(config, 800, batches(sample(20_000, seed=2), 64, epochs=3), held_out)
    merged = {
        name: np.concatenate([batch[name].numpy() for batch in held_out]) for name in held_out[0]
    }
    best = best_loss(merged)
    transitions, start = chain()
    unigram = -(start * np.log(start)).sum()
    print(f"masked LM {loss:.4f}, best {best:.4f}, unigram entropy {unigram:.4f}")
    # Sampling 8,000 tokens, the loss may also come out below the best by a little.
    assert best * 0.99 < loss < best * 1.05 < unigram


def best_causal_loss(rows):
    """Mean of -log p over all tokens but the first: of the whole rows, from whichever side."""
    transitions, start = chain()
    states = rows[:, 1:-1] - FIRST
    chances = np.log(start[states[:, 0]]) + np.log(transitions[states[:, :-1], states[:, 1:]]).sum(
        axis=1
    )
    return -chances.sum() / (len(rows) * (LENGTH + 1))


TRANSFORMER = {"encoder__causal": True, "encoder__norm": "pre"}
TRANSFORMER_XL = {
    "encoder": {"type": "transformer_xl", "num_layers": 2, "attention": "uni", "segment_types": 0}
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoder", "direction"),
    [
        pytest.param(TRANSFORMER, "forward", id="forward"),
        pytest.param(TRANSFORMER, "backward", id="backward", marks=pytest.mark.long),
        pytest.param(TRANSFORMER_XL, "forward", id="transformer_xl"),
    ],
)
def test_causal_lm_comes_within_three_percent_of_the_best_loss(encoder, direction):
    config = config_of(
        1e-2,
        32,
        30,
        segments__format="full_sentences",
        corruption=None,
        objectives=[{"type": "causal_lm", "direction": direction}],
        **encoder,
    )
    rows = sample(2_000, seed=3)
    held_out = list(rows_of(rows, 200, 1, whole))
    loss = trained_loss(config, 200, rows_of(sample(20_000, seed=2), 32, 1, whole), held_out)
    best = best_causal_loss(rows)
    print(f"causal LM {direction} {loss:.4f}, best {best:.4f}")
    assert best * 0.995 < loss < best * 1.03
