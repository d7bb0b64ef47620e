"""A NaN on one of two replicas: all leave out the same step, and no weight is touched.

A child process, this module as a command, trains some steps on two replicas, one of which gets a
NaN now and then:

  python -m benchmarks.torture.nan SYSTEM SHARDS STRATEGY

It prints a line of JSON for each step: whether the norm of the gradient was finite, the step that
the optimizer has counted, and a digest of the weights and of the optimizer's variables on each
replica of this process.
"""

import hashlib
import json
import subprocess
import sys

import numpy as np
import tensorflow as tf

from benchmarks.torture import children, parts
from benchmarks.torture.materials import SYSTEMS, Materials, smoke_config
from official import config as configs
from official.data import ShardDataset
from official.distribution import strategies
from official.distribution.strategies import distribute
from official.training import resolve
from official.training.trainer import Trainer

_WAYS = ("mirrored", "multi_worker")
STEPS = 6
POISONED = {2: 0, 4: 1}  # step, counted from 0 → replica
# What the optimizer says of each step: how many there were, and whether it was left out.
_REPORTED = ("optimizer/iteration", "optimizer/gradient_norm", "optimizer/bad_variable")


class Nans(parts.Part):
    """A case is a system under a strategy, and trains past a NaN on either replica."""

    name = "nan"
    things = "steps with a NaN on one of two replicas"
    promise = "left out by all replicas, no weight touched"
    whole, quick = len(SYSTEMS) * len(_WAYS), 2

    def __init__(self, seed: int, materials: Materials, child: str = "benchmarks.torture.nan"):
        super().__init__(seed)
        self._materials, self._child = materials, child

    def run(self, case: int) -> parts.Outcome:
        """Trains in child processes and looks at each step."""
        outcome = parts.Outcome()
        system = list(SYSTEMS)[case // len(_WAYS) % len(SYSTEMS)]
        way = _WAYS[case % len(_WAYS)]
        command = children.command(self._child, system)
        command += [str(self._materials.shards(system)), way]
        processes = [
            children.start(command, worker, stderr=subprocess.PIPE)
            for worker in children.workers(2 if way == "multi_worker" else 1)
        ]
        outputs = [process.communicate(timeout=600) for process in processes]
        for process, (_, errors) in zip(processes, outputs, strict=True):
            if process.returncode:
                outcome.fail(f"{system}, {way}: status {process.returncode}: {errors[-300:]}")
                return outcome
        for step, problem in _steps([_lines(output) for output, _ in outputs]):
            where = f"{system}, {way}, step {step}"
            outcome.fail(f"{where}: {problem}") if problem else outcome.add("left out by all")
        return outcome


def _lines(output: str) -> list[dict]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def _steps(outputs: list[list[dict]]) -> list[tuple[int, str | None]]:
    """What came of each poisoned step: its number, and what is wrong."""
    actual = []
    for step in range(STEPS):
        now = [lines[step] for lines in outputs]
        before = [lines[step - 1] for lines in outputs] if step else now
        digests = {digest for line in now for digest in line["digests"]}
        changed = step == 0 or now[0]["digests"] != before[0]["digests"]
        poisoned = step in POISONED
        problem = None
        if len(digests) > 1:
            problem = "the replicas have different weights"
        elif any(line["step"] != step + 1 for line in now):
            problem = f"the replicas are at step {[line['step'] for line in now]}"
        elif any(line["finite"] == poisoned for line in now):
            problem = "the gradient is finite" if poisoned else "the gradient is not finite"
        elif changed == poisoned:
            problem = "weights were changed" if poisoned else "no weight was changed"
        if poisoned or problem:
            actual.append((step, problem))
    return actual


def main(system: str, shards: str, name: str) -> None:
    """Trains, and prints."""
    strategy = strategies.create(name, replicas=2 if name == "mirrored" else 0)
    config = resolve.inherit(configs.load(smoke_config(system)))
    source = ShardDataset(shards, config, "train", training=True)
    config = resolve.fill_in(config, source.tokenizer.vocab_size)
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
