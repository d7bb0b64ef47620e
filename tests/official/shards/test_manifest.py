import dataclasses
import hashlib
import json

import numpy as np
import pytest
import tensorflow as tf

from official.config import Segments
from official.shards import manifest, shard_folder, stored_arrays
from official.shards.manifest import PretrainingSettings, PretrainingTotals
from official.tasks import Description, find
from official.utils import json_files
from official.utils.errors import UserError
from tfrecords_tools import inspect_shards


def make(folder, records=(3, 2)):
    shards = []
    for i, count in enumerate(records):
        path = folder / f"train-{i:05d}-of-{len(records):05d}.tfrecord"
        with tf.io.TFRecordWriter(str(path)) as writer:
            for j in range(count):
                writer.write(f"record {i} {j}".encode())
        shards.append(shard_folder.describe(path))
    shards[-1] = dataclasses.replace(shards[-1], split="validation")
    record = manifest.Manifest(
        kind="pretraining",
        features=("token_ids", "segment_lengths"),
        tokenizer={"vocab.txt": "ab" * 32},
        tokenizer_fingerprint="cd" * 32,
        max_length=16,
        seed=5,
        shards=tuple(shards),
        config=PretrainingSettings(Segments(max_length=16)),
        totals=PretrainingTotals(examples=sum(records), skipped={"empty document": 1}),
        length_histogram=(0, 0, 5),
    )
    manifest.write(folder, record)
    return record


def change(folder, **values):
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    content.update(values)
    content.pop(json_files.KEY, None)  # as who edits on purpose has to
    path.write_text(json.dumps(content))


def test_read_gives_what_was_written(tmp_path):
    built = make(tmp_path)
    assert manifest.read(tmp_path) == built
    assert built.shards[0].records == 3
    data = (tmp_path / built.shards[0].name).read_bytes()
    assert built.shards[0].bytes == len(data)
    assert built.shards[0].sha256 == hashlib.sha256(data).hexdigest()
    assert [shard.records for shard in built.split("validation")] == [2]
    assert shard_folder.problems(tmp_path, deep=True) == []


def test_a_digit_that_changed_is_noticed_and_older_files_are_read(tmp_path):
    built = make(tmp_path)
    path = tmp_path / "manifest.json"
    whole = path.read_text()
    path.write_text(whole.replace('"empty document": 1', '"empty document": 3'))
    with pytest.raises(UserError, match="manifest.json is not as it was written: its checksum"):
        manifest.read(tmp_path)
    path.write_text(whole.replace(json_files.KEY, "checksun"))
    with pytest.raises(UserError, match="manifest.json is damaged: it has 'checksun'"):
        manifest.read(tmp_path)
    older = json.loads(whole)
    del older[json_files.KEY]
    path.write_text(json.dumps(older))
    assert manifest.read(tmp_path) == built


def test_the_fingerprint_is_of_what_batches_depend_on(tmp_path):
    built = make(tmp_path)
    alike = dataclasses.replace(
        built,
        seed=6,
        totals=PretrainingTotals(),
        task=find("rte").description(),
        config=PretrainingSettings(Segments(random_next_prob=0.25)),
    )
    assert manifest.fingerprint([alike], "train") == manifest.fingerprint([built], "train")
    other = [
        dataclasses.replace(built, **values)
        for values in (
            {"shards": (*built.shards, built.shards[0])},
            {"shards": (dataclasses.replace(built.shards[0], sha256="0" * 64), built.shards[1])},
            {"features": (*built.features, "next_sentence_label")},
            {"tokenizer_fingerprint": "ee" * 32},
            {"token_counts": "ee" * 32},
            {"max_length": 17},
            {"config": PretrainingSettings(Segments(format="stream", rows=4))},
            {"config": PretrainingSettings(Segments(packing=4))},
            {"config": PretrainingSettings(Segments(format="stream", rows=4)), "row_groups": 2},
        )
    ]
    prints = [manifest.fingerprint([actual], "train") for actual in (built, *other)]
    prints += [
        manifest.fingerprint(actual, "train") for actual in ([built, built], [built, other[0]])
    ]
    prints += [manifest.fingerprint([other[0], built], "train")]
    prints += [manifest.fingerprint([built], "validation")]
    assert len(set(prints)) == len(prints)


def test_task_is_kept(tmp_path):
    make(tmp_path)
    task = {"name": "sst2", "kind": "classification", "labels": ["bad", "good"]}
    change(tmp_path, kind="task", task=task, config={"files": {"train": "train.tsv"}}, totals={})
    record = manifest.read(tmp_path)
    assert record.task == Description("sst2", "classification", labels=("bad", "good"))
    assert (record.config.files, record.segments, record.corruption) == (
        {"train": "train.tsv"},
        None,
        None,
    )


