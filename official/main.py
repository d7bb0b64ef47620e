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
        "combination in a folder of its own below --model_dir and says how the figures spread.",
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
    if FLAGS.mode == "generate":
        _require("model_dir")
        _generate()
        return
    if FLAGS.mode == "embed":
        _require("model_dir", "texts", "output")
        _embed()
        return
    _require("data", "model_dir")
    if FLAGS.sweep and FLAGS.mode != "train_and_eval":
        raise errors.UserError("--sweep compares evaluations: it wants --mode=train_and_eval")
    if FLAGS.mode.startswith("train"):
        _require("config")
        _sweep() if FLAGS.sweep else _train()
    else:
        _apply()


def _require(*names: str) -> None:
    for name in names:
        if not FLAGS[name].value:
            raise errors.UserError(f"--{name} is missing (--mode={FLAGS.mode}); see --help")


def _train() -> None:
    from official import config as configs
    from official.distribution import numerics, strategies
    from official.training import resolve, trainer

    config = configs.load(FLAGS.config, FLAGS.override)
    if not config.objectives:
        raise errors.UserError(f"{FLAGS.config}: objectives: at least one is needed to train")
    config = resolve.inherit(config, configs.load(FLAGS.init) if FLAGS.init else None)
    numerics.set_precision(config.recipe.precision)
    strategy = strategies.create(FLAGS.distribution_strategy, FLAGS.tpu, FLAGS.num_replicas)
    try:
        with strategies.lost_workers(strategy):
            _train_under(strategy, config)
    except trainer.Stopped as stopped:
        sys.exit(128 + stopped.number)


def _train_under(strategy, config) -> None:
    """Trains a config that has taken over what it leaves to the model of --init."""
    from official import config as configs
    from official.data import labels
    from official.distribution import strategies
    from official.saving import checkpoints, model_folder
    from official.training import resolve, resuming, trainer, warm_start
    from official.utils import atomic

    train = _source(FLAGS.data, config, "train", training=True)
    config = resolve.resolve(config, train.tokenizer.vocab_size, labels.labels_of(train.manifest))
    train.check(config, strategy.num_replicas_in_sync)
    if FLAGS.init:
        train.check_tokenizer(Path(FLAGS.init) / "tokenizer")
    validation = None
    if FLAGS.mode == "train_and_eval":
        if config.segments and not FLAGS.validation_data:
            raise errors.UserError(
                "--validation_data is missing: name shards made of held-out text, or use "
                "--mode=train"
            )
        held_out = (
            (FLAGS.validation_data, "train") if config.segments else (FLAGS.data, "validation")
        )
        validation = _source(held_out[0], config, held_out[1])
        validation.check(config, strategy.num_replicas_in_sync)
        if validation.tokenizer.fingerprint != train.tokenizer.fingerprint:
            raise errors.UserError(
                f"{FLAGS.validation_data}: made with another tokenizer than {FLAGS.data}: make "
                "both with the same --tokenizer"
            )
    model_dir = Path(FLAGS.model_dir)
    resuming.check_same_run(config, model_dir)

    def say(text):
        if strategies.is_chief(strategy):
            print(text, flush=True)

    model = strategies.build_model(config, strategy)
    begins = checkpoints.last_step(model_dir) is None
    if FLAGS.init and begins:
        weights = config.recipe.init_weights
        count, fresh = warm_start.start_from(model, FLAGS.init, FLAGS.checkpoint, weights)
        rest = f"; these are fresh: {', '.join(fresh)}" if fresh else ""
        say(f"{count} variables set from {FLAGS.init} ({weights}){rest}")
    if strategies.is_chief(strategy):
        atomic.make_folder(model_dir)
        configs.save(config, model_dir / model_folder.CONFIG)
        train.tokenizer.save(model_dir / "tokenizer")
        model_folder.save_task(train.manifest, model_dir)
    trainer = trainer.Trainer(config, model, train, strategy, model_dir, FLAGS.allow_other_data)
    if config.recipe.init_weights == "run" and begins:
        trainer.go_on_from(FLAGS.init, FLAGS.checkpoint)
    size = sum(variable.value.shape.num_elements() for variable in model.trainable_variables)
    say(
        f"{config.name}: {size:,} weights, {train.num_examples:,} training examples, "
        f"{trainer.total_steps:,} steps of {config.recipe.batch_size} on "
        f"{strategy.num_replicas_in_sync} replica(s), {config.recipe.precision}"
    )
    trainer.train(validation)


