"""Memory per row in the loop: the same on one device and on two, cut up or not, stopped or not."""

import shutil
import signal

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.data import ShardDataset
from official.distribution import memory, numerics, strategies
from official.distribution.strategies import distribute
from official.evaluation.evaluator import Evaluator
from official.modeling import masks
from official.saving import checkpoints, model_folder, named_arrays, warm_start
from official.training.stop_signal import Stopped
from official.training.trainer import Trainer
from official.utils.errors import UserError
from tests import commands, small
from tests.streams import LENGTHS, marked, stream_folder

REUSE, LENGTH, KEPT, ROWS = 8, 16, 9, 4


def config(segments=None, encoder=None, **recipe):
    documents, words = marked()
    return small.config(
        segments={
            "format": "stream", "max_length": LENGTH, "rows": ROWS, "reuse_length": REUSE,
            **(segments or {}),
        },
        corruption={"type": "token_masks", "max_predictions": 5, "block_size": 8},
        encoder={
            "type": "transformer_xl", "vocab_size": 5 + 2 * len(words), "hidden_size": 8,
            "num_layers": 2, "num_heads": 2, "intermediate_size": 16, "dropout": 0.0,
            "attention_dropout": 0.0, "memory_length": KEPT, "reuse_length": REUSE,
            "query_stream": False, **(encoder or {}),
        },
        objectives=[{"type": "masked_lm"}],
        recipe={
            "steps": 20, "batch_size": ROWS, "report_every": 5, "save_every": 8,
            "precision": "float64", "optimizer": {"learning_rate": 1e-2}, **recipe,
        },
    )  # fmt: skip