def test_missing_folder_and_file(tmp_path):
    with pytest.raises(UserError, match="nowhere: no such folder"):
        manifest.read(tmp_path / "nowhere")
    with pytest.raises(
        UserError, match=r"manifest.json is missing: .* make it with tfrecords_tools"
    ):
        manifest.read(tmp_path)


def test_not_json(tmp_path):
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(
        UserError, match="manifest.json is not JSON: .*make it with tfrecords_tools"
    ):
        manifest.read(tmp_path)
    (tmp_path / "manifest.json").write_bytes(b"\xff")
    with pytest.raises(UserError, match="manifest.json is not JSON"):
        manifest.read(tmp_path)
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(UserError, match="manifest.json holds a list, expected an object"):
        manifest.read(tmp_path)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"format_version": 2}, "format_version 2, this program reads 1"),
        ({"seed": "5"}, "seed: expected a whole number, got '5' .text.: make the shards again"),
        ({"max_length": 2**40}, "max_length: 1099511627776 is not from 1 to 1048576"),
        ({"max_length": True}, "max_length: expected a whole number, got True"),
        ({"task": []}, r"task: expected a mapping, got \[\] .a list."),
        ({"color": 1}, "color: unknown key .known: kind, features, "),
        ({"kind": "pairs"}, "kind: 'pairs' is not one of pretraining, task, tf_models"),
        (
            {"features": ["token_idz"]},
            "features: 'token_idz' is not one of .*did you mean 'token_ids'",
        ),
        ({"shards": [{"name": "a"}]}, "shards.0.records: missing, and it has no default"),
        ({"sed": 5}, r"sed: unknown key \(did you mean 'seed'"),
        (
            {"config": {"segments": {"packing": "x"}}},
            "config.segments.packing: expected a whole number, got 'x' .text.: make the shards",
        ),
        ({"config": {"segment": {}}}, r"config.segment: unknown key \(did you mean 'segments'"),
        (
            {"config": {"corruption": {"type": "token_mask"}}},
            r"config.corruption: unknown type 'token_mask' \(did you mean 'token_masks'",
        ),
        ({"totals": {"skipped": {"x": "1"}}}, "totals.skipped.x: expected a whole number, got '1'"),
        ({"task": {"name": "a", "kind": "b"}}, "task.kind: 'b' is not one of classification, "),
        ({"shards": [7]}, "shards.0: expected a mapping, got 7"),
        (
            {"config": {"segments": {"format": "stream", "rows": 4}}, "row_groups": 3},
            "row_groups: 3 does not divide 4 rows: make the shards again",
        ),
    ],
)
def test_bad_entries(tmp_path, values, message):
    make(tmp_path)
    change(tmp_path, **values)
    with pytest.raises(UserError, match=message):
        manifest.read(tmp_path)


def test_missing_entry(tmp_path):
    make(tmp_path)
    path = tmp_path / "manifest.json"
    content = json.loads(path.read_text())
    del content["features"], content[json_files.KEY]
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match="manifest.json: features: missing, and it has no default"):
        manifest.read(tmp_path)


def test_shards_stay_in_their_folder(tmp_path):
    built = make(tmp_path)
    bad = dataclasses.asdict(built.shards[0])
    change(tmp_path, shards=[bad | {"name": "../x"}])
    with pytest.raises(UserError, match="'../x' is not a plain file name"):
        manifest.read(tmp_path)
    change(tmp_path, shards=[bad | {"split": "dev"}])
    with pytest.raises(UserError, match="shards.0.split: 'dev' is not one of train, validation, "):
        manifest.read(tmp_path)


def test_empty_cut_long_and_missing_shards(tmp_path):
    built = make(tmp_path)
    path = tmp_path / built.shards[0].name
    data = path.read_bytes()
    third = len(data) // 3  # the three records are equally long
    cases = [
        (b"", f"is empty: expected {len(data)} bytes, found 0"),
        (data[: 2 * third], f"is cut: expected {len(data)} bytes, found {2 * third}"),
        (data + data, f"is longer than written: expected {len(data)} bytes, found {2 * len(data)}"),
    ]
    for content, message in cases:
        path.write_bytes(content)
        for deep in (False, True):
            (problem,) = shard_folder.problems(tmp_path, deep=deep)
            assert message in problem and path.name in problem
        assert shard_folder.problems(tmp_path, deep=True, split="validation") == []
    path.unlink()
    (problem,) = shard_folder.problems(tmp_path, deep=False)
    assert f"{path} is missing" in problem


