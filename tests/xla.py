"""Training steps that XLA compiles whole, as a TPU needs them."""

import tensorflow as tf

from official.training.train_step import TrainStep


def compile_whole_steps(monkeypatch) -> None:
    """Compiles the replica's step, the optimizer included, of all trainers made from now on."""
    init = TrainStep.__init__

    def made(step, *args, **options):
        init(step, *args, **options)
        step.optimizer.static_shapes = True
        step.replica_step = tf.function(step.replica_step, jit_compile=True, autograph=False)

    monkeypatch.setattr(TrainStep, "__init__", made)
