"""Trains, evaluates, predicts, writes and embeds: one config, one data folder, one model.

Pretraining:

  python -m official.main --mode=train_and_eval --config=configs/smoke/bert.yaml \
      --data=SHARDS --validation_data=HELD_OUT_SHARDS --model_dir=MODEL

Fine-tuning, from the encoder of that model:

  python -m official.main --mode=train_and_eval --config=configs/finetune/sst2.yaml \
      --data=TASK_SHARDS --init=MODEL --model_dir=TUNED

Evaluation and prediction need no config, the model folder has it:

  python -m official.main --mode=predict --data=TASK_SHARDS --split=test \
      --model_dir=TUNED --output=predictions.tsv

Shards with several validation splits (MNLI's) are evaluated on all of them. With --submission=DIR
in place of --output, predict writes the files that the GLUE benchmark takes, which
official.submission puts into a zip.

A model that read a stream may be evaluated with a longer memory than it was trained with:

  python -m official.main --mode=eval --data=HELD_OUT_SHARDS --model_dir=MODEL \
      --override=encoder.memory_length=512

A model with the objective causal_lm writes:

  python -m official.main --mode=generate --model_dir=MODEL --prompt='Once upon a time' \
      --temperature=0.8 --top_k=40

With --sweep=key=value,value,... (once or more) train_and_eval runs every combination of the values
in a folder below --model_dir, and compares them: see official.training.sweep.

Any model gives texts, or each of their tokens, a vector:

  python -m official.main --mode=embed --model_dir=MODEL --texts=texts.txt --output=vectors.npy

The same command, given again, goes on from the last checkpoint of --model_dir. SIGTERM and Ctrl-C
save and stop. Several workers (--distribution_strategy=multi_worker) are given the same command and
share --model_dir; where one of them is stopped, all of them stop.
"""

import sys
from pathlib import Path

from absl import flags

from official.utils import errors

_MODES = ("train", "eval", "train_and_eval", "predict", "generate", "embed")
FLAGS = flags.FLAGS


def define_flags() -> None:
    """The flags of this command."""
    flags.DEFINE_enum("mode", "train_and_eval", _MODES, "What to do.")
    flags.DEFINE_string(
        "config", None, "YAML file of the run. eval and predict take it from --model_dir."
    )
    flags.DEFINE_string(
        "data",
        None,
        "Folder of shards; several tasks to learn at once, or evaluate: their folders, with commas "
        "between them.",
    )
    flags.DEFINE_string(
        "validation_data",
        None,
        "Folder of held-out shards, for pretraining; task shards hold their own validation split.",
    )
    flags.DEFINE_string("model_dir", None, "Model folder: config, checkpoints, metrics, events.")
    flags.DEFINE_string(
        "init",
        None,
        "Model folder to start from: its encoder's sizes, tokenizer and weights "
        "(recipe.init_weights says which of them).",
    )
    flags.DEFINE_string(
        "checkpoint",
        "best",
        "Which checkpoint --init and the modes that train nothing read: best, last, a step, or a "
        "path.",
    )
    flags.DEFINE_bool(
        "allow_other_data",
        False,
        "Go on with a run though --data or --validation_data is not what it began with.",
    )
    flags.DEFINE_multi_string(
        "override",
        [],
        "key.subkey=value, read as YAML; may be given many times. For eval: "
        "encoder.memory_length=N takes another memory than in training.",
    )
    flags.DEFINE_multi_string(
        "sweep",
        [],
        "train_and_eval: key.subkey=value,value,...; may be given many times. Trains each "
        "combination in a folder of its own below --model_dir and says how the metrics spread.",
    )
    flags.DEFINE_string(
        "split",
        None,
        "train, validation, test, or a further one of the shards. Default: every validation split "
        "(eval), test (predict), every test split (predict with --submission).",
    )
    flags.DEFINE_string(
        "output",
        None,
        "File that predict (.tsv, .jsonl; .run of a ranking), generate (.jsonl) or embed (.npy, "
        ".jsonl) writes.",
    )
    flags.DEFINE_string("submission", None, "predict: folder for the files that GLUE takes.")
    flags.DEFINE_multi_string("prompt", [], "generate: a text to go on with; may be given again.")
    flags.DEFINE_string("prompts", None, "generate: a file with a prompt on each line.")
    flags.DEFINE_integer("max_new_tokens", 64, "generate: the most tokens to write.")
    flags.DEFINE_float("temperature", 1.0, "generate: 0 = always the likeliest token.")
    flags.DEFINE_integer(
        "top_k",
        0,
        "generate: draw from so many tokens; predict of a ranking: the most documents of a query. "
        "0 = all.",
        lower_bound=0,
    )
    flags.DEFINE_float("top_p", 1.0, "generate: draw from tokens of this much of the chances.")
    flags.DEFINE_integer("seed", 0, "generate: of the draws.")
    flags.DEFINE_string(
        "texts", None, "embed: a file with a text on each line. --output: .npy, or .jsonl."
    )
    flags.DEFINE_string(
        "pooling", "mean", "embed: mean over the tokens, first or last of them, or pooled."
    )
    flags.DEFINE_integer("layer", -1, "embed: 0 = embeddings, 1 = first layer; -1 = last layer.")
    flags.DEFINE_bool("tokens", False, "embed: a vector for each token, with its characters.")
    flags.DEFINE_enum(
        "distribution_strategy",
        "one_device",
        ["one_device", "mirrored", "multi_worker", "tpu"],
        "Where to compute. multi_worker reads TF_CONFIG.",
    )
    flags.DEFINE_string("tpu", "", "Address or name of the TPU.")
    flags.DEFINE_integer(
        "num_replicas",
        0,
        "Devices for mirrored: 0 = all GPUs. On a machine without a GPU, logical CPU devices.",
        lower_bound=0,
    )
    # The names that the TF Model Garden's users know.
    flags.DEFINE_alias("config_file", "config")
    flags.DEFINE_alias("params_override", "override")


