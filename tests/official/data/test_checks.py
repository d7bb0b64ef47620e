"""What is said of shards that lack what a config reads: what is wrong, a key, and a command."""

import dataclasses

import pytest

from official import config as configs
from official import data
from official.config.compatibility import check_vocabulary
from official.data import checks
from official.shards import manifest
from official.tasks.task import Description
from official.utils.errors import UserError
from tests import small, systems

MASKED = [{"type": "masked_lm"}]
SENTENCES = {"segments__format": "full_sentences", "objectives": MASKED}


def command(shards, source="CONFIG"):
    return (
        f"python -m tfrecords_tools.build_shards --config={source} --input=TEXT "
        f"--tokenizer={shards}/tokenizer --output=NEW"
    )


def again(shards):
    return f"make the shards again with the config of this run ({command(shards)})"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("checks")


@pytest.fixture(scope="module")
def sentences(folder):
    return small.shard_folder(folder / "sentences", small.config(**SENTENCES))


@pytest.fixture(scope="module")
def packed(folder):
    changes = {"segments__packing": 3, "segments__row_length": 40}
    return small.shard_folder(folder / "packed", small.config(**SENTENCES, **changes))


@pytest.fixture(scope="module")
def task(folder, sentences):
    """Shards of a task, as far as their manifest says."""
    content = manifest.read(sentences)
    description = Description(
        "films", "classification", labels=("bad", "good"), metrics=("accuracy",)
    )
    content = dataclasses.replace(
        content, kind="task", task=description, config=manifest.TaskSettings(),
        totals=manifest.TaskTotals(),
    )  # fmt: skip
    target = folder / "task"
    target.mkdir()
    for path in sentences.iterdir():
        (target / path.name).symlink_to(path)
    (target / manifest.FILE).unlink()
    manifest.write(target, content)
    return target


def said(shards, config):
    """The message of the first check that fails, of a run that trains."""
    with pytest.raises(UserError) as caught:
        source = data.ShardDataset(shards, config, training=True)
        source.check(configs.ResolvedConfig.of(config))
    return str(caught.value)


def test_the_command_names_the_config_of_the_run():
    published = configs.load("configs/pretrain/roberta_mini.yaml")
    name = "configs/pretrain/roberta_mini.yaml"
    assert checks.build_command(published, "T") == (
        f"python -m tfrecords_tools.build_shards --config={name} --input=TEXT --tokenizer=T "
        "--output=NEW"
    )
    phase = configs.phases(configs.load("configs/pretrain/bert_base_phases.yaml"))[0]
    assert "--config=configs/pretrain/bert_base_phases.yaml --phase=1 --input" in (
        checks.build_command(phase, "T")
    )
    tuned = configs.load("configs/finetune/sst2.yaml")
    assert checks.build_command(tuned, "T") == (
        "python -m tfrecords_tools.build_task_shards ... --tokenizer=T"
    )


def test_a_label_of_pairs(sentences):
    assert said(sentences, small.config()) == (
        f"{sentences} has no next_sentence_label (segments.format: full_sentences, relation: "
        f"none), which the objective sentence_pair reads: {again(sentences)}, or train without "
        "it: --override='objectives=[{type: masked_lm}]'"
    )


def test_the_way_out_of_a_label_trains(sentences):
    config = small.config(objectives=MASKED)
    source = data.ShardDataset(sentences, config, training=True)
    source.check(configs.ResolvedConfig.of(config))


def test_packed_rows(sentences, packed):
    changes = {"segments__packing": 3, "segments__row_length": 40}
    assert said(sentences, small.config(**SENTENCES, **changes)) == (
        f"{sentences} has one example in a row, and the config says segments.packing: 3: "
        f"{again(sentences)}, or read them as they are with --override=segments.packing=1 "
        "--override=segments.row_length=null"
    )
    assert said(packed, small.config(**SENTENCES)) == (
        f"{packed} has several examples in a row, and the config says segments.packing: 1: "
        f"{again(packed)}, or read them as they are with --override=segments.packing=3 "
        "--override=segments.row_length=40"
    )
    data.ShardDataset(packed, small.config(**SENTENCES, **changes), training=True)


def test_another_format(sentences):
    assert said(sentences, small.config(**systems.T5)) == (
        f"{sentences} has shards of segments.format: full_sentences, and the config says joined: "
        f"{again(sentences)}, or name a config with this format"
    )
    assert said(sentences, small.config(**systems.XLNET_STREAM)) == (
        f"{sentences} has shards of single rows, with segments.format: full_sentences, and the "
        f"config says stream: {again(sentences)}, or name a config for such shards"
    )


def test_rows_of_another_length(tmp_path):
    shards = small.shard_folder(tmp_path / "shards", small.config(**systems.T5))
    longer = small.config(**systems.T5 | {"segments": {"format": "joined", "max_length": 48}})
    raw = manifest.read(shards).max_length
    assert said(shards, longer) == (
        f"{shards} has rows of {raw} raw tokens, and corruption.type: sentinels needs "
        f"{longer.corruption.row_length(48)} for segments.max_length: 48: {again(shards)}"
    )


def test_static_masks(tmp_path, sentences):
    static = small.config(**SENTENCES, segments__static_masks=True)
    assert said(sentences, static) == (
        f"{sentences} has no static masks, and the config says segments.static_masks: true: "
        f"{again(sentences)}, or read them as they are with --override=segments.static_masks=false"
    )
    shards = small.shard_folder(tmp_path / "shards", static)
    fewer = small.config(**SENTENCES, segments__static_masks=True, corruption__max_predictions=4)
    assert said(shards, fewer).endswith(
        "so take the same number, by --override=corruption.max_predictions=5"
    )


def test_a_lexicon(sentences):
    assert said(sentences, small.config(**SENTENCES, corruption__unit="phrase")) == (
        f"{sentences} has no phrase_inner, which corruption.unit: phrase needs: make shards with "
        f"a lexicon ({command(sentences)} --phrases=FILE), or hide other units: "
        "--override=corruption.unit=word"
    )


def test_too_few_positions(sentences):
    small_one = small.config(**SENTENCES, segments__max_length=16, encoder__max_positions=16)
    assert said(sentences, small_one).endswith(
        "the encoder has positions for 16 (encoder.max_positions): make the shards again with "
        "--override=segments.max_length=16 or less, or take an encoder with more positions"
    )


def test_shards_of_a_task_for_pretraining(task):
    for config in (small.config(), small.config(**systems.T5)):
        assert (
            "these are the shards of the task films, and the config learns from text: make "
            f"shards of text ({command(task)}), or name the config of a task"
        ) in said(task, config)


def test_shards_of_text_for_a_task(sentences):
    config = small.config(
        segments=None,
        corruption=None,
        objectives=[{"type": "classification", "labels": ["a", "b"]}],
    )
    assert said(sentences, config) == (
        f"{sentences} has shards of text, and the objective classification learns label of a "
        "task: name the shards of a task (tfrecords_tools.build_task_shards makes them), or a "
        "config of pretraining"
    )


def test_a_table_with_too_few_rows():
    config = small.config(encoder__vocab_size=9)
    with pytest.raises(UserError, match="give --override=encoder.vocab_size=null for as many "):
        check_vocabulary(config.encoder, 10)
    check_vocabulary(dataclasses.replace(config.encoder, vocab_size=None), 10)
