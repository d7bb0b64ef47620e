r"""Trains a model from a config and shards, and evaluates it.

Pretraining:

  garden train --config=configs/smoke/bert.yaml --data=SHARDS \
      --validation_data=HELD_OUT_SHARDS --model_dir=MODEL

Fine-tuning from the encoder of that model, with settings for so many examples, which are printed,
or with those of --config:

  garden train --data=TASK_SHARDS --init=MODEL --model_dir=TUNED

More pretraining of a model of any size on own text, with its own objective or masked LM:

  garden train --data=SHARDS --init=MODEL --model_dir=ADAPTED

With --sweep=key=value,value,... (once or more) every combination of the values is trained in a
folder below --model_dir, and the results are compared: see official.training.sweep.

The same command, given again, continues from the last checkpoint of --model_dir. SIGTERM and Ctrl-C
save a checkpoint and stop. Several workers (--distribution_strategy=multi_worker) get the same
command and share --model_dir. If one of them is stopped, all of them stop.
"""

import functools
import sys
from typing import TYPE_CHECKING

from official.commands.modes import mode
from official.commands.modes.mode import Mode, say
from official.utils import errors, paths
from official.utils.flag_table import Flag, Values

if TYPE_CHECKING:
    from official import config as configs

FLAGS = (
    Flag(
        "config",
        str,
        None,
        "YAML file of the run. Default with --init: for the shards of a task the settings that "
        "official.finetune takes, which depend on the model and on the number of examples; for "
        "text those of configs/pretrain/continued.yaml, with the objective of the model and steps "
        "for so many tokens.",
    ),
    Flag("list_configs", bool, False, "print the names of the published configs and end."),
    Flag(
        "data",
        str,
        None,
        "folder of shards. For several tasks or corpora at once: their folders, separated by "
        "commas. FOLDER=SHARE,FOLDER=SHARE gives the share that each corpus has of every batch, or "
        "each task of the batches. With `phases` in the config: one folder, or one for each phase.",
    ),
    Flag(
        "validation_data",
        str,
        None,
        "folder of held-out shards, for pretraining; with `phases` one, or one for each. Task "
        "shards contain a validation split; it is that of this folder, if one is given. Of vectors "
        "of texts also a folder of BEIR, whose queries qrels/dev.tsv are searched.",
    ),
    mode.MODEL_DIR,
    Flag(
        "init",
        str,
        None,
        "model folder to start from. The encoder's sizes, the tokenizer and the weights are taken "
        "from it (recipe.init_weights says which weights). If the tokenizer of the data has more "
        "pieces, known pieces keep their rows.",
    ),
    mode.CHECKPOINT,
    Flag(
        "allow_other_data",
        bool,
        False,
        "resume a run even if --data or --validation_data has changed since it began.",
    ),
    Flag(
        "verify_data",
        bool,
        False,
        "compare every byte of the shards with the checksums of their manifests before the first "
        "step. If not, sizes are compared, and each record with its CRC when it is read.",
    ),
    Flag("override", str, [], "key.subkey=value, read as YAML. May be repeated.", repeated=True),
    Flag(
        "sweep",
        str,
        [],
        "with evaluation: key.subkey=value,value,... May be repeated. Trains each combination in a "
        "folder of its own below --model_dir and reports the spread of the metrics.",
        repeated=True,
    ),
    *mode.DEVICES,
)
# Of `official.main`, --mode says it.
EVALUATE = Flag(
    "evaluate",
    bool,
    None,
    "evaluate the model while it is trained, and at the end. Default: yes, but not pretraining "
    "without --validation_data.",
)
_REQUIRED = ("data", "model_dir")


def run(options: Values, evaluate: bool | None = None) -> None:
    """Trains, and evaluates if that is wanted; None = as --evaluate says."""
    from official import training

    evaluate = options.evaluate if evaluate is None else evaluate
    if options.sweep:
        if evaluate is False:
            raise errors.UserError("--sweep compares evaluations: it needs --mode=train_and_eval")
        _sweep(options)
        return
    config = config_of(options)
    data, held_out = options.data, options.validation_data
    if evaluate is None:
        evaluate = config.segments is None or held_out is not None
    try:
        training.train(
            config,
            mode.folders(data),
            options.model_dir,
            validation_data=held_out and mode.folders(held_out),
            evaluate=evaluate,
            init=options.init,
            checkpoint=options.checkpoint,
            strategy=mode.strategy(options, config, data, held_out),
            allow_other_data=options.allow_other_data,
            verify_data=options.verify_data,
            report=say,
        )
    except training.Stopped as stopped:
        sys.exit(128 + stopped.number)


def config_of(options: Values) -> "configs.Config":
    """Returns the config of the run: that of --config, or the usual one for the data."""
    from official import config as configs

    if options.config is not None:
        return configs.load(options.config, options.override)
    if options.init is None:
        raise errors.UserError(
            "--config is missing: give one (--list_configs prints the names of the published "
            "ones), or --init=MODEL, from which the shards of a task are learned as usual, and "
            "which goes on with its pretraining on those of text"
        )
    from official.fine_tuning import settings

    return settings.of_shards(options.data, options.init, options.override, say)


def list_configs() -> None:
    """Prints the names of the published configs."""
    from official.config import yaml_files

    print(*yaml_files.published(), sep="\n")


def _sweep(options: Values) -> None:
    """Trains every combination of the values of --sweep and compares the results."""
    from official.training import sweep

    if options.distribution_strategy == "multi_worker":
        raise errors.UserError("--sweep: give the runs of several workers one by one")
    names = (
        *("data", "validation_data", "init", "checkpoint"),
        *("allow_other_data", "verify_data"),
        *("distribution_strategy", "tpu", "num_replicas"),
    )
    same = {name: getattr(options, name) for name in names}
    if options.config is None:
        raise errors.UserError("--sweep: give the --config that its values change")
    folder = paths.path(options.model_dir)
    sweep.train(options.sweep, options.config, options.override, same, folder, say)


TRAIN = Mode(FLAGS, _REQUIRED, functools.partial(run, evaluate=False))
TRAIN_AND_EVAL = Mode(FLAGS, _REQUIRED, functools.partial(run, evaluate=True))
COMMAND = Mode((EVALUATE, *FLAGS), _REQUIRED, run)
