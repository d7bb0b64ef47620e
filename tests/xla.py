"""Training steps that XLA compiles whole, as a TPU needs them."""

from importlib import util

import pytest
import tensorflow as tf

from official.training.train_step import TrainStep

NEEDS_LIBTPU = pytest.mark.skipif(
    util.find_spec("libtpu") is None,
    reason="libtpu, the compiler of TPUs, is not installed: see requirements-tpu.txt",
)


def compile_whole_steps(monkeypatch) -> None:
    """Compiles the replica's step, the optimizer included, of all trainers made from now on."""
    _change_steps(monkeypatch, lambda step: tf.function(step, jit_compile=True, autograph=False))


def lower_whole_steps(monkeypatch) -> list[str]:
    """Lowers the replica's step of all trainers made from now on to HLO, and runs it without XLA.

    A TPU refuses a step at this stage: for an op without a kernel, or for a shape that is not
    static. The code for this machine, which takes a minute and a gigabyte, is not made.

    Returns:
      The list to which the HLO of each step is added.
    """
    modules = []

    def lowered(step):
        compiled = tf.function(step, jit_compile=True, autograph=False)

        def run(batch):
            with tf.init_scope():
                like = tf.nest.map_structure(lambda x: tf.zeros(x.shape, x.dtype), batch)
                modules.append(compiled.experimental_get_compiler_ir(like)(stage="hlo"))
            return step(batch)

        return run

    _change_steps(monkeypatch, lowered)
    return modules


def _change_steps(monkeypatch, change) -> None:
    init = TrainStep.__init__

    def made(step, *args, **options):
        init(step, *args, **options)
        step.optimizer.static_shapes = True
        step.replica_step = change(step.replica_step)

    monkeypatch.setattr(TrainStep, "__init__", made)