def test_flipped_bit_is_found_when_deep(tmp_path):
    built = make(tmp_path)
    path = tmp_path / built.shards[1].name
    data = bytearray(path.read_bytes())
    data[14] ^= 4
    path.write_bytes(data)
    assert shard_folder.problems(tmp_path, deep=False) == []
    (problem,) = shard_folder.problems(tmp_path, deep=True)
    assert "has changed since it was written" in problem
    assert built.shards[1].sha256 in problem
    assert hashlib.sha256(data).hexdigest() in problem


def test_a_record_that_is_longer_than_its_file(tmp_path):
    """Its sums fit: those of the file and of the length. TensorFlow is not asked about it."""
    built = make(tmp_path)
    path = tmp_path / built.shards[0].name
    shards = []
    for length in (1 << 63, (1 << 64) - 16, path.stat().st_size):
        data = bytearray(path.read_bytes())
        data[:8] = length.to_bytes(8, "little")
        path.write_bytes(data)
        shards = [dataclasses.asdict(each) for each in built.shards]
        shards[0]["sha256"] = hashlib.sha256(data).hexdigest()
        change(tmp_path, shards=shards)
        (problem,) = shard_folder.problems(tmp_path, deep=True)
        assert "expected 3 records, found a cut record" in problem
        with pytest.raises(UserError, match=f"{path.name}: a record ends beyond the file: copy"):
            shard_folder.check_lengths(path)
        with pytest.raises(UserError, match="a record ends beyond the file"):
            list(inspect_shards._read([str(path)]))


def test_wrong_count_is_found_when_deep(tmp_path):
    built = make(tmp_path)
    shards = [dataclasses.asdict(built.shards[0]) | {"records": 4}]
    change(tmp_path, shards=shards, totals={"examples": 4})
    (problem,) = shard_folder.problems(tmp_path, deep=True)
    assert "expected 4 records, found 3 records" in problem


def test_examples_that_no_shard_has_are_missed(tmp_path):
    built = make(tmp_path)
    lost = dataclasses.replace(built, shards=built.shards[:1])
    with pytest.raises(UserError, match="5 examples were made, and the shards have 3"):
        manifest.write(tmp_path, lost)
    change(tmp_path, shards=[dataclasses.asdict(built.shards[0])])
    for read in (manifest.read, lambda folder: shard_folder.problems(folder, deep=True)):
        with pytest.raises(UserError, match="manifest.json: 5 examples were made, .* have 3"):
            read(tmp_path)
    counts = {
        split: {"examples": n, "tokens": 9, "truncated": 0, "skipped": {}}
        for split, n in (("train", 2), ("validation", 3))
    }
    task = {"name": "sst2", "kind": "classification", "labels": ["bad", "good"]}
    totals = {"examples": 5, "splits": counts}
    shards = [dataclasses.asdict(shard) for shard in built.shards]
    change(tmp_path, shards=shards, kind="task", task=task, config={}, totals=totals)
    with pytest.raises(UserError, match="2 examples of the train split were .* have 3"):
        manifest.read(tmp_path)


def test_describe_refuses_a_cut_record(tmp_path):
    built = make(tmp_path)
    path = tmp_path / built.shards[0].name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match="ends within a record"):
        shard_folder.describe(path)


def test_token_counts(tmp_path):
    built = make(tmp_path)
    assert stored_arrays.read_token_counts(tmp_path, built) is None
    digest = stored_arrays.write_token_counts(tmp_path, np.array([3, 0, 5]))
    built = dataclasses.replace(built, token_counts=digest)
    manifest.write(tmp_path, built)
    assert manifest.read(tmp_path) == built
    assert stored_arrays.read_token_counts(tmp_path, built).tolist() == [3, 0, 5]
    path = tmp_path / stored_arrays.TOKEN_COUNTS
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match="token_counts.npy has changed since it was written: expec"):
        stored_arrays.read_token_counts(tmp_path, built)
    for wrong in (np.array([None]), np.array([[1]]), np.array([1.0]), np.array([1], np.int32)):
        np.save(path, wrong, allow_pickle=True)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        changed = dataclasses.replace(built, token_counts=digest)
        with pytest.raises(
            UserError, match="token_counts.npy (is not a file|does not hold counts).*make the sh"
        ):
            stored_arrays.read_token_counts(tmp_path, changed)
    with open(path, "wb") as stream:  # more than any memory has
        header = {"descr": "<i8", "fortran_order": False, "shape": (1 << 40,)}
        np.lib.format.write_array_header_1_0(stream, header)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with pytest.raises(UserError, match="token_counts.npy is not a file of an array"):
        stored_arrays.read_token_counts(tmp_path, dataclasses.replace(built, token_counts=digest))
    path.unlink()
    with pytest.raises(UserError, match="token_counts.npy is missing: copy the folder again"):
        stored_arrays.read_token_counts(tmp_path, built)
