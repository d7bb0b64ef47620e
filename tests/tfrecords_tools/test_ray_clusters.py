"""Shuffles on Ray where a host dies, and where the object store is full."""

import dataclasses
import functools
import hashlib
import importlib.util
import json

import numpy as np
import pytest

from official.utils.engines import Engine, importable
from tfrecords_tools.writing.local import LocalRunner
from tfrecords_tools.writing.shuffle import Keyed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(not importlib.util.find_spec("ray"), reason="ray is not installed"),
]


@dataclasses.dataclass
class Records:
    """The number of records."""

    count: int = 0

    def add(self, other):
        self.count += other.count

    def save(self, stream):
        stream.write(json.dumps(self.count).encode())

    @classmethod
    def load(cls, stream):
        return cls(json.load(stream))


def nothing():
    pass


def make(number, count):
    """Records of 1 to 2,000 random bytes."""
    draw = np.random.default_rng(number)
    for _ in range(2):
        keys = draw.integers(0, 1 << 64, count, np.uint64)
        records = [draw.bytes(int(size)) for size in draw.integers(1, 2000, count)]
        yield Keyed(keys, records, Records(count))


def digest(given):
    return given.number, hashlib.sha256(b"".join(given.records)).hexdigest()


def shuffled(runner, items, count, counted=lambda items, counts: None):
    return runner.shuffle(
        functools.partial(make, count=count), range(items), lambda *sizes: 5, digest, Records,
        counted,
    )  # fmt: skip


def ray_runner(*options):
    return Engine("ray", options).runner("tfrecords_tools.writing", nothing, None)


def test_a_host_that_dies(tmp_path):
    """What it made is made again, on another one that comes later."""
    from ray.cluster_utils import Cluster

    expected = shuffled(LocalRunner(None, tmp_path / "runs"), 12, 300)
    host = {"num_cpus": 1, "object_store_memory": 100 << 20}
    with importable():
        cluster = Cluster(initialize_head=True, head_node_args=host)
        seen = []
        try:
            other = cluster.add_node(**host)
            cluster.wait_for_nodes()

            def counted(items, counts):
                seen.append((*items, counts.count))
                if 7 in items:
                    cluster.remove_node(other, allow_graceful=False)
                    cluster.add_node(**host)

            with ray_runner(f"--address={cluster.address}") as runner:
                assert shuffled(runner, 12, 300, counted) == expected
        finally:
            cluster.shutdown()
    assert seen == [(item, 600) for item in range(12)]


def test_more_records_than_the_object_store_holds(tmp_path):
    from ray._private import internal_api

    expected = shuffled(LocalRunner(None, tmp_path / "runs"), 40, 2000)
    with ray_runner("--num_cpus=2", f"--object_store_memory={80 << 20}") as runner:
        assert shuffled(runner, 40, 2000) == expected
        stored = internal_api.memory_summary(stats_only=True)
    assert "Spilled" in stored
