"""Perplexity, bits per byte and pseudo-perplexity against closed forms and loops by hand."""

import math

import numpy as np
import pytest
import tensorflow as tf

from official.data import ShardDataset
from official.distribution import strategies
from official.evaluation import language_models
from official.evaluation.evaluator import Evaluator
from official.utils import progress
from official.utils.errors import UserError
from tests import sentences, small, streams
from tests.systems import SYSTEMS, shard_folder

SIZE = small.config().encoder.vocab_size
GPT2 = {
    "segments": {"format": "full_sentences", "max_length": 32},
    "corruption": None,
    "encoder__causal": True,
    "encoder__norm": "pre",
    "encoder__pooler": False,
    "encoder__pooled_position": "last",
    "objectives": [{"type": "causal_lm"}],
}
XL = {
    "segments": {"format": "stream", "max_length": 16, "rows": 8},
    "corruption": None,
    "encoder": {
        "type": "transformer_xl",
        "vocab_size": SIZE,
        "hidden_size": 16,
        "num_layers": 1,
        "num_heads": 2,
        "attention": "uni",
        "memory_length": 16,
    },
    "objectives": [{"type": "causal_lm"}],
}
T5 = {
    "segments": {"format": "joined", "max_length": 16},
    "corruption": {"type": "sentinels"},
    "encoder": {
        "type": "encoder_decoder",
        "vocab_size": SIZE + 100,
        "hidden_size": 16,
        "num_layers": 1,
        "num_heads": 2,
    },
    "objectives": [{"type": "seq2seq_lm"}],
}


def opened(folder, config, count=12):
    """Returns the shards of a config and its model."""
    if config.segments.format == "stream":
        streams.stream_folder(folder, config, small.documents(40))
    else:
        small.shard_folder(folder, config, count)
    model = strategies.build_model(config, tf.distribute.get_strategy())
    return ShardDataset(folder, config, "train"), model


def targets_of(model, source, batch_size):
    """Returns the ids of all tokens that a model predicts."""
    (objective,) = model.objectives
    ids = []
    for batch in source.dataset(batch_size):
        ((found, weights),) = objective.text_targets(model.prepare(batch)).values()
        ids.append(found.numpy()[weights.numpy() > 0])
    return np.concatenate(ids)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [GPT2, XL, T5], ids=["gpt2", "transformer_xl", "t5"])
def test_a_uniform_model(settings, tmp_path):
    """Its perplexity is the size of the vocabulary."""
    config = small.config(**settings)
    source, model = opened(tmp_path / "shards", config)
    model.encoder.token_table.table.assign(tf.zeros_like(model.encoder.token_table.table))
    name = config.objectives[0].type
    metrics = Evaluator(config, model, tf.distribute.get_strategy()).run(source)
    size = config.encoder.vocab_size
    np.testing.assert_allclose(metrics[f"{name}_perplexity"], size, rtol=1e-5)
    ids = targets_of(model, source, 8)
    text = [source.tokenizer.spellings[i] for i in ids]
    hidden = {*source.tokenizer.special_ids, *source.tokenizer.sentinel_ids}
    count = sum(len(piece) for i, piece in zip(ids, text, strict=True) if i not in hidden)
    assert count and any(i in hidden for i in ids)
    expected = len(ids) * math.log2(size) / count
    np.testing.assert_allclose(metrics[f"{name}_bits_per_byte"], expected, rtol=1e-5)


def test_perplexity_of_any_model(tmp_path):
    config = small.config(**GPT2, encoder__initializer_range=0.5)
    source, model = opened(tmp_path / "shards", config)
    metrics = Evaluator(config, model, tf.distribute.get_strategy()).run(source)
    ids = targets_of(model, source, 8)
    loss = metrics["causal_lm"]
    assert loss > math.log(SIZE) + 0.1
    np.testing.assert_allclose(metrics["causal_lm_perplexity"], math.exp(loss), rtol=1e-9)
    expected = loss * len(ids) / math.log(2) / source.tokenizer.piece_bytes[ids].sum()
    np.testing.assert_allclose(metrics["causal_lm_bits_per_byte"], expected, rtol=1e-5)


