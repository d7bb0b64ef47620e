"""Masked LM on a Markov source, whose best possible loss is computed exactly."""

import numpy as np
import pytest
import tensorflow as tf

from official import seeding
from official.corruption import token_masks
from official.corruption.vocabulary import Vocabulary
from official.training import evaluation, optimizers, setup
from official.training.step import TrainStep
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


def batches(ids, size, epochs):
    """Batches with new masks each time; [MASK] only, so that the best loss can be computed."""
    corruption = token_masks.Config(max_predictions=4, mask_prob=1.0, random_prob=0.0)
    vocabulary = Vocabulary(STATES + FIRST, MASK, SPECIAL, np.ones(STATES + FIRST, bool))

    def make(number, rows):
        batch = {
            "token_ids": rows,
            "segment_ids": tf.zeros_like(rows),
            "padding_mask": tf.ones_like(rows, tf.bool),
            "example_weights": tf.ones(size),
        }
        seeds = seeding.row_seeds(0, number, tf.range(size, dtype=tf.int64))
        return token_masks.corrupt(corruption, vocabulary, batch, seeds)

    rows = tf.data.Dataset.from_tensor_slices(ids).repeat(epochs).batch(size, drop_remainder=True)
    return rows.enumerate().map(make, num_parallel_calls=2)


@pytest.mark.slow
def test_masked_lm_comes_within_five_percent_of_the_best_loss():
    config = small.config(
        objectives=[{"type": "masked_lm"}],
        encoder__vocab_size=STATES + FIRST,
        encoder__hidden_size=64,
        encoder__num_heads=4,
        encoder__intermediate_size=128,
        encoder__initializer_range=0.1,
        encoder__dropout=0.0,
        encoder__attention_dropout=0.0,
        recipe__optimizer__learning_rate=3e-3,
        recipe__schedule={"type": "electra", "warmup_steps": 100},
    )
    steps, size = 3000, 64
    strategy = tf.distribute.get_strategy()
    model = setup.build_model(config, strategy)
    optimizer = optimizers.make(config.recipe, steps, model)
    step = TrainStep(model, optimizer, strategy, seed=0)
    iterator = iter(batches(sample(20_000, seed=2), size, epochs=10))
    step.run(iterator, steps)

    evaluator = evaluation.Evaluator(config, model, strategy)
    held_out = list(batches(sample(2_000, seed=3), 200, epochs=1))
    rows = np.stack([evaluator._step(batch)[0].numpy() for batch in held_out])
    loss = evaluator.statistics.summarise(rows, model.term_weights)["masked_lm"]
    merged = {
        name: np.concatenate([batch[name].numpy() for batch in held_out]) for name in held_out[0]
    }
    best = best_loss(merged)
    transitions, start = chain()
    unigram = -(start * np.log(start)).sum()
    print(f"masked LM {loss:.4f}, best {best:.4f}, unigram entropy {unigram:.4f}")
    # Sampling 8,000 tokens, the loss may also come out below the best by a little.
    assert best * 0.99 < loss < best * 1.05 < unigram
