"""Makes the shard folder of a pretraining corpus.

This process reads the documents and cuts them into pieces, workers make examples of them
(`examples.process_piece`), and this process writes these in the pieces' order: the same input,
settings and seed give the same bytes whatever the number of workers. The folder takes its name when
it is whole.
"""

import contextlib
import dataclasses
import fcntl
import functools
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from official import config, tokenizers
from official.corruption.vocabulary import check_mask_token
from official.shards import manifest, token_counts
from official.shards.features import FEATURES, LEXICONS
from official.shards.provenance import PretrainingSettings
from official.utils import atomic
from official.utils.errors import UserError
from tfrecords_tools.pretraining import chunks, examples, stream_corpus, tf_models
from tfrecords_tools.pretraining.counts import CorpusCounts, Progress, summary
from tfrecords_tools.text import documents
from tfrecords_tools.writing import parallel

_BYTES_PER_SHARD = 8 << 20  # of input
_MAX_SHARDS = 256


def build(
    settings: examples.Settings,
    inputs: Sequence[str] | str,
    output: str | os.PathLike,
    workers: int = 1,
    num_shards: int = 0,
    on_bad_utf8: str = "error",
    on_long_line: str = "error",
    report: Callable[[str], None] = print,
) -> manifest.Manifest:
    """Makes a shard folder.

    Args:
      settings: how (see `settings_of`).
      inputs: files and globs, as `documents.expand` takes them.
      output: the folder to make.
      workers: processes beside this one.
      num_shards: 0 = by the size of the input.
      on_bad_utf8: 'error' or 'skip', as in `documents.read`.
      on_long_line: the same.
      report: takes lines of progress and the summary.

    Returns:
      The manifest as written.

    Raises:
      UserError: the input, the settings or the disk.
    """
    started = time.monotonic()
    paths = documents.expand(inputs)
    size = sum(path.stat().st_size for path in paths)
    num_shards = num_shards or min(_MAX_SHARDS, 1 + size // _BYTES_PER_SHARD)
    tokenizer = tokenizers.load(settings.tokenizer)
    check_mask_token(settings.corruption, tokenizer, settings.tokenizer)
    read = functools.partial(documents.read, paths, on_bad_utf8, on_long_line)
    counts = CorpusCounts(settings, tokenizer.vocab_size)
    progress = Progress(counts, size, report)
    output = Path(output)
    _sweep(output)
    with atomic.folder(output) as folder, _locked(folder, fcntl.LOCK_SH):
        # The workers read the copy that stays with the shards: what it says is what was used.
        tokenizer.save(folder / manifest.TOKENIZER_FOLDER)
        copied = str(folder / manifest.TOKENIZER_FOLDER)
        settings = dataclasses.replace(settings, tokenizer=copied)
        if getattr(settings.corruption, "random_tokens", "") == "unigram":
            report("counting the tokens, which static masks are drawn by")
            settings = _with_token_counts(settings, folder, read, workers)
        writer = examples.Writer(folder, num_shards)
        parts = chunks.cut(read(tally=counts.tally), again=read)
        if settings.segments.format == "stream":
            records = stream_corpus.records(parts, settings, tokenizer, writer, workers)
        else:
            function = functools.partial(examples.process_piece, settings=settings)
            records = parallel.ordered(function, parts, workers, examples.start_worker)
        for made in records:
            writer.write(made.examples)
            counts.add(made)
            progress()
        counts.check(paths, num_shards)
        made = manifest.Manifest(
            kind="tf_models" if settings.format == "tf_models" else "pretraining",
            features=_features(settings),
            tokenizer=tokenizer.files,
            tokenizer_fingerprint=tokenizer.fingerprint,
            max_length=settings.segments.row_tokens,
            seed=settings.seed,
            shards=writer.finish(),
            config=recorded_settings(settings),
            totals=counts.as_totals(),
            length_histogram=tuple(counts.lengths.tolist()),
            token_counts=token_counts.write(folder, counts.tokens),
        )
        manifest.write(folder, made)
    report(summary(output, made, counts, time.monotonic() - started))
    return made


def _with_token_counts(
    settings: examples.Settings, folder: Path, read: Callable, workers: int
) -> examples.Settings:
    """Reads the whole corpus once to count its tokens, by which static masks are drawn."""
    count = functools.partial(examples.count_piece, settings=_counting(settings))
    parts = chunks.cut(read())
    counted = sum(parallel.ordered(count, parts, workers, examples.start_worker))
    token_counts.write(folder, counted)
    return dataclasses.replace(settings, token_counts=str(folder))


def settings_of(
    made_of: config.Config,
    tokenizer: str | os.PathLike,
    seed: int | None = None,
    format: str = "examples",
    split_sentences: bool = False,
    phrases: str | os.PathLike | None = None,
    entities: str | os.PathLike | None = None,
) -> examples.Settings:
    """Returns the settings that a config stands for.

    `phrases` and `entities` are lexicon files (see `tfrecords_tools.pretraining.lexicon`).

    Raises:
      UserError: the config has not what the format needs.
    """
    if made_of.segments is None:
        raise UserError(f"config {made_of.name!r} has no `segments`: it is not for pretraining")
    copies, whole = made_of.segments.duplicates, ("full_sentences", "doc_sentences")
    if copies > 1 and made_of.segments.format in whole and not made_of.segments.short_seq_prob:
        raise UserError(
            f"segments.duplicates: {copies} copies of {made_of.segments.format} with "
            "short_seq_prob: 0 are all the same: take 1, or another short_seq_prob"
        )
    if format == "tf_models":
        tf_models.check(made_of)
    seed = made_of.seed if seed is None else seed
    if seed < 0:
        raise UserError(f"seed: {seed} is negative: name one from 0 up")
    static = made_of.segments.static_masks or format == "tf_models"
    return examples.Settings(
        segments=made_of.segments,
        corruption=made_of.corruption if static else None,
        tokenizer=str(Path(tokenizer).resolve()),
        seed=seed,
        format=format,
        split_sentences=split_sentences,
        lexicons=_lexicons(made_of, {"phrase_inner": phrases, "entity_inner": entities}),
    )


def _lexicons(
    made_of: config.Config, files: Mapping[str, str | os.PathLike | None]
) -> tuple[tuple[str, str], ...]:
    """Returns the feature and the file of each lexicon that is given.

    Raises:
      UserError: the corruption needs another one, or the format has no use for them.
    """
    lexicons = tuple((name, str(Path(path).resolve())) for name, path in files.items() if path)
    needed = made_of.corruption.needs() if made_of.corruption else frozenset()
    if made_of.segments.format == "stream" and (lexicons or needed):
        flag = f"{LEXICONS[lexicons[0][0]]}" if lexicons else f"unit: {made_of.corruption.unit}"
        raise UserError(
            f"{flag}: a stream has no phrases and entities: take another unit, or another "
            "segments.format"
        )
    for name in sorted(needed - dict(lexicons).keys()):
        raise UserError(
            f"corruption.unit: {made_of.corruption.unit} needs {LEXICONS[name]}=FILE, one "
            f"{made_of.corruption.unit} a line (tfrecords_tools.build_phrases finds phrases)"
        )
    return lexicons


def _features(settings: examples.Settings) -> tuple[str, ...]:
    if settings.format == "tf_models":
        return tf_models.FEATURES
    names = {"token_ids", "segment_lengths", settings.segments.label}
    names |= settings.segments.row_features
    if settings.segments.packing > 1:
        names.add("part_lengths")
    if settings.corruption is not None:
        names |= {"masked_positions", "masked_ids"}
    names |= dict(settings.lexicons).keys()
    return tuple(name for name in FEATURES if name in names)


def recorded_settings(settings: examples.Settings) -> PretrainingSettings:
    """Returns the settings that the manifest records."""
    return PretrainingSettings(
        segments=settings.segments,
        corruption=settings.corruption,
        format=settings.format,
        split_sentences=settings.split_sentences,
        lexicons=tuple(Path(path).name for _, path in settings.lexicons),
    )


def _counting(settings: examples.Settings) -> examples.Settings:
    """Settings that tokenize alike and do no more."""
    return dataclasses.replace(settings, corruption=None, lexicons=())


def _sweep(output: Path) -> None:
    """Removes what killed runs for the same folder left behind."""
    name = re.compile(re.escape(f"{atomic.PREFIX}{output.name}-") + r"[a-z0-9_]{8}(-old)?")
    for path in output.parent.glob(f"{atomic.PREFIX}*"):
        if name.fullmatch(path.name) and path.is_dir():
            with _locked(path, fcntl.LOCK_EX):
                shutil.rmtree(path)


@contextlib.contextmanager
def _locked(folder: Path, kind: int) -> Iterator[None]:
    """Holds the lock that tells a folder in the making from one that a killed run left.

    Who writes there shares it, with `atomic.file` too; who removes the folder wants it alone.
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