def main(argv: list[str]) -> None:
    """Runs one mode."""
    del argv
    wanted = {"generate": ("model_dir",), "embed": ("model_dir", "texts", "output")}
    errors.require(FLAGS, *wanted.get(FLAGS.mode, ("data", "model_dir")), mode=FLAGS.mode)
    if FLAGS.sweep and FLAGS.mode != "train_and_eval":
        raise errors.UserError("--sweep compares evaluations: it wants --mode=train_and_eval")
    if FLAGS.mode.startswith("train"):
        errors.require(FLAGS, "config", mode=FLAGS.mode)
    modes = {"eval": _evaluate, "predict": _predict, "generate": _generate, "embed": _embed}
    modes.get(FLAGS.mode, _sweep if FLAGS.sweep else _train)()


def _folders(text: str) -> list[str]:
    """The folders that --data names; a folder may have a comma in its name."""
    return [text] if Path(text).exists() else text.split(",")


def _strategy():
    from official.distribution import strategies

    return strategies.create(FLAGS.distribution_strategy, FLAGS.tpu, FLAGS.num_replicas)


def _train() -> None:
    """Trains, and evaluates where the mode says so."""
    from official import config as configs
    from official import training

    config = configs.load(FLAGS.config, FLAGS.override)
    if not config.objectives:
        raise errors.UserError(f"{FLAGS.config}: objectives: at least one is needed to train")
    try:
        training.train(
            config,
            _folders(FLAGS.data),
            FLAGS.model_dir,
            validation_data=FLAGS.validation_data and _folders(FLAGS.validation_data),
            evaluate=FLAGS.mode == "train_and_eval",
            init=FLAGS.init,
            checkpoint=FLAGS.checkpoint,
            strategy=_strategy(),
            allow_other_data=FLAGS.allow_other_data,
            report=_say,
        )
    except training.Stopped as stopped:
        sys.exit(128 + stopped.number)


def _say(line: str) -> None:
    print(line, flush=True)


