r"""Trains, evaluates, predicts, generates, fills masks, embeds: one config, data folder and model.

Pretraining:

  python -m official.main --mode=train_and_eval \
      --config=configs/smoke/bert.yaml --data=SHARDS \
      --validation_data=HELD_OUT_SHARDS --model_dir=MODEL

Fine-tuning from the encoder of that model:

  python -m official.main --mode=train_and_eval \
      --config=configs/finetune/sst2.yaml --data=TASK_SHARDS --init=MODEL \
      --model_dir=TUNED

Evaluation and prediction use the config in the model folder:

  python -m official.main --mode=predict --data=TASK_SHARDS --split=test \
      --model_dir=TUNED --output=predictions.tsv

Shards with several validation splits (MNLI) are evaluated on all of them. With --submission=DIR
instead of --output, predict writes the files for the GLUE benchmark.
official.commands.submission packs them into a zip file.

A model that was trained on streams can be evaluated with a longer memory than in training:

  python -m official.main --mode=eval --data=HELD_OUT_SHARDS --model_dir=MODEL \
      --override=encoder.memory_length=512

A model with the objective causal_lm continues texts, and one with seq2seq_lm reads them and writes
others:

  python -m official.main --mode=generate --model_dir=MODEL \
      --prompt='Once upon a time' --temperature=0.8 --top_k=40

A masked LM fills the masks of texts, and T5 its sentinels:

  python -m official.main --mode=fill_mask --model_dir=MODEL --texts=texts.txt \
      --output=filled.jsonl --top_k=5

With --sweep=key=value,value,... (once or more) train_and_eval runs every combination of the values
in a folder below --model_dir and compares the results: see official.training.sweep.

Any model computes vectors of texts or of their tokens:

  python -m official.main --mode=embed --model_dir=MODEL --texts=texts.txt \
      --output=vectors.npy

Files of any size become a folder of pieces, by several processes or on Apache Beam (--runner=beam).
If it is stopped, the same command goes on:

  python -m official.main --mode=embed --model_dir=MODEL --texts=corpus.jsonl \
      --output=VECTORS --pieces=npy --workers=8

They rank documents for queries, exactly:

  python -m official.main --mode=search --model_dir=MODEL \
      --queries=queries.tsv --texts=documents.tsv --output=found.run --top_k=100

A folder of BEIR (corpus.jsonl, queries.jsonl, qrels/test.tsv) is searched and scored. A model of
the objective ranking then scores the documents that were found, and orders them anew:

  python -m official.main --mode=search --model_dir=MODEL --beir=FOLDER \
      --output=found.run
  python -m official.main --mode=search --model_dir=RANKER --beir=FOLDER \
      --rerank=found.run --output=reranked.run

Heads over a frozen encoder learn from its states, which are computed once:

  python -m official.main --mode=embed --layers=all --model_dir=MODEL \
      --data=TASK_SHARDS --output=STATES
  python -m official.main --mode=train_and_eval \
      --config=configs/finetune/layer_mix.yaml --data=TASK_SHARDS --init=MODEL \
      --model_dir=TUNED --override=recipe.layer_states=STATES

The same command, given again, continues from the last checkpoint of --model_dir. SIGTERM and Ctrl-C
save a checkpoint and stop. Several workers (--distribution_strategy=multi_worker) get the same
command and share --model_dir. If one of them is stopped, all of them stop.
"""

import functools
import json
import sys
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from absl import flags

from official.commands import command_flags
from official.utils import atomic, command_help, command_line, errors, paths, progress, runner_flags

if TYPE_CHECKING:
    import tensorflow as tf

    from official.serving import loaded_model
    from official.tasks import beir

