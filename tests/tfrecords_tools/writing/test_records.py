"""Tests of tfrecords_tools.writing.records."""

import errno

import pytest
import tensorflow as tf

from tfrecords_tools.writing import records


@pytest.mark.parametrize("method", ["write", "close"])
def test_full_disk_is_an_os_error(tmp_path, monkeypatch, method):
    def full(*_):
        raise tf.errors.ResourceExhaustedError(None, None, "x; No space left on device")

    monkeypatch.setattr(tf.io.TFRecordWriter, method, full)
    with pytest.raises(OSError) as caught:
        records.write(tmp_path / "shard", [b"1"])
    assert caught.value.errno == errno.ENOSPC