@pytest.fixture(autouse=True)
def float64():
    numerics.set_precision("float64")
    yield
    numerics.set_precision("float32")


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Backward rows too; 21 steps an epoch."""
    documents, words = marked(LENGTHS)
    settings = config({"backward": True})
    return stream_folder(tmp_path_factory.mktemp("stream") / "shards", settings, documents, words)


def trainer(shards, model_dir, settings, strategy=None):
    strategy = strategy or tf.distribute.get_strategy()
    source = ShardDataset(shards, settings, "train", training=True)
    return Trainer(
        settings, strategies.build_model(settings, strategy), source, strategy, model_dir
    )


def trained(result):
    result.train()
    return named_arrays.values(result.variables) | result.memory.arrays()


def assert_close(actual, expected):
    for path, value in expected.items():
        if value.dtype == bool:
            np.testing.assert_array_equal(actual[path], value, err_msg=path)
            continue
        scale = max(np.abs(value).max(), 1e-300)
        assert np.abs(actual[path] - value).max() <= 1e-9 * scale, path


BOTH_WAYS = {"backward": True}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.xla
def test_replicas_accumulation_and_a_stop_change_nothing(shards, tmp_path, mirrored):
    noisy = {"dropout": 0.1, "attention_dropout": 0.1, "inner_dropout": 0.1}
    settings = config(BOTH_WAYS, noisy, steps=32)  # into the second epoch
    one = trainer(shards, tmp_path / "one", settings)
    whole = trained(one)
    assert whole["memory/states"].shape == (ROWS, 2, KEPT, 8)
    assert np.abs(whole["memory/states"]).max(axis=-1).min() > 0
    steps = ShardDataset(shards, settings).num_examples // ROWS
    assert steps < 31
    # The run goes on with other replicas, and other parts of a batch, than it began with. What is
    # restored replaces the variables and the memory of the end.
    cut = small.replace(settings, accumulation=2)
    two = trainer(shards, tmp_path / "two", cut, mirrored(2))
    two.save = lambda at, save=two.save: (save(at), signal.raise_signal(signal.SIGTERM))
    with pytest.raises(Stopped):
        two.train()
    assert checkpoints.last_step(tmp_path / "two") < 32
    shutil.rmtree(tmp_path / "one")
    shutil.copytree(tmp_path / "two", tmp_path / "one")
    assert_close(trained(one), whole)


def by_hand(result, source):
    """Yields the memory after each batch, kept in a list of rows outside of the loop."""
    encoder, kept = result.model.encoder, [None] * ROWS

    @tf.function
    def encode(row, states, mask):
        return encoder(
            row["token_ids"],
            row["segment_ids"],
            masks.blocks(row["block_ids"]),
            memory=states,
            memory_mask=mask,
            backward=row["backward"],
        )

    read = ("token_ids", "segment_ids", "block_ids", "backward")
    for batch in source.dataset(ROWS):
        for b in range(ROWS):
            states = np.zeros((1, 2, KEPT, 8)), np.zeros((1, KEPT), bool)
            if batch["continues"][b] and kept[b] is not None:
                states = kept[b]
            row = {name: batch[name][b : b + 1] for name in read}
            encoded = encode(row, *map(tf.constant, states))
            kept[b] = encoded["memory"].numpy(), encoded["memory_mask"].numpy()
        yield tuple(np.concatenate(part) for part in zip(*kept, strict=True))


@pytest.mark.slow
@pytest.mark.long
def test_each_row_gets_its_own_memory(shards, tmp_path, mirrored):
    """Weights stand still; the rows begin anew in the second epoch."""
    settings = config(BOTH_WAYS, optimizer={"learning_rate": 0.0})
    training = trainer(shards, tmp_path, settings, mirrored(2))
    source = ShardDataset(shards, settings, training=True)
    steps = source.num_examples // ROWS
    step = training.train_step
    iterator = iter(distribute(training.strategy, source, ROWS))
    done = 0
    for until, (states, mask) in enumerate(by_hand(training, source), start=1):
        if until not in (1, 3, steps, steps + 1):
            continue
        step.run(iterator, until - done)
        done = until
        actual = training.memory.arrays()
        np.testing.assert_array_equal(actual["memory/mask"], mask)
        remembered = min(KEPT, (until if until <= steps else until - steps) * REUSE)
        assert mask.sum(axis=1).tolist() == [remembered] * ROWS
        real = mask[:, None, :, None]
        np.testing.assert_allclose(actual["memory/states"] * real, states * real, atol=1e-12)
        if until > steps:
            break
    assert done == steps + 1


def test_memory_has_not_seen_what_the_next_row_asks_for(shards):
    """What stands behind the reused tokens of a row is what the next one hides and asks for."""
    settings = config(BOTH_WAYS, {"initializer_range": 0.5})
    model = strategies.build_model(settings, tf.distribute.get_strategy())
    first, then = list(ShardDataset(shards, settings).dataset(ROWS).take(2))
    reused = then["token_ids"][:, :REUSE] == first["token_ids"][:, REUSE : 2 * REUSE]
    assert np.any(reused)  # A, where it is long enough, but for masks
    other = first["token_ids"].numpy()
    other[:, REUSE:] = other[::-1, REUSE:] + 1

    def remembered(batch, **changes):
        return model.encode({**batch, **changes})["memory"].numpy()

    np.testing.assert_array_equal(remembered(first), remembered(first, token_ids=other))
    whole = {name: value for name, value in first.items() if name != "block_ids"}
    seen = remembered(whole) - remembered(whole, token_ids=other)
    assert not seen[:, 0].any()  # the inputs of the first layer are the embeddings
    assert np.abs(seen[:, 1, -REUSE:]).max(axis=-1).min() > 1e-3
    # So the answers that are asked for in the next row do not depend on it either.
    memory = {
        "memory": remembered(first),
        "memory_mask": model.encode(first)["memory_mask"],
    }
    answers, _ = model.terms({**then, **memory})
    memory["memory"] = remembered(first, token_ids=other)
    assert model.terms({**then, **memory})[0]["masked_lm"] == answers["masked_lm"]


@pytest.mark.slow
@pytest.mark.long
def test_an_evaluation_has_a_memory_of_its_own(shards, tmp_path, mirrored):
    settings = config(BOTH_WAYS, steps=8)
    training = trainer(shards, tmp_path / "one", settings)
    source = ShardDataset(shards, settings)
    training.train()
    before = training.memory.arrays()
    actual = training.evaluator.run(source)
    assert training.evaluator.run(source) == actual
    for name, value in before.items():
        np.testing.assert_array_equal(training.memory.arrays()[name], value)
    # By hand: memory from nothing, over all rows.
    kept, total, weight = None, 0.0, 0.0
    for batch in source.dataset(ROWS):
        goes_on = batch["continues"].numpy()[:, None] > 0
        states = (tf.zeros((ROWS, 2, KEPT, 8), tf.float64), tf.zeros((ROWS, KEPT), bool))
        if kept is not None:
            states = kept[0], kept[1] & goes_on
        batch = {**batch, "memory": states[0], "memory_mask": states[1]}
        encoded = training.model.encode(batch)
        kept = encoded["memory"], encoded["memory_mask"]
        terms, _ = training.model.terms(batch, encoded=encoded)
        total += float(terms["masked_lm"])
        weight += float(training.model.weight_sums(batch)["masked_lm"])
    assert actual["masked_lm"] == pytest.approx(total / weight, rel=1e-9)
    forgetful = Trainer(
        settings, training.model, source, tf.distribute.get_strategy(), tmp_path / "other"
    )
    forgetful.evaluator.memory = None
    assert forgetful.evaluator.run(source)["masked_lm"] != pytest.approx(total / weight, rel=1e-6)
    two = trainer(shards, tmp_path / "one", settings, mirrored(2))
    two.restore()
    assert two.evaluator.run(source) == pytest.approx(actual, rel=1e-9)
    # With a longer memory than it was trained with.
    longer = config(BOTH_WAYS, {"memory_length": 3 * KEPT})
    model = strategies.build_model(longer, tf.distribute.get_strategy())
    warm_start.start_from(model, str(tmp_path / "one"), "last", "all")
    evaluator = Evaluator(longer, model, tf.distribute.get_strategy())
    assert evaluator.run(source)["masked_lm"] != pytest.approx(total / weight, rel=1e-6)


@pytest.mark.slow
def test_a_memory_as_long_as_the_text_makes_one_text_of_the_rows(tmp_path):
    """Causal LM over rows of 16 with memory = over the whole text of each row at once."""
    documents, words = marked(LENGTHS)
    raw = configs.to_dict(config({"reuse_length": 0, "rows": 2}, {"reuse_length": 0}))
    raw["corruption"], raw["objectives"] = None, [{"type": "causal_lm"}]
    raw["recipe"]["batch_size"] = 2
    raw["encoder"] |= {"attention": "uni", "memory_length": 11 * LENGTH, "initializer_range": 0.5}
    settings = configs.from_dict(raw)
    folder = stream_folder(tmp_path / "shards", settings, documents, words)
    source, strategy = ShardDataset(folder, settings), tf.distribute.get_strategy()
    batches = list(source.dataset(2))
    assert len(batches) == 11 and source.manifest.totals.longest_memory == 10 * LENGTH
    model = strategies.build_model(settings, strategy)
    actual = Evaluator(settings, model, strategy).run(source)
    whole = {
        name: tf.concat([batch[name] for batch in batches], axis=1)
        for name in ("token_ids", "segment_ids", "padding_mask")
    }
    whole |= {"next_id": batches[-1]["next_id"], "example_weights": tf.ones(2)}
    losses, _ = model.terms(model.prepare(whole))
    weight = float(model.weight_sums(whole)["causal_lm"])
    assert weight == 2 * 11 * LENGTH
    assert actual["causal_lm"] == pytest.approx(float(losses["causal_lm"]) / weight, rel=1e-12)
    # Without memory each row of 16 is read by itself.
    forgetful = Evaluator(settings, model, strategy)
    forgetful.memory = None
    assert forgetful.run(source)["causal_lm"] != pytest.approx(actual["causal_lm"], rel=1e-4)


@pytest.mark.slow
@pytest.mark.long
def test_an_evaluation_with_a_longer_memory_than_in_training(tmp_path):
    """Loss with memory N = over the whole text, each row of 16 with N tokens before it in sight."""
    documents, words = marked(LENGTHS)
    raw = configs.to_dict(config({"reuse_length": 0, "rows": 2}, {"reuse_length": 0}))
    raw["corruption"], raw["objectives"] = None, [{"type": "causal_lm"}]
    raw["recipe"]["batch_size"] = 2
    raw["encoder"] |= {"attention": "uni", "memory_length": 6, "initializer_range": 0.5}
    settings, strategy = configs.from_dict(raw), tf.distribute.get_strategy()
    folder, model_dir = tmp_path / "shards", tmp_path / "model"
    source = ShardDataset(stream_folder(folder, settings, documents, words), settings)
    model = strategies.build_model(settings, strategy)
    model_dir.mkdir()
    configs.save(settings, model_dir / model_folder.CONFIG)
    source.tokenizer.save(model_dir / "tokenizer")
    checkpoints.save(model_dir, 1, named_arrays.values(model.variables_by_path()), {})

    batches = list(source.dataset(2))
    whole = {
        name: tf.concat([batch[name] for batch in batches], axis=1)
        for name in ("token_ids", "segment_ids", "padding_mask")
    }
    whole |= {"next_id": batches[-1]["next_id"], "example_weights": tf.ones(2)}
    places, actual = np.arange(whole["token_ids"].shape[1]), {}
    for kept in (6, 40):
        longer = configs.load(model_dir, [f"encoder.memory_length={kept}"])
        other = strategies.build_model(longer, strategy)
        warm_start.start_from(other, str(model_dir), "last", "all")
        actual[kept] = Evaluator(longer, other, strategy).run(source)["causal_lm"]
        near = places >= places[:, None] // LENGTH * LENGTH - kept
        losses, _ = model.terms(model.prepare({**whole, "attention_mask": near[None, None]}))
        expected = float(losses["causal_lm"]) / (2 * len(places))
        assert actual[kept] == pytest.approx(expected, rel=1e-12)
    assert actual[6] != pytest.approx(actual[40], rel=1e-4)

    def evaluated(kept):
        return commands.run(
            "official.main",
            "--mode=eval",
            f"--data={folder}",
            f"--model_dir={model_dir}",
            f"--override=encoder.memory_length={kept}",
        )

    done = evaluated(40)
    assert done.returncode == 0, done.stderr
    printed = dict(line.split() for line in done.stdout.splitlines())
    assert float(printed["causal_lm"]) == pytest.approx(actual[40], abs=1e-6)
    done = evaluated(161)
    assert done.returncode
    assert "memory_length: 161, and the longest text that a row continues has 160" in done.stderr


@pytest.mark.slow
def test_a_checkpoint_has_the_memory_and_others_need_none(shards, tmp_path):
    settings = config(BOTH_WAYS, steps=2)
    training = trainer(shards, tmp_path, settings)
    training.train()
    saved = checkpoints.load_variables(tmp_path, "last", optimizer=True)
    for name, value in training.memory.arrays().items():
        np.testing.assert_array_equal(saved[name], value)
    assert saved["memory/mask"].dtype == bool
    assert not [n for n in checkpoints.load_variables(tmp_path, "last") if "memory/" in n]
    source = "checkpoint"
    with pytest.raises(UserError, match=r"checkpoint: has no memory of rows, and this run needs \["
                                        r"4, 2, 9, 8\]: the checkpoint belongs to"):  # fmt: skip
        training.memory.assign({}, source)
    wrong = {**saved, "memory/states": saved["memory/states"][:3]}
    with pytest.raises(UserError, match=r"has a memory of shape \[3, 2, 9, 8\], and this run need"):
        training.memory.assign(wrong, source)
    training.memory.clear()
    assert not training.memory.arrays()["memory/mask"].any()
    training.memory.assign(saved, source)
    np.testing.assert_array_equal(training.memory.arrays()["memory/states"], saved["memory/states"])


def test_only_streams_and_encoders_with_memory_have_one():
    strategy = tf.distribute.get_strategy()
    with_memory = config()
    assert memory.make_memory(with_memory, strategy, ROWS) is not None
    without = config(encoder={"memory_length": 0, "reuse_length": 0})
    assert memory.make_memory(without, strategy, ROWS) is None
    raw = configs.to_dict(with_memory)
    raw.update(segments=None, corruption=None, objectives=[])
    assert memory.make_memory(configs.from_dict(raw), strategy, ROWS) is None  # fine-tuning
    assert memory.make_memory(small.config(), strategy, 8) is None


def test_bfloat16_is_kept_as_it_is():
    result = memory.make_memory(config(), tf.distribute.get_strategy(), ROWS, "bfloat16")
    states = tf.cast(np.random.default_rng(0).normal(size=(ROWS, 2, KEPT, 8)), tf.bfloat16)
    result.write(states, tf.ones((ROWS, KEPT), bool))
    saved = result.arrays()
    assert saved["memory/states"].dtype == np.float32
    result.write(tf.zeros_like(states), tf.zeros((ROWS, KEPT), bool))
    result.assign(saved, "")
    again = result.read({"continues": tf.ones(ROWS, tf.int32)})
    assert again["memory"].dtype == tf.bfloat16
    np.testing.assert_array_equal(again["memory"].numpy(), states.numpy())


def test_states_that_are_not_finite_are_forgotten():
    result = memory.make_memory(config(), tf.distribute.get_strategy(), ROWS)
    states = np.ones((ROWS, 2, KEPT, 8), np.float32)
    states[1, 0, 2, 3], states[2, 1, 0, 0] = np.nan, np.inf
    result.write(tf.constant(states), tf.ones((ROWS, KEPT), bool))
    read = result.read({"continues": tf.constant([1, 1, 1, 0])})
    assert read["memory_mask"].numpy().all(axis=1).tolist() == [True, False, False, False]
    assert read["memory_mask"].numpy().any(axis=1).tolist() == [True, False, False, False]
    assert np.isfinite(read["memory"].numpy()).all()
    assert (read["memory"].numpy()[[1, 2]] == 0).all()
