r"""Evaluates and predicts by the mean of several fine-tuned models.

The members are model folders of one task. Their encoders, vocabularies and sizes may differ. Each
reads shards that were made with its own tokenizer; members with one tokenizer share a folder:

  python -m official.commands.ensemble --mode=eval --model_dir=BERT \
      --model_dir=XLNET \
      --data=BERT_SHARDS --data=XLNET_SHARDS

  python -m official.commands.ensemble --mode=predict --model_dir=RUN_1 \
      --model_dir=RUN_2 --data=SHARDS --output=predictions.tsv

eval prints the metrics of the ensemble and of each member. predict writes the files of
official.main --mode=predict, and with --submission=DIR those for GLUE.

The members need the same labels and thresholds, and their shards the same rows. Members that answer
questions with spans or tag words need the same tokenizer, and read the same shards. Models that
generate texts, and heads with form: conditional or crf: true, cannot be members.
"""

from absl import flags

from official.config.heads import ENSEMBLE_MEANS
from official.utils import command_help, command_line, errors, progress

# The flags of each mode, beside those of all modes.
_MODES = {
    "eval": ("data", "split"),
    "predict": ("data", "split", "output", "submission", "top_k"),
}
_REQUIRED = {
    "eval": ("model_dir", "data"),
    "predict": ("model_dir", "data"),
}
FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags of this command."""
    flags.DEFINE_enum("mode", "eval", list(_MODES), "What to do.")
    flags.DEFINE_multi_string(
        "model_dir", [], "The model folder of a member. Give it twice or more."
    )
    flags.DEFINE_multi_string(
        "data",
        [],
        "Folder of shards of the task, for all members, or repeated for each member "
        "in the order of --model_dir.",
    )
    flags.DEFINE_enum(
        "mean",
        None,
        ENSEMBLE_MEANS,
        "What is averaged; of regressions and rankings always the scores. Default: probabilities; "
        "for spans logits, by which the windows of a text are compared.",
    )
    flags.DEFINE_string(
        "checkpoint", "best", "The checkpoint of each member: best, last, a step or a path."
    )
    flags.DEFINE_string(
        "split",
        None,
        "train, validation, test, or another split of the shards. Default: all "
        "validation splits (eval), test (predict), all test splits (predict with --submission).",
    )
    flags.DEFINE_string(
        "output",
        None,
        "predict: the file to write: .tsv or .jsonl, .run for rankings, .conll or .jsonl for tags; "
        "for answers a new folder.",
    )
    flags.DEFINE_string("submission", None, "predict: folder for the files for GLUE.")
    flags.DEFINE_integer(
        "top_k", 0, "predict: the maximum number of documents of a query. 0 = all.", lower_bound=0
    )


def main(argv: list[str]) -> None:
    """Runs one mode."""
    del argv
    mode = FLAGS.mode
    errors.require(FLAGS, *_REQUIRED[mode], mode=mode)
    for name in sorted({name for names in _MODES.values() for name in names} - {*_MODES[mode]}):
        if FLAGS[name].present:
            raise errors.UserError(f"--{name}: not supported for --mode={mode}; remove it")
    {"eval": _evaluate, "predict": _predict}[mode]()


def _evaluate() -> None:
    """Prints the metrics of the ensemble, and behind them those of each member."""
    from official.evaluation import ensemble

    metrics_of_splits = ensemble.evaluate(
        FLAGS.model_dir,
        FLAGS.data,
        mean=FLAGS.mean,
        split=FLAGS.split,
        checkpoint=FLAGS.checkpoint,
        report=progress.say,
    )
    for split, metrics in metrics_of_splits.items():
        if len(metrics_of_splits) > 1:
            print(f"{split}:")
        for name, value in metrics.ensemble.items():
            alone = "  ".join(f"{each[name]:.6f}" for each in metrics.members)
            print(f"{name:24} {value:.6f}  members: {alone}")


def _predict() -> None:
    """Writes the predictions of the ensemble."""
    from official.evaluation import ensemble

    if bool(FLAGS.output) == bool(FLAGS.submission):
        raise errors.UserError(
            "give either --output=FILE or --submission=FOLDER (--mode=predict); see --help"
        )
    output = FLAGS.output or FLAGS.submission
    ensemble.predict(
        FLAGS.model_dir,
        FLAGS.data,
        output,
        mean=FLAGS.mean,
        submission=bool(FLAGS.submission),
        split=FLAGS.split,
        checkpoint=FLAGS.checkpoint,
        top_k=FLAGS.top_k,
        report=progress.say,
    )
    print(f"wrote {output}")


run = command_line.Command(main, define_flags, _REQUIRED, command_help.Topics("mode"))


if __name__ == "__main__":
    run()
