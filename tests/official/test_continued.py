"""A model goes on with its pretraining by `garden train --data=SHARDS --init=MODEL` alone."""

import dataclasses
import math
import shutil

import numpy as np
import pytest

import official
from official import config as configs
from official import tokenizers
from official.config.corruptions import PermutationConfig, SentinelsConfig
from official.fine_tuning import continued, settings
from official.saving import checkpoints, metrics_log, model_folder, named_arrays
from official.shards import manifest
from official.training import run
from official.utils.errors import UserError
from tests import commands, small, systems

BASE = configs.load(continued.CONFIG)
TEXT = {
    "segments__format": "full_sentences",
    "segments__short_seq_prob": 0.0,
    "objectives": [{"type": "masked_lm"}],
}
# A converted model with vectors of texts: its config has no data of pretraining.
BARE = {"segments": None, "corruption": None, "objectives": [], "encoder__initializer_range": 0.2}


def model_of(config, tokenizer, folder):
    """A model folder with new weights."""
    config = configs.ResolvedConfig.of(config)
    variables = named_arrays.values(model_folder.build(config).variables_by_path())
    model_folder.write_new(config, tokenizer, variables, folder)
    return folder


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Whole sentences, without a label."""
    return small.shard_folder(tmp_path_factory.mktemp("text") / "shards", small.config(**TEXT))


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bare")
    tokenizer = tokenizers.load(small.tokenizer_folder(folder / "tokenizer"))
    return model_of(small.config(**BARE), tokenizer, folder / "model")


def test_a_model_without_an_objective_learns_masked_lm(bare, shards):
    """Steps, rate and masks by the rule, and the line that says them."""
    lines = []
    config = settings.of_shards(shards, bare, report=lines.append)
    known = model_folder.config_of(bare)
    content = manifest.read(shards)
    assert config.segments == content.segments and config.encoder == known.encoder
    assert [each.type for each in config.objectives] == ["masked_lm"]
    assert config.corruption == dataclasses.replace(BASE.corruption, max_predictions=5)
    rows = sum(shard.records for shard in content.shards)
    recipe, batch = config.recipe, min(32, rows)
    assert (recipe.batch_size, recipe.init_weights) == (batch, "encoder")
    assert recipe.steps == math.ceil(100 * rows / batch)  # few tokens: the most passes
    assert recipe.optimizer.learning_rate == pytest.approx(1e-4 * 768 / 16)
    assert lines == [
        f"settings of configs/pretrain/continued.yaml: masked_lm (as {bare} has no such "
        f"objective); {recipe.steps:,} steps of {batch} rows are 100 passes over {rows * 32:,} "
        "tokens (until 10,000,000 are read, but at least one and at most 100: Gururangan et al., "
        "2020); learning rate 0.0048 for 16 dimensions"
    ]


@pytest.mark.parametrize(
    ("tokens", "passes"), [(20_000_000, 1), (10_000_000, 1), (1_000_000, 10), (1_000, 100)]
)
def test_small_text_is_read_more_often(bare, shards, monkeypatch, tokens, passes):
    """Until ten million tokens are read, but at most a hundred times."""
    content = manifest.read(shards)
    content = dataclasses.replace(content, length_histogram=(0, tokens))
    monkeypatch.setattr(settings.manifest, "read", lambda folder: content)
    config = settings.of_shards("A", bare, report=len)
    rows = sum(shard.records for shard in content.shards)
    assert config.recipe.steps == math.ceil(passes * rows / config.recipe.batch_size)
    both = settings.of_shards("A,B", bare, report=len)  # twice as many rows and tokens
    assert both.recipe.steps == math.ceil(
        min(100, max(1, 5_000_000 / tokens)) * 2 * rows / both.recipe.batch_size
    )


def test_own_settings_win(bare, shards):
    config = settings.of_shards(
        shards, bare,
        ["recipe.steps=7", "corruption.mask_rate=0.3", "recipe.optimizer.learning_rate=0.5"], len,
    )  # fmt: skip
    assert (config.recipe.steps, config.recipe.epochs) == (7, 0)
    assert (config.corruption.mask_rate, config.recipe.optimizer.learning_rate) == (0.3, 0.5)
    assert config.recipe.eval_every == 7
    lines = []
    settings.of_shards(shards, bare, ["recipe.steps=7"], lines.append)
    assert "; 7 steps of " in lines[0] and "Gururangan" not in lines[0]
    config = settings.of_shards(shards, bare, ["recipe.epochs=3", "recipe.eval_every=2"], len)
    assert (config.recipe.steps, config.recipe.epochs, config.recipe.eval_every) == (0, 3, 2)


@pytest.mark.parametrize("name", systems.SYSTEMS)
def test_each_system_goes_on_with_its_own_objective(tmp_path, name):
    """Its config says it; what the shards are read with is what they were made with."""
    own = small.config(**systems.SYSTEMS[name])
    data = systems.shard_folder(tmp_path / "shards", own)
    init = tmp_path / "model"
    init.mkdir()
    configs.save(own, init / "config.yaml")
    shutil.copytree(data / "tokenizer", init / "tokenizer")
    config = settings.of_shards(data, init, report=len)
    assert config.objectives == own.objectives and config.segments == own.segments
    assert config.corruption == own.corruption and config.encoder == own.encoder
    assert config.recipe.init_weights == "all"
    if own.segments.format == "stream":
        assert config.recipe.batch_size == own.segments.rows
    run.check(config, data, tmp_path / "out", evaluate=False, init=init)


def test_a_relation_without_a_label_is_left_out(tmp_path, shards):
    """A BERT on whole sentences learns masked LM with the head that it has."""
    own = small.config(corruption__max_predictions=2, segments__max_length=16)
    init = model_of(own, tokenizers.load(shards / "tokenizer"), tmp_path / "model")
    lines = []
    config = settings.of_shards(shards, init, report=lines.append)
    assert config.objectives == own.objectives[:1] and config.recipe.init_weights == "all"
    # Twice as many predictions as in the model, for rows of twice the length, and 15% at least.
    assert config.corruption == dataclasses.replace(own.corruption, max_predictions=5)
    assert (
        f"masked_lm (the objective of {init} without next_sentence, of which the shards have no "
        "label); "
    ) in lines[0]
    pairs = small.shard_folder(tmp_path / "pairs", small.config())
    assert settings.of_shards(pairs, init, report=len).objectives == own.objectives
    alone = dataclasses.replace(own, corruption=None, objectives=own.objectives[1:])
    init = model_of(alone, tokenizers.load(shards / "tokenizer"), tmp_path / "alone")
    with pytest.raises(UserError, match="make them again with .*segments.relation=next_sentence"):
        settings.of_shards(shards, init, report=len)


def test_static_masks_are_those_of_the_shards(tmp_path, bare):
    own = small.config(segments__static_masks=True, corruption__mask_rate=0.2)
    data = small.shard_folder(tmp_path / "shards", own)
    config = settings.of_shards(data, bare, report=len)
    assert config.corruption == own.corruption and config.segments.static_masks
    run.check(config, data, tmp_path / "out", evaluate=False, init=bare)


@pytest.mark.parametrize("system", ["xlnet", "xlnet_stream", "t5", "gpt2", "roberta"])
def test_a_converted_model_has_the_corruption_of_its_objective(tmp_path, system):
    """Its config has no `segments` and no `corruption`, as that of an XLNet of transformers."""
    own = small.config(**systems.SYSTEMS[system])
    data = systems.shard_folder(tmp_path / "shards", own)
    shutil.copytree(data / "tokenizer", tmp_path / "tokenizer")
    converted = dataclasses.replace(own, segments=None, corruption=None)
    configs.save(converted, tmp_path / "config.yaml")
    # The small tokenizer has 8 sentinels.
    change = ["corruption.sentinels=8"] if system == "t5" else []
    config = settings.of_shards(data, tmp_path, change, len)
    assert config.objectives == own.objectives
    length, reused = config.segments.max_length, config.segments.reuse_length
    size = reused or length
    permutation = PermutationConfig(
        unit="token_span", num_predict=length // 6, perm_size=size, max_span=size // 7
    )
    expected = {
        "xlnet": permutation,
        "xlnet_stream": permutation,
        "t5": SentinelsConfig(sentinels=8),
        "gpt2": None,
        "roberta": dataclasses.replace(BASE.corruption, max_predictions=5),
    }
    assert config.corruption == expected[system]
    run.check(config, data, tmp_path / "out", evaluate=False, init=tmp_path)


@pytest.mark.parametrize(
    ("system", "config"),
    [("roberta", "continued"), ("t5", "t5_mini"), ("elmo", "elmo_mini")],
)
def test_shards_that_do_not_suit_the_objective(tmp_path, shards, system, config):
    """With the command that builds others, with the tokenizer of the model."""
    own = small.config(**systems.SYSTEMS[system])
    configs.save(own, tmp_path / "config.yaml")
    data = shards
    if system == "roberta":
        data = small.shard_folder(tmp_path / "joined", small.config(**systems.T5))
    with pytest.raises(UserError) as caught:
        settings.of_shards(data, tmp_path, report=len)
    assert str(caught.value).endswith(
        "Shards that suit the model: python -m tfrecords_tools.build_shards --config="
        f"configs/pretrain/{config}.yaml --input=TEXT --tokenizer={tmp_path}/tokenizer --output=NEW"
    )


@pytest.mark.parametrize(
    ("system", "words"),
    [
        ("gpt2", "its encoder reads from left to right alone: go on with .*/gpt2_small.yaml"),
        ("t5", "its encoder is that of an encoder-decoder: go on with .*/t5_small.yaml"),
        ("xlnet", "its encoder has the two streams of XLNet: go on with .*/xlnet_base.yaml"),
        ("elmo", "its encoder reads characters: go on with .*/elmo_small.yaml"),
    ],
)
def test_an_encoder_that_cannot_learn_masked_lm_is_refused(tmp_path, shards, system, words):
    """With a config of its own objective, which goes on with the model."""
    own = small.config(**systems.SYSTEMS[system])
    bare = dataclasses.replace(own, objectives=(), corruption=None, segments=None)
    configs.save(bare, tmp_path / "config.yaml")
    with pytest.raises(UserError, match=f"cannot learn masked LM, as {words} .*encoder=null"):
        settings.of_shards(shards, tmp_path, report=len)


def test_the_config_that_a_refusal_names_goes_on_with_the_model(tmp_path):
    own = small.config(**systems.SYSTEMS["gpt2"])
    data = systems.shard_folder(tmp_path / "shards", own)
    init = model_of(own, tokenizers.load(data / "tokenizer"), tmp_path / "model")
    changes = ["encoder=null", "segments.format=full_sentences", "segments.max_length=32",
               "segments.packing=2", "recipe.steps=1"]  # fmt: skip
    config = configs.load("configs/pretrain/gpt2_small.yaml", changes)
    run.check(config, data, tmp_path / "out", evaluate=False, init=init)


def test_a_model_without_a_mask_token_is_refused(tmp_path, shards):
    words = small.tokenizer_folder(tmp_path / "tokenizer")
    pieces = (words / "vocab.txt").read_text().replace("[MASK]", "[OTHER]")
    (words / "vocab.txt").write_text(pieces)
    configs.save(small.config(**BARE), tmp_path / "config.yaml")
    with pytest.raises(UserError, match="tokenizer has no mask token: name one .mask_token in "):
        settings.of_shards(shards, tmp_path, report=len)


def test_a_discriminator_without_its_generator_is_refused(tmp_path, shards):
    own = small.config(**systems.SYSTEMS["electra"])
    alone = dataclasses.replace(own, objectives=own.objectives[1:], segments=None, corruption=None)
    configs.save(alone, tmp_path / "config.yaml")
    with pytest.raises(UserError, match="and no generator: convert it again with the folder of"):
        settings.of_shards(shards, tmp_path, report=len)


def test_shards_of_another_tokenizer_are_refused(tmp_path, bare):
    """With the command that builds them with the tokenizer of the model."""
    own = small.config(**TEXT)
    data = small.shard_folder(tmp_path / "shards", own)
    content = manifest.read(data)
    other = tokenizers.load(small.tokenizer_folder(tmp_path / "other", small.WORDS[:9]))
    shutil.rmtree(data / "tokenizer")
    other.save(data / "tokenizer")
    changed = dataclasses.replace(
        content, tokenizer=other.files, tokenizer_fingerprint=other.fingerprint
    )
    manifest.write(data, changed)
    config = settings.of_shards(data, bare, report=len)
    with pytest.raises(UserError) as caught:
        run.check(config, data, tmp_path / "out", evaluate=False, init=bare)
    assert (
        f"python -m tfrecords_tools.build_shards --config=configs/pretrain/continued.yaml "
        f"--input=TEXT --tokenizer={bare}/tokenizer --output=NEW"
    ) in str(caught.value)


@pytest.mark.slow
@pytest.mark.long
def test_a_model_with_new_words_goes_on(tmp_path, bare):
    """By the commands: the loss falls, a run that goes on has the same bits, the folder encodes."""
    words = ["tadakobu", "kobutada", "gilope"]
    (tmp_path / "words.txt").write_text("\n".join(words) + "\n")
    documents = small.documents(60)
    for number, document in enumerate(documents):
        document[0] += f" tada {words[number % 3]} kobu {words[number % 3]}"
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join("\n".join(document) for document in documents) + "\n")
    grown = tmp_path / "grown"
    commands.run(
        "official.commands.extend_vocabulary", f"--model_dir={bare}", f"--output={grown}",
        f"--words={tmp_path / 'words.txt'}", status=0,
    )  # fmt: skip
    commands.run(
        "tfrecords_tools.build_shards", f"--config={continued.CONFIG}", f"--input={text}",
        f"--tokenizer={grown / 'tokenizer'}", f"--output={tmp_path / 'shards'}",
        "--override=segments.max_length=32", status=0,
    )  # fmt: skip
    options = ["--override=recipe.steps=60", "--override=recipe.save_every=30",
               "--override=recipe.report_every=20"]  # fmt: skip
    command = ["official.commands.garden", "train", f"--data={tmp_path / 'shards'}",
               f"--init={grown}", *options]  # fmt: skip
    said = commands.run(*command, f"--model_dir={tmp_path / 'whole'}", status=0).stdout
    assert "settings of configs/pretrain/continued.yaml: masked_lm (as " in said
    assert "60 steps of 32 rows are " in said
    losses = [each.metrics["loss"] for each in metrics_log.read(tmp_path / "whole")]
    assert len(losses) == 3 and losses[2] < losses[0] - 0.1
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    shutil.rmtree(checkpoints.find(tmp_path / "again", "last"))
    assert checkpoints.last_step(tmp_path / "again") == 30
    said = commands.run(*command, f"--model_dir={tmp_path / 'again'}", status=0).stdout
    assert "going on from step 30" in said
    whole, again = (checkpoints.load(tmp_path / name, "last") for name in ("whole", "again"))
    assert again.step == 60
    for name, value in whole.variables.items():
        np.testing.assert_array_equal(again.variables[name], value, err_msg=name)
    model = official.load(tmp_path / "whole")
    assert [len(ids) for ids in model.tokenizer.encode(words)] == [1, 1, 1]
    vectors = model.encode(["tada tadakobu", "kobu gilope"])
    assert vectors.shape == (2, 16) and np.isfinite(vectors).all()
    table = model_folder.restore(grown)[2].variables_by_path()[
        "encoder/embeddings/token_embedding/table"
    ]
    assert not np.array_equal(
        whole.variables["encoder/embeddings/token_embedding/table"], table.numpy()
    )


def test_an_evaluation_without_held_out_text_is_refused(tmp_path, bare, shards):
    """With the flags of both commands that train without one."""
    config = settings.of_shards(shards, bare, report=len)
    message = "or train without evaluation .garden train --evaluate=false, or .* --mode=train"
    with pytest.raises(UserError, match=message):
        run.check(config, shards, tmp_path / "out", evaluate=True, init=bare)
