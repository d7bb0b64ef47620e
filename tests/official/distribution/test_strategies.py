import hashlib
import json

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.data import ShardDataset
from official.distribution import strategies
from official.utils.errors import UserError
from tests import commands, small

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
        ({"name": "twin"}, "choose one of one_device, mirrored, multi_worker, tpu"),
        ({"name": "mirrored", "address": "x"}, "goes with --distribution_strategy=tpu only"),
        ({"name": "one_device", "replicas": 2}, "use --distribution_strategy=mirrored"),
        ({"name": "mirrored", "replicas": 9}, r"has started with \d CPU devices"),
        ({"name": "tpu"}, "no TPU answers at 'local' .*give its address with --tpu"),
    ],
)
def test_what_is_not_there_is_said(arguments, message):
    with pytest.raises(UserError, match=message):
        strategies.create(**arguments)


def test_what_the_tpu_of_this_machine_lacks_is_said(tmp_path, monkeypatch):
    """tensorflow-tpu is not installed, or another package has replaced its library, or neither."""
    with pytest.raises(
        UserError, match="install the extra tpu-runtime; otherwise give its address"
    ):
        strategies.create("tpu")
    monkeypatch.syspath_prepend(tmp_path)
    library = tmp_path / "tensorflow" / "libtensorflow_cc.so.2"
    information = tmp_path / "tensorflow_tpu-2.20.0.dist-info"
    for folder in (library.parent, information):
        folder.mkdir()
    (information / "METADATA").write_text("Name: tensorflow_tpu\nVersion: 2.20.0\n")
    (information / "RECORD").write_text("tensorflow/libtensorflow_cc.so.2,sha256=0,10\n")
    library.write_bytes(bytes(20))
    command = "install --force-reinstall --no-deps tensorflow-tpu==2.20.0`; otherwise give its"
    with pytest.raises(UserError, match=command):
        strategies.create("tpu")
    library.write_bytes(bytes(10))
    with pytest.raises(UserError, match=r"\); give its address"):
        strategies.create("tpu")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "needs the variable TF_CONFIG"),
        ("{", "TF_CONFIG={: JSONDecodeError"),
        ('{"cluster": {}}', "KeyError: 'worker'"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"index": 3}}', "IndexError"),
        ('{"cluster": {"worker": ["a"]}, "task": {"index": 0}}', "a is not HOST:PORT"),
        (
            '{"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"index": 0}}',
            "the job `worker` alone",
        ),
        (
            '{"cluster": {"worker": ["a:1"]}, "task": {"type": "evaluator", "index": 0}}',
            "the job `worker` alone",
        ),
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
    """Makes this process worker 0 of two; the fixture's value is the texts that worker 1 sends."""
    sent = []

    def gather(strategy, values):
        if not sent:  # worker 1 knows what it needs, and has ended
            raise tf.errors.UnavailableError(None, None, "away")
        coded = sent[0].encode()
        if values.size == 1:  # the bytes of the text that follows
            return np.array([values, [len(coded)]])
        other = np.zeros_like(values)
        other[: len(coded)] = list(coded)
        del sent[0]
        return np.stack([values, other])

    monkeypatch.setattr(strategies, "num_workers", lambda strategy: 2)
    monkeypatch.setattr(strategies, "gather", gather)
    return sent


def test_one_worker_gathers_its_own():
    values = np.array([1.5, 2.0])
    np.testing.assert_array_equal(strategies.gather(ONE, values), [[1.5, 2.0]])
    assert strategies.gather_texts(ONE, "naïve " * 500) == ["naïve " * 500]
    strategies.check_settings(ONE, {"seed": 0})
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


def test_a_worker_fails_when_all_have_what_they_gather(two_workers, monkeypatch):
    """The others read its values from its process, which must not end before."""
    two_workers.extend(["abd\n/b", "the last"])
    with pytest.raises(UserError, match="do not go on from the same place"):
        strategies.check_alike(ONE, "/a", "abc")
    assert two_workers == ["the last"]  # its size was gathered
    calls = []
    gather = strategies.gather
    monkeypatch.setattr(
        strategies, "gather", lambda s, values: calls.append(values.size) or gather(s, values)
    )
    two_workers[:] = ["", ""]
    with pytest.raises(UserError, match="^mine$"), strategies.together(ONE):
        raise UserError("mine")
    assert calls == [1, 1024, 1]