@pytest.mark.slow
def test_both_directions_of_a_bidirectional_lm(tmp_path):
    """A word has its bytes and a blank; marks and unknown words have none, and losses count."""
    config = small.config(**SYSTEMS["elmo"])
    source = ShardDataset(shard_folder(tmp_path / "shards", config), config, "train")
    model = strategies.build_model(config, tf.distribute.get_strategy())
    (objective,) = model.objectives
    chances = np.random.default_rng(0).dirichlet(np.ones(len(sentences.VOCABULARY)))
    objective.kernel.assign(tf.zeros_like(objective.kernel))
    objective.bias.assign(np.log(chances))
    metrics = Evaluator(config, model, tf.distribute.get_strategy()).run(source)
    for direction, field in (("forward", "target_ids"), ("backward", "backward_target_ids")):
        batches = [batch[field].numpy() for batch in source.dataset(8)]
        ids = np.concatenate(batches).ravel()
        name, losses = f"bilm_{direction}", -np.log(chances[ids])
        size = sum(len(f" {sentences.VOCABULARY[i]}".encode()) for i in ids if i > 2)
        assert {0 if direction == "backward" else 1, 2} <= set(ids)
        np.testing.assert_allclose(metrics[name], losses.mean(), rtol=1e-5)
        np.testing.assert_allclose(metrics[f"{name}_perplexity"], np.exp(losses.mean()), rtol=1e-5)
        np.testing.assert_allclose(
            metrics[f"{name}_bits_per_byte"], losses.sum() / math.log(2) / size, rtol=1e-5
        )


def test_masked_lm_has_no_perplexity(tmp_path):
    config = small.config(segments__max_length=16)
    source, model = opened(tmp_path / "shards", config)
    metrics = Evaluator(config, model, tf.distribute.get_strategy()).run(source)
    assert not [name for name in metrics if "perplexity" in name or "byte" in name]


@pytest.mark.slow
@pytest.mark.parametrize("packing", [1, 2])
def test_pseudo_perplexity_masks_each_token_alone(tmp_path, packing, monkeypatch):
    config = small.config(
        segments={"max_length": 12, "format": "full_sentences", "packing": packing},
        objectives=[{"type": "masked_lm"}],
        encoder__initializer_range=0.3,
        encoder__pooler=False,
    )
    source, model = opened(tmp_path / "shards", config, count=2)
    bare = ShardDataset(tmp_path / "shards", language_models.reading_config(config), "train")
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_REPORTS", 0)
    said = []
    found = language_models.pseudo_perplexity(model, bare, batch_size=7, report=said.append)
    rows = bare.num_examples
    assert said[-1].startswith(f"pseudo-perplexity: {rows} of {rows} examples (100%), ")
    losses, count = [], 0
    head, tokenizer = model.objectives[0], source.tokenizer
    for batch in bare.dataset(1):
        ids = batch["token_ids"].numpy()
        for t in range(ids.shape[1]):
            if ids[0, t] in tokenizer.special_ids:
                continue
            masked = ids.copy()
            masked[0, t] = tokenizer.mask_id
            states = model.encode({**batch, "token_ids": tf.constant(masked)})["sequence_output"]
            logits = head.logits(states[:, t], model.encoder).numpy()[0].astype(float)
            losses.append(np.log(np.exp(logits).sum()) - logits[ids[0, t]])
            count += len(tokenizer.spellings[ids[0, t]])
    np.testing.assert_allclose(
        found["masked_lm_pseudo_perplexity"], np.exp(np.mean(losses)), rtol=1e-4
    )
    bits = np.sum(losses) / math.log(2) / count
    np.testing.assert_allclose(found["masked_lm_pseudo_bits_per_byte"], bits, rtol=1e-4)
    assert found.keys() == {"masked_lm_pseudo_perplexity", "masked_lm_pseudo_bits_per_byte"}


def test_pseudo_perplexity_of_a_uniform_model(tmp_path):
    config = small.config(segments__max_length=16, objectives=[{"type": "masked_lm"}])
    _, model = opened(tmp_path / "shards", config)
    model.encoder.token_table.table.assign(tf.zeros_like(model.encoder.token_table.table))
    bare = ShardDataset(tmp_path / "shards", language_models.reading_config(config), "train")
    found = language_models.pseudo_perplexity(model, bare, batch_size=32)
    np.testing.assert_allclose(found["masked_lm_pseudo_perplexity"], SIZE, rtol=1e-5)


def test_what_has_no_pseudo_perplexity():
    with pytest.raises(UserError, match="not supported for a model with the objectives causal"):
        language_models.reading_config(small.config(**GPT2))
    static = small.config(segments__static_masks=True)
    with pytest.raises(UserError, match=r"segments.static_masks: true: the shards do not have"):
        language_models.reading_config(static)