# What each mode needs. The mode search also needs --queries and --texts, or --beir.
_REQUIRED = {
    "train": ("data", "model_dir", "config"),
    "eval": ("data", "model_dir"),
    "train_and_eval": ("data", "model_dir", "config"),
    "predict": ("data", "model_dir"),
    "generate": ("model_dir",),
    "fill_mask": ("model_dir", "texts", "output"),
    "embed": ("model_dir", "output"),
    "search": ("model_dir", "output"),
}
FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags of this command."""
    _define_run_flags()
    _define_prediction_flags()
    command_flags.define_generation()
    command_flags.define_embedding()
    _define_distribution_flags()
    # The names that users of the TF Model Garden know.
    flags.DEFINE_alias("config_file", "config")
    flags.DEFINE_alias("params_override", "override")


def _define_run_flags() -> None:
    flags.DEFINE_enum("mode", "train_and_eval", list(_REQUIRED), "What to do.")
    flags.DEFINE_string(
        "config", None, "YAML file of the run. eval and predict use the one in --model_dir."
    )
    flags.DEFINE_bool("list_configs", False, "Print the names of the published configs and end.")
    flags.DEFINE_string(
        "data",
        None,
        "Folder of shards. For several tasks or corpora at once: their folders, separated by "
        "commas. FOLDER=SHARE,FOLDER=SHARE gives the share that each corpus has of every batch, or "
        "each task of the batches. With `phases` in the config: one folder, or one for each phase.",
    )
    flags.DEFINE_string(
        "validation_data",
        None,
        "Folder of held-out shards, for pretraining; with `phases` one, or one for each. Task "
        "shards contain a validation split; it is that of this folder, if one is given. Of vectors "
        "of texts also a folder of BEIR, whose queries qrels/dev.tsv are searched.",
    )
    flags.DEFINE_string("model_dir", None, "Model folder: config, checkpoints, metrics, events.")
    flags.DEFINE_string(
        "init",
        None,
        "Model folder to start from. The encoder's sizes, the tokenizer and the weights are taken "
        "from it (recipe.init_weights says which weights). If the tokenizer of the data has more "
        "pieces, known pieces keep their rows.",
    )
    flags.DEFINE_string(
        "checkpoint",
        "best",
        "The checkpoint to read, of --init or of the model that is used without training: best, "
        "last, a step or a path.",
    )
    flags.DEFINE_bool(
        "allow_other_data",
        False,
        "Resume a run even if --data or --validation_data has changed since it began.",
    )
    flags.DEFINE_bool(
        "verify_data",
        False,
        "train, train_and_eval: compare every byte of the shards with the checksums of their "
        "manifests before the first step. If not, sizes are compared, and each record with its CRC "
        "when it is read.",
    )
    flags.DEFINE_multi_string(
        "override",
        [],
        "key.subkey=value, read as YAML. May be repeated. For eval, encoder.memory_length=N sets "
        "another memory length than in training.",
    )
    flags.DEFINE_multi_string(
        "sweep",
        [],
        "train_and_eval: key.subkey=value,value,... May be repeated. Trains each combination in a "
        "folder of its own below --model_dir and reports the spread of the metrics.",
    )


def _define_prediction_flags() -> None:
    flags.DEFINE_string(
        "split",
        None,
        "train, validation, test, or another split of the shards. Default: all validation splits "
        "(eval), test (predict; search with --beir), all test splits (predict with --submission).",
    )
    flags.DEFINE_string(
        "output",
        None,
        "The file to write: .json (eval, if it is named), .tsv or .jsonl (predict), .run "
        "(predict, for rankings), .jsonl (generate, fill_mask), .npy or .jsonl or with --pieces a "
        "folder (embed), .run (search).",
    )
    flags.DEFINE_bool(
        "pseudo_perplexity",
        False,
        "eval: also mask each token of the text alone, and print the pseudo-perplexity of a masked "
        "LM. A row of n tokens takes n passes.",
    )
    flags.DEFINE_string("submission", None, "predict: folder for the files for GLUE.")


def _define_distribution_flags() -> None:
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
        "mirrored: the number of devices. 0 = all GPUs. Without a GPU, logical CPU devices.",
        lower_bound=0,
    )


def main(argv: list[str]) -> None:
    """Runs one mode."""
    beam = runner_flags.beam_options(argv, FLAGS)
    if beam is not None and not (FLAGS.mode == "embed" and FLAGS.pieces):
        raise errors.UserError("--runner=beam: is for --mode=embed with --pieces; remove it")
    if FLAGS.list_configs:
        from official.config import yaml_files

        print(*yaml_files.published(), sep="\n")
        return
    errors.require(FLAGS, *_REQUIRED[FLAGS.mode], mode=FLAGS.mode)
    if FLAGS.sweep and FLAGS.mode != "train_and_eval":
        raise errors.UserError("--sweep compares evaluations: it needs --mode=train_and_eval")
    modes: dict[str, Callable[[], None]] = {
        "eval": _evaluate,
        "predict": _predict,
        "generate": _generate,
        "fill_mask": _fill_mask,
        "embed": functools.partial(_embed, beam),
        "search": _search,
    }
    modes.get(FLAGS.mode, _sweep if FLAGS.sweep else _train)()


def _folders(text: str) -> list[str] | dict[str, float]:
    """Splits the value of --data into folders, with their shares if it has them."""
    from official.data import mixture

    return mixture.parse(text)


def _strategy() -> "tf.distribute.Strategy":
    from official import config as configs
    from official.distribution import strategies

    if FLAGS.distribution_strategy == "tpu":
        folders = [
            f for data in (FLAGS.data, FLAGS.validation_data) if data for f in _folders(data)
        ]
        config = configs.load(FLAGS.config or FLAGS.model_dir, FLAGS.override)
        strategies.check_tpu_data(FLAGS.tpu, folders, bool(config.recipe.layer_states))
    return strategies.create(FLAGS.distribution_strategy, FLAGS.tpu, FLAGS.num_replicas)


def _train() -> None:
    """Trains, and evaluates in the mode train_and_eval."""
    from official import config as configs
    from official import training

    config = configs.load(FLAGS.config, FLAGS.override)
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
            verify_data=FLAGS.verify_data,
            report=_say,
        )
    except training.Stopped as stopped:
        sys.exit(128 + stopped.number)


def _say(line: str) -> None:
    print(line, flush=True)


def _sweep() -> None:
    """Trains every combination of the values of --sweep and compares the results."""
    from official.training import sweep

    if FLAGS.distribution_strategy == "multi_worker":
        raise errors.UserError("--sweep: give the runs of several workers one by one")
    names = (
        *("data", "validation_data", "init", "checkpoint"),
        *("allow_other_data", "verify_data"),
        *("distribution_strategy", "tpu", "num_replicas"),
    )
    options = {name: FLAGS[name].value for name in names}
    sweep.train(
        FLAGS.sweep, FLAGS.config, FLAGS.override, options, paths.path(FLAGS.model_dir), _say
    )


def _evaluate() -> None:
    """Prints the metrics of a trained model, and writes them if a file is named."""
    if FLAGS.output:
        paths.check_suffix(FLAGS.output, "metrics", (".json",))

    from official.distribution import strategies
    from official.evaluation import run

    strategy = _strategy()
    metrics_of_splits = run.evaluate(
        FLAGS.model_dir,
        _folders(FLAGS.data),
        split=FLAGS.split,
        checkpoint=FLAGS.checkpoint,
        overrides=FLAGS.override,
        strategy=strategy,
        pseudo=FLAGS.pseudo_perplexity,
        report=progress.say,
    )
    for split, metrics in metrics_of_splits.items():
        if len(metrics_of_splits) > 1:
            print(f"{split}:")
        for name, value in metrics.items():
            print(f"{name:24} {value:.6f}")
    if FLAGS.output and strategies.is_chief(strategy):
        with atomic.file(FLAGS.output) as stream:
            json.dump(metrics_of_splits, stream, indent=1)
        print(f"wrote {FLAGS.output}")


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
        report=progress.say,
    )


def _generate() -> None:
    """Generates texts; prints them or writes a file."""
    from official.saving import generation_settings
    from official.serving import loaded_model
    from official.serving.generation.generator import check_output, save
    from official.utils import text_lines

    given = command_flags.generation_values(FLAGS)
    # Refused before the model is loaded.
    generation_settings.Settings.of(
        generation_settings.read(FLAGS.model_dir).values(given, FLAGS.task)
    )
    if bool(FLAGS.prompt) == bool(FLAGS.prompts):
        raise errors.UserError("give either --prompt=TEXT (which may be empty) or --prompts=FILE")
    if FLAGS.output:
        check_output(FLAGS.output)
    prompts = FLAGS.prompt or text_lines.read(FLAGS.prompts, "prompts")
    model = loaded_model.load(FLAGS.model_dir, FLAGS.checkpoint)
    texts = model.generate(prompts, task=FLAGS.task, report=progress.say, **given)
    if FLAGS.output:
        save(FLAGS.output, prompts, texts)
    else:
        print("\n".join(texts))


def _fill_mask() -> None:
    """Writes what fills the masks of texts."""
    from official.serving import loaded_model
    from official.serving.generation import mask_filler
    from official.utils import text_lines

    mask_filler.check_output(FLAGS.output)
    top_k = FLAGS.top_k if FLAGS["top_k"].present else mask_filler.TOP_K
    texts = text_lines.read(FLAGS.texts, "texts")
    filler = loaded_model.load(FLAGS.model_dir, FLAGS.checkpoint).filler
    mask_filler.write(filler, texts, FLAGS.output, top_k, FLAGS.target or None, progress.say)
    print(f"wrote {FLAGS.output}")


def _embed(beam: Sequence[str] | None) -> None:
    """Writes the vectors of texts or of their tokens, or the states of all layers for shards."""
    if bool(FLAGS.texts) == bool(FLAGS.data):
        raise errors.UserError("give either --texts=FILE or --data=SHARDS (--mode=embed)")
    if FLAGS.workers and not FLAGS.pieces:
        raise errors.UserError(f"--workers={FLAGS.workers}: the processes write --pieces: give it")
    if FLAGS.data:
        _embed_shards()
        return
    layer = "all" if FLAGS.layers == "all" else FLAGS.layer
    if FLAGS.pieces:
        _embed_pieces(layer, beam)
        return
    from official.serving.vectors.embedder import check_output, write
    from official.tasks import text_files

    check_output(FLAGS.output, FLAGS.tokens)
    texts = text_files.Counted(FLAGS.texts)
    embedder = _loaded().embedder
    write(
        embedder,
        (text for _, text in texts),
        FLAGS.output,
        count=texts.count,
        settings=embedder.settings.with_values(FLAGS.pooling, FLAGS.normalize, FLAGS.max_length),
        layer=layer,
        tokens=FLAGS.tokens,
        state=FLAGS.state,
        prompt=FLAGS.prompt_name,
    )


def _loaded() -> "loaded_model.LoadedModel":
    """Loads the model that computes vectors."""
    from official.serving import loaded_model

    return loaded_model.load(FLAGS.model_dir, FLAGS.checkpoint, FLAGS.precision, FLAGS.runtime)


def _embed_pieces(layer: int | str | None, beam: Sequence[str] | None) -> None:
    """Writes the vectors of texts to a folder."""
    from official.serving import vector_pieces

    for flag, wrong in (("--tokens", FLAGS.tokens), ("--state=carry", FLAGS.state != "fresh")):
        if wrong:
            raise errors.UserError(f"{flag}: not supported with --pieces; remove it")
    options = vector_pieces.Options(
        FLAGS.model_dir,
        FLAGS.checkpoint,
        FLAGS.pooling,
        FLAGS.normalize,
        FLAGS.max_length,
        layer,
        FLAGS.prompt_name,
        FLAGS.pieces,
        FLAGS.piece_size,
        precision=FLAGS.precision,
        runtime=FLAGS.runtime,
    )
    vector_pieces.write(options, FLAGS.texts, FLAGS.output, FLAGS.workers, _say, beam)


def _search() -> None:
    """Writes the documents that suit queries best, as a TREC run, and its metrics if it has any."""
    from official.serving import reranking
    from official.serving.vectors import search
    from official.tasks import beir, text_files, trec

    search.check_output(FLAGS.output)
    top_k = FLAGS.top_k if FLAGS["top_k"].present else search.TOP_K
    search.check_top_k(top_k)
    if bool(FLAGS.beir) == bool(FLAGS.queries or FLAGS.texts):
        raise errors.UserError("give either --beir=FOLDER or --queries=FILE and --texts=FILE")
    if FLAGS.rerank and FLAGS.runtime != "tensorflow":
        raise errors.UserError("--runtime=litert: --rerank compares no vectors; remove it")
    judged = None
    if FLAGS.beir:
        judged = beir.read(FLAGS.beir, FLAGS.split or "test")
        queries, documents = judged.queries, judged.documents
    else:
        errors.require(FLAGS, "queries", "texts", mode=FLAGS.mode)
        queries, documents = dict(text_files.unique(FLAGS.queries)), paths.path(FLAGS.texts)
    model = _loaded()
    options = (FLAGS.output, top_k, model.config.name, progress.say)
    if FLAGS.rerank:
        run = trec.read_run(paths.path(FLAGS.rerank), queries)
        run = beir.without_own(run) if judged else run
        known = reranking.write(model, queries, documents, run, *options)
    else:
        embedder = model.embedder
        embedder.settings = embedder.settings.with_values(
            FLAGS.pooling, FLAGS.normalize, FLAGS.max_length
        )
        known = search.write(embedder, queries, documents, *options, own=not judged)
    print(f"wrote {FLAGS.output}: {len(queries):,} queries, {len(known):,} documents")
    if judged:
        _score(judged, known)


def _score(judged: "beir.Judged", documents: Collection[str]) -> None:
    """Prints the metrics of --output, and what the judgments lack."""
    from official.evaluation import rankings
    from official.tasks import beir, trec

    for count, what in (
        (judged.unjudged, "queries without judgments, which are left out"),
        (judged.left_out, "judgments of unknown queries, which are left out"),
        (judged.unknown(documents), "judgments of unknown documents, which count as not found"),
    ):
        if count:
            print(f"{count:,} {what}")
    metrics = rankings.compute(beir.METRICS, judged.qrels, trec.read_run(paths.path(FLAGS.output)))
    for name, value in metrics.items():
        print(f"{name:24} {value:.6f}")


def _embed_shards() -> None:
    """Writes the states of all layers for the examples of a shard folder."""
    from official.evaluation import layer_states

    if FLAGS.state != "fresh":
        raise errors.UserError("--state=carry is for --texts: the examples of shards are shuffled")
    for flag in ("precision", "runtime"):
        if FLAGS[flag].present:
            raise errors.UserError(f"--{flag}: not supported with --data; remove it")
    if FLAGS.layers != "all":
        raise errors.UserError("--data: heads read all layers of shards: give --layers=all")
    splits = [FLAGS.split] if FLAGS.split else []
    options = {"checkpoint": FLAGS.checkpoint, "report": _say}
    layer_states.write(FLAGS.model_dir, FLAGS.data, splits, FLAGS.output, **options)
    print(f"wrote {FLAGS.output}")


run = command_line.Command(
    main,
    define_flags,
    _REQUIRED,
    command_help.Topics("mode"),
    runner_flags.USAGE,
    name="official.main",
)
