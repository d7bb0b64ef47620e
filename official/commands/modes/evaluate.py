r"""Prints the metrics of a trained model on shards.

  garden eval --data=TASK_SHARDS --model_dir=TUNED

The config is that of the model folder. Shards with several validation splits (MNLI) are evaluated
on all of them. A model that was trained on streams can be evaluated with a longer memory than in
training:

  garden eval --data=HELD_OUT_SHARDS --model_dir=MODEL \
      --override=encoder.memory_length=512
"""

import json

from official.commands.modes import mode
from official.commands.modes.mode import Mode
from official.utils import atomic, paths, progress
from official.utils.flag_table import Flag, Values

FLAGS = (
    Flag("data", str, None, "folder of shards, or several, separated by commas."),
    mode.MODEL_DIR,
    Flag(
        "split",
        str,
        None,
        "train, validation, test, or another split of the shards. Default: all validation splits.",
    ),
    Flag("output", str, None, "file to write the metrics to as well: .json."),
    Flag(
        "pseudo_perplexity",
        bool,
        False,
        "also mask each token of the text alone, and print the pseudo-perplexity of a masked LM. A "
        "row of n tokens takes n passes.",
    ),
    mode.CHECKPOINT,
    mode.OVERRIDE,
    *mode.DEVICES,
)


def run(options: Values) -> None:
    """Prints the metrics of a trained model, and writes them if a file is named."""
    if options.output:
        paths.check_suffix(options.output, "metrics", (".json",))

    from official.distribution import strategies
    from official.evaluation import run as evaluation
    from official.saving import metrics_log

    strategy = mode.strategy(options, options.model_dir, options.data)
    metrics_of_splits = evaluation.evaluate(
        options.model_dir,
        mode.folders(options.data),
        split=options.split,
        checkpoint=options.checkpoint,
        overrides=options.override,
        strategy=strategy,
        pseudo=options.pseudo_perplexity,
        report=progress.say,
    )
    for split, metrics in metrics_of_splits.items():
        if len(metrics_of_splits) > 1:
            print(f"{split}:")
        for name, value in metrics_log.figures(metrics).items():
            print(f"{name:24} {value:.6f}")
    if options.output and strategies.is_chief(strategy):
        with atomic.file(options.output) as stream:
            json.dump(metrics_of_splits, stream, indent=1)
        print(f"wrote {options.output}")


MODE = Mode(FLAGS, ("data", "model_dir"), run)
