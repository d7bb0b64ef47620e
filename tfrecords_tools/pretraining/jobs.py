"""What worker processes do for a pretraining shard folder.

The functions import TensorFlow when they run, so that the main process does without it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from official.shards import manifest
from official.utils.errors import UserError
from official.utils.paths import AnyPath
from tfrecords_tools.pretraining import sentence_rows, stream_rows
from tfrecords_tools.pretraining.counts import Counts
from tfrecords_tools.pretraining.sentence_rows import SentenceRows
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.pretraining.stream_rows import StreamRows
from tfrecords_tools.pretraining.streams import Plan
from tfrecords_tools.text.corpus import Group, Reading
from tfrecords_tools.writing.shards import RowShard
from tfrecords_tools.writing.shuffle import Keyed, ShardRecords

StoredPart = stream_rows.StoredPart | sentence_rows.StoredPart

_MEASURED = 256  # steps whose records tell the size of all
# The module that the process imports from which workers are forked.
PRELOADED = "tfrecords_tools.pretraining.examples"


class TokenizerFacts(NamedTuple):
    """What the main process needs to know of a tokenizer: see `tokenizers.Tokenizer`."""

    files: dict[str, str]
    fingerprint: str
    sep_id: int
    cls_id: int
    eod_id: int | None
    pair_separators: int
    vocab_size: int


def start_worker() -> None:
    """Sets up a worker process."""
    from tfrecords_tools.pretraining import examples

    examples.start_worker()


def copy_tokenizer(folder: AnyPath, settings: Settings) -> TokenizerFacts:
    """Copies the tokenizer of the settings into a shard folder.

    Raises:
      UserError: it is not valid, or does not suit the format, or the corruption of the config that
        the shards are made for.
    """
    from official import tokenizers
    from official.corruption.vocabulary import check_tokens

    tokenizer = tokenizers.load(settings.tokenizer)
    check_tokens(settings.corruption, tokenizer, settings.tokenizer)
    if settings.config is not None:
        # What training would refuse once the shards are made.
        check_tokens(settings.config.corruption, tokenizer, settings.tokenizer)
    if settings.segments.sentences and not isinstance(tokenizer, tokenizers.Characters):
        raise UserError(
            f"{settings.tokenizer}: segments.sentences: true has rows of whole words, and "
            f"{tokenizer.FILE} splits them: make a vocabulary with build_vocab --type=words"
        )
    tokenizer.save(folder / manifest.TOKENIZER_FOLDER)
    return TokenizerFacts(
        dict(tokenizer.files),
        tokenizer.fingerprint,
        tokenizer.sep_id,
        tokenizer.cls_id,
        tokenizer.eod_id,
        tokenizer.pair_separators,
        tokenizer.vocab_size,
    )


def count_group(group: Group, settings: Settings, reading: Reading) -> np.ndarray:
    """See `examples.count_group`."""
    from tfrecords_tools.pretraining import examples

    return examples.count_group(group, settings, reading)


def process_group(group: Group, settings: Settings, reading: Reading) -> Iterator[Keyed]:
    """See `examples.process_group`."""
    from tfrecords_tools.pretraining import examples

    return examples.process_group(group, settings, reading)


def stored_documents(group: Group, settings: Settings, reading: Reading) -> Iterator[Keyed]:
    """See `stored_documents.make`."""
    from tfrecords_tools.pretraining import streams

    return streams.make_documents(group, settings, reading)


def store_text(part: ShardRecords, folder: AnyPath, plan: Plan) -> StoredPart:
    """Stores a part of the text of a stream; see `stream_text.write`, `sentence_rows.write`."""
    if plan.segments.sentences:
        return sentence_rows.write(part, folder, plan)
    return stream_rows.write(part, folder, plan)


def arrange(
    parts: tuple[StoredPart, ...], folder: AnyPath, plan: Plan
) -> tuple[StreamRows | SentenceRows, Counts, float]:
    """Returns the rows of a stored text, counts, and about the size of a record.

    Raises:
      UserError: the text is too short for the rows.
    """
    kind = SentenceRows if plan.segments.sentences else StreamRows
    rows, counts = kind(folder, parts, plan).arranged()
    records = rows.records(range(1), range(min(rows.plan.steps, _MEASURED)))
    return rows, counts, sum(map(len, records)) / len(records)


def write_rows(shard: RowShard, rows: StreamRows | SentenceRows, folder: AnyPath) -> manifest.Shard:
    """Writes a shard of a stream, and returns its entry in the manifest."""
    from tfrecords_tools.writing import shards

    path = folder / f"train-{shard.number:05d}-of-{shard.total:05d}.tfrecord"
    return shards.write_file(path, rows.records(shard.rows, shard.steps))
