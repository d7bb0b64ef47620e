"""Builds the shard folder of a pretraining corpus.

This process reads the documents and cuts them into chunks. Workers turn chunks into examples
(`examples.process_chunk`), and this process writes the examples in the order of the chunks. The
same input, settings and seed give the same bytes with any number of workers. The folder gets its
name when it is complete.
"""

import contextlib
import dataclasses
import fcntl
import functools
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from official import tokenizers
from official.corruption.vocabulary import check_tokens
from official.shards import manifest, token_counts
from official.utils import atomic
from official.utils.errors import UserError
from tfrecords_tools.pretraining import (
    chunks,
    examples,
    sentence_corpus,
    sentence_rows,
    stream_corpus,
    stream_records,
    streams,
)
from tfrecords_tools.pretraining.counts import CorpusCounts, Progress, summary
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.text import documents
from tfrecords_tools.writing import parallel
from tfrecords_tools.writing.row_groups import RowGroupWriter
from tfrecords_tools.writing.shard_writer import ShardWriter

BYTES_PER_SHARD = 8 << 20  # of input
MAX_SHARDS = 256


def build(
    settings: Settings,
    inputs: Sequence[str] | str,
    output: str | os.PathLike,
    workers: int = 1,
    num_shards: int = 0,
    on_bad_utf8: str = "error",
    on_long_line: str = "error",
    report: Callable[[str], None] = print,
) -> manifest.Manifest:
    """Builds a shard folder and returns its manifest.

    Args:
      settings: the settings (see `Settings.from_config`).
      inputs: files and globs, as `documents.expand` takes them.
      output: the folder to create.
      workers: the number of processes beside this one.
      num_shards: the number of shards; 0 = by the size of the input.
      on_bad_utf8: 'error' or 'skip', as in `documents.read`.
      on_long_line: 'error' or 'skip', as in `documents.read`.
      report: is called with lines of progress and the summary.

    Raises:
      UserError: the input, the settings or the disk cannot be used.
    """
    started = time.monotonic()
    paths = documents.expand(inputs)
    size = sum(path.stat().st_size for path in paths)
    stream = settings.segments.format == "stream"
    if not stream:
        num_shards = num_shards or min(MAX_SHARDS, 1 + size // BYTES_PER_SHARD)
    tokenizer = tokenizers.load(settings.tokenizer)
    check_tokens(settings.corruption, tokenizer, settings.tokenizer)
    if settings.segments.sentences:
        sentence_corpus.check(tokenizer, settings.tokenizer)
    read = functools.partial(documents.read, paths, on_bad_utf8, on_long_line)
    counts = CorpusCounts(settings, tokenizer.vocab_size)
    progress = Progress(counts, size, report)
    output = Path(output)
    _remove_leftovers(output)
    with atomic.folder(output) as folder, _locked(folder, fcntl.LOCK_SH):
        # The workers load the copy in the shard folder, so that it is what the shards were made of.
        tokenizer.save(folder / manifest.TOKENIZER_FOLDER)
        copied = str(folder / manifest.TOKENIZER_FOLDER)
        settings = dataclasses.replace(settings, tokenizer=copied)
        if getattr(settings.corruption, "random_tokens", "") == "unigram":
            report("counting the tokens, which static masks are drawn by")
            settings = _with_token_counts(settings, folder, read, workers)
        if stream:
            writer = RowGroupWriter(folder, settings.segments.rows, num_shards)
        else:
            writer = ShardWriter(folder, num_shards=num_shards)
        text_chunks = chunks.cut(read(tally=counts.tally), again=read)
        for records in _records(text_chunks, settings, tokenizer, writer, workers):
            writer.write(records.examples)
            counts.add(records)
            progress()
        counts.check(paths, num_shards)
        built = _manifest(folder, settings, tokenizer, writer, counts)
        manifest.write(folder, built)
    report(summary(output, built, counts, time.monotonic() - started))
    return built


def _records(
    text_chunks: Iterable[chunks.DocumentChunk],
    settings: Settings,
    tokenizer: tokenizers.Tokenizer,
    writer: ShardWriter | RowGroupWriter,
    workers: int,
) -> Iterator[examples.Records]:
    given = text_chunks, settings, tokenizer, writer, workers
    if settings.segments.sentences:
        return stream_records.records(
            *given,
            corpus=sentence_corpus.Corpus,
            read=sentence_corpus.read_chunk,
            make=sentence_rows.make,
        )
    if settings.segments.format == "stream":
        return stream_records.records(
            *given,
            corpus=stream_corpus.Corpus,
            read=examples.tokenize_chunk,
            make=streams.make,
        )
    function = functools.partial(examples.process_chunk, settings=settings)
    return parallel.ordered(function, text_chunks, workers, examples.start_worker)


def _manifest(
    folder: Path,
    settings: Settings,
    tokenizer: tokenizers.Tokenizer,
    writer: ShardWriter | RowGroupWriter,
    counts: CorpusCounts,
) -> manifest.Manifest:
    """Finishes the shards and returns the manifest of the folder."""
    return manifest.Manifest(
        kind="tf_models" if settings.format == "tf_models" else "pretraining",
        features=settings.features,
        tokenizer=tokenizer.files,
        tokenizer_fingerprint=tokenizer.fingerprint,
        max_length=settings.segments.row_tokens,
        seed=settings.seed,
        shards=writer.finish(),
        config=settings.to_record(),
        totals=counts.as_totals(),
        length_histogram=tuple(counts.lengths.tolist()),
        token_counts=token_counts.write(folder, counts.tokens),
        row_groups=writer.groups if isinstance(writer, RowGroupWriter) else 1,
    )


def _with_token_counts(settings: Settings, folder: Path, read: Callable, workers: int) -> Settings:
    """Counts the tokens of the corpus, which static masks are drawn by, in a pass of its own."""
    # Neither masks nor lexicons change the tokens.
    plain = dataclasses.replace(settings, corruption=None, lexicons=())
    count = functools.partial(examples.count_chunk, settings=plain)
    counts = sum(parallel.ordered(count, chunks.cut(read()), workers, examples.start_worker))
    token_counts.write(folder, counts)
    return dataclasses.replace(settings, token_counts=str(folder))


def _remove_leftovers(output: Path) -> None:
    """Removes the unfinished folders that killed runs with the same output left behind."""
    name = re.compile(re.escape(f"{atomic.PREFIX}{output.name}-") + r"[a-z0-9_]{8}(-old)?")
    for path in output.parent.glob(f"{atomic.PREFIX}*"):
        if name.fullmatch(path.name) and path.is_dir():
            with _locked(path, fcntl.LOCK_EX):
                shutil.rmtree(path)


@contextlib.contextmanager
def _locked(folder: Path, kind: int) -> Iterator[None]:
    """Holds a lock that tells a folder in use from one that a killed run left behind.

    A process that writes to the folder, with `atomic.file` too, holds a shared lock. A process that
    removes the folder needs an exclusive lock.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{folder} is being written by another run: wait for its end") from None
        yield
    finally:
        os.close(descriptor)
