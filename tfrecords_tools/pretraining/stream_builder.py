"""Builds the shards of a stream: its text is stored in random order, and rows are cut from it.

The documents are shuffled (`stored_documents`) and stored as one text. Then each shard is made
alone, from the text of its rows.
"""

import functools
from collections.abc import Callable, Sequence

import numpy as np

from official.shards import manifest
from official.utils.paths import AnyPath
from tfrecords_tools.pretraining import jobs
from tfrecords_tools.pretraining.counts import Counts
from tfrecords_tools.pretraining.jobs import TokenizerFacts
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.pretraining.streams import Plan
from tfrecords_tools.text.corpus import Group, Reading
from tfrecords_tools.writing import shards
from tfrecords_tools.writing.shuffle import Runner

_PART_BYTES = 32 << 20  # of text that is put in order in memory
_TEXT = "text"  # the folder of the text


def build(
    settings: Settings,
    reading: Reading,
    groups: Sequence[Group],
    facts: TokenizerFacts,
    folder: AnyPath,
    scratch: AnyPath,
    runner: Runner,
    num_shards: int,
    counts: Counts,
    counted: Callable[[Group, Counts], None],
) -> list[manifest.Shard]:
    """Writes the shards of a stream.

    Args:
      settings: settings with the format `stream`.
      reading: how the text is read.
      groups: the groups of ranges of the corpus.
      facts: what is known of the tokenizer.
      folder: the shard folder.
      scratch: a folder that all workers reach, for the text.
      runner: runs the work.
      num_shards: the number of shards; 0 = by their size.
      counts: the counts of the corpus, to which those of the rows are added.
      counted: is called with each group whose documents are stored, and their counts.

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
    text = scratch / _TEXT
    text.mkdir(parents=True, exist_ok=True)
    parts = runner.shuffle(
        functools.partial(jobs.stored_documents, settings=settings, reading=reading),
        groups,
        lambda records, size: max(1, -(-size // _PART_BYTES)),
        functools.partial(jobs.store_text, folder=text, plan=plan),
        Counts,
        counted,
    )
    arrange = functools.partial(jobs.arrange, folder=text, plan=plan)
    rows, arranged, size = runner.call(arrange, tuple(parts))
    counts.add(arranged)
    divided = shards.divide_rows(settings.segments.rows, rows.plan.steps, size, num_shards)
    write = functools.partial(jobs.write_rows, rows=rows, folder=folder)
    written = list(runner.ordered(write, divided))
    lengths = np.zeros(settings.segments.max_length + 1, np.int64)
    lengths[-1] = counts.totals["examples"] = sum(shard.records for shard in written)
    counts.lengths = lengths
    return written
