r"""Estimates the memory that a training takes, without a step of it.

  garden memory --config=configs/pretrain/bert_base.yaml --data=SHARDS
  garden memory --config=configs/finetune/sst2.yaml --data=TASK_SHARDS \
      --init=MODEL --override=recipe.batch_size=64

The flags are those of `garden train`, which prints the same before its first step. The shards give
the length of the rows and the vocabulary: those of a small part of the text do. The model is made
with all its weights and the state of the optimizer, and the graph of a step is read. For each phase
of a config there is a line. docs/memory.md says what an estimate holds and what takes less memory.

With --topology, the compiler of TPUs compiles the step, on any Linux with an x86-64 processor:

  garden memory --config=configs/pretrain/bert_base.yaml --data=SHARDS \
      --topology=v5e:2x2

It prints what each core needs and has, and "fits" or "does not fit". That takes a few minutes and
the package libtpu (pip install 'encoder-garden[tpu]'). Results are kept in ~/.cache/encoder-garden.
"""

import functools
from collections.abc import Iterable
from typing import Any

from absl import flags

from official.commands.modes import mode, train
from official.utils import command_line, errors, flag_table
from official.utils.flag_table import Flag, Values

_NAMES = ("config", "data", "init", "override")
FLAGS = (
    *(flag for flag in train.FLAGS if flag.name in _NAMES),
    Flag(
        "topology",
        str,
        None,
        "the kind and the arrangement of the chips of a TPU, which need not be there: v5e:2x2, "
        "v6e:2x2, v4:2x2x1, v5p:2x2x1 or larger. The cores share recipe.batch_size.",
    ),
    Flag(
        "find_batch",
        bool,
        False,
        "with --topology: look for the largest batch that fits, from that of the config on.",
    ),
)


def main(argv: list[str]) -> None:
    """Prints the estimate of each phase."""
    options = Values(FLAGS, flags.FLAGS)
    errors.require(flags.FLAGS, "data")
    from official.training import run

    config, data = train.config_of(options), mode.folders(options.data)
    estimates: Iterable[tuple[Any, Any]]
    if options.topology:
        estimates = run.estimate_tpu_memory(
            config, data, options.topology, init=options.init, find_batch=options.find_batch
        )
    elif options.find_batch:
        raise errors.UserError("--find_batch is for a TPU: give --topology, such as v5e:2x2")
    else:
        estimates = run.estimate_memory(config, data, init=options.init)
    for phase, estimate in estimates:
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
