"""Each system's smoke config, from text to a trained model; one by the commands of a user."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (its ops are in the model)

from official import config as configs
from official import training
from official.distribution import numerics
from official.modeling import weight_counts
from official.saving import checkpoints, metrics_log
from official.serving.export import saved_model
from official.training import run
from tests import CONFIGS, commands, small, xla
from tfrecords_tools.pretraining import builder
from tfrecords_tools.pretraining.settings import Settings
from tfrecords_tools.vocabulary import builder as vocabulary

# Kind, size and sentinels of the vocabulary.
SYSTEMS = {
    "bert": ("wordpiece", 150, 0),
    "bert_demo": ("wordpiece", 150, 0),
    "ernie": ("wordpiece", 150, 0),
    "roberta": ("byte_bpe", 350, 0),
    "modernbert": ("byte_bpe", 350, 0),
    "eurobert": ("byte_bpe", 350, 0),
    "spanbert": ("wordpiece", 150, 0),
    "albert": ("unigram", 100, 0),
    "gpt2": ("byte_bpe", 350, 0),
    "electra": ("wordpiece", 150, 0),
    "deberta_v3": ("unigram", 100, 0),
    "xlnet": ("unigram", 100, 0),
    "transformer_xl": ("unigram", 100, 0),
    "t5": ("unigram", 100, 20),
    "elmo": ("words", 100, 0),
}
# A SavedModel of each kind of tokenizer and encoder; that of a BERT with WordPiece is ERNIE's.
EXPORTED = ("gpt2", "xlnet", "t5", "elmo")


def write_text(path, count):
    """Documents in which two words often go together."""
    documents = small.documents(count)
    for document in documents:
        document[0] += " tada kobu"
    path.write_text("\n\n".join("\n".join(document) for document in documents))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of the text, and of the vocabularies by their kinds."""
    folder = tmp_path_factory.mktemp("text")
    write_text(folder / "text.txt", 120)
    (folder / "phrases.txt").write_text("tada kobu\n")
    return folder


def assert_serves(saved):
    serve = tf.saved_model.load(str(saved)).signatures["serving_default"]
    answers = serve(text=tf.constant(["tada kobu", "ba be bi"]))
    # The encoder-decoder answers with texts too.
    numbers = [value for value in answers.values() if value.dtype != tf.string]
    assert numbers and all(np.isfinite(value).all() for value in numbers)


def data_of(folder, name, shards):
    """Builds the shards of a system; returns its config and them."""
    kind, size, sentinels = SYSTEMS[name]
    tokenizer = folder / f"{kind}-{sentinels}"
    if not tokenizer.exists():
        vocabulary.build(str(folder / "text.txt"), tokenizer, kind, size, sentinels=sentinels)
    config = configs.load(CONFIGS / "smoke" / f"{name}.yaml", ["recipe.steps=2"])
    phrases = folder / "phrases.txt" if name == "ernie" else None
    settings = Settings.from_config(config, tokenizer, phrases=phrases)
    builder.build(settings, str(folder / "text.txt"), shards, report=lambda line: None)
    return config, shards


@xla.NEEDS_LIBTPU
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.xla
@pytest.mark.parametrize("name", SYSTEMS)
def test_the_compiler_of_tpus_takes_the_step(folder, tmp_path, monkeypatch, name):
    """With the optimizer, for four cores of a TPU v5e, whose gradients are summed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    config, shards = data_of(folder, name, tmp_path / "shards")
    try:
        [(resolved, found)] = run.estimate_tpu_memory(config, shards, "v5e:2x2")
    finally:
        numerics.set_precision("float32")
    assert found.program.refused is None
    assert found.program.arguments > 4 * weight_counts.count(resolved).total


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.xla
@pytest.mark.parametrize("name", SYSTEMS)
def test_from_text_to_a_trained_model(folder, tmp_path, monkeypatch, name):
    """Two steps; the model is evaluated and, of some systems, exported.

    XLA takes the whole step of training, with the optimizer, as a TPU does.
    """
    modules = xla.lower_whole_steps(monkeypatch)
    config, shards = data_of(folder, name, tmp_path / "shards")
    assert config.name == (name if name == "bert_demo" else f"smoke_{name}")
    model = tmp_path / "model"
    training.train(config, shards, model, validation_data=[shards], report=lambda line: None)
    assert len(modules) == 1 and "ENTRY" in modules[0]
    splits = {read.split: read for read in metrics_log.read(model)}
    assert splits.keys() == {"train", "validation"} and checkpoints.last_step(model) == 2
    assert all(np.isfinite(read.metrics["loss"]) for read in splits.values())
    if name in EXPORTED:
        saved_model.export(model, tmp_path / "saved")
        assert_serves(tmp_path / "saved")


@pytest.mark.slow
def test_by_commands(folder, tmp_path):
    """The commands that a user types, all twenty steps: ERNIE, which needs a lexicon as well."""
    settings, text = "--config=configs/smoke/ernie.yaml", f"--input={folder}/text.txt"
    tokenizer, phrases, shards, model, saved = (
        tmp_path / name for name in ("tokenizer", "phrases", "shards", "model", "saved")
    )
    for command in (
        ("tfrecords_tools.build_vocab", text, f"--output={tokenizer}", "--type=wordpiece",
         "--vocab_size=150"),
        ("tfrecords_tools.build_phrases", text, f"--output={phrases}"),
        ("tfrecords_tools.build_shards", settings, text, f"--tokenizer={tokenizer}",
         f"--output={shards}", f"--phrases={phrases}", "--workers=1"),
        ("official.main", "--mode=train_and_eval", settings, f"--data={shards}",
         f"--validation_data={shards}", f"--model_dir={model}"),
        ("official.export", f"--model_dir={model}", f"--output={saved}"),
    ):  # fmt: skip
        commands.run(*command, status=0)
    assert_serves(saved)
    assert configs.load(model).name == "smoke_ernie"
