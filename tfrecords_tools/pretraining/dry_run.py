"""What a build would cost: some groups of the corpus are built, and the rest is computed."""

import dataclasses
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from official.shards import manifest
from official.utils import input_files
from official.utils.input_files import Inputs
from official.utils.parallel import Pool
from official.utils.progress import Report
from tfrecords_tools.pretraining import builder
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.text import filters
from tfrecords_tools.text.corpus import Corpus, Group, Reading
from tfrecords_tools.writing import local, shards

_SAMPLED_BYTES = 32 << 20  # of the text that is built
# CPU seconds to open a file of eight groups and find the examples of some shards in it, measured by
# benchmarks.groups.
_OPENING = 400e-6


@dataclasses.dataclass(frozen=True)
class Sample(Corpus):
    """Some groups of a corpus.

    Attributes:
      chosen: the groups.
    """

    chosen: Sequence[Group]

    @property
    def bytes(self) -> int:
        """About the size of the groups on disk."""
        return sum(group.bytes for group in self.chosen)

    def groups(self, seed: int | None) -> list[Group]:
        """Returns the groups, in the same order for all seeds."""
        del seed
        return list(self.chosen)


@dataclasses.dataclass(frozen=True)
class Forecast:
    """What a build would cost.

    Attributes:
      text: the number of bytes of the corpus.
      files: the number of its files.
      groups: the number of its groups.
      sampled: the number of bytes of the groups that were built.
      sampled_groups: their number.
      examples: about the number of examples.
      shards: about the number of shards.
      shard_bytes: about the size of all shards.
      work_bytes: about the size of the temporary files beside the shards.
      making: about the CPU seconds that grow with the text.
      opening: about those of opening the files of all groups for all shards, which grow with its
        square.
      memory: about the number of bytes of a process.
    """

    text: int
    files: int
    groups: int
    sampled: int
    sampled_groups: int
    examples: int
    shards: int
    shard_bytes: int
    work_bytes: int
    making: float
    opening: float
    memory: int

    def lines(self, workers: int) -> list[str]:
        """Returns lines for the user.

        Args:
          workers: the number of processes of the build.
        """
        size, seconds = _size, self.making + self.opening
        opened = f", of which {self.opening:,.0f} open files" if self.opening >= 1 else ""
        return [
            f"text      {size(self.text)} in {self.files:,} file(s): {self.groups:,} group(s)",
            f"built     {size(self.sampled)} of it for this: {self.sampled_groups:,} group(s)",
            f"examples  about {self.examples:,}",
            f"shards    about {self.shards:,}, {size(self.shard_bytes)}",
            f"work      about {size(self.work_bytes)} more on the same disk until the end",
            f"time      about {seconds:,.0f} CPU seconds on cores like this one{opened}: "
            f"{_time(seconds / workers)} with --workers={workers}",
            f"memory    about {size(self.memory)} for each worker",
        ]


def forecast(
    settings: Settings,
    inputs: Sequence[str] | str,
    num_shards: int,
    on_bad_utf8: str,
    on_long_line: str,
    report: Report,
    most: int = _SAMPLED_BYTES,
) -> Forecast:
    """Builds some groups in a temporary folder, and returns what the whole build would cost.

    What is left out as a duplicate is looked for among these groups only.

    Args:
      settings: as of `builder.build`, like the next four.
      inputs: files and globs.
      num_shards: the number of shards; 0 = by the size of the examples.
      on_bad_utf8: 'error' or 'skip'.
      on_long_line: 'error' or 'skip'.
      report: is called with lines of progress.
      most: the number of bytes of text that are built.

    Raises:
      UserError: as `builder.build`.
    """
    corpus = Corpus.find(inputs)
    reading = Reading.of(corpus, on_bad_utf8, on_long_line)
    groups = corpus.groups(settings.seed)
    sample = Sample(corpus.files, _chosen(groups, most))
    report(f"building {len(sample.chosen):,} of {len(groups):,} group(s)")
    with input_files.explained(corpus.check), Pool(1, builder.start_worker) as pool:
        # The first group loads the tokenizer and makes the graphs of masks.
        _build(pool, settings, Sample(corpus.files, sample.chosen[:1]), reading, lambda line: None)
        before = _usage(pool)
        built, work = _build(pool, settings, sample, reading, report)
        after = _usage(pool)
    times = corpus.bytes / sample.bytes
    seconds = (after.seconds - before.seconds) * times
    records = round(sum(shard.records for shard in built.shards) * times)
    size = round(sum(shard.bytes for shard in built.shards) * times)
    if settings.segments.format == "stream":
        rows = settings.segments.rows
        steps, mean = max(1, records // rows), size / max(1, records)
        number = len(shards.divide_rows(rows, steps, mean, num_shards))
    else:
        number = shards.count(records, size, num_shards)
    files = -(-len(groups) // local.neighbors(len(groups)))
    read = -(-number // local.neighbors(files))
    # Records that are sorted or read together are in memory twice: as they are, and in their order.
    together = local.neighbors(len(groups)) + local.neighbors(files) - 2
    return Forecast(
        corpus.bytes, len(corpus.files), len(groups), sample.bytes, len(sample.chosen), records,
        number, size, round(work * times), seconds, files * read * _OPENING,
        after.memory + together * local.RUN_BYTES,
    )  # fmt: skip


def _chosen(groups: Sequence[Group], most: int) -> list[Group]:
    """Returns the first groups, which are a random sample of the corpus; at least one."""
    chosen: list[Group] = []
    size = 0
    for group in groups:
        if chosen and size + group.bytes > most:
            break
        chosen.append(group)
        size += group.bytes
    return chosen


def _build(
    pool: Pool, settings: Settings, sample: Sample, reading: Reading, report: Report
) -> tuple[manifest.Manifest, int]:
    """Builds the groups in a temporary folder; returns the manifest and the size of other files."""
    with tempfile.TemporaryDirectory() as name:
        folder, scratch = Path(name, "shards"), Path(name, "work")
        folder.mkdir()
        scratch.mkdir()
        runner = local.LocalRunner(pool, scratch / "runs")
        passed = filters.passed(
            settings.filters, sample, reading, runner.ordered, scratch / "filters", report
        )
        lexicons = Inputs(path for _, path in settings.lexicons)
        work = builder.Build(settings, sample, lexicons, passed, folder, scratch, runner, 0, report)
        built, _ = work.run()
        files = [path for path in scratch.rglob("*") if path.is_file()]
        return built, sum(path.stat().st_size for path in files)


class _Usage(NamedTuple):
    """What a process has used.

    Attributes:
      seconds: of CPU time.
      memory: the most bytes that it had in memory.
    """

    seconds: float
    memory: int


def _usage(pool: Pool) -> _Usage:
    """Returns what the only process of a pool has used."""
    (usage,) = pool.ordered(_own_usage, [None])
    return usage


def _own_usage(_: None) -> _Usage:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return _Usage(time.process_time(), most if sys.platform == "darwin" else most << 10)


def _size(number: int) -> str:
    return f"{number / 1e9:,.1f} GB" if number >= 1e10 else f"{number / 1e6:,.1f} MB"


def _time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:,.0f} minutes" if seconds < 6000 else f"{seconds / 3600:,.1f} hours"
