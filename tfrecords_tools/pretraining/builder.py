"""Builds the shard folder of a pretraining corpus.

Groups of ranges of the corpus are turned into examples (`examples.process_group`), which are
shuffled into shards (`tfrecords_tools.writing.shuffle`). For a stream, the documents are shuffled
and stored as one text. Then each shard is made independently, from the text of its rows.

The same input, settings and seed give the same bytes with any number of workers. The folder is
renamed to its final name when it is complete. A build that was killed continues after the groups
that are done.

The main process does not load TensorFlow. Modules that need it are imported by the functions that
workers call.
"""

import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from official.config.compatibility import check_vocabulary
from official.shards import manifest, shard_folder, stored_arrays
from official.utils import atomic, errors, input_files, parallel, paths, strict
from official.utils.errors import UserError
from official.utils.input_files import InputFile, Inputs
from official.utils.paths import AnyPath
from official.utils.progress import Progress
from tfrecords_tools.pretraining import sentence_rows, stream_rows, streams
from tfrecords_tools.pretraining.counts import Counts, advice, alone, summary
from tfrecords_tools.pretraining.sentence_rows import SentenceRows
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.pretraining.stream_rows import StreamRows
from tfrecords_tools.pretraining.streams import Plan
from tfrecords_tools.text import filters
from tfrecords_tools.text.corpus import Corpus, Group, Reading
from tfrecords_tools.writing import folders, shards
from tfrecords_tools.writing.execution import Execution
from tfrecords_tools.writing.shuffle import Runner

# The module that is imported by the process from which workers are forked.
_PRELOADED = "tfrecords_tools.pretraining.examples"
_PART_BYTES = 32 << 20  # of the text of a stream that is sorted in memory
_MEASURED = 256  # the steps whose records are measured to estimate the size of all records


def build(
    settings: Settings,
    inputs: Sequence[str] | str,
    output: str | os.PathLike,
    execution: Execution = Execution(),  # noqa: B008
    num_shards: int = 0,
    on_bad_utf8: str = "error",
    on_long_line: str = "error",
    report: Callable[[str], None] = print,
) -> manifest.Manifest:
    """Builds a shard folder and returns its manifest.

    Args:
      settings: the settings (see `Settings.from_config`).
      inputs: files and globs, as `corpus.expand` takes them.
      output: the folder to create.
      execution: the processes that do the work; they do not affect the shards.
      num_shards: the number of shards; 0 = by the size of the examples.
      on_bad_utf8: 'error' to stop at a line that is not UTF-8, 'skip' to leave it out.
      on_long_line: the same for lines that are too long.
      report: is called with lines of progress and the summary.

    Raises:
      UserError: the input, the settings or the disk cannot be used.
    """
    started = time.monotonic()
    if execution.workers:
        parallel.start(_PRELOADED)
    corpus = Corpus.find(inputs)
    reading = Reading.of(corpus, on_bad_utf8, on_long_line)
    output = paths.path(output)
    _warn_of_batches(settings, output)
    lexicons = Inputs(path for _, path in settings.lexicons)
    plan = _plan(settings, corpus, reading)
    with (
        input_files.explained(corpus.check),
        folders.new_shards(output) as folder,
        execution.start(output, plan, start_worker, report) as (runner, scratch),
    ):
        reading = filters.passed(
            settings.filters, corpus, reading, runner.ordered, scratch / "filters", report
        )
        work = Build(
            settings, corpus, lexicons, reading, folder, scratch, runner, num_shards, report
        )
        built, counts = work.run()
        if isinstance(folder, Path):
            atomic.sync_tree(folder)  # before the folder of finished work is removed
    seconds = time.monotonic() - started
    report(summary(output, built.shards, counts, settings, corpus.bytes, seconds))
    if wasteful := advice(counts, settings):
        errors.warn(wasteful)
    if of_one := alone(counts, settings):
        errors.warn(of_one)
    if settings.config is not None:
        with _as_warnings():
            shard_folder.check_memory(str(output), settings.config, built)
    return built


def _warn_of_batches(settings: Settings, output: AnyPath) -> None:
    """Warns if the batch size of the config does not match the stream; --override may change it."""
    config, rows = settings.config, settings.segments.rows
    if config is None or settings.segments.format != "stream" or not config.objectives:
        return
    with _as_warnings():
        shard_folder.check_batch(str(output), rows, config.recipe.batch_size, training=True)


@contextlib.contextmanager
def _as_warnings() -> Iterator[None]:
    """Prints UserErrors as warnings: training with this config would raise them."""
    try:
        yield
    except UserError as error:
        errors.warn(f"training with this config will be refused: {error}")


