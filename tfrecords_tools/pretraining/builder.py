"""Builds the shard folder of a pretraining corpus.

Groups of ranges of the corpus are turned into examples (`examples.process_group`), which are
shuffled into shards (`tfrecords_tools.writing.shuffle`). The same input, settings and seed give the
same bytes with any number of workers. The folder gets its name when it is complete. A build that
was killed goes on with the groups that are done.
"""

import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from official.config.compatibility import check_vocabulary
from official.shards import manifest, shard_folder, token_counts
from official.utils import atomic, errors, paths, strict
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from official.utils.progress import Progress
from tfrecords_tools.pretraining import jobs, stream_builder
from tfrecords_tools.pretraining.counts import Counts, advice, summary
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.text.corpus import Corpus, Group, Reading
from tfrecords_tools.writing import folders, parallel, shards
from tfrecords_tools.writing.execution import Execution
from tfrecords_tools.writing.shuffle import Runner


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
      execution: where the work is done; this does not change the shards.
      num_shards: the number of shards; 0 = by the size of the examples.
      on_bad_utf8: 'error' to stop at a line that is not UTF-8, 'skip' to leave it out.
      on_long_line: the same for lines that are too long.
      report: is called with lines of progress and the summary.

    Raises:
      UserError: the input, the settings or the disk cannot be used.
    """
    started = time.monotonic()
    if execution.workers:
        parallel.start(jobs.PRELOADED)
    corpus = Corpus.find(inputs)
    reading = Reading.of(corpus, on_bad_utf8, on_long_line)
    output = paths.path(output)
    _warn_of_batches(settings, output)
    plan = _plan(settings, corpus, reading)
    with (
        folders.new_shards(output) as folder,
        execution.start(output, plan, jobs.start_worker, report) as (runner, scratch),
    ):
        work = _Build(settings, corpus, reading, folder, scratch, runner, num_shards, report)
        built, counts = work.run()
        if isinstance(folder, Path):
            atomic.sync_tree(folder)  # before the folder of what is done is removed
    seconds = time.monotonic() - started
    report(summary(output, built, counts, settings, corpus.bytes, seconds))
    if wasteful := advice(built):
        errors.warn(wasteful)
    if settings.config is not None:
        with _as_warnings():
            shard_folder.check_memory(str(output), settings.config, built)
    return built


def _warn_of_batches(settings: Settings, output: AnyPath) -> None:
    """Warns of a batch of training that a stream does not suit; --override may set another."""
    config, rows = settings.config, settings.segments.rows
    if config is None or settings.segments.format != "stream" or not config.objectives:
        return
    with _as_warnings():
        shard_folder.check_batch(str(output), rows, config.recipe.batch_size, training=True)


@contextlib.contextmanager
def _as_warnings() -> Iterator[None]:
    """Prints what training will refuse with this config."""
    try:
        yield
    except UserError as error:
        errors.warn(f"training with this config will be refused: {error}")


@dataclasses.dataclass(frozen=True)
class _Build:
    """A build of a shard folder; the attributes are those of `build`.

    Attributes:
      settings: the settings.
      corpus: the files.
      reading: how they are read.
      folder: the folder to fill.
      scratch: a folder that all workers reach.
      runner: runs the work.
      num_shards: the number of shards; 0 = by the size of the examples.
      report: is called with lines of progress.
    """

    settings: Settings
    corpus: Corpus
    reading: Reading
    folder: AnyPath
    scratch: AnyPath
    runner: Runner
    num_shards: int
    report: Callable[[str], None]

    def run(self) -> tuple[manifest.Manifest, Counts]:
        """Fills the folder; returns the manifest and the counts."""
        copy = functools.partial(jobs.copy_tokenizer, settings=self.settings)
        facts = self.runner.call(copy, self.folder)
        config = self.settings.config
        if config is not None and config.encoder is not None:
            with _as_warnings():  # --override may set another size
                check_vocabulary(config.encoder, facts.vocab_size)
        # The workers load the copy in the shard folder, so that it is what the shards were made of.
        copied = str(self.folder / manifest.TOKENIZER_FOLDER)
        settings = dataclasses.replace(self.settings, tokenizer=copied)
        groups = self.corpus.groups(settings.seed)
        if getattr(settings.corruption, "random_tokens", "") == "unigram":
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
            token_counts=token_counts.write(self.folder, counts.tokens),
            row_groups=shards.count_groups(settings.segments.rows, self.num_shards)
            if settings.segments.format == "stream"
            else 1,
        )
        manifest.write(self.folder, built)
        return built, counts

    def _shards(
        self, settings: Settings, groups: Sequence[Group], facts: jobs.TokenizerFacts
    ) -> tuple[list[manifest.Shard], Counts]:
        """Writes the shards."""
        counts = Counts()
        progress = Progress(self.corpus.bytes, self.report)

        def counted(group: Group, made: Counts) -> None:
            counts.add(made)
            progress(group.bytes, counts.progress)

        if settings.segments.format == "stream":
            written = stream_builder.build(
                settings, self.reading, groups, facts, self.folder, self.scratch, self.runner,
                self.num_shards, counts, counted,
            )  # fmt: skip
            return written, counts

        written = self.runner.shuffle(
            functools.partial(jobs.process_group, settings=settings, reading=self.reading),
            groups,
            functools.partial(shards.count, wanted=self.num_shards),
            functools.partial(shards.write_shard, folder=self.folder),
            Counts,
            counted,
        )
        counts.check(self.corpus.paths)
        return written, counts

    def _with_token_counts(self, settings: Settings, groups: Sequence[Group]) -> Settings:
        """Counts the tokens of the corpus, which static masks are drawn by, in another pass."""
        self.report("counting the tokens, which static masks are drawn by")
        # Neither masks nor lexicons change the tokens.
        plain = dataclasses.replace(settings, corruption=None, lexicons=())
        count = functools.partial(jobs.count_group, settings=plain, reading=self.reading)
        token_counts.write(self.folder, sum(self.runner.ordered(count, groups)))
        return dataclasses.replace(settings, token_counts=str(self.folder))


def _plan(settings: Settings, corpus: Corpus, reading: Reading) -> dict:
    """Returns everything that the examples depend on, as JSON."""
    folder = paths.path(settings.tokenizer)
    # `tokenizers.load` says what is wrong with a folder that is missing.
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    tokenizer = [path for path in found if path.is_file()]
    read = [*corpus.paths, *tokenizer, *(paths.path(path) for _, path in settings.lexicons)]
    plain = strict.to_dict(dataclasses.replace(settings, config=None))
    del plain["config"]
    return {
        "settings": plain,
        "reading": dataclasses.asdict(reading),
        "files": [_state(path) for path in read],
    }


def _state(path: AnyPath) -> list:
    """Returns what changes when a file changes."""
    paths.check_file(path, max_bytes=None)
    status = path.stat()
    return [str(path.resolve()), status.st_size, status.st_mtime]
