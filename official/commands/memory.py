r"""Estimates the memory that a training takes, without a step of it.

  garden memory --config=configs/pretrain/bert_base.yaml --data=SHARDS
  garden memory --config=configs/finetune/sst2.yaml --data=TASK_SHARDS \
      --init=MODEL --override=recipe.batch_size=64

The flags are those of `garden train`, which prints the same before its first step. The shards give
the length of the rows and the vocabulary: those of a small part of the text do. The model is made
with all its weights and the state of the optimizer, and the graph of a step is read. For each phase
of a config there is a line. docs/memory.md says what an estimate holds and what takes less memory.
"""

import functools

from absl import flags

from official.commands.modes import mode, train
from official.utils import command_line, errors, flag_table
from official.utils.flag_table import Values

_NAMES = ("config", "data", "init", "override")
FLAGS = tuple(flag for flag in train.FLAGS if flag.name in _NAMES)


def main(argv: list[str]) -> None:
    """Prints the estimate of each phase."""
    options = Values(FLAGS, flags.FLAGS)
    errors.require(flags.FLAGS, "data")
    from official.training import run

    config = train.config_of(options)
    for phase, estimate in run.estimate_memory(
        config, mode.folders(options.data), init=options.init
    ):
        recipe = phase.recipe
        mode.say(f"{phase.name}: batches of {recipe.batch_size}, {recipe.precision}")
        mode.say("\n".join(estimate.lines()))


COMMAND = command_line.Command(
    main,
    functools.partial(flag_table.define, FLAGS),
    ("data",),
    name="garden memory",
    text=__doc__ or "",
)