@dataclasses.dataclass(frozen=True)
class Build:
    """A build of a shard folder.

    Attributes:
      settings: the settings.
      corpus: the files.
      lexicons: the files of the lexicons.
      reading: how the files are read.
      folder: the folder to fill.
      scratch: a folder that all workers can access.
      runner: runs the work.
      num_shards: the number of shards; 0 = by the size of the examples.
      report: is called with lines of progress.
    """

    settings: Settings
    corpus: Corpus
    lexicons: Inputs
    reading: Reading
    folder: AnyPath
    scratch: AnyPath
    runner: Runner
    num_shards: int
    report: Callable[[str], None]

    def run(self) -> tuple[manifest.Manifest, Counts]:
        """Fills the folder; returns the manifest and the counts."""
        copy = functools.partial(_copy_tokenizer, settings=self.settings)
        facts = self.runner.call(copy, self.folder)
        for note in facts.notes:
            self.report(note)
        config = self.settings.config
        if config is not None and config.encoder is not None:
            with _as_warnings():  # --override may set another size
                check_vocabulary(config.encoder, facts.vocab_size)
        # Workers load the copy in the shard folder, so that the shards are certainly made with it.
        copied = str(self.folder / manifest.TOKENIZER_FOLDER)
        settings = dataclasses.replace(self.settings, tokenizer=copied)
        groups = self.corpus.groups(settings.seed)
        if settings.corruption is not None and settings.corruption.random_tokens == "unigram":
            settings = self._with_token_counts(settings, groups)
        written, counts = self._shards(settings, groups, facts)
        built = manifest.Manifest(
            kind="pretraining" if settings.format == "examples" else "tf_models",
            features=settings.features,
            tokenizer=facts.files,
            tokenizer_fingerprint=facts.fingerprint,
            max_length=settings.segments.row_tokens,
            seed=settings.seed,
            shards=tuple(written),
            config=settings.to_record(),
            totals=counts.as_totals(settings),
            length_histogram=tuple(counts.lengths.tolist()),
            token_counts=stored_arrays.write_token_counts(self.folder, counts.tokens),
            row_groups=shards.count_groups(settings.segments.rows, self.num_shards)
            if settings.segments.format == "stream"
            else 1,
        )
        self.corpus.check()
        self.lexicons.check()
        manifest.write(self.folder, built)
        return built, counts

    def _shards(
        self, settings: Settings, groups: Sequence[Group], facts: "_TokenizerFacts"
    ) -> tuple[list[manifest.Shard], Counts]:
        """Writes the shards."""
        counts = Counts()
        progress = Progress(self.corpus.bytes, self.report)

        def counted(made_of: Sequence[Group], made: Counts) -> None:
            counts.add(made)
            progress(sum(group.bytes for group in made_of), counts.progress)

        if settings.segments.format == "stream":
            written = self._stream(settings, groups, facts, counts, counted)
            return written, counts

        written = self.runner.shuffle(
            functools.partial(_call, name="process_group", settings=settings, reading=self.reading),
            groups,
            functools.partial(shards.count, wanted=self.num_shards),
            functools.partial(shards.write_shard, folder=self.folder),
            Counts,
            counted,
        )
        counts.check(self.corpus.paths, settings.split_sentences)
        return written, counts

    def _with_token_counts(self, settings: Settings, groups: Sequence[Group]) -> Settings:
        """Counts the tokens of the corpus in another pass, for the draws of static masks."""
        self.report("counting the tokens, for static masks")
        # Neither masks nor lexicons change the tokens.
        plain = dataclasses.replace(settings, corruption=None, lexicons=())
        count = functools.partial(_call, name="count_group", settings=plain, reading=self.reading)
        counted = sum(self.runner.ordered(count, groups), start=np.zeros((), np.int64))
        stored_arrays.write_token_counts(self.folder, counted)
        return dataclasses.replace(settings, token_counts=str(self.folder))

    def _stream(
        self,
        settings: Settings,
        groups: Sequence[Group],
        facts: "_TokenizerFacts",
        counts: Counts,
        counted: Callable[[Sequence[Group], Counts], None],
    ) -> list[manifest.Shard]:
        """Writes the shards of a stream.

        Args:
          settings: settings with the format `stream`.
          groups: the groups of ranges of the corpus.
          facts: properties of the tokenizer.
          counts: the counts of the corpus, to which those of the rows are added.
          counted: is called with groups whose documents are stored, and their counts.

        Raises:
          UserError: the text is too short for the rows.
        """
        plan = Plan(
            settings.segments,
            settings.seed,
            facts.sep_id,
            facts.cls_id,
            facts.pair_separators,
            facts.sep_id if facts.eod_id is None else facts.eod_id,
        )
        plan.check()
        layout = sentence_rows if settings.segments.sentences else stream_rows
        text = self.scratch / "text"
        text.mkdir(parents=True, exist_ok=True)
        parts = self.runner.shuffle(
            functools.partial(streams.make_documents, settings=settings, reading=self.reading),
            groups,
            lambda records, size: max(1, -(-size // _PART_BYTES)),
            functools.partial(layout.write, folder=text, plan=plan),
            Counts,
            counted,
        )
        arrange = functools.partial(_arrange, folder=text, plan=plan)
        rows, arranged, size = self.runner.call(arrange, tuple(parts))
        counts.add(arranged)
        divided = shards.divide_rows(settings.segments.rows, rows.plan.steps, size, self.num_shards)
        write = functools.partial(_write_rows, rows=rows, folder=self.folder)
        written = list(self.runner.ordered(write, divided))
        lengths = np.zeros(settings.segments.max_length + 1, np.int64)
        lengths[-1] = counts.totals["examples"] = sum(shard.records for shard in written)
        counts.lengths = lengths
        return written


def _plan(settings: Settings, corpus: Corpus, reading: Reading) -> dict:
    """Returns everything that the examples depend on, as JSON values."""
    folder = paths.path(settings.tokenizer)
    # `tokenizers.load` raises the error for a missing folder.
    names: Iterable[AnyPath] = folder.iterdir() if folder.is_dir() else ()
    tokenizer = sorted(path for path in names if path.is_file())
    others = [*tokenizer, *(paths.path(path) for _, path in settings.lexicons)]
    plain = strict.to_dict(dataclasses.replace(settings, config=None))
    del plain["config"]
    return {
        "settings": plain,
        "words": settings.words,  # `Counts.words` depends on it
        "reading": dataclasses.asdict(reading),
        "files": list(map(_state, [*corpus.files, *map(_seen, others)])),
    }


def _seen(path: AnyPath) -> InputFile:
    paths.check_file(path, max_bytes=None)
    return input_files.seen(path)


def _state(file: InputFile) -> list:
    """Returns the properties of a file that change with its content."""
    return [str(file.path.resolve()), file.size, file.time]


class _TokenizerFacts(NamedTuple):
    """The properties of a tokenizer that the main process needs: see `tokenizers.Tokenizer`."""

    files: dict[str, str]
    fingerprint: str
    sep_id: int
    cls_id: int
    eod_id: int | None
    pair_separators: int
    vocab_size: int
    notes: tuple[str, ...]


def _copy_tokenizer(folder: AnyPath, settings: Settings) -> _TokenizerFacts:
    """Copies the tokenizer of the settings into a shard folder.

    Raises:
      UserError: the tokenizer is not valid, or does not support the format or the corruption of the
        config.
    """
    from official import tokenizers
    from official.corruption.vocabulary import check_tokens

    tokenizer = tokenizers.load(settings.tokenizer)
    check_tokens(settings.corruption, tokenizer, settings.tokenizer)
    if settings.config is not None:
        # Training would refuse these too, but only after the shards are made.
        check_tokens(settings.config.corruption, tokenizer, settings.tokenizer)
    if settings.segments.sentences and not tokenizer.reads_words:
        raise UserError(
            f"{settings.tokenizer}: segments.sentences: true has rows of whole words, but "
            f"{tokenizer.FILE} splits words: make a vocabulary with build_vocab --type=words"
        )
    tokenizer.save(folder / manifest.TOKENIZER_FOLDER)
    return _TokenizerFacts(
        dict(tokenizer.files),
        tokenizer.fingerprint,
        tokenizer.sep_id,
        tokenizer.cls_id,
        tokenizer.eod_id,
        tokenizer.pair_separators,
        tokenizer.vocab_size,
        tokenizer.notes,
    )


def start_worker() -> None:
    """Sets up a worker process."""
    from tfrecords_tools.pretraining import examples

    examples.start_worker()


def _call(group: Group, name: str, settings: Settings, reading: Reading) -> Any:
    """Calls a function of the module `examples`."""
    from tfrecords_tools.pretraining import examples

    return getattr(examples, name)(group, settings, reading)


def _arrange(
    parts: tuple[Any, ...], folder: AnyPath, plan: Plan
) -> tuple[StreamRows | SentenceRows, Counts, float]:
    """Returns the rows of a stored text, counts, and the approximate size of a record.

    Args:
      parts: the results of `write` of `sentence_rows` or `stream_rows`.
      folder: the folder of the text.
      plan: the plan of the rows.

    Raises:
      UserError: the text is too short for the rows.
    """
    kind = SentenceRows if plan.segments.sentences else StreamRows
    rows, counts = kind(folder, parts, plan).arranged()
    records = rows.records(range(1), range(min(rows.plan.steps, _MEASURED)))
    return rows, counts, sum(map(len, records)) / len(records)


def _write_rows(
    shard: shards.RowShard, rows: StreamRows | SentenceRows, folder: AnyPath
) -> manifest.Shard:
    """Writes a shard of a stream, and returns its entry in the manifest."""
    path = folder / f"train-{shard.number:05d}-of-{shard.total:05d}.tfrecord"
    return shards.write_file(path, rows.records(shard.rows, shard.steps))
