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

Files of any size become a folder of pieces, by several processes or on an engine (--runner).
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

from absl import flags

from official.commands.modes import (
    embed,
    evaluate,
    fill_mask,
    generate,
    predict,
    search,
    train,
)
from official.utils import command_help, command_line, errors, flag_table, runner_flags
from official.utils.flag_table import Flag, Values

MODES = {
    "train": train.TRAIN,
    "eval": evaluate.MODE,
    "train_and_eval": train.TRAIN_AND_EVAL,
    "predict": predict.MODE,
    "generate": generate.MODE,
    "fill_mask": fill_mask.MODE,
    "embed": embed.MODE,
    "search": search.MODE,
}
# The names that users of the TF Model Garden know.
_ALIASES = {"config_file": "config", "params_override": "override"}
FLAGS = flags.FLAGS


def define_flags() -> None:
    """Defines the flags of all modes."""
    Flag("mode", str, "train_and_eval", "What to do.", values=tuple(MODES)).define()
    flag_table.define(flag_table.merged({name: mode.flags for name, mode in MODES.items()}))
    for alias, name in _ALIASES.items():
        flags.DEFINE_alias(alias, name)


def main(argv: list[str]) -> None:
    """Runs one mode."""
    mode = MODES[FLAGS.mode]
    options = Values(mode.flags, FLAGS)
    engine = runner_flags.engine(argv, FLAGS)
    if engine and FLAGS.mode != "embed":
        raise embed.needs_pieces(engine)
    if FLAGS.list_configs:
        train.list_configs()
        return
    errors.require(FLAGS, *mode.required, mode=FLAGS.mode)
    if FLAGS.sweep and FLAGS.mode != "train_and_eval":
        raise errors.UserError("--sweep compares evaluations: it needs --mode=train_and_eval")
    _warn_of_others(FLAGS.mode)
    if engine:
        embed.run(options, engine)
    else:
        mode.run(options)


def _warn_of_others(chosen: str) -> None:
    """Names the flags that were given and are for other modes."""
    own = {flag.name for flag in MODES[chosen].flags}
    others: dict[str, list[str]] = {}
    for name, mode in MODES.items():
        for flag in mode.flags:
            if flag.name not in own and FLAGS[flag.name].present:
                others.setdefault(flag.name, []).append(name)
    for flag_name, modes in others.items():
        errors.warn(
            f"--{flag_name}: --mode={chosen} does not read it; it is for {', '.join(modes)}"
        )


run = command_line.Command(
    main,
    define_flags,
    {name: mode.required for name, mode in MODES.items()},
    command_help.Topics("mode"),
    runner_flags.USAGE,
    name="official.main",
)