def _sweep() -> None:
    """Trains every combination of some values, and compares them."""
    from official import config as configs
    from official.training import sweep as sweep_lib

    if FLAGS.distribution_strategy == "multi_worker":
        raise errors.UserError("--sweep: give the runs of several workers one by one")
    sweep = sweep_lib.Sweep.parse(FLAGS.sweep)
    for settings in sweep.runs():
        configs.load(FLAGS.config, [*FLAGS.override, *sweep_lib.overrides(settings)])
    shared = ("data", "validation_data", "init", "checkpoint")
    about = {name: FLAGS[name].value for name in shared}
    about["config"] = configs.to_dict(configs.load(FLAGS.config, FLAGS.override))

    def command(folder: Path, overrides: list[str]) -> list[str]:
        names = (
            *("config", *shared, "allow_other_data"),
            *("distribution_strategy", "tpu", "num_replicas"),
        )
        options = {name: FLAGS[name].value for name in names if FLAGS[name].value}
        return [
            *(sys.executable, "-m", "official.main", "--mode=train_and_eval"),
            f"--model_dir={folder}",
            *(f"--{name}={value}" for name, value in options.items()),
            *(f"--override={override}" for override in [*FLAGS.override, *overrides]),
        ]

    sweep_lib.run(sweep, Path(FLAGS.model_dir), about, command, _say)


def _evaluate() -> None:
    """Prints the metrics of a trained model."""
    from official.evaluation import run

    found = run.evaluate(
        FLAGS.model_dir,
        _folders(FLAGS.data),
        split=FLAGS.split,
        checkpoint=FLAGS.checkpoint,
        overrides=FLAGS.override,
        strategy=_strategy(),
    )
    for split, metrics in found.items():
        if len(found) > 1:
            print(f"{split}:")
        for name, value in metrics.items():
            print(f"{name:24} {value:.6f}")


def _predict() -> None:
    """Writes the predictions of a trained model."""
    from official.evaluation import run

    if len(_folders(FLAGS.data)) > 1:
        raise errors.UserError("--data: predict takes one folder at a time")
    if bool(FLAGS.output) == bool(FLAGS.submission):
        raise errors.UserError(
            "give either --output=FILE or --submission=FOLDER (--mode=predict); see --help"
        )
    run.predict(
        FLAGS.model_dir,
        FLAGS.data,
        FLAGS.output or FLAGS.submission,
        submission=bool(FLAGS.submission),
        split=FLAGS.split,
        checkpoint=FLAGS.checkpoint,
        overrides=FLAGS.override,
        top_k=FLAGS.top_k,
        strategy=_strategy(),
    )


def _generate() -> None:
    """Goes on with texts; prints them, or writes a file."""
    from official.saving import model_folder
    from official.serving import sampling
    from official.serving.generator import Generator, check_output, save
    from official.utils import text_lines

    settings = sampling.Settings(
        FLAGS.max_new_tokens, FLAGS.temperature, FLAGS.top_k, FLAGS.top_p, FLAGS.seed
    )
    if bool(FLAGS.prompt) == bool(FLAGS.prompts):
        raise errors.UserError("give either --prompt=TEXT (perhaps an empty one) or --prompts=FILE")
    if FLAGS.output:
        check_output(FLAGS.output)
    prompts = FLAGS.prompt or text_lines.read(FLAGS.prompts, "prompts")
    generator = Generator(*model_folder.restore(FLAGS.model_dir, FLAGS.checkpoint))
    texts = generator.texts(prompts, settings)
    if FLAGS.output:
        save(FLAGS.output, prompts, texts)
    else:
        print("\n".join(texts))


def _embed() -> None:
    """Writes the vectors of texts, or of their tokens."""
    from official.serving import loaded_model
    from official.serving.embedder import check_output, write
    from official.utils import text_lines

    check_output(FLAGS.output, FLAGS.tokens)
    texts = text_lines.read(FLAGS.texts, "texts")
    embedder = loaded_model.load(FLAGS.model_dir, FLAGS.checkpoint).embedder
    how = {"layer": FLAGS.layer, "tokens": FLAGS.tokens}
    write(embedder, texts, FLAGS.output, pooling=FLAGS.pooling, **how)


def run() -> None:
    """The console entry."""
    define_flags()
    errors.run(main)


if __name__ == "__main__":
    run()
