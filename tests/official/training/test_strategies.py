import pytest
import tensorflow as tf

from official.errors import UserError
from official.training import strategies


def test_one_device_is_one_replica():
    strategy = strategies.create("one_device")
    assert strategy.num_replicas_in_sync == 1 and strategies.is_chief(strategy)
    assert strategies.num_workers(strategy) == 1


def test_mirrored_takes_as_many_replicas_as_asked():
    assert strategies.create("mirrored", replicas=3).num_replicas_in_sync == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "twin"}, "known are one_device, mirrored, multi_worker, tpu"),
        ({"name": "mirrored", "tpu": "x"}, "goes with --distribution_strategy=tpu only"),
        ({"name": "one_device", "replicas": 2}, "use --distribution_strategy=mirrored"),
        ({"name": "mirrored", "replicas": 9}, "has started with 4 CPU devices"),
        ({"name": "tpu"}, "no TPU answers at 'local' .*give its address with --tpu"),
    ],
)
def test_what_is_not_there_is_said(arguments, message):
    with pytest.raises(UserError, match=message):
        strategies.create(**arguments)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "needs the variable TF_CONFIG"),
        ("{", "TF_CONFIG={: JSONDecodeError"),
        ('{"cluster": {}}', "KeyError: 'worker'"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"index": 3}}', "IndexError"),
    ],
)
def test_a_wrong_cluster_is_said(monkeypatch, value, message):
    if value is None:
        monkeypatch.delenv("TF_CONFIG", raising=False)
    else:
        monkeypatch.setenv("TF_CONFIG", value)
    with pytest.raises(UserError, match=message):
        strategies.create("multi_worker")


def test_sums_over_cpus_need_no_collectives(mirrored):
    strategy = mirrored(2)
    assert isinstance(strategy.extended._cross_device_ops, tf.distribute.ReductionToOneDevice)
