r"""Writes what a trained model predicts for the examples of shards.

  garden predict --data=TASK_SHARDS --split=test --model_dir=TUNED \
      --output=predictions.tsv

The config is that of the model folder. With --submission=DIR instead of --output, the files for the
GLUE benchmark are written; official.commands.submission packs them into a zip file.
"""

from official.commands.modes import mode
from official.commands.modes.mode import Mode
from official.utils import errors, progress
from official.utils.flag_table import Flag, Values

FLAGS = (
    Flag("data", str, None, "folder of shards."),
    mode.MODEL_DIR,
    Flag(
        "split",
        str,
        None,
        "train, validation, test, or another split of the shards. Default: test; all test splits "
        "with --submission.",
    ),
    Flag("output", str, None, "file to write: .tsv or .jsonl; of rankings .run."),
    Flag("submission", str, None, "folder for the files for GLUE."),
    Flag(
        "top_k",
        int,
        0,
        "for rankings: the maximum number of documents of a query. 0 = all.",
        least=0,
    ),
    mode.CHECKPOINT,
    mode.OVERRIDE,
    *mode.DEVICES,
)


def run(options: Values) -> None:
    """Writes the predictions of a trained model."""
    from official.evaluation import run as evaluation

    if len(mode.folders(options.data)) > 1:
        raise errors.UserError("--data: predict takes one folder at a time")
    if bool(options.output) == bool(options.submission):
        raise errors.UserError(
            "give either --output=FILE or --submission=FOLDER (--mode=predict); see --help"
        )
    evaluation.predict(
        options.model_dir,
        options.data,
        options.output or options.submission,
        submission=bool(options.submission),
        split=options.split,
        checkpoint=options.checkpoint,
        overrides=options.override,
        top_k=options.top_k,
        strategy=mode.strategy(options, options.model_dir, options.data),
        report=progress.say,
    )


MODE = Mode(FLAGS, ("data", "model_dir"), run)
