"""Hostile examples: shards whose files are as the manifest says, and whose numbers are not."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

from benchmarks.torture import folders
from benchmarks.torture.spoiling import HUGE


def _records(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[Path], None]:
    """Changes the records of the first shard; the manifest has its checksum."""

    def spoil(folder: Path) -> None:
        import tensorflow as tf

        from official.shards import manifest, shard_folder

        content = manifest.read(folder)
        path = folder / content.shards[0].name
        records = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
        with tf.io.TFRecordWriter(str(path)) as writer:
            for record in change(records):
                writer.write(record)
        shards = (shard_folder.describe(path), *content.shards[1:])
        manifest.write(folder, dataclasses.replace(content, shards=shards))

    return spoil


def _first(change: Callable) -> Callable[[Path], None]:
    """Changes the features of the first example."""

    def of_records(records: list[bytes]) -> list[bytes]:
        import tensorflow as tf

        example = tf.train.Example.FromString(records[0])
        change(example.features.feature)
        return [example.SerializeToString(), *records[1:]]

    return _records(of_records)


def _number(name: str, value: int, place: int = 0) -> Callable[[Path], None]:
    def change(features) -> None:
        features[name].int64_list.value[place] = value

    return _first(change)


def _list(name: str, values: list[int]) -> Callable[[Path], None]:
    def change(features) -> None:
        features[name].int64_list.value[:] = values

    return _first(change)


def _floats(features) -> None:
    ids = list(features["token_ids"].int64_list.value)
    features["token_ids"].float_list.value[:] = map(float, ids)


def _text(features) -> None:
    features["token_ids"].bytes_list.value[:] = [b"5"]


def _longer(features) -> None:
    ids = features["token_ids"].int64_list.value
    ids.extend([ids[0]] * 100_000)
    features["segment_lengths"].int64_list.value[0] += 100_000


_read = functools.partial(folders.Case, source="shards", how="examples")
_case = functools.partial(folders.Case, source="shards", how="verify")

CASES = [
    _read("an id of the size of the vocabulary", spoil=_number("token_ids", 150, 1)),
    _case("an id of 2^31", spoil=_number("token_ids", 1 << 31, 1)),
    _read("an id of 2^40 + 7", spoil=_number("token_ids", HUGE + 7, 1)),
    _case("an id of -1", spoil=_number("token_ids", -1, 1)),
    _case("an id of -2^63", spoil=_number("token_ids", -(1 << 63), 1)),
    _case("no ids", spoil=_list("token_ids", [])),
    _case("an example of 100,000 ids", spoil=_first(_longer)),
    _read("ids that are floats", spoil=_first(_floats)),
    _case("ids that are text", spoil=_first(_text)),
    _case("an example without ids", spoil=_first(lambda features: features.pop("token_ids"))),
    _case("an example without segments", spoil=_first(lambda f: f.pop("segment_lengths"))),
    _case("an example without its label", spoil=_first(lambda f: f.pop("next_sentence_label"))),
    _case("an example without features", spoil=_records(lambda r: [b"", *r[1:]])),
    _case("two labels", spoil=_list("next_sentence_label", [0, 1])),
    _case("a label of 2", spoil=_number("next_sentence_label", 2)),
    _case("a label of -1", spoil=_number("next_sentence_label", -1)),
    _case("a label of 2^32 + 1", spoil=_number("next_sentence_label", (1 << 32) + 1)),
    _case("segments of 2^40 tokens", spoil=_number("segment_lengths", HUGE)),
    _case("segments of -5 tokens", spoil=_number("segment_lengths", -5)),
    _case("segments of too many tokens", spoil=_number("segment_lengths", 60)),
    _read("100,000 segments", spoil=_list("segment_lengths", [1] * 100_000)),
    _read("a record of random bytes", spoil=_records(lambda r: [bytes(range(256)), *r[1:]])),
    _case("a record that is cut", spoil=_records(lambda r: [r[0][:-3], *r[1:]])),
]  # fmt: skip
