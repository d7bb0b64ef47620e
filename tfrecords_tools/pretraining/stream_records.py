"""Makes the examples of a stream: its text goes to files, and rows are cut from them."""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from official import tokenizers
from tfrecords_tools.pretraining import examples
from tfrecords_tools.pretraining.chunks import DocumentChunk
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.pretraining.streams import Plan
from tfrecords_tools.writing import parallel
from tfrecords_tools.writing.row_groups import RowGroupWriter


def records(
    chunks: Iterable[DocumentChunk],
    settings: Settings,
    tokenizer: tokenizers.Tokenizer,
    writer: RowGroupWriter,
    workers: int,
    *,
    corpus: type,
    read: Callable,
    make: Callable,
) -> Iterator[examples.Records]:
    """Yields the counts of the chunks of a corpus, and then its examples.

    Args:
      chunks: the chunks of the input.
      settings: settings with the format `stream`.
      tokenizer: the tokenizer of the settings.
      writer: the writer of the examples; its number of steps is set.
      workers: the number of processes.
      corpus: the class of the files: `stream_corpus.Corpus` or `sentence_corpus.Corpus`.
      read: reads a chunk for the corpus, with its counts.
      make: makes the examples of a block of the plan.

    Raises:
      UserError: the text is too short for the rows.
    """
    folder = writer.folder / ".stream"
    plan = Plan.from_settings(folder, settings, tokenizer)
    with contextlib.closing(corpus(folder)) as files:
        function = functools.partial(read, settings=settings)
        for text, counts in parallel.ordered(function, chunks, workers, examples.start_worker):
            files.add(text)
            yield counts
        plan, counts = files.arrange(plan)
        yield counts
        lengths = np.zeros(settings.segments.max_length + 1, np.int64)
        writer.start(plan.steps)
        function = functools.partial(make, plan=plan)
        for block in parallel.ordered(function, plan.blocks, workers, examples.start_worker):
            lengths[-1] = len(block)
            yield examples.Records(block, lengths)
