import numpy as np
import pytest
import tensorflow as tf

from official.distribution import strategies
from official.utils.errors import UserError

ONE = tf.distribute.get_strategy()


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
        ({"name": "mirrored", "replicas": 9}, r"has started with \d CPU devices"),
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


@pytest.fixture
def two_workers(monkeypatch):
    """Makes this process worker 0 of two; the fixture's value is what worker 1 sends, in order."""
    sent = []

    def gather(strategy, values):
        other = sent.pop(0)
        if isinstance(other, str):
            coded = other.encode()
            other = np.zeros_like(values)
            other[: len(coded)] = list(coded)
        return np.stack([values, other])

    monkeypatch.setattr(strategies, "num_workers", lambda strategy: 2)
    monkeypatch.setattr(strategies, "gather", gather)
    return sent


def test_one_worker_gathers_its_own():
    values = np.array([1.5, 2.0])
    np.testing.assert_array_equal(strategies.gather(ONE, values), [[1.5, 2.0]])
    assert strategies.gather_texts(ONE, "naïve " * 500) == [
        ("naïve " * 500).encode()[:1024].decode()
    ]
    strategies.check_alike(ONE, "all", "digest")
    with strategies.together(ONE):
        pass
    with pytest.raises(tf.errors.UnavailableError), strategies.lost_workers(ONE):
        raise tf.errors.UnavailableError(None, None, "away")


def test_workers_must_hold_the_same(two_workers):
    two_workers.append("abc\n/b is at step 3")
    strategies.check_alike(ONE, "/a is at step 3", "abc")
    for digest, theirs in (
        ("abc", "abd\n/b is at step 3"),
        ("", "abc\n/b"),
        ("abc", "\n/b is bad"),
    ):
        two_workers.append(theirs)
        with pytest.raises(UserError) as error:
            strategies.check_alike(ONE, "/a is at step 3", digest)
        assert str(error.value) == (
            "the workers do not go on from the same place: worker 0: /a is at step 3; worker 1: "
            f"{theirs.partition(chr(10))[2]}. Give all of them the same command and the same "
            "folders, which they share"
        )
    two_workers.append("\n/a is damaged")
    with pytest.raises(UserError, match="^/a is damaged$"):
        strategies.check_alike(ONE, "/a is damaged", "")


def test_workers_end_a_block_together(two_workers):
    two_workers += ["", "no room", ""]
    with strategies.together(ONE):
        pass
    with pytest.raises(UserError, match="^no room$"), strategies.together(ONE):
        pass
    with pytest.raises(UserError, match="^mine$"), strategies.together(ONE):
        raise UserError("mine")
    assert not two_workers


def test_a_worker_that_is_lost_is_said(two_workers):
    with pytest.raises(UserError, match="another worker has ended .* goes on from its last check"):
        with strategies.lost_workers(ONE):
            raise tf.errors.UnavailableError(None, None, "Socket closed")
