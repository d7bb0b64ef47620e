r"""Builds a shard folder for pretraining from text.

  python -m tfrecords_tools.build_shards --config=FILE --input=GLOB \
      --tokenizer=DIR --output=DIR [--workers=N | --runner=NAME -- OPTIONS]

The input is text with one sentence (or, with --split_sentences, one paragraph) on each line and a
blank line between documents, or JSON Lines with a `text` field; plain, .gz or .zst. A .parquet file
has a document in each row of its column `text`. Byte-level BPE encodes the text of a document
unchanged, with its line breaks and blanks. --min_words, --max_symbol_share and --deduplicate leave
documents out. The same command gives the same bytes with any number of workers, and with any
--runner.
If it was stopped, the same command continues where it ended. With `phases` in the config, --phase
says which one the shards are for. --dry_run says how large the shards would be and how long the
build would take, and writes nothing.
"""

from typing import TYPE_CHECKING

from absl import flags

from official.utils import command_line, errors, parallel, runner_flags
from tfrecords_tools.text import corpus
from tfrecords_tools.writing import execution

if TYPE_CHECKING:
    from official.config import Config

_REQUIRED = ("config", "input", "tokenizer", "output")


def define_flags() -> None:
    """Defines the flags of this command."""
    corpus.define_flags("shard folder")
    flags.DEFINE_string("config", None, "YAML file of the config")
    flags.DEFINE_bool("list_configs", False, "print the names of the published configs and end")
    flags.DEFINE_multi_string("override", [], "key.subkey=value in the config; repeatable")
    flags.DEFINE_integer(
        "phase", None, "the number of the phase of the config, from 1; default: all are alike", 1
    )
    flags.DEFINE_string("tokenizer", None, "tokenizer folder")
    execution.define_flags(of_size=False)
    flags.DEFINE_integer(
        "num_shards", 0, "number of shards; 0 = by the size of the examples", lower_bound=0
    )
    flags.DEFINE_integer("seed", None, "default: the seed of the config", lower_bound=0)
    flags.DEFINE_enum(
        "format",
        "examples",
        ["examples", "tf_models", "tf_models_v2"],
        "tf_models: for the TF Model Garden; tf_models_v2: for its use_v2_feature_names",
    )
    flags.DEFINE_string("phrases", None, "lexicon for `unit: phrase`, one on each line")
    flags.DEFINE_string("entities", None, "lexicon for `unit: entity`, one on each line")
    flags.DEFINE_bool("split_sentences", False, "lines are paragraphs: split them into sentences")
    flags.DEFINE_bool(
        "dry_run",
        False,
        "build a part of the text, say what the whole would take, and keep nothing",
    )


def main(argv: list[str]) -> None:
    """Runs the command line."""
    options = flags.FLAGS
    if options.list_configs:
        from official.config import yaml_files

        print(*yaml_files.published(), sep="\n")
        return
    errors.require(options, *_REQUIRED)
    where = execution.from_flags(argv)
    if options.dry_run and where.engine:
        raise errors.UserError("--dry_run: is of a build on this machine: leave out --runner")
    if where.workers:
        # TensorFlow is slow to load. The process that workers are forked from loads it meanwhile.
        parallel.start("tfrecords_tools.pretraining.examples")
    from official import config
    from tfrecords_tools.pretraining import builder
    from tfrecords_tools.pretraining.settings import Settings

    settings = Settings.from_config(
        _phase(config.load(options.config, options.override), options.phase),
        options.tokenizer,
        options.seed,
        options.format,
        options.split_sentences,
        options.phrases,
        options.entities,
        corpus.filters_of(options),
    )

    def report(line: str) -> None:
        print(line, flush=True)

    reading = (options.num_shards, options.on_bad_utf8, options.on_long_line)
    if options.dry_run:
        from tfrecords_tools.pretraining import dry_run

        found = dry_run.forecast(settings, options.input, *reading, report)
        print(*found.lines(where.workers), sep="\n")
        return
    builder.build(settings, options.input, options.output, where, *reading, report)


def _phase(whole: "Config", number: int | None) -> "Config":
    """Returns the config of the phase that --phase names."""
    from official import config

    phases = config.phases(whole)
    if number is None:
        segments = {phase.segments for phase in phases}
        masks = {
            phase.corruption for phase in phases if phase.segments and phase.segments.static_masks
        }
        if len(segments) > 1 or len(masks) > 1:
            raise errors.UserError(
                f"--phase is missing: the {len(phases)} phases of the config need different "
                "shards: build those of each by --phase=1, ..."
            )
        return phases[0]
    if number > len(phases):
        raise errors.UserError(f"--phase={number}: the config has {len(phases)} phase(s)")
    return phases[number - 1]


run = command_line.Command(main, define_flags, required=_REQUIRED, usage=runner_flags.USAGE)


if __name__ == "__main__":
    run()