def _folders(text: str) -> list[str]:
    """The folders that --data names; a folder may have a comma in its name."""
    return [text] if Path(text).exists() else text.split(",")


def _source(folders: str, config, split: str, training: bool = False):
    """The examples of a split; of several folders, parted by commas, a mixture of their tasks."""
    from official.data import Source
    from official.data.mixture import Mixture

    sources = [Source(folder, config, split, training) for folder in _folders(folders)]
    return sources[0] if len(sources) == 1 else Mixture(sources, config)


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

    def command(folder, overrides):
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

    say = lambda text: print(text, flush=True)  # noqa: E731
    sweep_lib.run(sweep, Path(FLAGS.model_dir), about, command, _figures, say)


def _figures(model_dir: Path) -> dict:
    """The figures of a finished run's best checkpoint, and which of them decides."""
    from official import config as configs
    from official.saving import checkpoints, model_folder
    from official.training.best_metric import best_metric

    task = model_folder.task(model_dir)
    metric, higher = best_metric(configs.load(model_dir), task or None)
    path = checkpoints.find(model_dir, "best")
    found = checkpoints.load_state(path)
    return {
        "metric": metric,
        "higher": higher,
        "metrics": list(dict.fromkeys([metric, *task.get("metrics", ())])),
        "step": found["step"],
        "figures": found["figures"],
    }


def _apply() -> None:
    """Evaluates or predicts with a trained model."""
    from official import config as configs
    from official.data import labels, streams
    from official.distribution import numerics, strategies
    from official.evaluation import prediction
    from official.evaluation.evaluator import Evaluator, target_entropy
    from official.training import warm_start

    model_dir = Path(FLAGS.model_dir)
    config = configs.load(model_dir, FLAGS.override)
    # As the SavedModel computes: mixed precision is for training.
    numerics.set_precision("float64" if config.recipe.precision == "float64" else "float32")
    strategy = strategies.create(FLAGS.distribution_strategy, FLAGS.tpu, FLAGS.num_replicas)
    predicting = FLAGS.mode == "predict"
    if predicting and len(_folders(FLAGS.data)) > 1:
        raise errors.UserError("--data: predict takes one folder at a time")
    if predicting and bool(FLAGS.output) == bool(FLAGS.submission):
        raise errors.UserError(
            "give either --output=FILE or --submission=FOLDER (--mode=predict); see --help"
        )
    splits = _splits(config)
    model = None
    for split in splits:
        source = _source(FLAGS.data, config, split)
        source.check(config, strategy.num_replicas_in_sync, predicting)
        labels.check_labels(config, source.manifest, FLAGS.data)
        trained = configs.load(model_dir).encoder
        if getattr(config.encoder, "memory_length", 0) != getattr(trained, "memory_length", 0):
            # Held-out text may be shorter than the memory of training, but asking for more is in
            # vain.
            streams.check_memory(source.folder, config, source.manifest)
        source.check_tokenizer(model_dir / "tokenizer")
        if model is None:
            model = strategies.build_model(config, strategy)
            warm_start.start_from(model, str(model_dir), FLAGS.checkpoint, "all")
        if FLAGS.submission:
            prediction.submit(model, config, source, strategy, FLAGS.submission)
        elif predicting:
            prediction.predict(model, config, source, strategy, FLAGS.output, FLAGS.top_k)
        else:
            evaluator = Evaluator(config, model, strategy)
            figures = evaluator.run(source)
            if entropy := target_entropy(source, evaluator.batch_size):
                figures["target_entropy"] = entropy
            if len(splits) > 1:
                print(f"{split}:")
            for name, value in figures.items():
                print(f"{name:24} {value:.6f}")


def _splits(config) -> list[str]:
    """What to evaluate or predict: the split named, or those that the shards have."""
    from official import tasks
    from official.shards import manifest

    if FLAGS.split:
        return [FLAGS.split]
    kind = "validation" if FLAGS.mode == "eval" else "test"
    if config.segments or FLAGS.output:
        return ["train" if config.segments and kind == "validation" else kind]
    # Of several folders the splits that all have.
    there = set.intersection(
        *({s.split for s in manifest.read(folder).shards} for folder in _folders(FLAGS.data))
    )
    return [s for s in tasks.SPLITS if s.startswith(kind) and s in there] or [kind]


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
