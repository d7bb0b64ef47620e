"""A run whose shards have changed."""

import pytest

from official import training
from official.utils.errors import UserError
from tests import small


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
    with pytest.raises(UserError, match="a record differs from its checksum.*: --verify_data says"):
        run()
