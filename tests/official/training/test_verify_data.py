"""A run whose shards have changed, or are not what they say they are."""

import dataclasses

import pytest
import tensorflow as tf

from official import training
from official.data import ShardDataset, each_batch
from official.shards import manifest, shard_folder
from official.utils.errors import UserError
from tests import small


@pytest.mark.slow
@pytest.mark.parametrize("damaged", ["train", "held_out"])
def test_a_changed_record_ends_a_run_when_it_is_read_or_at_its_start(tmp_path, damaged):
    config = small.config()
    folders = {name: small.shard_folder(tmp_path / name, config) for name in ("train", "held_out")}
    path = folders[damaged] / "train-00000-of-00002.tfrecord"
    content = bytearray(path.read_bytes())
    content[12] ^= 1  # the first byte of the first record
    path.write_bytes(content)

    def run(**options):
        training.train(
            config,
            folders["train"],
            tmp_path / "model",
            validation_data=folders["held_out"],
            report=lambda line: None,
            **options,
        )

    with pytest.raises(UserError, match=f"{path} has changed since it was written: expected"):
        run(verify_data=True)
    assert not (tmp_path / "model").exists()
    with pytest.raises(
        UserError, match="a record differs from its checksum.*inspect_shards FOLDER --verify says"
    ):
        run()


def first_id(folder, number):
    """Gives each example of a shard another first id; the manifest says that all is right."""
    content = manifest.read(folder)
    path = folder / content.shards[0].name
    records = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            example = tf.train.Example.FromString(record)
            example.features.feature["token_ids"].int64_list.value[0] = number
            writer.write(example.SerializeToString())
    shards = (shard_folder.describe(path), *content.shards[1:])
    manifest.write(folder, dataclasses.replace(content, shards=shards))


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [(), (16, 32)])
def test_an_id_that_the_vocabulary_lacks_ends_a_run_and_an_evaluation(tmp_path, lengths):
    """It is not read as another id, as int32 would have it."""
    config = small.config(recipe__bucket_lengths=list(lengths))
    folder = small.shard_folder(tmp_path / "train", config)
    first_id(folder, (1 << 40) + 7)
    message = f"{folder}: token_ids: a number is not from 0 to 124: .*inspect_shards FOLDER"
    with pytest.raises(UserError, match=message):
        list(each_batch(ShardDataset(folder, config), 8))
    if not lengths:
        with pytest.raises(UserError, match=message):
            training.train(config, folder, tmp_path / "model", evaluate=False, report=str)
