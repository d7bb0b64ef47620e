"""Trains some steps on two replicas, one of which gets a NaN now and then; says what came of them.

  python -m benchmarks.torture.nan_child SYSTEM SHARDS STRATEGY

Prints a line of JSON for each step: whether the norm of the gradient was finite, the step that the
optimizer has counted, and a digest of the weights and of the optimizer's variables on each replica
of this process.
"""

import hashlib
import json
import sys

import numpy as np
import tensorflow as tf

from benchmarks.torture.materials import smoke_config
from official import config as configs
from official.data import ShardDataset
from official.distribution import strategies
from official.distribution.strategies import distribute
from official.training import resolve
from official.training.trainer import Trainer

STEPS = 6
POISONED = {2: 0, 4: 1}  # step, counted from 0 → replica
# What the optimizer says of each step: how many there were, and whether it was left out.
_REPORTED = ("optimizer/iteration", "optimizer/gradient_norm", "optimizer/bad_variable")


def main(system: str, shards: str, name: str) -> None:
    """Trains, and prints."""
    strategy = strategies.create(name, replicas=2 if name == "mirrored" else 0)
    config = resolve.inherit(configs.load(smoke_config(system)))
    source = ShardDataset(shards, config, "train", training=True)
    config = resolve.resolve(config, source.tokenizer.vocab_size)
    model = strategies.build_model(config, strategy)
    trainer = Trainer(config, model, source, strategy, "")
    _poison(model, trainer.optimizer)
    iterator = iter(distribute(strategy, source, config.recipe.batch_size))
    for _ in range(STEPS):
        (norm,) = trainer.train_step.run(iterator, 1).gradient_norms
        print(
            json.dumps(
                {
                    "finite": bool(np.isfinite(norm)),
                    "step": int(trainer.optimizer.iterations.numpy()),
                    "digests": _digests(trainer.variables, strategy),
                }
            ),
            flush=True,
        )


def _poison(model, optimizer) -> None:
    """Makes the loss terms of one replica NaN at some steps; so are their gradients."""
    terms = model.terms

    def poisoned(*args, **options):
        losses, metrics = terms(*args, **options)
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        step = tf.cast(optimizer.iterations.value, tf.int32)
        hit = [(step == at) & (replica == where) for at, where in POISONED.items()]
        factor = tf.where(tf.reduce_any(tf.stack(hit)), np.nan, 1.0)
        return {name: v * tf.cast(factor, v.dtype) for name, v in losses.items()}, metrics

    model.terms = poisoned


def _digests(variables, strategy) -> list[str]:
    """A digest of the weights and their moments, on each replica of this process."""
    digests = [hashlib.sha256() for _ in range(strategy.num_replicas_in_sync)]
    for path, variable in sorted(variables.items()):
        if path.startswith(_REPORTED):
            continue
        copies = strategy.experimental_local_results(variable.value)
        for digest, copy in zip(digests, copies, strict=False):
            digest.update(path.encode() + copy.numpy().tobytes())
    return [digest.hexdigest() for digest in digests[: len(copies)]]


if __name__ == "__main__":
    main(*sys.argv[1:])