def test_workers_must_have_the_same_settings(two_workers):
    ours = {"seed": 0, "encoder.norm": "post", "recipe.steps": 5, "encoder.num_layers": 12}
    theirs = {"seed": 0, "encoder.norm": "pre", "recipe.steps": 5, "more": ["ü" * 3000]}
    for settings in (ours, theirs):
        text = json.dumps(settings, sort_keys=True)
        two_workers.append(hashlib.sha256(text.encode()).hexdigest())
        if settings is ours:
            strategies.check_settings(ONE, ours)
            assert not two_workers
        else:
            two_workers.append(text)
    with pytest.raises(UserError) as error:
        strategies.check_settings(ONE, ours)
    said = str(error.value)
    assert said.startswith(
        'the workers were started with different settings (encoder.norm: "post" on worker 0, '
        '"pre" on worker 1; encoder.num_layers: 12 on worker 0, not set on worker 1; more: not set '
    )
    assert said.endswith(". Give all of them the same command, config and data")
    assert "seed" not in said and "steps" not in said


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


def test_a_tpu_that_is_lost_is_said(monkeypatch):
    monkeypatch.setattr(strategies, "is_tpu", lambda strategy: True)
    with pytest.raises(UserError) as error, strategies.lost_workers(ONE):
        raise tf.errors.UnavailableError(None, None, "Socket closed")
    assert str(error.value) == (
        "the TPU cannot be reached any more (it may have been preempted or restarted), or a file "
        "system fails (Unavailable: Socket closed). Once it runs again, start the same command: "
        "training goes on from its last checkpoint"
    )
    with pytest.raises(tf.errors.InvalidArgumentError), strategies.lost_workers(ONE):
        raise tf.errors.InvalidArgumentError(None, None, "a bug")


def test_data_that_a_tpu_cannot_read_is_refused():
    strategies.check_tpu_data("node-1", ["gs://bucket/shards"], layer_states=False)
    strategies.check_tpu_data("", ["run/shards"], layer_states=True)
    with pytest.raises(UserError, match="^s3://a/shards: the host of --tpu=node-1 reads the data"):
        strategies.check_tpu_data("node-1", ["s3://a/shards"], layer_states=False)
    with pytest.raises(UserError, match="^run/shards: the host of --tpu=node-1 reads the data"):
        strategies.check_tpu_data(
            "node-1", ["gs://bucket/shards", "run/shards"], layer_states=False
        )
    with pytest.raises(UserError, match="^recipe.layer_states: not supported with --tpu="):
        strategies.check_tpu_data("node-1", ["gs://bucket/shards"], layer_states=True)


def test_a_run_checks_the_data_before_it_connects_to_a_tpu(tmp_path):
    configs.save(small.config(), tmp_path / "run.yaml")
    done = commands.run(
        "official.main", "--mode=train", f"--config={tmp_path / 'run.yaml'}",
        f"--data={tmp_path / 'shards'}", f"--model_dir={tmp_path / 'model'}",
        "--distribution_strategy=tpu", "--tpu=grpc://192.0.2.1:8470",
    )  # fmt: skip
    assert done.returncode == 2
    assert "the host of --tpu=grpc://192.0.2.1:8470 reads the data, and Tens" in done.stderr


@pytest.mark.slow
def test_a_tpu_gets_rows_of_one_length(monkeypatch, tmp_path):
    """The same examples as on other devices, in static shapes."""
    config = small.config(recipe__bucket_lengths=[16, 24], segments__short_seq_prob=0.9)
    source = ShardDataset(small.shard_folder(tmp_path / "shards", config), config, training=True)
    lengths = set()
    rows = iter(strategies.distribute(ONE, source, 8))
    monkeypatch.setattr(strategies, "is_tpu", lambda strategy: True)
    padded = strategies.distribute(ONE, source, 8)
    assert all(spec.shape.is_fully_defined() for spec in padded.element_spec.values())
    for mine, batch in zip(padded, [next(rows) for _ in range(6)], strict=False):
        length = batch["token_ids"].shape[1]
        lengths.add(length)
        assert mine["token_ids"].shape[1] == config.segments.max_length
        np.testing.assert_array_equal(mine["token_ids"][:, :length], batch["token_ids"])
        assert not mine["padding_mask"][:, length:].numpy().any()
    assert len(lengths) > 1
