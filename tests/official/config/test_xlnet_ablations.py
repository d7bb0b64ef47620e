"""The rows of XLNet's ablation table, and its comparison with BERT, as configs; each trains."""

import numpy as np
import pytest
import tensorflow as tf

from official import config as configs
from official.data import ShardDataset
from official.distribution import strategies
from official.modeling import weight_counts
from official.training.trainer import Trainer
from tests import CONFIGS, small, streams

PRETRAIN = CONFIGS / "pretrain"
# What each has instead of K = 6: {key: value}; None = the key is not there.
ABLATIONS = {
    "k7": {"corruption.k": 7, "corruption.num_predict": 512 // 7},
    "no_memory": {"encoder.memory_length": 0, "encoder.reuse_length": 0},
    "no_spans": {"corruption.unit": "token"},
    "no_bidirectional": {"segments.backward": False},
    "next_sentence": {
        "encoder.pooler": True,
        "objectives.1.type": "sentence_pair",
        "objectives.1.relation": "next_sentence",
        "objectives.1.weight": 1.0,
    },
    "dae": {
        "corruption.type": "token_masks",
        "corruption.unit": "token",
        "corruption.k": None,
        "corruption.num_predict": None,
        "corruption.max_span": 10,  # has no meaning for tokens
        "corruption.perm_size": None,
        "corruption.mask_rate": 0.15,
        "corruption.max_predictions": round(0.15 * 512),
        "corruption.count": "nearest",
        "corruption.replacement": False,
        "corruption.mask_prob": 0.8,
        "corruption.random_prob": 0.1,
        "corruption.random_tokens": "uniform",
        "corruption.action": "token",
        "corruption.max_ngram": 3,
        "corruption.span_prob": 0.2,
        "corruption.block_size": 256,
        "encoder.query_stream": False,
        "objectives.0.type": "masked_lm",
    },
}
BASE = 116_718_336
HIDDEN, WORDS = 768, 32_000


def load(name, overrides=()):
    return configs.load(PRETRAIN / f"{name}.yaml", overrides)


def differences(ours, theirs):
    actual = {key: value for key, _, value in configs.differences(ours, theirs)}
    assert actual.pop("name") == theirs.name
    return actual


@pytest.mark.parametrize("name", ABLATIONS)
def test_only_what_is_ablated_differs(name):
    ablated = load(f"xlnet_ablation_{name}")
    assert ablated.name == f"xlnet_ablation_{name}"
    assert differences(load("xlnet_ablation_k6"), ablated) == ABLATIONS[name]


# The recipe of BERT (Devlin et al., 2019, A.2), at the full length from the first step.
BERT = {
    "segments.rows": 256,
    "recipe.batch_size": 256,
    "recipe.steps": 1_000_000,
    "recipe.optimizer.learning_rate": 1e-4,
    "recipe.schedule.warmup_steps": 10_000,
}


@pytest.mark.parametrize(
    ("full", "wikibooks"),
    [("xlnet_base", "xlnet_ablation_k6"), ("xlnet_large", "xlnet_large_wikibooks")],
)
def test_the_comparison_with_bert_is_in_its_recipe(full, wikibooks):
    ours = load(wikibooks)
    assert differences(load(full), ours) == BERT
    theirs = load("bert_base").recipe
    assert ours.recipe.steps == theirs.steps / 0.9  # which has the first 90% of its steps
    same = ("learning_rate", "beta_1", "beta_2", "epsilon", "weight_decay", "clip_norm")
    for name in same:
        assert getattr(ours.recipe.optimizer, name) == getattr(theirs.optimizer, name)
    assert ours.recipe.batch_size == theirs.batch_size
    assert ours.recipe.schedule.warmup_steps == theirs.schedule.warmup_steps


def test_parameter_counts():
    heads = {"permutation_lm": WORDS}
    pooler = HIDDEN * HIDDEN + HIDDEN
    transform = HIDDEN * HIDDEN + HIDDEN + 2 * HIDDEN
    expected = {
        "dae": (BASE - HIDDEN, {"masked_lm": transform + WORDS}),  # no start of queries
        "next_sentence": (BASE + pooler, heads | {"next_sentence": 2 * HIDDEN + 2}),
    }
    for name in ("k6", *ABLATIONS):
        counts = weight_counts.count(load(f"xlnet_ablation_{name}"))
        encoder, objectives = expected.get(name, (BASE, heads))
        assert (counts.encoders, counts.heads) == ({"encoder": encoder}, objectives), name


# A sixteenth of the lengths, tiny sizes.
SMALL = (
    "segments.max_length=32", "segments.rows=4", "segments.reuse_length=16", "recipe.batch_size=4",
    "corruption.num_predict=4", "corruption.max_span=2", "corruption.perm_size=16",
    "encoder.vocab_size=125", "encoder.hidden_size=16", "encoder.num_layers=1",
    "encoder.num_heads=2", "encoder.head_size=8", "encoder.intermediate_size=32",
    "encoder.memory_length=16", "encoder.reuse_length=16", "recipe.steps=3",
    "recipe.schedule.warmup_steps=1", "recipe.precision=float32",
)  # fmt: skip
OTHER = {
    "no_memory": ("encoder.memory_length=0", "encoder.reuse_length=0"),
    "dae": ("corruption.max_predictions=4", "corruption.block_size=16"),
}
NOT = {"dae": ("num_predict", "perm_size")}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", ["no_memory", "no_bidirectional", "next_sentence", "dae"])
def test_each_trains_at_a_small_size(name, tmp_path):
    """K = 7 and single tokens change the input pipeline alone; `next_sentence` includes K = 6."""
    kept = [o for o in SMALL if not any(key in o for key in NOT.get(name, ()))]
    config = load(f"xlnet_ablation_{name}", [*kept, *OTHER.get(name, ())])
    folder = streams.stream_folder(tmp_path / "shards", config, small.documents(12))
    strategy = tf.distribute.get_strategy()
    source = ShardDataset(folder, config, training=True)
    source.check(config)
    training = Trainer(
        config, strategies.build_model(config, strategy), source, strategy, tmp_path / "model"
    )
    before = {path: v.numpy() for path, v in training.model.variables_by_path().items()}
    steps = training.train_step.run(iter(source.dataset(4)), 3)
    assert steps.sums.shape[0] == 3 and np.isfinite(steps.sums).all()
    assert np.isfinite(steps.gradient_norms).all() and (steps.bad_variables == -1).all()
    still = {
        path
        for path, variable in training.model.variables_by_path().items()
        if np.array_equal(variable.numpy(), before[path])
    }
    assert not still, still
    losses = training.train_step.statistics.summarize(steps.sums, training.model.term_weights)
    terms = {o.name: losses[o.name] for o in training.model.objectives}
    assert losses["loss"] == pytest.approx(sum(terms.values()))
    chance = {"next_sentence": np.log(2)}
    for term, loss in terms.items():
        assert loss == pytest.approx(chance.get(term, np.log(125)), rel=0.3), term
    remembers = config.encoder.memory_length > 0
    assert (training.memory is not None) == remembers
    if remembers:
        assert training.memory.arrays()["memory/mask"].all()


@pytest.mark.slow
def test_next_sentence_is_read_from_the_last_position_of_a_row_that_goes_on(tmp_path):
    """[CLS] stands there, and its pooled output says whether B follows A."""
    config = load("xlnet_ablation_next_sentence", SMALL)
    folder = streams.stream_folder(tmp_path / "shards", config, small.documents(40))
    source = ShardDataset(folder, config)
    model = strategies.build_model(config, tf.distribute.get_strategy())
    labels = []
    for batch in source.dataset(4):
        assert (batch["token_ids"][:, -1] == source.tokenizer.cls_id).numpy().all()
        labels += batch["next_sentence_label"].numpy().tolist()
    assert 0.3 < np.mean(labels) < 0.7
    encoded = model.encode(batch)
    pooler = model.encoder.pooler
    np.testing.assert_allclose(
        encoded["pooled_output"], np.tanh(pooler(encoded["sequence_output"][:, -1])), atol=1e-6
    )
    right = model.predictions(batch, encoded)["next_sentence_probabilities"].numpy()
    loss = -np.log(right[np.arange(4), batch["next_sentence_label"]]).sum()
    terms, _ = model.terms(batch, encoded=encoded)
    assert float(terms["next_sentence"]) == pytest.approx(loss, rel=1e-5)


def test_every_row_of_the_table_is_there():
    files = {path.stem for path in PRETRAIN.glob("xlnet_ablation_*.yaml")}
    assert files == {f"xlnet_ablation_{name}" for name in ("k6", *ABLATIONS)}
    for name in files:
        config = load(name)
        assert config.recipe == load("xlnet_ablation_k6").recipe
